"""Attention operators by compiled programs against the reference kernels, over lengths known only at run time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper
from test_groups import agrees, model_of, run, session

import ort_core as ort
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target
from ort_core.cpu.codegen.products.bfloat16_tiles import has_tile_products
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.partition import partition as cpu_partition
from ort_core.errors import NodeFailed

FLOAT, INT64, INT32, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL
Feeds = dict[str, np.ndarray]


def node(
    op_type: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attributes: object
) -> NodeProto:
    return helper.make_node(op_type, list(inputs), list(outputs), domain=domain, **attributes)


def is_native(partitions: Sequence[cpu_partition.CpuPartition]) -> bool:
    return all(not each.refusals and len(each.native_programs) == 1 for each in partitions)


def random(seed: int, **shapes: Sequence[int]) -> Feeds:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


MULTI_HEAD = {
    "plain": {},
    "causal": {"unidirectional": 1},
    "scaled": {"scale": 0.2},
}


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("variant", list(MULTI_HEAD))
def test_multi_head_attention_is_the_references(
    variant: str, masked: bool, past: bool, partitions: list[cpu_partition.CpuPartition]
) -> None:
    inputs: dict[str, tuple[int, Sequence[int | str]]] = {
        "q": (FLOAT, ["B", "S", 24]), "k": (FLOAT, ["B", "S", 24]), "v": (FLOAT, ["B", "S", 36]),
    }  # fmt: skip
    names = ["q", "k", "v", "", "", "mask" if masked else "", "pk" if past else "", "pv" if past else ""]
    if masked:
        inputs["mask"] = (FLOAT, [1, 1, "S", "T"])
    if past:
        inputs |= {"pk": (FLOAT, ["B", 3, "P", 8]), "pv": (FLOAT, ["B", 3, "P", 12])}
    outputs = ["y", "nk", "nv"] if past else ["y"]
    each = node("MultiHeadAttention", names, outputs, "com.microsoft", num_heads=3, **MULTI_HEAD[variant])
    model = model_of([each], inputs, dict.fromkeys(outputs, FLOAT))
    feeds = []
    for seed, (b, s, p) in enumerate([(1, 1, 4), (2, 5, 0), (2, 17, 300), (0, 3, 2), (1, 40, 1)]):
        t = s + (p if past else 0)
        one = random(seed, q=(b, s, 24), k=(b, s, 24), v=(b, s, 36))
        if masked:
            one["mask"] = np.where(np.random.default_rng(seed).random((1, 1, s, t)) < 0.3, np.float32(-1e4), 0)
            one["mask"] = one["mask"].astype(np.float32)
        if past:
            one |= random(seed + 9, pk=(b, 3, p, 8), pv=(b, 3, p, 12))
        feeds.append(one)
    agrees(model, *feeds)
    assert is_native(partitions)


@pytest.mark.parametrize("packed", [0, 2, 3])
@pytest.mark.parametrize("masks", ["none", "padding", "padding of queries", "padding and addend"])
def test_multi_head_attention_with_bias_and_padding_is_the_references(
    masks: str, packed: int, partitions: list[cpu_partition.CpuPartition]
) -> None:
    layouts: dict[int, dict[str, Sequence[int | str]]] = {
        0: {"q": ["B", "S", 24], "k": ["B", "L", 24], "v": ["B", "L", 36]},
        2: {"q": ["B", "S", 24], "k": ["B", "L", 3, 2, 8]},
        3: {"q": ["B", "S", 3, 3, 8]},
    }
    shapes = layouts[packed] | {"bias": [24 + 24 + (24 if packed else 36)]}
    keys = "S" if packed == 3 else "L"
    inputs = {name: (FLOAT, shape) for name, shape in shapes.items()}
    if masks != "none":
        inputs["padding"] = (INT32, ["B", "S", keys] if masks == "padding of queries" else ["B", keys])
    if masks == "padding and addend":
        inputs["addend"] = (FLOAT, [1, 3, "S", keys])
    names = [name if name in inputs else "" for name in ("q", "k", "v", "bias", "padding", "addend")]
    each = node("MultiHeadAttention", names, ["y"], "com.microsoft", num_heads=3, mask_filter_value=-1000.0)
    model = model_of([each], inputs, {"y": FLOAT})
    feeds = []
    for seed, sizes in enumerate([{"B": 1, "S": 1, "L": 4}, {"B": 2, "S": 5, "L": 3}, {"B": 3, "S": 17, "L": 40}]):
        rng = np.random.default_rng(seed)
        sized = {name: [sizes.get(d, d) for d in shape] for name, (_, shape) in inputs.items()}
        one = random(seed, **{name: shape for name, shape in sized.items() if name != "padding"})
        if "padding" in sized:
            one["padding"] = (rng.random(sized["padding"]) < 0.7).astype(np.int32)
            one["padding"][..., 0] = 1
        feeds.append(one)
    agrees(model, *feeds)
    assert is_native(partitions)


def test_multi_head_attention_over_given_keys_adds_the_bias_to_queries_alone(
    partitions: list[cpu_partition.CpuPartition],
) -> None:
    inputs: dict[str, tuple[int, Sequence[int | str]]] = {
        "q": (FLOAT, ["B", "S", 24]), "k": (FLOAT, ["B", 3, "L", 8]), "v": (FLOAT, ["B", 3, "L", 8]),
        "bias": (FLOAT, [72]),
    }  # fmt: skip
    each = node("MultiHeadAttention", ["q", "k", "v", "bias"], ["y"], "com.microsoft", num_heads=3)
    model = model_of([each], inputs, {"y": FLOAT})
    agrees(model, *(
        random(s, q=(b, s, 24), k=(b, 3, n, 8), v=(b, 3, n, 8), bias=(72,)) for b, s, n in [(1, 1, 4), (2, 5, 3)]
    ))  # fmt: skip
    assert is_native(partitions)


@pytest.mark.parametrize("packed", [False, True], ids=["four axes", "three axes"])
@pytest.mark.parametrize("mask", ["none", "bool", "float"])
@pytest.mark.parametrize("past", [False, True])
def test_standard_attention_with_grouped_heads_is_the_references(
    past: bool, mask: str, packed: bool, partitions: list[cpu_partition.CpuPartition]
) -> None:
    shapes: Mapping[str, Sequence[int | str]] = (
        {"q": ["B", "S", 32], "k": ["B", "S", 16], "v": ["B", "S", 20]}
        if packed
        else {"q": ["B", 4, "S", 8], "k": ["B", 2, "S", 8], "v": ["B", 2, "S", 10]}
    )
    inputs = {name: (FLOAT, shape) for name, shape in shapes.items()}
    names = ["q", "k", "v", "" if mask == "none" else "mask", "pk" if past else "", "pv" if past else ""]
    if mask != "none":
        inputs["mask"] = (BOOL if mask == "bool" else FLOAT, ["S", "T"])
    if past:
        inputs |= {"pk": (FLOAT, ["B", 2, "P", 8]), "pv": (FLOAT, ["B", 2, "P", 10])}
    outputs = ["y", "nk", "nv"] if past else ["y"]
    heads = {"q_num_heads": 4, "kv_num_heads": 2} if packed else {}
    each = node("Attention", names, outputs, is_causal=1, softcap=4.0, **heads)
    model = model_of([each], inputs, dict.fromkeys(outputs, FLOAT), opset=24)
    feeds = []
    for seed, (b, s, p) in enumerate([(2, 1, 5), (1, 6, 0), (2, 19, 270)]):
        sizes = {"B": b, "S": s, "P": p, "T": s + p if past else s}
        one: Feeds = {}
        rng = np.random.default_rng(seed)
        for name, (_, shape) in inputs.items():
            one[name] = rng.standard_normal([sizes.get(str(d), d) for d in shape]).astype(np.float32)
        if mask == "bool":
            one["mask"] = one["mask"] > -0.8
        elif mask == "float":
            one["mask"][one["mask"] > 1] = -np.inf
        feeds.append(one)
    agrees(model, *feeds)
    assert is_native(partitions)


def test_standard_attention_over_padded_caches_is_the_references(partitions: list[cpu_partition.CpuPartition]) -> None:
    inputs = {name: (FLOAT, ["B", 2, length, 8]) for name, length in (("q", "S"), ("k", "T"), ("v", "T"))}
    model = model_of(
        [node("Attention", ["q", "k", "v", "", "", "", "lengths"], ["y"], is_causal=1)],
        {**inputs, "lengths": (INT64, ["B"])}, {"y": FLOAT}, opset=24,
    )  # fmt: skip
    feeds = []
    for seed, lengths in enumerate([[3, 9], [9, 0]]):
        one = random(seed, q=(2, 2, 2, 8), k=(2, 2, 9, 8), v=(2, 2, 9, 8))
        feeds.append({**one, "lengths": np.array(lengths)})
    agrees(model, *feeds, {**feeds[0], "lengths": np.array([3, 10])})
    assert is_native(partitions)


def test_fewer_lengths_than_entries_are_refused_and_what_lies_behind_them_is_not_read() -> None:
    inputs = {name: (FLOAT, ["B", 2, length, 8]) for name, length in (("q", "S"), ("k", "T"), ("v", "T"))}
    model = model_of(
        [node("Attention", ["q", "k", "v", "", "", "", "lengths"], ["y"])],
        {**inputs, "lengths": (INT64, ["N"])}, {"y": FLOAT}, opset=24,
    )  # fmt: skip
    fine = np.array([2, 2])  # the second one is not given
    with pytest.raises(NodeFailed, match="nonpad_kv_seqlen"):
        session(model, "CPUExecutionProvider").run(
            None, {**random(0, q=(2, 2, 2, 8), k=(2, 2, 3, 8), v=(2, 2, 3, 8)), "lengths": fine[:1]}
        )


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("window", [-1, 3])
@pytest.mark.parametrize("packed", [False, True])
def test_group_query_attention_is_the_references(
    packed: bool, window: int, interleaved: int, partitions: list[cpu_partition.CpuPartition]
) -> None:
    inputs: dict[str, tuple[int, Sequence[int | str]]] = {
        "q": (FLOAT, ["B", "S", 64 if packed else 32]),
        "pk": (FLOAT, ["B", 2, 12, 8]), "pv": (FLOAT, ["B", 2, 12, 8]), "lengths": (INT32, ["B"]),
    }  # fmt: skip
    if not packed:
        inputs |= {"k": (FLOAT, ["B", "S", 16]), "v": (FLOAT, ["B", "S", 16])}
    names = ["q", *(["", ""] if packed else ["k", "v"]), "pk", "pv", "lengths", "total", "cos", "sin"]
    angles = np.arange(16)[:, None] * np.array([1.0, 0.1, 0.01])
    constants = {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    constants["total"] = np.array(12, np.int32)
    each = node(
        "GroupQueryAttention", names, ["y", "nk", "nv"], "com.microsoft", num_heads=4, kv_num_heads=2, do_rotary=1,
        rotary_interleaved=interleaved, local_window_size=window,
    )  # fmt: skip
    model = model_of([each], inputs, dict.fromkeys(["y", "nk", "nv"], FLOAT), constants)
    feeds = []
    for seed, (s, lengths) in enumerate([(1, [7, 0]), (3, [11, 2]), (5, [4, 4]), (12, [11, 5])]):
        one = random(seed, q=(2, s, 64 if packed else 32), pk=(2, 2, 12, 8), pv=(2, 2, 12, 8))
        if not packed:
            one |= random(seed + 9, k=(2, s, 16), v=(2, s, 16))
        feeds.append({**one, "lengths": np.array(lengths, np.int32)})
    agrees(model, *feeds)
    assert is_native(partitions)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("heads", [1, 4])
def test_group_query_attention_with_an_addend_is_the_references(
    heads: int, causal: int, partitions: list[cpu_partition.CpuPartition]
) -> None:
    inputs: dict[str, tuple[int, Sequence[int | str]]] = {
        "q": (FLOAT, ["B", "S", 32]), "k": (FLOAT, ["B", "S", 16]), "v": (FLOAT, ["B", "S", 16]),
        "pk": (FLOAT, ["B", 2, 12, 8]), "pv": (FLOAT, ["B", 2, 12, 8]), "lengths": (INT32, ["B"]),
        "addend": (FLOAT, ["A", heads, "S", 12]),
    }  # fmt: skip
    names = ["q", "k", "v", "pk", "pv", "lengths", "total", "", "", "", "addend"]
    each = node("GroupQueryAttention", names, ["y", "nk", "nv"], "com.microsoft", num_heads=4, kv_num_heads=2,
                softcap=3.0, causal=causal)  # fmt: skip
    constants = {"total": np.array(12, np.int32)}
    model = model_of([each], inputs, dict.fromkeys(["y", "nk", "nv"], FLOAT), constants)
    feeds = []
    for seed, (s, lengths) in enumerate([(1, [7, 0]), (3, [11, 2]), (12, [11, 11])]):
        one = random(seed, q=(2, s, 32), k=(2, s, 16), v=(2, s, 16), pk=(2, 2, 12, 8), pv=(2, 2, 12, 8))
        feeds.append({**one, **random(seed + 5, addend=(2, heads, s, 12)), "lengths": np.array(lengths, np.int32)})
    agrees(model, *feeds)
    assert is_native(partitions)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("positions", ["ids", "start", "tokens"])
def test_rotary_embedding_is_the_references(
    positions: str, interleaved: int, partitions: list[cpu_partition.CpuPartition]
) -> None:
    is_standard = positions == "tokens"
    inputs: dict[str, tuple[int, Sequence[int | str]]] = {"x": (FLOAT, ["B", "S", 60])}
    rows: Sequence[int | str] = ["B", "S", 7] if is_standard else ["M", 7]
    inputs |= {"cos": (FLOAT, rows), "sin": (FLOAT, rows)}
    if not is_standard:
        inputs["ids"] = (INT64, ["B", "S"] if positions == "ids" else [1])
    names = ["x", "cos", "sin"] if is_standard else ["x", "ids", "cos", "sin"]
    each = node(
        "RotaryEmbedding", names, ["y"], "" if is_standard else "com.microsoft", num_heads=3, rotary_embedding_dim=14,
        interleaved=interleaved,
    )  # fmt: skip
    model = model_of([each], inputs, {"y": FLOAT}, opset=23)
    feeds = []
    for seed, (b, s) in enumerate([(1, 1), (2, 9), (3, 0)]):
        table = (b, s, 7) if is_standard else (20, 7)
        one = random(seed, x=(b, s, 60), cos=table, sin=table)
        if not is_standard:
            one["ids"] = np.random.default_rng(seed).integers(0, 20, (b, s)) if positions == "ids" else np.array([11])
        feeds.append(one)
    if not is_standard:
        feeds.append({**feeds[1], "ids": feeds[1]["ids"] + 20})  # out of bounds: the same error
    agrees(model, *feeds)
    assert is_native(partitions)


@pytest.mark.parametrize("way", ["turned", "expanded"])
def test_masks_that_do_not_lie_along_the_keys_are_copied(
    way: str, partitions: list[cpu_partition.CpuPartition]
) -> None:
    """One turned by a Transpose, and one expanded along keys whose number only run time knows, as dynamo exports it."""
    axes = (1, 0, 3, 2) if way == "turned" else (0, 1, 2, 3)
    nodes = [node("Transpose", ["given"], ["mask"], perm=list(axes))]
    if way == "expanded":
        nodes = [
            node("Shape", ["q"], ["sizes"]),
            node("Slice", ["sizes", "one", "two"], ["length"]),
            node("Concat", ["ones", "length", "length"], ["wanted"], axis=0),
            node("Expand", ["given", "wanted"], ["mask"]),
        ]
    nodes.append(node("MultiHeadAttention", ["q", "k", "v", "", "", "mask"], ["y"], "com.microsoft", num_heads=3))
    inputs: dict[str, tuple[int, Sequence[int | str]]] = {name: (FLOAT, ["B", "S", 24]) for name in ("q", "k", "v")} | {
        "given": (FLOAT, ["C", 1, "S", "S"] if way == "turned" else ["C", 1, 1, "K"])
    }
    constants = {"ones": np.array([1, 1]), "one": np.array([1]), "two": np.array([2])} if way == "expanded" else {}
    feeds = []
    for b, s in ((1, 1), (2, 5), (2, 70)):
        shape = (1, 1, s, s) if way == "turned" else (b, 1, 1, s)
        feeds.append(random(s, q=(b, s, 24), k=(b, s, 24), v=(b, s, 24), given=shape))
    agrees(model_of(nodes, inputs, {"y": FLOAT}, constants), *feeds)
    assert is_native(partitions)


def test_heads_repeated_for_groups_of_queries_are_not_copied(partitions: list[cpu_partition.CpuPartition]) -> None:
    shape = {"five": np.array([1, 2, 3, 1, 1]), "four": np.array([0, 6, -1, 8]), "axis": np.array([2])}
    nodes = [
        part
        for name in ("k", "v")
        for part in (
            node("Unsqueeze", [name, "axis"], [f"{name}1"]),
            node("Expand", [f"{name}1", "five"], [f"{name}2"]),
            node("Reshape", [f"{name}2", "four"], [f"{name}3"]),
        )
    ]
    nodes.append(node("MultiHeadAttention", ["q", "k3", "v3"], ["y"], "com.microsoft", num_heads=6))
    inputs = {"q": (FLOAT, [2, "S", 48]), "k": (FLOAT, [2, 2, "T", 8]), "v": (FLOAT, [2, 2, "T", 8])}
    model = model_of(nodes, inputs, {"y": FLOAT}, shape)
    agrees(model, *(random(s, q=(2, s, 48), k=(2, 2, t, 8), v=(2, 2, t, 8)) for s, t in ((1, 3), (4, 4), (20, 270))))
    (program,) = partitions[-1].native_programs
    assert len(program.steps) == 1, [step.kernel for step in program.steps]


@pytest.mark.parametrize(("queries", "least"), [(197, 1024), (3, 0), ("S", 0)])
def test_pieces_of_an_attention_in_tiles_have_many_queries(
    queries: int | str, least: int, partitions: list[cpu_partition.CpuPartition]
) -> None:
    if not has_tile_products(host_target()):
        pytest.skip("needs a processor with AMX, and a system that permits it")
    each = node("MultiHeadAttention", ["q", "k", "v"], ["y"], "com.microsoft", num_heads=12)
    inputs: dict[str, tuple[int, Sequence[int | str]]] = {
        "q": (FLOAT, [1, queries, 96]), "k": (FLOAT, [1, 197, 96]), "v": (FLOAT, [1, 197, 96]),
    }  # fmt: skip
    rows = queries if isinstance(queries, int) else 40
    provider = ("CPUExecutionProvider", {"precision": "bfloat16"})
    attending = ort.InferenceSession(model_of([each], inputs, {"y": FLOAT}).SerializeToString(), providers=[provider])
    attending.run(None, random(1, q=(1, rows, 96), k=(1, 197, 96), v=(1, 197, 96)))
    (step,) = partitions[-1].native_programs[0].steps
    assert step.least_piece == least * 197 * 8 * 4 // 128
    if least:
        assert step.work == 12 * 197 * step.least_piece // least + 1


def test_decoding_with_a_growing_past_lowers_and_compiles_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs: dict[str, tuple[int, Sequence[int | str]]] = {
        "q": (FLOAT, ["B", 1, 24]), "pk": (FLOAT, ["B", 3, "P", 8]), "pv": (FLOAT, ["B", 3, "P", 8]),
    }  # fmt: skip
    names = ["q", "q", "q", "", "", "", "pk", "pv"]
    each = node("MultiHeadAttention", names, ["y", "nk", "nv"], "com.microsoft", num_heads=3)
    model = model_of([each], inputs, dict.fromkeys(["y", "nk", "nv"], FLOAT))
    compiled, reference = session(model, "CPUExecutionProvider"), session(model, "ReferenceExecutionProvider")
    feeds = random(0, q=(2, 1, 24), pk=(2, 3, 0, 8), pv=(2, 3, 0, 8))
    built: list[object] = []
    finish = Lowering.finish
    monkeypatch.setattr(Lowering, "finish", lambda self: (built.append(self), finish(self)))
    for _ in range(40):
        found, expected = run(compiled, feeds), run(reference, feeds)
        assert not isinstance(found, str)
        for left, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)
        feeds |= {"pk": found[1], "pv": found[2]}
    assert feeds["pk"].shape == (2, 3, 40, 8)
    assert not built, "a longer past was lowered anew"
