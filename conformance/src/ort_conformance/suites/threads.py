"""Threads: one session used by many, and many sessions at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ort_conformance.check import CannotJudge, promise, require
from ort_conformance.comparison import find_difference
from ort_conformance.profile import Feature
from ort_conformance.subject import Subject
from ort_conformance.suites.networks import encoder, perceptron
from ort_conformance.suites.sample_graphs import SAMPLES
from ort_core.testing.claims import request_for

SUITE = "threads"
THREADS, RUNS = 8, 64


@promise(SUITE)
def one_session_serves_many_threads(subject: Subject) -> None:
    """Runs of one session in many threads, with other inputs each, give what they give one after the other."""
    model, feeds = perceptron()
    given = [{"x": feeds["x"] * np.float32(1 + number / 7)} for number in range(RUNS)]
    with subject.session(model) as session, ThreadPoolExecutor(THREADS) as pool:
        expected = [session.run(None, each) for each in given]
        found = list(pool.map(lambda each: session.run(None, each), given))
    _require_equal(found, expected)


@promise(SUITE)
def threads_may_use_other_shapes(subject: Subject) -> None:
    """Runs of one session in many threads, with other sizes each, do not disturb one another."""
    model, _ = perceptron()
    rows = np.linspace(-1, 1, 40 * 24, dtype=np.float32).reshape(40, 24)
    given = [{"x": rows[: 1 + number % 33]} for number in range(RUNS)]
    with subject.session(model) as session, ThreadPoolExecutor(THREADS) as pool:
        expected = [session.run(None, each) for each in given]
        found = list(pool.map(lambda each: session.run(None, each), given))
    _require_equal(found, expected)


@promise(SUITE)
def sessions_are_made_and_closed_while_others_run(subject: Subject) -> None:
    """Making and closing sessions in some threads leaves runs in others right."""
    model, feeds = encoder()
    with subject.session(model) as session:
        expected = session.run(None, feeds)

        def work(number: int) -> list[object]:
            if number % 4:
                return list(session.run(None, feeds))
            with subject.session(model) as own:
                return list(own.run(None, feeds))

        with ThreadPoolExecutor(THREADS) as pool:
            found = list(pool.map(work, range(RUNS // 4)))
    _require_equal(found, [expected] * len(found))


@promise(SUITE, needs=Feature.CONCURRENT_RUNS)
def partitions_run_any_number_of_times_at_once(subject: Subject) -> None:
    """Compiled partitions set no limit to concurrent runs."""
    compiled = 0
    for sample in SAMPLES:
        view = subject.view(sample.model())
        for claim in subject.claims(view):
            partition = subject.new_provider().compile(request_for(view, claim))
            compiled += 1
            require(partition.runs_at_once is None, f"{sample.name}: runs_at_once is {partition.runs_at_once}")
            partition.close()
    if not compiled:
        raise CannotJudge("the provider claims nothing of the sample graphs")


def _require_equal(found: Sequence[Sequence[object]], expected: Sequence[Sequence[object]]) -> None:
    for number, (left, right) in enumerate(zip(found, expected, strict=True)):
        difference = find_difference(left, right, "approximate", f"run {number}, output")
        require(difference is None, str(difference))
