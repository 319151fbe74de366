"""Nodes whose results would be giant: refused by a sentence that names node and bytes, before memory is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.errors import AllocationLimitExceeded, NodeFailed

ROWS = 1 << 21
PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
MICROSOFT = "com.microsoft"
COLUMN, ROW = np.ones((ROWS, 1), np.float32), np.ones((1, ROWS), np.float32)
IMAGE = np.ones((1, 1, 4, 4), np.float32)
LIMIT = 1 << 32  # bytes for one value: every machine has this much address space to give by mistake

Feeds = Mapping[str, np.ndarray]


def node(op_type: str, *inputs: str, domain: str = "", **attributes: Any) -> NodeProto:
    return helper.make_node(op_type, inputs, ["y"], f"my {op_type}", domain=domain, **attributes)


def kinds(column: np.ndarray, row: np.ndarray) -> Feeds:
    return {"x": column, "z": row}


GIANT: Mapping[str, tuple[NodeProto, Feeds]] = {
    **{
        name: (node(name, "x", "z"), kinds(COLUMN, ROW))
        for name in ("Add", "Max", "Less", "Pow", "Sum", "MatMul", "Gemm")
    },
    **{
        name: (node(name, "x", "z"), kinds(COLUMN.astype(kind), ROW.astype(kind)))
        for name, kind in (("BitwiseAnd", np.int32), ("And", bool), ("Mod", np.int64), ("MatMulInteger", np.uint8))
    },
    "halves": (node("Max", "x", "z"), kinds(COLUMN.astype(np.float16), ROW.astype(np.float16))),
    "Where": (node("Where", "c", "x", "z"), {"c": np.ones((1, 1), bool), **kinds(COLUMN, ROW)}),
    "no inner size": (node("MatMul", "x", "z"), kinds(np.ones((ROWS, 0), np.float32), np.ones((0, ROWS), np.float32))),
    "Einsum": (node("Einsum", "x", "z", equation="i,j->ij"), kinds(COLUMN[:, 0], ROW[0])),
    "GridSample": (
        node("GridSample", "x", "g"), {"x": COLUMN.reshape(1, ROWS, 1, 1), "g": np.ones((1, ROWS, 1, 2), np.float32)},
    ),
    "STFT": (
        node("STFT", "x", "s", "", "l"),
        {"x": np.ones((1, 1 << 20, 1), np.float32), "s": np.array(1), "l": np.array(1 << 19)},
    ),
    "Attention": (node("Attention", "x", "x", "x"), {"x": np.ones((1, 1, ROWS, 8), np.float32)}),
    "MultiHeadAttention": (
        node("MultiHeadAttention", "x", "x", "x", domain=MICROSOFT, num_heads=1),
        {"x": np.ones((1, ROWS, 8), np.float32)},
    ),
    "CDist": (node("CDist", "x", "z", domain=MICROSOFT, metric="euclidean"), kinds(COLUMN, COLUMN)),
    "Range of com.microsoft": (node("Range", "x", "z", domain=MICROSOFT), kinds(np.array(0), np.array(1 << 42))),
    "Range": (node("Range", "x", "z", "s"), {**kinds(np.array(0), np.array(1 << 42)), "s": np.array(1)}),
    "Expand": (node("Expand", "x", "s"), {"x": np.ones((1, 1), np.float32), "s": np.array([ROWS, ROWS])}),
    "Tile": (node("Tile", "x", "s"), {"x": np.ones((1, 1)), "s": np.array([1 << 15, 1 << 15])}),
    "ConstantOfShape": (node("ConstantOfShape", "s"), {"s": np.array([ROWS, ROWS])}),
    "Pad": (node("Pad", "x", "s"), {"x": np.ones((1, 1), np.float32), "s": np.array([ROWS] * 4)}),
    "OneHot": (
        node("OneHot", "i", "s", "x"),
        {"i": np.zeros(1000, np.int64), "s": np.array([1 << 40]), "x": np.array([0, 1], np.float32)},
    ),
    "Resize": (node("Resize", "x", "", "", "s", mode="linear"), {"x": IMAGE, "s": np.array([1, 1, ROWS, ROWS])}),
    "RoiAlign": (
        node("RoiAlign", "x", "r", "i", output_height=2, output_width=2, sampling_ratio=1 << 30),
        {"x": IMAGE, "r": np.ones((1, 4), np.float32), "i": np.zeros(1, np.int64)},
    ),
}  # fmt: skip


def model_of(nodes: Sequence[NodeProto], feeds: Feeds, constants: Sequence[str] = ()) -> bytes:
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), [None] * x.ndim)
        for n, x in feeds.items()
        if n not in constants
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    output.ClearField("type")
    initializers = [numpy_helper.from_array(feeds[name], name) for name in constants]
    graph = helper.make_graph(nodes, "giant", inputs, [output], initializers)
    imports = [helper.make_opsetid("", 23), helper.make_opsetid(MICROSOFT, 1)]
    return bytes(helper.make_model(graph, opset_imports=imports, ir_version=11).SerializeToString())


def refusal_of(model: bytes, feeds: Feeds, provider: str) -> str:
    options = ort.RunOptions()
    options.max_allocation_bytes = LIMIT
    session = ort.InferenceSession(model, providers=[provider])
    with pytest.raises(AllocationLimitExceeded) as refusal:
        session.run(None, dict(feeds), options)
    return str(refusal.value)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", GIANT)
def test_a_giant_result_is_refused_by_node_and_bytes(name: str, provider: str) -> None:
    asked, feeds = GIANT[name]
    text = refusal_of(model_of([asked], feeds), feeds, provider)
    assert asked.name in text
    assert f"bytes, above the limit of {LIMIT} bytes" in text, "before the system was asked"


def test_a_program_of_several_nodes_is_named_when_it_is_recalled_too() -> None:
    nodes = [helper.make_node("MatMul", ["x", "z"], ["p"], "my MatMul"), helper.make_node("Tanh", ["p"], ["y"], "t")]
    feeds = kinds(COLUMN, ROW)
    for _ in range(2):  # compiled, then recalled from the cache
        assert "'my MatMul'" in refusal_of(model_of(nodes, feeds), feeds, PROVIDERS[0])


def test_what_is_small_is_not_asked_about() -> None:
    feeds = kinds(np.arange(3.0, dtype=np.float32)[:, None], np.arange(4.0, dtype=np.float32)[None])
    session = ort.InferenceSession(model_of([node("Pow", "x", "z")], feeds), providers=[PROVIDERS[1]])
    np.testing.assert_array_equal(session.run(None, dict(feeds))[0], feeds["x"] ** feeds["z"])


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("sizes", [[1 << 33, 1 << 33, 0], [0, 1 << 62], [1 << 62, 0]], ids=str)
@pytest.mark.parametrize("op_type", ["ConstantOfShape", "Reshape", "Expand", "Tile"])
def test_an_empty_tensor_of_giant_sizes_is_refused_in_words_of_ours(
    op_type: str, sizes: list[int], provider: str
) -> None:
    data = np.zeros([0] * len(sizes) if op_type == "Tile" else [0] if op_type == "Reshape" else [1] * len(sizes), "f")
    inputs = ["s"] if op_type == "ConstantOfShape" else ["x", "s"]
    given = {"allowzero": 1} if op_type == "Reshape" else {}
    feeds = {"x": data, "s": np.array(sizes)}
    feeds = {name: feeds[name] for name in inputs}
    for constants in ((), ("s",), inputs):
        model = model_of([node(op_type, *inputs, **given)], feeds, constants)
        fed = {name: x for name, x in feeds.items() if name not in constants}
        session = ort.InferenceSession(model, providers=[provider])
        text = ""
        try:
            found = session.run(None, fed)[0]
        except NodeFailed as refusal:
            text = str(refusal)
        if text:
            assert f"my {op_type}" in text
            assert "ValueError" not in text
        else:
            assert found.size == 0
