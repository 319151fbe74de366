"""Tensors of 33 to 64 axes, which is what an array may have; numpy's broadcasting, sorting and iterating stop at 32."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import ort_core

Operands = list[np.ndarray]
RANKS = (33, 64)
ENGINES = ("CPUExecutionProvider", "ReferenceExecutionProvider")
BINARY = ("Add", "Div", "Greater", "Max", "Mean", "Mod", "Pow", "PRelu", "Sum")
MIXED = {
    "ArgMax": {"axis": 1}, "Concat": {"axis": 3}, "CumSum": {}, "Expand": {}, "Gather": {"axis": 1},
    "GatherElements": {"axis": 1}, "GatherND": {}, "Hardmax": {"axis": 1}, "MatMul": {}, "MatMulInteger": {},
    "OneHot": {"axis": 1}, "ReduceSum": {}, "ScatterElements": {"axis": 1}, "ScatterND": {}, "Softmax": {"axis": 1},
    "TopK": {"axis": 1, "largest": 0}, "Transpose": {}, "Where": {}, "Einsum": {"equation": "...i,...i->..."},
    "Tile": {}, "Equal": {}, "And": {}, "BitShift": {"direction": "LEFT"}, "Squeeze": {},
}  # fmt: skip


def _numbers(rank: int, *sizes: int) -> np.ndarray:
    """Return positive numbers; ``sizes`` are those of axes 0, 1 and the last one."""
    shape = [1] * rank
    for axis, size in zip((0, 1, rank - 1), sizes, strict=False):
        shape[axis] = size
    return np.random.default_rng(rank).uniform(0.5, 3, shape).astype(np.float32)


def _operands(op_type: str, rank: int) -> Operands:
    x, y = _numbers(rank, 2, 3, 4), _numbers(rank, 2, 1, 4)
    whole, first = (x * 9).astype(np.int64), np.zeros((1, rank), np.int64)
    shape = np.array([2, 3, *[1] * (rank - 3), 4])
    others: dict[str, Operands] = {
        "And": [x > 1, y > 1], "ArgMax": [x], "BitShift": [whole.astype(np.uint32), np.array(2, np.uint32)],
        "Concat": [x, x], "CumSum": [x, np.array(1)], "Expand": [y, shape], "Equal": [whole, whole[:1]],
        "Gather": [x, np.array([0, -1])], "GatherElements": [x, whole % 3], "GatherND": [x, first],
        "Hardmax": [x], "MatMul": [x, _numbers(4, 1, 1, 5)[0, 0].repeat(4, 0)],
        "MatMulInteger": [whole.astype(np.uint8), np.ones((4, 2), np.uint8)],
        "OneHot": [whole[0] % 3, np.array(3), np.array([5, 7], np.float32)], "ReduceSum": [x, np.array([1])],
        "ScatterElements": [x, np.zeros(x[:, :1].shape, np.int64), y], "Softmax": [x],
        "ScatterND": [x, first, np.array([8], np.float32)], "Squeeze": [x],
        "Tile": [y, np.array([2, *[1] * (rank - 1)])],
        "TopK": [x, np.array([2])], "Transpose": [x], "Where": [x > 1, x, y], "Einsum": [x, x],
    }  # fmt: skip
    return others.get(op_type, [x, y])


def _model(op_type: str, operands: Operands, attributes: dict[str, Any]) -> bytes:
    names = [f"x{place}" for place in range(len(operands))]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
        for name, array in zip(names, operands, strict=True)
    ]
    results = ["y0", "y1"][: 2 if op_type == "TopK" else 1]
    node = helper.make_node(op_type, names, results, **attributes)
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=name) for name in results])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())


@pytest.mark.sweep(parts=2)
@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("op_type", [*BINARY, *MIXED])
def test_operators_take_as_many_axes_as_an_array_may_have(op_type: str, rank: int) -> None:
    operands = _operands(op_type, rank)
    attributes = {"fmod": 1} if op_type == "Mod" else MIXED.get(op_type, {})
    content = _model(op_type, operands, attributes)
    feeds = {f"x{place}": array for place, array in enumerate(operands)}
    expected = onnxruntime.InferenceSession(content, providers=ENGINES[:1]).run(None, feeds)
    for engine in ENGINES:
        found = ort_core.InferenceSession(content, providers=[engine]).run(None, feeds)
        for left, right in zip(expected, found, strict=True):
            assert left.shape == right.shape
            np.testing.assert_allclose(right, left, rtol=1e-5)


@pytest.mark.parametrize("rank", RANKS)
def test_contents_of_small_tensors_of_many_axes_are_not_followed_through_the_graph(rank: int) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Unsqueeze", ["shape", "axes"], ["wide"]),
        helper.make_node("Concat", ["wide", "wide"], ["y"], axis=0),
    ]
    axes = onnx.numpy_helper.from_array(np.arange(1, rank), "axes")
    infos = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["a", 3]), onnx.ValueInfoProto(name="y")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    found = ort_core.InferenceSession(model.SerializeToString(), providers=ENGINES[:1]).run(
        None, {"x": np.ones((2, 3), np.float32)}
    )
    assert found[0].shape == (4, *[1] * (rank - 1))
    assert found[0].reshape(-1).tolist() == [2, 3, 2, 3]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("op_type", ["ConstantOfShape", "Expand", "Reshape", "Unsqueeze"])
def test_a_result_of_more_axes_is_refused_in_a_sentence_of_our_own(op_type: str, engine: str) -> None:
    count = 64 if op_type == "Unsqueeze" else 65
    shape = np.arange(count) if op_type == "Unsqueeze" else np.ones(count, np.int64)
    operands = [shape] if op_type == "ConstantOfShape" else [np.ones(1, np.float32), shape]
    feeds = {f"x{place}": operand for place, operand in enumerate(operands)}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), [None])
        for name, each in feeds.items()
    ]
    node = helper.make_node(op_type, list(feeds), ["y"], "the_node")
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = ort_core.InferenceSession(content, providers=[engine])
    with pytest.raises(ort_core.errors.OrtError, match=f"running {op_type} node. Name:'the_node'.*64 of a tensor"):
        session.run(None, feeds)
