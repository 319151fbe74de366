"""Sum, Mean, Max and Min of more operands than one kernel reads: native, in parts, each lowered once."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_core as ort
from ort_core.tolerances import compare

FOLDS = {"Sum": np.add, "Mean": np.add, "Max": np.maximum, "Min": np.minimum}
TYPES = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE, np.int32: TensorProto.INT32}

CASES = [(fold, dtype) for fold in FOLDS for dtype in TYPES if dtype is not np.int32 or fold in ("Max", "Min")]


def model_of(op_type: str, count: int, dtype: type) -> bytes:
    info, negated = helper.make_tensor_value_info, [f"n{i}" for i in range(count)]
    inputs = [info(f"x{i}", TYPES[dtype], ["N", 4] if i % 3 else [4]) for i in range(count)]
    nodes = [helper.make_node("Neg", [f"x{i}"], [name]) for i, name in enumerate(negated)]
    nodes += [
        helper.make_node(op_type, negated, ["y"]),
        helper.make_node("Cast", ["y"], ["real"], to=TensorProto.FLOAT),
    ]
    nodes += [helper.make_node("Tanh", ["real"], ["z"])]  # which a native program pays for
    graph = helper.make_graph(
        nodes, "fold", inputs, [info("y", TYPES[dtype], None), info("z", TensorProto.FLOAT, None)]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()


@pytest.mark.sweep
@pytest.mark.parametrize("count", [12, 13, 65, 130])
@pytest.mark.parametrize(("op_type", "dtype"), CASES)
def test_fold_of_many_operands_is_native_and_right(op_type, count, dtype):
    random = np.random.default_rng(count)
    feeds = {f"x{i}": (random.random((3, 4) if i % 3 else 4) * 10 - 5).astype(dtype) for i in range(count)}
    session = ort.InferenceSession(model_of(op_type, count, dtype), providers=["CPUExecutionProvider"])
    total = functools.reduce(FOLDS[op_type], [-each.astype(np.float64) for each in feeds.values()])
    expected = (total / count if op_type == "Mean" else total).astype(dtype)
    found, _ = session.run(None, feeds)
    assert compare(found, expected, "approximate" if found.dtype.kind == "f" else "exact").passes
    executions = [node.execution for node in session.explain().nodes]
    assert {each and each.how for each in executions} == {"native"}, [str(each) for each in executions]


def test_fold_of_one_value_many_times_is_native_and_right():
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("Sum", ["t"] * 3000, ["y"])]
    graph = helper.make_graph(
        nodes, "same", [info("x", TensorProto.FLOAT, ["N"])], [info("y", TensorProto.FLOAT, None)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    x = np.array([-1.0, 0.25, 2.0], np.float32)
    assert compare(
        session.run(None, {"x": x})[0], (3000 * np.tanh(x.astype(np.float64))).astype(np.float32), "approximate"
    ).passes
    executions = [node.execution for node in session.explain().nodes]
    assert {each and each.how for each in executions} == {"native"}, [str(each) for each in executions]


@pytest.mark.parametrize("count", [7, 12])
@pytest.mark.parametrize("op_type", FOLDS)
def test_few_operands_that_are_computed_from_several_values_are_native_and_right(op_type: str, count: int) -> None:
    """The votes of an ensemble: each operand reads two values, so that together they are more than a kernel reads."""
    info = helper.make_tensor_value_info
    names = [f"{side}{i}" for i in range(count) for side in "ab"]
    nodes = [helper.make_node("Mul", [f"a{i}", f"b{i}"], [f"p{i}"]) for i in range(count)]
    nodes += [helper.make_node(op_type, [f"p{i}" for i in range(count)], ["s"]), helper.make_node("Tanh", ["s"], ["y"])]
    given = [info(name, TensorProto.FLOAT, ["N", 4]) for name in names]
    outputs = [info(name, TensorProto.FLOAT, None) for name in "sy"]
    graph = helper.make_graph(nodes, "votes", given, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(count)
    feeds = {name: random.standard_normal((3, 4)).astype(np.float32) for name in names}
    products = [feeds[f"a{i}"].astype(np.float64) * feeds[f"b{i}"] for i in range(count)]
    total = functools.reduce(FOLDS[op_type], products)
    expected = (total / count if op_type == "Mean" else total).astype(np.float32)
    assert compare(session.run(None, feeds)[0], expected, "approximate").passes
    executions = [node.execution for node in session.explain().nodes]
    assert {each and each.how for each in executions} == {"native"}, [str(each) for each in executions]
