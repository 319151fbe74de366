"""Nodes of which no output has a name compute nothing: they are dropped wherever they stand, at every level."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import ort_core as ort

X = np.array([[-1.0, 2.0, 3.0]], np.float32)
UNNAMED = [
    helper.make_node("Constant", [], [""], value_float=1.0),
    helper.make_node("Relu", ["x"], [""]),
    helper.make_node("MatMul", ["x", "w"], [""]),
    helper.make_node("MaxPool", ["image"], ["", ""], kernel_shape=[1, 1]),
    helper.make_node("Transpose", ["x"], [""]),
    helper.make_node("Split", ["x"], ["", "", ""], axis=1, num_outputs=3),
]
WEIGHTS = [
    numpy_helper.from_array(np.ones((3, 2), np.float32), "w"),
    numpy_helper.from_array(np.ones((1, 1, 2, 2), np.float32), "image"),
]


def in_the_graph() -> ModelProto:
    return model_of([*UNNAMED, helper.make_node("Neg", ["x"], ["y"])])


def in_a_body() -> ModelProto:
    branches = {}
    for name, op_type in (("then_branch", "Neg"), ("else_branch", "Abs")):
        end = helper.make_tensor_value_info(f"{name}_end", TensorProto.FLOAT, None)
        nodes = [*UNNAMED, helper.make_node(op_type, ["x"], [end.name])]
        branches[name] = helper.make_graph(nodes, name, [], [end])
    yes = helper.make_node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True)))
    return model_of([yes, helper.make_node("If", ["yes"], ["y"], **branches)])


def in_a_function() -> ModelProto:
    nodes = [*UNNAMED, helper.make_node("Neg", ["x"], ["y"])]
    imports = [helper.make_opsetid("", 18)]
    function = helper.make_function("acme", "Work", ["x", "w", "image"], ["y"], nodes, imports)
    calls = [helper.make_node("Work", ["x", "w", "image"], [result], domain="acme") for result in ("y", "")]
    model = model_of(calls)
    model.opset_import.append(helper.make_opsetid("acme", 1))
    model.functions.append(function)
    return model


def model_of(nodes: list) -> ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])
    graph = helper.make_graph(nodes, "unnamed", [x], [y], WEIGHTS)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("build", [in_the_graph, in_a_body, in_a_function])
def test_they_change_nothing_and_are_not_run(build: Callable[[], ModelProto], provider: str, level: str) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    session = ort.InferenceSession(build().SerializeToString(), options, providers=[provider])
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], -X)
    assert "MaxPool" not in str(session.explain())
