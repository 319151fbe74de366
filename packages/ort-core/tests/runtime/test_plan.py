"""The execution plan: results that nobody else owns, limits that hold, and many threads on one plan."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from ort_core.errors import InvalidArgument, RunTerminated, RunTimeout
from ort_core.runtime import limits
from ort_core.runtime.limits import RunSettings
from ort_core.runtime.plan import ExecutionPlan
from ort_core.stages import PrepareSettings, plan_model, select_providers
from ort_core.testing.fake_providers import environment_of
from ort_core.testing.models import model_of


def plan_of(body: str, provider: str = "CPUExecutionProvider") -> ExecutionPlan:
    environment = environment_of()
    settings = PrepareSettings()
    selection = select_providers([(provider, {})], environment, settings)
    return plan_model(model_of(body).freeze(), selection, environment, settings).plan


def test_output_never_aliases_an_input_or_another_output() -> None:
    plan = plan_of(
        "g (float[4] x) => (float[4] y, float[2, 2] z, float[4] x2) {"
        "y = Identity (x) shape = Constant <value_ints = [2, 2]> () z = Reshape (y, shape) x2 = Identity (y) }"
    )
    x = np.arange(4, dtype=np.float32)
    outputs = plan.run({"x": x})
    for index, output in enumerate(outputs):
        assert output.flags.writeable
        assert not np.shares_memory(output, x)
        assert not any(np.shares_memory(output, other) for other in outputs[:index])


def test_output_never_aliases_a_constant_of_the_model() -> None:
    plan = plan_of("g () => (float[2] y) <float[2] w = {1, 2}> { y = Identity (w) }")
    plan.run({})[0][:] = 7
    np.testing.assert_array_equal(plan.run({})[0], [1, 2])


def test_default_of_an_input_is_used_unless_it_is_fed() -> None:
    plan = plan_of("g (float[2] x, float[2] w = {1, 2}) => (float[2] y) { y = Add (x, w) }")
    x = np.float32([10, 20])
    np.testing.assert_array_equal(plan.run({"x": x})[0], [11, 22])
    np.testing.assert_array_equal(plan.run({"x": x, "w": np.float32([5, 5])})[0], [15, 25])


def test_outputs_come_in_the_order_asked_for() -> None:
    plan = plan_of("g (float[2] x) => (float[2] y, float[2] z) { y = Relu (x) z = Neg (x) }")
    z, y = plan.run({"x": np.float32([1, -1])}, ["z", "y"])
    np.testing.assert_array_equal(z, [-1, 1])
    np.testing.assert_array_equal(y, [1, 0])
    with pytest.raises(InvalidArgument, match="Invalid output name:q"):
        plan.run({"x": np.float32([1, -1])}, ["q"])


ENDLESS = """g (bool go, float[1] x) => (float[1] y) {
    none = Constant <value_int = 9223372036854775807> ()
    y = Loop (none, go, x) <body = b (int64 i, bool c, float[1] s) => (bool c2, float[1] s2) {
        c2 = Identity (c)
        s2 = Identity (s)
    }>
}"""


def test_endless_loop_ends_by_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()  # a clock that goes on by looking at it
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic_ns=lambda: next(ticks)))
    feeds = {"go": np.bool_(True), "x": np.zeros(1, np.float32)}
    with pytest.raises(RunTimeout):
        plan_of(ENDLESS).run(feeds, None, RunSettings(deadline_ns=1000))
    assert next(ticks) == 1002, "the first look behind the deadline ends the run"


def test_endless_loop_ends_when_terminate_is_set() -> None:
    answers = iter([False] * 50)
    feeds = {"go": np.bool_(True), "x": np.zeros(1, np.float32)}
    plan = plan_of(ENDLESS)
    with pytest.raises(RunTerminated):
        plan.run(feeds, None, RunSettings(terminate=lambda: next(answers, True)))


def test_observer_sees_every_node_with_its_results() -> None:
    seen: list[tuple[str, float]] = []
    settings = RunSettings(
        observer=lambda node, start, inputs, results: seen.append((node.op_type, float(results[0][0])))
    )
    plan = plan_of("g (float[1] x) => (float[1] y) { a = Neg (x) y = Exp (a) }", "ReferenceExecutionProvider")
    plan.run({"x": np.zeros(1, np.float32)}, None, settings)
    assert seen == [("Neg", 0.0), ("Exp", 1.0)]


def test_eight_threads_on_one_plan_give_the_serial_results() -> None:
    plan = plan_of("g (float[N, 8] x) => (float[N, 8] y) { a = Relu (x) b = Softmax (a) y = Mul (b, a) }")
    feeds = [np.random.default_rng(i).normal(size=(i % 5 + 1, 8)).astype(np.float32) for i in range(64)]
    serial = [plan.run({"x": x})[0] for x in feeds]
    with ThreadPoolExecutor(8) as pool:
        parallel = list(pool.map(lambda x: plan.run({"x": x})[0], feeds))
    for one, other in zip(serial, parallel, strict=True):
        np.testing.assert_array_equal(one, other)
