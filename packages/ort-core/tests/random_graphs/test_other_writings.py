"""Other writings of a graph: each form is drawn, and none changes what the graph computes."""

from __future__ import annotations

import numpy as np
import onnx.checker
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import ort_core as ort
from random_graphs import other_writings
from random_graphs.cases import Case
from random_graphs.other_writings import ODD_NAMES, with_defaults, written_otherwise

SEEDS = range(24)


def model_of_weights() -> ModelProto:
    """Return a graph with weights of several types and ranks, and an ``If`` whose branches hold some, too."""
    weights = [
        numpy_helper.from_array(np.array([[0, 1.5, -0.0], [0, 0, -2]], np.float32), "matrix"),
        numpy_helper.from_array(np.array([1, 0, -3], np.float32), "list"),
        numpy_helper.from_array(np.array(0.25, np.float32), "number"),
        numpy_helper.from_array(np.array([3, 2]), "sizes"),
        numpy_helper.from_array(np.array(True), "truth"),
    ]

    def branch(name: str, op_type: str) -> onnx.GraphProto:
        own = numpy_helper.from_array(np.array([0, 2, 0], np.float32), f"{name} weight")
        nodes = [
            helper.make_node(op_type, ["moved", own.name], [f"{name} sum"], name=f"{name} node"),
            helper.make_node("Neg", [f"{name} sum"], [f"{name} end"]),
        ]
        end = helper.make_tensor_value_info(f"{name} end", TensorProto.FLOAT, None)
        return helper.make_graph(nodes, name, [], [end], [own])

    nodes = [
        helper.make_node("Add", ["x", "matrix"], ["sum"]),
        helper.make_node("Mul", ["sum", "list"], ["scaled"]),
        helper.make_node("Div", ["scaled", "number"], ["moved"], name="division"),
        helper.make_node(
            "If", ["truth"], ["chosen"], then_branch=branch("then", "Add"), else_branch=branch("else", "Mul")
        ),
        helper.make_node("Clip", ["chosen"], ["kept"]),
        helper.make_node("Reshape", ["kept", "sizes"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 2])
    graph = helper.make_graph(nodes, "weights", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


X = np.arange(6, dtype=np.float32).reshape(2, 3)
MATRIX = np.array([[0, 1.5, -0.0], [0, 0, -2]], np.float32)
EXPECTED = -((X + MATRIX) * np.array([1, 0, -3], np.float32) / np.float32(0.25) + np.array([0, 2, 0], np.float32))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_graph_written_otherwise_computes_the_same(seed):
    model = written_otherwise(model_of_weights(), seed)
    nameless = any(not any(node.output) for node in model.graph.node)
    if not nameless:  # onnx and onnxruntime want a name for an output that is not optional
        onnx.checker.check_model(model)
    content = model.SerializeToString()
    for package in (ort,) if nameless else (onnxruntime, ort):
        session = package.InferenceSession(content, providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], EXPECTED.reshape(3, 2))


def test_every_form_is_drawn():
    forms = set()
    for seed in SEEDS:
        graph = written_otherwise(model_of_weights(), seed).graph
        forms.update(
            attribute.name for node in graph.node if node.op_type == "Constant" for attribute in node.attribute
        )
        forms.update("fields" for tensor in graph.initializer if tensor.float_data)
        forms.update(f"places of rank {len(each.indices.dims)}" for each in graph.sparse_initializer)
        bodies = [attribute.g for node in graph.node if node.op_type == "If" for attribute in node.attribute]
        forms.update(["shared names"] if bodies[0].output[0].name == bodies[1].output[0].name else [])
        forms.update("without a name" for node in graph.node if not node.name)
        forms.update("outputs without names" for node in graph.node if not any(node.output))
        forms.update("empty names behind" for node in graph.node if node.op_type == "Clip" and len(node.input) > 1)
        forms.update("odd names" for node in graph.node if node.output[0].startswith(ODD_NAMES))
    assert forms >= {
        "value", "value_float", "value_floats", "value_ints", "sparse_value", "fields", "places of rank 1",
        "places of rank 2", "shared names", "without a name", "outputs without names", "odd names",
        "empty names behind",
    }  # fmt: skip


def test_inputs_with_defaults_are_given_and_left_out(monkeypatch):
    monkeypatch.setattr(other_writings, "DEFAULTS_SHARE", 1.0)
    given, changed = set(), False
    for seed in SEEDS:
        case = with_defaults(Case(seed, model_of_weights(), [{"x": X}], ()))
        assert case.flags == ("inputs with defaults",)
        session = ort.InferenceSession(case.model.SerializeToString(), providers=["CPUExecutionProvider"])
        for feeds, (truth,) in zip(case.feeds, case.truths(), strict=True):
            given.add(len(feeds) > 1)
            changed |= not np.array_equal(truth.truth, EXPECTED.reshape(3, 2), equal_nan=True)
            np.testing.assert_allclose(session.run(None, dict(feeds))[0], truth.truth, rtol=1e-5)
    assert given == {True, False}
    assert changed, "a value that is given in place of its default matters"
