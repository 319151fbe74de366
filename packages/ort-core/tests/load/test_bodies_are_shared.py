"""Equal bodies of control flow are lowered once, tell names of their own, and are told apart by all that counts."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from growing_kinds import MORE
from growing_models import GROWING, between
from hostile_models import Graph
from onnx import TensorProto, helper, numpy_helper

import ort_core

COUNT = 60
X = np.linspace(-1, 3, 12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("name", ["ifs", "loops"])
def test_equal_bodies_are_lowered_once(name, lowered):
    content = {**GROWING, **MORE}[name](COUNT).proto()
    session = ort_core.InferenceSession(content, providers=["CPUExecutionProvider"])
    assert len(lowered) <= 4, f"{len(lowered)} programs"
    _compare(session, content)


def test_nodes_of_equal_bodies_are_told_by_their_own_names():
    content = _ifs([{"alpha": 0.1}] * 3).proto()
    session = ort_core.InferenceSession(content, providers=["CPUExecutionProvider"])
    executions = session._loaded.prepared.plan.steps[0].step.compiled.executions()
    outputs = [name for each in executions if each.path for name in each.outputs]
    assert {f"m{i}" for i in range(3)} <= set(outputs)
    programs = [body.partition.native_programs for body in session._loaded.prepared.plan.steps[0].step.compiled.bodies]
    nodes = {step.node.name for each in programs for program in each for step in program.steps}
    assert len({program.record.outputs for each in programs for program in each}) == len(programs)
    assert {f"multiply {i}" for i in range(3)} <= nodes


@pytest.mark.parametrize(
    "bodies",
    [
        [{"alpha": 0.1}, {"alpha": 0.2}, {"alpha": 0.1}],
        [{"alpha": 0.0}, {"alpha": -0.0}],
        [{"factor": 2}, {"factor": 3}, {"factor": 2}],
        [{"factor": [1, 2, 3, 4]}, {"factor": [1, 2, 3, 5]}, {"factor": [[1, 2, 3, 4]]}],
        [{"swapped": False}, {"swapped": True}, {"swapped": False}],
        [{"twice": False}, {"twice": True}],
    ],
)
def test_bodies_that_differ_are_not_taken_for_each_other(bodies):
    content = _ifs(bodies).proto()
    _compare(ort_core.InferenceSession(content, providers=["CPUExecutionProvider"]), content)


def _ifs(bodies: list[dict[str, object]]) -> Graph:
    """Return Ifs in a row, each with a branch of three nodes that the arguments tell apart."""
    graph = Graph()
    graph.constant("zero", np.float32(0))
    graph.node("ReduceMax", "x", "s", keepdims=0)
    graph.node("Greater", "s zero", "c")
    for i, body in enumerate(bodies):
        other = _graph([helper.make_node("Sin", [f"v{i}"], [f"b{i}"])], f"b{i}")
        graph.node("If", "c", f"v{i + 1}", then_branch=_branch(i, **body), else_branch=other)
    return between(graph, "v0", f"v{len(bodies)}")


def _branch(i: int, *, alpha: float = 0.5, factor: object = 2, swapped: bool = False, twice: bool = False) -> object:
    operands = [f"r{i}", f"v{i}"]
    nodes = [
        helper.make_node("Tanh", [f"v{i}"], [f"t{i}"]),
        helper.make_node("LeakyRelu", [f"t{i}"], [f"r{i}"], alpha=alpha),
        helper.make_node("Sub", operands[::-1] if swapped else operands, [f"d{i}"]),
        helper.make_node("Mul", [f"d{i}", f"r{i}" if twice else f"k{i}"], [f"m{i}"], name=f"multiply {i}"),
    ]
    return _graph(nodes, f"m{i}", [numpy_helper.from_array(np.asarray(factor, np.float32), f"k{i}")])


def _graph(nodes: list[object], result: str, constants: list[object] | None = None) -> object:
    output = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
    return helper.make_graph(nodes, "g", [], [output], constants or [])


def _compare(session: ort_core.InferenceSession, content: bytes) -> None:
    peer = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for x in (X, -np.abs(X)):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], peer.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)
