"""Bodies of If, Loop and Scan as compiled partitions, against the reference provider and onnxruntime."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import parser

import ort_core as ort
from ort_core.cpu.partition.bodies import CompiledBody
from ort_core.kernels.evaluator import BoundGraph
from ort_core.tolerances import compare

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
Feeds = Mapping[str, np.ndarray]

CAPTURED = """
g (float[N,4] x, int64 trips, bool go, float limit) => (float[N,4] last, float[K,N,4] steps)
<float[4,4] w = {0.5,-0.2,0.1,0,0.3,0.4,0,-0.1,0.2,0,0.6,0.1,0,0.1,-0.3,0.5}, int64 two = {2}> {
    shift = Tanh(x)
    last, steps = Loop (trips, go, x) <body = body (int64 i, bool c, float[N,4] h) =>
        (bool more, float[N,4] out, float[N,4] seen) {
        product = MatMul(h, w)
        out = Add(product, shift)
        seen = Sigmoid(out)
        most = ReduceMax <keepdims = 0> (out)
        more = Less(most, limit)
    }>
}"""
BRANCHES = """
g (float[2,N,8] x, bool flat) => (float y, float last)
{
    x3 = If (flat) <
        then_branch = a () => (float[A1,B1,C1] p) { p = Neg(x) },
        else_branch = b () => (float[A2,B2,C2] q) {
            s = Exp(x)
            q = Sub(s, x)
        }>
    z = If (flat) <
        then_branch = c () => (z1) { z1 = ReduceSum <keepdims = 0> (x3, axis) },
        else_branch = d () => (z2) { z2 = Sqrt(x3) }>
    z0 = If (flat) <
        then_branch = e () => (z3) { z3 = Unsqueeze(z, axis) },
        else_branch = f () => (z4) { z4 = Identity(z) }>
    every, end = LSTM <hidden_size = 4> (z0, w, r)
    y = ReduceSum <keepdims = 0> (every)
    last = ReduceMax <keepdims = 0> (end)
}"""
SCAN = """
g (float[T,N,3] x, float[N,3] first) => (float[N,3] last, float[T,N,3] sums) {
    last, sums = Scan <num_scan_inputs = 1, body = body (float[N,3] before, float[N,3] now) =>
        (float[N,3] after, float[N,3] copy) {
        both = Add(before, now)
        after = Tanh(both)
        copy = Mul(after, before)
    }> (first, x)
}"""
NESTED = """
g (float[N,4] x, int64 trips, bool choice) => (float[N,4] y)
<float[4,4] w = {0.5,-0.2,0.1,0,0.3,0.4,0,-0.1,0.2,0,0.6,0.1,0,0.1,-0.3,0.5}> {
    twice = Add(x, x)
    y = If (choice) <
        then_branch = a () => (float[N,4] result) {
            inner = Sigmoid(twice)
            result = Loop (trips, , x) <body = body (int64 i, bool c, float[N,4] h) => (bool c2, float[N,4] out) {
                c2 = Identity(c)
                p = MatMul(h, w)
                q = Add(p, inner)
                out = Mul(q, twice)
            }>
        },
        else_branch = b () => (float[N,4] other) { other = Identity(twice) }>
}"""
SEQUENCE = """
g (float[N,4] x, int64 trips) => (float[M,4] y) {
    empty = SequenceEmpty()
    all = Loop (trips, , empty) <body = body (int64 i, bool c, seq(float[N,4]) s) => (bool c2, seq(float[N,4]) out) {
        c2 = Identity(c)
        step = Cast <to = 1> (i)
        moved = Add(x, step)
        v = Tanh(moved)
        out = SequenceInsert(s, v)
    }>
    y = ConcatFromSequence <axis = 0> (all)
}"""


def model(text: str, **initializers: np.ndarray) -> onnx.ModelProto:
    """Return a model from text, with initializers that are given as arrays."""
    made = parser.parse_model(HEADER + text)
    made.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in initializers.items())
    return made


def session(made: onnx.ModelProto, provider: str = "CPUExecutionProvider") -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    return ort.InferenceSession(made.SerializeToString(), options, providers=[provider])


def compiled_bodies(ran: ort.InferenceSession) -> list[CompiledBody]:
    """Return the compiled bodies of a session's control flow, outer before inner."""
    found: list[CompiledBody] = []
    waiting = [planned.step.compiled for planned in ran._loaded.prepared.plan.steps]
    while waiting:
        partition = waiting.pop()
        for body in partition.bodies:
            assert not isinstance(body, BoundGraph)
            found.append(body)
            waiting.append(body.partition)
    return found


def check(made: onnx.ModelProto, feeds: Feeds) -> None:
    """Assert that compiled bodies give what the kernels and onnxruntime give, in several turns."""
    expected = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, dict(feeds)
    )
    reference = session(made, "ReferenceExecutionProvider").run(None, dict(feeds))
    ran = session(made)
    assert compiled_bodies(ran), "nothing in the bodies was compiled"
    for turn in range(3):
        for found, *others in zip(ran.run(None, dict(feeds)), reference, expected, strict=True):
            for other in others:
                assert found.shape == other.shape, (turn, found.shape, other.shape)
                result = compare(found, other, "approximate")
                assert result.passes, f"turn {turn}: {result}"


def floats(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@functools.cache
def captured_sessions() -> tuple[ort.InferenceSession, ort.InferenceSession]:
    """Return a compiled session and the reference's, made once."""
    made = model(CAPTURED)
    return session(made), session(made, "ReferenceExecutionProvider")


@settings(max_examples=12, deadline=None)
@given(trips=st.integers(0, 6), rows=st.integers(1, 5), go=st.booleans(), limit=st.floats(-2, 3, width=32))
def test_loop_with_captured_values_stops_when_its_body_says_so(trips: int, rows: int, go: bool, limit: float) -> None:
    feeds = {"x": floats(rows, rows, 4), "trips": np.array(trips), "go": np.array(go), "limit": np.float32(limit)}
    ran, reference = captured_sessions()
    assert compiled_bodies(ran)
    expected = reference.run(None, feeds)
    for found, other in zip(ran.run(None, feeds), expected, strict=True):
        assert found.shape == other.shape
        assert compare(found, other, "approximate").passes


@pytest.mark.parametrize("trips", [1, 7])
def test_loop_with_captured_values_gives_what_onnxruntime_gives(trips: int) -> None:
    feeds = {
        "x": floats(1, 3, 4), "trips": np.array(trips), "go": np.array(True), "limit": np.array(50, np.float32),
    }  # fmt: skip
    check(model(CAPTURED), feeds)


@pytest.mark.parametrize("steps", [1, 9])
def test_scan_carries_its_state_through_a_compiled_body(steps: int) -> None:
    check(model(SCAN), {"x": floats(2, steps, 2, 3), "first": floats(3, 2, 3)})


@pytest.mark.parametrize("choice", [True, False])
def test_a_loop_inside_of_a_branch_reads_values_of_both_graphs_around_it(choice: bool) -> None:
    check(model(NESTED), {"x": floats(4, 3, 4), "trips": np.array(4), "choice": np.array(choice)})


def test_a_loop_that_carries_a_sequence_compiles_what_it_computes_for_it() -> None:
    check(model(SEQUENCE), {"x": floats(5, 2, 4), "trips": np.array(5)})


@pytest.mark.parametrize("flat", [True, False])
def test_a_layer_behind_branches_of_different_ranks_is_compiled(flat: bool) -> None:
    made = model(BRANCHES, w=floats(6, 1, 16, 8), r=floats(7, 1, 16, 4), axis=np.array([0]))
    feeds = {"x": floats(8, 2, 3, 8), "flat": np.array(flat)}
    with np.errstate(invalid="ignore"):
        check(made, feeds)
    (planned,) = session(made)._loaded.prepared.plan.steps
    assert not [node for node in planned.step.compiled.refusals if node.op_type == "LSTM"]


def test_a_run_that_is_terminated_stops_inside_of_a_compiled_loop() -> None:
    ran = session(model(CAPTURED))
    options = ort.RunOptions()
    options.terminate = True
    feeds = {
        "x": floats(1, 3, 4), "trips": np.array(2**40), "go": np.array(True), "limit": np.array(1e9, np.float32),
    }  # fmt: skip
    with pytest.raises(ort.OrtError, match="terminate"):
        ran.run(None, feeds, options)


def test_bodies_without_anything_to_compile_run_by_kernels() -> None:
    made = model("""
    g (float[N] x, bool c) => (float[N] y) {
        y = If (c) <then_branch = a () => (float[N] p) { p = Identity(x) },
                    else_branch = b () => (float[N] q) { q = Identity(x) }>
    }""")
    ran = session(made)
    assert not compiled_bodies(ran)
    x = floats(9, 4)
    for c in (True, False):
        assert np.array_equal(ran.run(None, {"x": x, "c": np.array(c)})[0], x)
