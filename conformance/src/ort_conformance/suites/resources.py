"""Resources: a thousand sessions and runs leave nothing behind, and what a session held is given back."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import psutil

from ort_conformance.check import promise, require
from ort_conformance.memory_growth import growth_of
from ort_conformance.subject import Subject
from ort_conformance.suites.model_writer import ModelWriter
from ort_conformance.suites.networks import perceptron
from ort_conformance.suites.sample_graphs import CHAIN

SUITE = "resources"
ROUNDS = 1000
WARM_UP = 50  # allocators and caches reach their level in far fewer
_LOOKS = 100  # at most five seconds
SIDE = 2048  # of a weight of 16 MiB, which no allocator keeps for small things


@promise(SUITE)
def a_thousand_runs_leave_no_memory_behind(subject: Subject) -> None:
    """The memory in use does not grow by more than the profile allows over a thousand runs."""
    model, feeds = perceptron()
    with subject.session(model) as session:
        for _ in range(WARM_UP):
            session.run(None, feeds)
        growth = growth_of(lambda: session.run(None, feeds), ROUNDS)
    _require_little(subject, growth, f"{ROUNDS} runs")


@promise(SUITE)
def growing_and_shrinking_inputs_leave_no_memory_behind(subject: Subject) -> None:
    """Inputs of changing sizes do not make memory grow without end."""
    model, _ = perceptron()
    rows = np.zeros((256, 24), np.float32)
    sizes = [1 + (number * 37) % 256 for number in range(ROUNDS)]
    with subject.session(model) as session:
        for size in sizes[:512]:
            session.run(None, {"x": rows[:size]})
        turn = itertools.cycle(sizes)
        growth = growth_of(lambda: session.run(None, {"x": rows[: next(turn)]}), ROUNDS)
    _require_little(subject, growth, f"{ROUNDS} runs of changing sizes")


@promise(SUITE, is_long=True)
def a_thousand_sessions_leave_no_memory_behind(subject: Subject) -> None:
    """The memory in use does not grow by more than the profile allows over a thousand sessions."""
    _make_sessions(subject, WARM_UP)
    _require_little(subject, growth_of(lambda: _make_sessions(subject, 1), ROUNDS), f"{ROUNDS} sessions")


@promise(SUITE)
def sessions_leave_no_threads_behind(subject: Subject) -> None:
    """Threads do not become more with every session."""
    _make_sessions(subject, 3)
    before = _thread_count()
    _make_sessions(subject, 20)
    after = _thread_count()
    for _ in range(_LOOKS):  # a thread that was waited for may take a moment until the system has ended it
        if after <= before + 2:
            break
        time.sleep(0.05)
        after = _thread_count()
    require(after <= before + 2, f"{after - before} threads more after 20 sessions")


@promise(SUITE)
def a_closed_session_gives_its_weights_back(subject: Subject) -> None:
    """Closing sessions with large weights gives their memory back."""
    writer = ModelWriter("large")
    value = writer.op("MatMul", writer.input("x", [1, SIDE]), writer.weight(SIDE, SIDE))
    model = writer.model({value: "y"})
    feeds = {"x": np.ones((1, SIDE), np.float32)}

    def use() -> None:
        with subject.session(model) as session:
            session.run(None, feeds)

    use()
    use()
    _require_little(subject, growth_of(use, 5), f"5 sessions with {SIDE * SIDE * 4 >> 20} MiB of weights each")


def _make_sessions(subject: Subject, count: int) -> None:
    model, feeds = CHAIN.model(), CHAIN.feeds()
    for _ in range(count):
        with subject.session(model) as session:
            session.run(None, feeds)


def _thread_count() -> int:
    return max(psutil.Process().num_threads(), threading.active_count())


def _require_little(subject: Subject, growth: float, what: str) -> None:
    allowed = subject.profile.memory_growth_nbytes
    require(growth <= allowed, f"{what} left {growth / 2**20:.1f} MiB behind, allowed are {allowed / 2**20:.1f}")
