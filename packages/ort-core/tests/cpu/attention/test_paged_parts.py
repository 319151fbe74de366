"""Long caches in blocks are attended to in parts: beside float64, by any number of threads, alone and together."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from run_levels import run_at_level

import ort_core as ort

Array = np.ndarray
SEQUENCES = [(1, 2048), (1, 0), (3, 1100), (40, 700), (0, 30), (1, 513)]  # new tokens, and those before them
HEADS = {  # of queries, of keys, elements, rows of a block
    "one key head": (4, 1, 64, 64), "many queries of a key head": (24, 2, 16, 48), "odd sizes": (3, 3, 20, 7),
    "one for each": (4, 4, 32, 300),
}  # fmt: skip
MASKS = {"plain": {}, "a window and a cap": {"local_window_size": 600, "softcap": 3.0}}


def model(heads: int, groups: int, size: int, *, is_int8: bool = False, **attributes: object) -> bytes:
    """Return one PagedAttention."""
    stored, blocks = (TensorProto.INT8 if is_int8 else TensorProto.FLOAT), ["N", "R", groups, size]
    whole, part = ["T", heads * size], ["T", groups * size]
    given = {"query": whole, "key": part, "value": part, "keys": blocks, "values": blocks}
    told = {"ends": ["B1"], "past": ["B"], "table": ["B", "M"]}
    scales = ["k_scale", "v_scale"] if is_int8 else []
    more = {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"} if is_int8 else {}
    node = helper.make_node(
        "PagedAttention", [*given, *told, *([""] * 6 if scales else []), *scales], ["y", "new_keys", "new_values"],
        domain="com.microsoft", num_heads=heads, kv_num_heads=groups, **attributes, **more,
    )  # fmt: skip
    floats = TensorProto.FLOAT
    kinds = {name: stored if name in ("keys", "values") else floats for name in given}
    inputs = [helper.make_tensor_value_info(name, kinds[name], shape) for name, shape in given.items()]
    inputs += [helper.make_tensor_value_info(name, TensorProto.INT32, shape) for name, shape in told.items()]
    inputs += [helper.make_tensor_value_info(name, floats, [groups, 1, size]) for name in scales]
    outputs = [helper.make_tensor_value_info("y", floats, whole)]
    outputs += [helper.make_tensor_value_info(f"new_{name}", stored, blocks) for name in ("keys", "values")]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "parts", inputs, outputs)
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def feeds(
    sequences: list[tuple[int, int]], sizes: tuple[int, int, int, int], *, is_int8: bool = False
) -> dict[str, Array]:
    """Return a run's inputs; blocks that belong to nobody hold no numbers."""
    random = np.random.default_rng(5)
    heads, groups, size, rows = sizes
    used = [-(-(fresh + past) // rows) for fresh, past in sequences]
    order = iter(random.permutation(sum(used) + 1).tolist())
    table = np.full((len(sequences), max(used) + 1), -1, np.int32)
    for row, count in zip(table, used, strict=True):
        row[:count] = [next(order) for _ in range(count)]
    shape = (sum(used) + 1, rows, groups, size)
    tokens = sum(fresh for fresh, _ in sequences)
    found: dict[str, Array] = {"ends": np.cumsum([0, *(fresh for fresh, _ in sequences)]).astype(np.int32)}
    found |= {"past": np.array([past for _, past in sequences], np.int32), "table": table}
    for name, columns in (("query", heads), ("key", groups), ("value", groups)):
        found[name] = random.standard_normal((tokens, columns * size)).astype(np.float32)
    for name in ("keys", "values"):
        numbers = 2 * random.standard_normal(shape)
        found[name] = np.clip(np.round(30 * numbers), -127, 127).astype(np.int8) if is_int8 else numbers.astype("f4")
    if is_int8:
        found |= {name: random.uniform(0.02, 0.05, (groups, 1, size)).astype("f4") for name in ("k_scale", "v_scale")}
    else:
        found["keys"][next(order)] = np.nan
    return found


def truth(given: dict[str, Array], caches: tuple[Array, Array], heads: int, window: int = 0, cap: float = 0.0) -> Array:
    """Return what a run gives, in float64, of caches that have the new rows already."""
    groups, size = caches[0].shape[2:]
    wide = [each.astype(np.float64) for each in caches]
    if "k_scale" in given:
        wide = [each * given[name][None, :, 0] for each, name in zip(wide, ("k_scale", "v_scale"), strict=True)]
    found = np.zeros((len(given["query"]), heads, size))
    for number, past in enumerate(given["past"].tolist()):
        start, end = given["ends"][number : number + 2].tolist()
        rows = [each[given["table"][number]].reshape(-1, groups, size) for each in wide]
        for place in range(start, end):
            last = past + place - start + 1
            first = max(0, last - window) if window else 0
            keys, values = (np.repeat(each[first:last], heads // groups, axis=1) for each in rows)
            query = given["query"][place].reshape(heads, size).astype(np.float64)
            scores = np.einsum("hd,khd->hk", query, keys) / np.sqrt(size)
            scores = cap * np.tanh(scores / cap) if cap else scores
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            found[place] = np.einsum("hk,khd->hd", weights / weights.sum(axis=1, keepdims=True), values)
    return found.reshape(len(found), -1)


def run(content: bytes, given: dict[str, Array], threads: int = 2) -> list[Array]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"]).run(None, given)


def check(heads: str, masks: str = "plain", *, is_int8: bool = False) -> None:
    sizes, attributes = HEADS[heads], MASKS[masks]
    given = feeds(SEQUENCES, sizes, is_int8=is_int8)
    found = run(model(*sizes[:3], is_int8=is_int8, **attributes), given)
    window, cap = int(attributes.get("local_window_size", 0)), float(attributes.get("softcap", 0.0))
    expected = truth(given, (found[1], found[2]), sizes[0], window, cap)
    np.testing.assert_allclose(found[0], expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("heads", HEADS)
def test_parts_give_what_all_keys_give(heads: str, masks: str) -> None:
    check(heads, masks)


def test_parts_of_integers_give_what_all_keys_give() -> None:
    check("one key head", is_int8=True)


@pytest.mark.parametrize("memory", ["end", "begin"])
def test_parts_touch_nothing_beside_the_caches(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_GUARDED_MEMORY", memory)
    check("one key head")
    check("odd sizes")


@pytest.mark.parametrize("heads", ["one key head", "odd sizes"])
def test_neither_threads_nor_other_sequences_change_a_bit(heads: str) -> None:
    sizes = HEADS[heads]
    content, given = model(*sizes[:3]), feeds(SEQUENCES, sizes)
    expected = run(content, given, 1)[0]
    for threads in (2, 3, 7):
        np.testing.assert_array_equal(run(content, given, threads)[0], expected)
    alone = dict(given, ends=given["ends"][:2], past=given["past"][:1], table=given["table"][:1])
    alone |= {name: given[name][:1] for name in ("query", "key", "value")}
    np.testing.assert_array_equal(run(content, alone)[0], expected[:1])


def test_what_is_no_number_in_one_part_is_none_in_the_result() -> None:
    sizes = HEADS["one key head"]
    given = feeds([(1, 2000), (1, 1000)], sizes)
    given["values"][given["table"][0, 3], 0] = np.nan
    found = run(model(*sizes[:3]), given)[0]
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()


@pytest.mark.sweep(parts=2, every_value=False)
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4", "x86-64-v2"])
def test_code_of_each_level_gives_the_same(level: str) -> None:
    run_at_level(__file__, level)


if __name__ == "__main__":
    for each in HEADS:
        for mask in MASKS:
            check(each, mask)
    check("odd sizes", is_int8=True)
