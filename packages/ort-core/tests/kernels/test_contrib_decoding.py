"""com.microsoft operators of onnxruntime 1.32: beside its CPU kernels where it has them, else beside their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from one_node import Array, model_of, normal, run, sigmoid

import ort_core as ort

FLOAT, INT32 = 1, 6


@pytest.mark.parametrize(
    "groups",
    [
        {"top_k": 2},
        {"top_k": 4, "n_group": 4, "topk_group": 2},
        {"top_k": 3, "n_group": 2, "topk_group": 1, "group_topk": 9},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 8), (0, 8)])
def test_the_router_of_groups_chooses_as_onnxruntime(shape: tuple[int, ...], groups: dict[str, int]) -> None:
    inputs = {"logits": np.round(normal(*shape), 1), "bias": normal(8, seed=1) / 4}
    content = model_of("MoEGroupRouter", inputs, (FLOAT,), router_sentinel=-77.0, **groups)
    expected = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, inputs)
    for provider in ("CPU", "Reference"):
        found = ort.InferenceSession(content, providers=[f"{provider}ExecutionProvider"]).run(None, inputs)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("width", [0, 256])
def test_the_router_gives_all_scores(width: int) -> None:
    inputs = {"logits": normal(5, width or 8), "bias": normal(8, seed=1)}
    if width:
        inputs["projection"] = normal(8, width, seed=2) / 16
    scores, shares = run("MoEGroupRouter", inputs, (0, FLOAT, FLOAT), top_k=2)
    logits = inputs["logits"].astype(np.float64)
    expected = sigmoid(logits @ inputs["projection"].T.astype(np.float64) if width else logits)
    np.testing.assert_allclose(shares, expected, rtol=1e-4)
    np.testing.assert_allclose(scores, expected + inputs["bias"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("groups", [{"n_group": 3}, {"topk_group": 2}, {"top_k": 9}, {"group_topk": 0}], ids=str)
def test_groups_that_do_not_fit_the_experts_are_refused(groups: dict[str, int]) -> None:
    inputs = {"logits": normal(5, 8), "bias": normal(8)}
    content = model_of("MoEGroupRouter", inputs, (FLOAT,), **{"top_k": 2, **groups})
    for module in (onnxruntime, ort):
        with pytest.raises(Exception, match=r"group|top_k|experts"):
            module.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, inputs)


@pytest.mark.parametrize("limit", [0.0, 0.8])
@pytest.mark.parametrize("joined", [False, True])
def test_clamped_swiglu(limit: float, joined: bool) -> None:
    gate, up = normal(4, 6) * 3, normal(4, 6, seed=1) * 3
    inputs = {"gate": np.concatenate([gate, up], 1)} if joined else {"gate": gate, "up": up}
    found = run("SwiGLU", inputs, (FLOAT,), activation_alpha=1.7, activation_beta=1.0, limit=limit)[0]
    g, linear = gate.astype(np.float64), up.astype(np.float64)
    if limit:
        g, linear = np.minimum(g, limit), np.clip(linear, -limit, limit)
    np.testing.assert_allclose(found, g * sigmoid(1.7 * g) * (linear + 1), rtol=1e-5)


def test_the_first_projection_of_experts_splits_into_router_and_swiglu() -> None:
    x, w = (normal(2, 3, 8).astype(np.float16), normal(8, 4 + 2 * 5, seed=1).astype(np.float16))
    router, activated = run("RouterGateUpProj", {"x": x, "w": w}, (10, 10), router_size=4)
    product = (x.astype(np.float64) @ w.astype(np.float64)).astype(np.float16)
    np.testing.assert_allclose(router, product[..., :4], rtol=2e-3, atol=2e-3)
    gate, up = product[..., 4:9].astype(np.float64), product[..., 9:].astype(np.float64)
    np.testing.assert_allclose(activated, gate * sigmoid(gate) * up, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("has_previous", [False, True])
def test_a_block_of_streams_with_a_gate_of_low_rank(has_previous: bool) -> None:
    branches, width, rank = 3, 4, 5
    flat = branches * width
    inputs = {
        "streams": normal(2, 6, flat), "scale": normal(flat, seed=1), "down": normal(flat, rank, seed=2),
        "up": normal(rank, flat, seed=3), "inject": normal(flat, branches, seed=4),
    }  # fmt: skip
    if has_previous:
        inputs |= {"block": normal(2, 6, width, seed=5), "gate": normal(2, 6, branches, seed=6)}
    given = {"num_branches": branches, "gate_div": 2.0, "gate_mul": 1.5, "reduction_scale": 0.5, "silu_alpha": 1.2}
    pre, post, out = run("HyperConnectionLowRankMix", inputs, (FLOAT, FLOAT, FLOAT), **given)
    wide = {name: array.astype(np.float64) for name, array in inputs.items()}
    streams = wide["streams"].reshape(2, 6, branches, width)
    if has_previous:
        streams = streams + wide["gate"][..., None] * wide["block"][..., None, :]
    root = np.sqrt(np.square(streams).mean(-1, keepdims=True) + 1e-5)
    normed = streams / root * wide["scale"].reshape(branches, width)
    rows = normed.reshape(2, 6, flat)
    z = 1.2 * (rows @ wide["down"])
    gates = sigmoid(z * sigmoid(z) @ wide["up"]).reshape(streams.shape)
    np.testing.assert_allclose(out, streams.reshape(2, 6, flat), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(pre, 0.5 * (normed * gates).sum(-2), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(post, 1.5 * sigmoid(rows @ wide["inject"] / 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kept", [0, 1, 3, 5])
def test_a_history_is_taken_up_behind_the_kept_inputs(kept: int) -> None:
    batch, channels, width, capacity = 2, 3, 4, 5
    source, capture, destination = normal(30), normal(40, seed=1), normal(33, seed=2)
    metadata = np.array([8, 12, 16, batch, channels, width, capacity, kept], np.int64)
    inputs = {"s": source, "c": capture, "d": destination, "m": metadata}
    found = run("ConvStateReplay", inputs, (FLOAT,))[0]
    expected = destination.copy()
    for b in range(batch):
        for c in range(channels):
            for p in range(width):
                past = source[2 + (b * channels + c) * width + p + kept] if p + kept < width else None
                at = 4 + (b * capacity + p + kept - width) * channels + c
                expected[3 + (b * channels + c) * width + p] = capture[at] if past is None else past
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("per_key", [False, True])
def test_a_state_is_taken_up_behind_the_kept_transitions(per_key: bool) -> None:
    heads, depth, width, key_heads, capacity, kept = 4, 3, 2, 2, 5, 3
    decays = capacity * heads * (width if per_key else 1)
    key_at = 1 + decays
    delta_at = key_at + capacity * key_heads * width
    capsule = normal(delta_at + capacity * heads * depth) / 2
    source, destination = normal(50, seed=1), normal(40, seed=2)
    facts = [3, 5, 1, key_at, delta_at, heads, depth, width, key_heads, capacity, kept]
    inputs = {"s": source, "c": capsule, "d": destination, "m": np.array(facts, np.int64)}
    found = run("GatedDeltaNetStateReplay", inputs, (FLOAT,))[0]
    decay = capsule[1:key_at].reshape(capacity, heads, -1)
    keys = capsule[key_at:delta_at].reshape(capacity, key_heads, width)
    delta = capsule[delta_at:].reshape(capacity, heads, depth)
    expected = destination.copy()
    for h in range(heads):
        for v in range(depth):
            for i in range(width):
                place = (h * depth + v) * width + i
                state = float(source[3 + place])
                for t in range(kept):
                    state = (
                        state * decay[t, h, i if per_key else 0] + keys[t, h * key_heads // heads, i] * delta[t, h, v]
                    )
                expected[5 + place] = state
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("op_type", "count"), [("ConvStateReplay", 8), ("GatedDeltaNetStateReplay", 11)])
def test_a_state_outside_its_backing_is_refused(op_type: str, count: int) -> None:
    for value in (-1, 1, 100):
        facts = np.full(count, value, np.int64)
        facts[0] = facts[1] = 4 * 90
        inputs = {"s": normal(20), "c": normal(20), "d": normal(20), "m": facts}
        with pytest.raises(ort.errors.OrtError, match=op_type):
            run(op_type, inputs, (FLOAT,))


def test_selections_are_joined_and_each_index_stands_once() -> None:
    base = np.array([[4, 2, 9, -1], [7, 7, 1, 5]], np.int32)
    shared = {"base": base, "counts": np.array([3, 4], np.int32), "rows": np.array([1, 0, 5, 0, 0], np.int32)}
    starts, ends = np.array([5, 0, 0, 3, 2], np.int32), np.array([7, 0, 1, 1, 9], np.int32)
    inputs = {**shared, "starts": starts, "ends": ends}
    found = run(
        "PackedSparseAttentionIndexerMerge", inputs, (INT32,) * 3, max_output_entries=5, policy_mode="append_range"
    )
    selected, counts, status = found
    assert selected.tolist() == [[7, 1, 5, 6, -1], [4, 2, 9, -1, -1], *([[-1] * 5] * 3)]
    assert counts.tolist() == [4, 3, 0, 0, 0]
    assert status.tolist() == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("adapter", ["both", "none", "up"])
def test_a_product_of_packed_weights_with_an_adapter(adapter: str) -> None:
    rows, k, n, rank = 3, 20, 5, 6
    rng = np.random.default_rng(0)

    def packed(count: int, width: int, block: int, bits: int) -> tuple[Array, Array, Array]:
        blocks = -(-width // block)
        codes = rng.integers(0, 1 << bits, (count, blocks, block)).astype(np.uint8)
        scales = rng.uniform(0.1, 0.3, (count, blocks)).astype(np.float32)
        nbytes = codes if bits == 8 else codes[..., ::2] | codes[..., 1::2] << 4
        real = (codes.astype(np.float64) - (1 << bits - 1)) * scales[..., None]
        return nbytes, scales, real.reshape(count, -1)[:, :width]

    w, w_scales, base = packed(n, k, 16, 4)
    a, a_scales, down = packed(rank, k, 16, 8)
    b, b_scales, up = packed(n, rank, 16, 8)
    x = normal(rows, k)
    inputs = {
        "x": x, "w": w, "ws": w_scales, "a": a[:0] if adapter in ("none", "up") else a, "as": a_scales,
        "b": b[:, :0] if adapter == "none" else b, "bs": b_scales,
    }  # fmt: skip
    given = {"K": k, "N": n, "bits": 4, "block_size": 16, "lora_bits": 8, "lora_block_size": 16}
    found = run("MatMulNBitsQLoRA", inputs, (FLOAT,), **given)[0]
    added = x @ down.T @ up.T if adapter == "both" else 0
    np.testing.assert_allclose(found, x @ base.T + added, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("late", [0, 1])
def test_experts_clamp_the_gate_or_the_activated_gate(late: int) -> None:
    x, probabilities = normal(3, 4), normal(3, 2, seed=1)
    first, second = normal(2, 10, 4, seed=2), normal(2, 4, 5, seed=3)
    inputs = {"x": x, "p": probabilities, "w1": first, "b1": np.zeros((2, 10), np.float32), "w2": second}
    given = {"activation_type": "swiglu", "swiglu_fusion": 1, "swiglu_limit": 0.5, "k": 1}
    found = run("MoE", inputs, (FLOAT,), normalize_routing_weights=1, swiglu_limit_after_activation=late, **given)[0]
    for row in range(3):
        expert = int(probabilities[row].argmax())
        hidden = first[expert].astype(np.float64) @ x[row]
        gate, linear = hidden[::2], np.clip(hidden[1::2], -0.5, 0.5)
        active = np.minimum(gate * sigmoid(gate), 0.5)
        limited = np.minimum(gate, 0.5)
        active = active if late else limited * sigmoid(limited)
        np.testing.assert_allclose(found[row], second[expert] @ (active * linear), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 5, 6), (2, 5, 2, 3)])
def test_causal_convolution_of_channels_last_in_several_axes(shape: tuple[int, ...]) -> None:
    inputs = {"x": normal(*shape), "w": normal(6, 1, 3, seed=1), "b": normal(6, seed=2)}
    content = model_of("CausalConvWithState", inputs, (FLOAT, FLOAT), channels_last=1, state_length=0)
    expected = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, inputs)
    for provider in ("CPU", "Reference"):
        found = ort.InferenceSession(content, providers=[f"{provider}ExecutionProvider"]).run(None, inputs)
        for left, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)


WINDOWED: dict[str, tuple[dict[str, Array], dict[str, Any], tuple[int, ...], tuple[str, ...], int]] = {
    # inputs, attributes, shape of a state, inputs that have steps, the axis of these
    "CausalConvWithState": (
        {"x": normal(2, 4, 5), "w": normal(4, 1, 3, seed=1), "b": normal(4, seed=2)}, {}, (2, 4, 2), ("x",), 2,
    ),
    "LinearAttention": (
        {"q": normal(2, 5, 16), "k": normal(2, 5, 8, seed=1), "v": normal(2, 5, 12, seed=2)},
        {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": "linear"}, (2, 2, 4, 6), ("q", "k", "v"), 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("window", [1, 3, 7])
@pytest.mark.parametrize("op_type", WINDOWED)
def test_a_window_of_states_holds_what_shorter_runs_end_with(op_type: str, window: int, provider: str) -> None:
    inputs, attributes, shape, stepping, axis = WINDOWED[op_type]
    state = normal(*shape, seed=3)
    windowed = np.concatenate([np.full((window - 1, *shape), np.nan, np.float32), state[None]])
    content = model_of(op_type, {**inputs, "past": windowed}, (FLOAT, FLOAT), state_window=window, **attributes)
    found = ort.InferenceSession(content, providers=[provider]).run(None, {**inputs, "past": windowed})
    one = model_of(op_type, {**inputs, "past": state}, (FLOAT, FLOAT), **attributes)
    session = onnxruntime.InferenceSession(one, providers=["CPUExecutionProvider"])
    assert found[1].shape == windowed.shape
    for slot in range(window):
        steps = 5 - window + 1 + slot
        if steps < 1:
            assert not found[1][slot].any(), "a step of an earlier run is none of this one"
            continue
        shorter = {
            name: array.take(range(steps), axis) if name in stepping else array for name, array in inputs.items()
        }
        expected = session.run(None, {**shorter, "past": state})
        np.testing.assert_allclose(found[1][slot], expected[1], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[0].take(range(steps), axis), expected[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "epsilons", [{}, {"q_norm_epsilon": 0.5}, {"q_norm_epsilon": 0.5, "k_norm_epsilon": 2.0}], ids=str
)
def test_heads_of_queries_and_keys_are_normalized_with_their_own_epsilons(epsilons: dict[str, float]) -> None:
    query, key, value = (normal(1, 2, 16, seed=seed) for seed in range(3))
    lengths, total = np.array([1], np.int32), np.array([2], np.int32)
    scales = normal(8, seed=3), normal(8, seed=4)
    given = {"num_heads": 2, "kv_num_heads": 2}
    names = ["q", "k", "v", "", "", "lengths", "total", *[""] * 7, "qs", "ks"]
    inputs = {"q": query, "k": key, "v": value, "lengths": lengths, "total": total, "qs": scales[0], "ks": scales[1]}
    content = model_of("GroupQueryAttention", inputs, (FLOAT, 0, 0), **given, qk_norm_epsilon=0.25, **epsilons)
    model = onnx.load_model_from_string(content)
    del model.graph.node[0].input[:]
    model.graph.node[0].input.extend(names)
    found = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)[0]

    def normed(x: Array, scale: Array, name: str) -> Array:
        heads = x.reshape(2, 2, 8).astype(np.float64)
        root = np.sqrt(np.square(heads).mean(-1, keepdims=True) + epsilons.get(name, 0.25))
        return heads / root * scale

    q, k = normed(query, scales[0], "q_norm_epsilon"), normed(key, scales[1], "k_norm_epsilon")
    scores = np.exp(np.einsum("ihd,jhd->hij", q, k) / np.sqrt(8)) * np.tri(2)
    weights = scores / scores.sum(-1, keepdims=True)
    expected = np.einsum("hij,jhd->ihd", weights, value.reshape(2, 2, 8)).reshape(1, 2, 16)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


DELTA_CASES: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({}, ()),
    ({"update_rule": "linear"}, ()),
    ({"update_rule": "gated", "scale": 0.7}, ()),
    ({"update_rule": "delta", "beta_activation": "sigmoid"}, ()),
    ({"gate_activation": "softplus"}, ()),
    ({"gate_activation": "sigmoid", "gate_lower_bound": -2.0}, ("wide",)),
    ({}, ("wide", "ragged")),
    ({}, ("packed",)),
    ({"update_rule": "delta"}, ("tiny",)),
    ({"state_update_capacity": 3}, ("captured",)),
    ({"state_update_capacity": 3}, ("captured", "wide", "ragged")),
]


@pytest.mark.parametrize(("given", "forms"), DELTA_CASES, ids=str)
def test_a_gated_delta_network_gives_what_onnxruntime_gives(given: dict[str, Any], forms: tuple[str, ...]) -> None:
    tokens, heads, own, width, depth = 10, 4, 2, 8, 6
    q, k, v = normal(tokens, own, width), normal(tokens, own, width, seed=1), normal(tokens, heads, depth, seed=2)
    if "tiny" in forms:  # as small as what is added to the squares below a head's norm
        q, k = q * np.float32(1e-6), k * np.float32(1e-3)
    batch = 3 if "ragged" in forms else 2
    decay = -np.abs(normal(tokens, heads, *((width,) if "wide" in forms else ()), seed=3))
    inputs: dict[str, Array | None] = {
        "q": q, "k": k, "v": v, "offsets": np.array([0, 2, 3, 10], np.int32) if "ragged" in forms else None,
        "decay": decay, "beta": np.abs(normal(tokens, heads, seed=4)) / 2,
        "state": normal(batch, heads, depth, width, seed=5), "a_log": normal(heads, seed=6) / 4,
        "bias": normal(heads, seed=7), "count": np.array([2, 9, 1][:batch], np.int32) if "captured" in forms else None,
    }  # fmt: skip
    rule = given.get("update_rule", "gated_delta")
    unused = [name for name, word in (("decay", "gated"), ("beta", "delta")) if word not in rule]
    inputs |= dict.fromkeys([*unused, *(() if "gate_activation" in given else ("a_log", "bias"))])
    if "packed" in forms:
        packed = np.concatenate([each.reshape(tokens, -1) for each in (q, k, v)], axis=1)
        inputs |= {"q": packed, "k": None, "v": None}
    fed = {name: array for name, array in inputs.items() if array is not None}
    kinds = (FLOAT, FLOAT, FLOAT) if "captured" in forms else (FLOAT, FLOAT)
    model = onnx.load_model_from_string(model_of("GatedDeltaNet", fed, kinds, qk_l2_norm=1, **given))
    del model.graph.node[0].input[:]
    model.graph.node[0].input.extend(name if name in fed else "" for name in inputs)
    content = model.SerializeToString()
    expected = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, fed)
    found = ort.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, fed)
    for left, right in zip(found[:2], expected[:2], strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-4)
    for request in range(batch if "captured" in forms else 0):
        lengths = [2, 1, 7] if "ragged" in forms else [5, 5]
        kept = min(int(inputs["count"][request]), 3, lengths[request])
        start = 0
        for size in (decay[0].size, own * width, heads * depth):
            part = slice(start, start + kept * size)  # what is behind the captured ones is unspecified
            np.testing.assert_allclose(found[2][request, part], expected[2][request, part], rtol=1e-3, atol=1e-4)
            start += 3 * size


def test_a_gate_of_an_addition_may_be_projected() -> None:
    x, y, gate, weight = normal(2, 3, 4), normal(2, 3, 4, seed=1), normal(2, 3, 5, seed=2), normal(5, 1, seed=3)
    found = run("GatedAdd", {"x": x, "y": y, "gate": gate, "weight": weight}, (FLOAT,))[0]
    np.testing.assert_allclose(found, x + y * sigmoid(gate.astype(np.float64) @ weight), rtol=1e-5, atol=1e-6)
