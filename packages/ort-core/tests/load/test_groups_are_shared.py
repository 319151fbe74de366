"""Equal groups of nodes between kernels are lowered once, tell names of their own, and differ by all that counts."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from growing_models import GROWING, between
from hostile_models import Graph

import ort_core
from ort_core.cpu.partition import partition
from ort_core.ir.nodes import Node

COUNT = 60
X = np.linspace(-1, 2, 16, dtype=np.float32).reshape(4, 4)


def _session(graph: Graph) -> ort_core.InferenceSession:
    return ort_core.InferenceSession(graph.proto(), providers=["CPUExecutionProvider"])


def _compare(graph: Graph) -> ort_core.InferenceSession:
    session, content = _session(graph), graph.proto()
    peer = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for x in (X, -X):
        found, expected = (each.run(None, {"x": x}) for each in (session, peer))
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)
    return session


def test_equal_groups_are_lowered_once(lowered):
    session = _compare(GROWING["by kernels"](3 * COUNT))
    assert len(lowered) <= 4, f"{len(lowered)} programs for {COUNT} groups"
    assert sum(step.program is not None for step in _segments(session)) >= COUNT - 1


def test_steps_of_equal_groups_name_their_own_nodes(lowered):
    session = _session(GROWING["by kernels"](3 * COUNT))
    programs = [(step.program, set(step.kernels.nodes)) for step in _segments(session) if step.program is not None]
    assert len({program.record.inputs for program, _ in programs}) == len(programs)
    for program, nodes in programs:
        for step in program.steps:
            assert {step.node, *(each for each in step.operators if isinstance(each, Node))} <= nodes | {None}


def _segments(session: ort_core.InferenceSession) -> list[object]:
    return session._loaded.prepared.plan.steps[0].step.compiled._steps


def _layers(*kinds: dict[str, object]) -> Graph:
    """Return groups of three nodes, each behind a kernel, that differ in what the kinds say."""
    graph = Graph(shape=(4, 4))
    for i, kind in enumerate(kinds):
        factor = kind.get("factor", 2.0)
        graph.constant(f"k{i}", np.asarray(factor, np.float32))
        operands = f"r{i} v{i}" if kind.get("swapped") else f"v{i} r{i}"
        graph.node("Det", f"v{i}", f"d{i}")
        graph.node("Add", f"d{i} v{i}", f"s{i}")
        graph.node("LeakyRelu", f"s{i}", f"r{i}", alpha=kind.get("alpha", 0.5))
        graph.node("Sub", operands, f"u{i}")
        graph.node("Mul", f"u{i} k{i}", f"m{i}")
        graph.node("Tanh", f"m{i}", f"v{i + 1}")
        if kind.get("returned"):
            graph.outputs.append(f"r{i}")
        if kind.get("read"):
            graph.node("Det", f"u{i}", f"e{i}")
            graph.outputs.append(f"e{i}")
    return between(graph, "v0", f"v{len(kinds)}")


@pytest.mark.parametrize(
    "other",
    [
        {"factor": 3.0}, {"factor": [1, 2, 3, 4]}, {"factor": [[1.0]]}, {"alpha": 0.25}, {"alpha": -0.0},
        {"swapped": True}, {"returned": True}, {"read": True},
    ],
)  # fmt: skip
def test_groups_that_differ_are_not_taken_for_each_other(other, lowered):
    _compare(_layers(*[{}, other] * 4))
    assert len(lowered) <= 5, "two kinds, and what stands at the ends"


def test_few_groups_are_not_compared(lowered, monkeypatch):
    monkeypatch.setattr(partition, "GroupContent", lambda *arguments: pytest.fail("there are few groups"))
    _compare(_layers({}))


def test_groups_are_equal_whoever_else_reads_what_they_are_given(lowered):
    graph = Graph(shape=(4, 4))
    for i in range(8):
        graph.node("Det", f"v{i}", f"d{i}")
        graph.node("Mul", f"x d{i}", f"s{i}")
        graph.node("Tanh", f"s{i}", f"t{i}")
        graph.node("Sub", f"t{i} x", f"v{i + 1}")
    _compare(between(graph, "v0", "v8"))
    assert len(lowered) <= 3
