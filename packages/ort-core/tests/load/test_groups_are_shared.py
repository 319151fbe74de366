"""Equal groups of nodes between kernels are lowered once, tell names of their own, and differ by all that counts."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from growing_models import GROWING, between
from hostile_models import Graph
from onnx import TensorProto, parser

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


SIZES_OF_OTHERS = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[4, 4] x, float[n, 3] u) => (float[4, 4] y, {declared}) {{
    v0 = Tanh(x)
    {layers}
    y = Tanh(v{count})
}}"""
ONE_LAYER = """
    d{i} = Det(v{i})
    s{i} = Shape <start = 0, end = 1> (u)
    e{i} = Expand(d{i}, s{i})
    f{i} = Sin(e{i})
    o{i} = Mul(f{i}, e{i})
    m{i} = Mul(d{i}, v{i})
    v{after} = Cos(m{i})"""


@pytest.mark.filterwarnings("error::UserWarning")
def test_equal_groups_take_sizes_from_an_input_that_they_do_not_read(lowered):
    layers, declared = (
        separator.join(part.format(i=i, after=i + 1) for i in range(8))
        for part, separator in ((ONE_LAYER, ""), ("float[n] o{i}", ", "))
    )
    content = parser.parse_model(SIZES_OF_OTHERS.format(layers=layers, declared=declared, count=8)).SerializeToString()
    session = ort_core.InferenceSession(content, providers=["CPUExecutionProvider"])
    peer = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    assert len(lowered) <= 4
    for rows in (5, 2):
        feeds = {"x": X, "u": np.zeros((rows, 3), np.float32)}
        for ours, theirs in zip(session.run(None, feeds), peer.run(None, feeds), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)


def test_sizes_that_read_alike_are_told_apart():
    """What two groups know of their operands is a size named as the sum is written, or the sum."""
    nodes = ["r = Shape(p)", "s = Shape(q)", "named = Shape(z)", "added = Add(r, s)", "v0 = Sigmoid(x)"]
    for i in range(6):
        kind = "named" if i % 2 else "added"
        nodes += [
            f"k{i} = Concat <axis = 0> ({kind}, {kind})", f"d{i} = Det(v{i})", f"m{i} = Mul(v{i}, d{i})",
            f"w{i} = Sigmoid(m{i})", f"n{i} = Shape <start = 0, end = 1> (m{i})",
            f"j{i} = Concat <axis = 0> (k{i}, n{i})", f"c{i} = Cast <to = 1> (j{i})", f"l{i} = ReduceL2(c{i})",
            f"v{i + 1} = Div(w{i}, l{i})",
        ]  # fmt: skip
    body = "\n".join(nodes)
    given = "float[c, c] x, float[a] p, float[b] q, float[sum] z"
    graph = f"g ({given}) => (float[c, c] v5, float[c, c] v6) {{{body}}}"
    model = parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> ' + graph)
    model.graph.input[3].type.tensor_type.shape.dim[0].dim_param = "a + b"
    content = model.SerializeToString()
    disabled = ["CommonSubexpressionElimination"]
    session = ort_core.InferenceSession(content, providers=["CPUExecutionProvider"], disabled_optimizers=disabled)
    peer = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    feeds = {"x": X, **{name: np.zeros(count, np.float32) for name, count in (("p", 2), ("q", 3), ("z", 11))}}
    for ours, theirs in zip(session.run(None, feeds), peer.run(None, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5)


def test_halves_are_rounded_for_what_ranks_them_behind_others_outside():
    """Of groups that are equal, some are read, behind a group that follows, by what ranks elements."""
    graph = Graph(shape=(4, 4), outputs=[])
    graph.constant("third", np.float16(1 / 3))
    is_ranked = [False, False, True, False, True, True]
    graph.node("Identity", "x", "v0")
    for i in range(len(is_ranked)):
        graph.node("Det", f"v{i}", f"d{i}")
        graph.node("Add", f"v{i} d{i}", f"s{i}")
        graph.node("Cast", f"s{i}", f"h{i}", to=TensorProto.FLOAT16)
        graph.node("Mul", f"h{i} third", f"m{i}")
        graph.node("Cast", f"m{i}", f"w{i}", to=TensorProto.FLOAT)
        graph.node("Sin", f"w{i}", f"v{i + 1}")
    graph.node("Det", f"v{len(is_ranked)}", "last")
    for i, ranks in enumerate(is_ranked):
        graph.node("Max", f"w{i} last", f"t{i}")
        graph.node("Hardmax" if ranks else "Tanh", f"t{i}", f"y{i}")
        graph.outputs += [f"y{i}", f"w{i}"]
    graph.outputs.append("last")
    session = ort_core.InferenceSession(graph.proto(), providers=["CPUExecutionProvider"])
    results = dict(zip(graph.outputs, session.run(None, {"x": X}), strict=True))
    for i in np.flatnonzero(is_ranked):
        ranked = results[f"w{i}"]
        np.testing.assert_array_equal(ranked, ranked.astype(np.float16).astype(np.float32))
        expected = np.eye(4, dtype=np.float32)[np.maximum(ranked, results["last"]).argmax(-1)]
        np.testing.assert_array_equal(results[f"y{i}"], expected)
