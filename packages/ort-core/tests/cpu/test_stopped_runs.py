"""A run whose guard stops it ends between the steps of one native program, and leaves nothing to later runs."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.program.program import NativeProgram
from ort_core.errors import RunTerminated, RunTimeout

LAYERS, SIZE = 12, 512
WEIGHTS = np.random.default_rng(1).standard_normal((SIZE, SIZE), np.float32) / np.float32(SIZE) ** 0.5


class CountingGuard:
    """A guard that stops a run when it is asked the last time of so many."""

    in_place: frozenset[int] = frozenset()
    may_stop = True

    def __init__(self, last: int) -> None:
        self.asked, self.last = 0, last

    def check(self) -> None:
        self.asked += 1
        if self.asked == self.last:
            raise RunTerminated("stopped by a test")

    def check_allocation(self, nbytes: int, what: str) -> None:
        """Allow all."""


@pytest.fixture(scope="module")
def session() -> ort.InferenceSession:
    nodes = [helper.make_node("MatMul", [f"h{i}", "w"], [f"h{i + 1}"]) for i in range(LAYERS)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", SIZE]) for name in ("h0", f"h{LAYERS}"))
    graph = helper.make_graph(nodes, "layers", [x], [y], [numpy_helper.from_array(WEIGHTS, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def program(session: ort.InferenceSession) -> NativeProgram:
    (program,) = session._loaded.prepared.plan.steps[0].step.compiled.native_programs
    return program


def numbers(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((rows, SIZE), np.float32)


def test_a_long_program_is_stopped_between_its_steps(program: NativeProgram, session: ort.InferenceSession) -> None:
    x = numbers(256)
    (expected,) = session.run(None, {"h0": x})
    whole = CountingGuard(0)
    np.testing.assert_array_equal(program.run([x], whole)[0], expected)
    assert 3 <= whole.asked <= LAYERS
    for last in range(1, whole.asked + 1):
        guard = CountingGuard(last)
        with pytest.raises(RunTerminated, match="stopped by a test"):
            program.run([x], guard)
        assert guard.asked == last
        np.testing.assert_array_equal(program.run([x])[0], expected)


def test_a_short_program_is_asked_for_once(program: NativeProgram) -> None:
    guard = CountingGuard(0)
    program.run([numbers(1)], guard)
    assert guard.asked == 1


def test_a_time_limit_ends_a_run_that_is_one_program(session: ort.InferenceSession) -> None:
    options = ort.RunOptions()
    options.time_limit_s = 1e-6
    with pytest.raises(RunTimeout, match="time limit"):
        session.run(None, {"h0": numbers(2048)}, options)


def test_options_that_were_terminated_end_a_run_that_is_one_program(session: ort.InferenceSession) -> None:
    options = ort.RunOptions()
    session.run(None, {"h0": numbers(256)}, options)
    options.terminate = True
    with pytest.raises(RunTerminated, match="terminate flag"):
        session.run(None, {"h0": numbers(256)}, options)
    options.terminate = False
    session.run(None, {"h0": numbers(256)}, options)
