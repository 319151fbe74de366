"""Which candidate is taken: the fastest, the remembered one, or within a budget the best that was tried."""

from __future__ import annotations

import pytest

from ort_core.plugin.cache import ArtefactCache
from ort_ep_cuda.engines.tuning import TIMED_RUNS, Candidate, Tuner, bucket


class Clock:
    """A stream on which each candidate takes as long as its name says."""

    handle = 0

    def __init__(self) -> None:
        self.run: list[bytes] = []

    def scratch(self, nbytes: int) -> int:
        raise AssertionError("tuning itself needs no memory")

    def seconds(self, call) -> float:
        call()
        return float(self.run[-1])


def _candidates(clock: Clock, *seconds: float) -> list[Candidate]:
    names = [str(each).encode() for each in seconds]
    return [Candidate(name, lambda name=name: clock.run.append(name)) for name in names]


def _tuner(tmp_path, budget_s: float = 1e9) -> Tuner:
    return Tuner((("device", "made up"),), (RuntimeError,), ArtefactCache(tmp_path), budget_s)


def test_the_fastest_candidate_is_taken_and_taken_again_by_another_session(tmp_path) -> None:
    clock = Clock()
    assert _tuner(tmp_path).choose("a", _candidates(clock, 3.0, 1.0, 2.0), clock).name == b"1.0"
    assert len(clock.run) == 3 * (1 + TIMED_RUNS)
    clock.run.clear()
    assert _tuner(tmp_path).choose("a", _candidates(clock, 3.0, 1.0, 2.0), clock).name == b"1.0"
    assert clock.run == []


def test_a_single_candidate_is_run_once(tmp_path) -> None:
    clock = Clock()
    _tuner(tmp_path).choose("a", _candidates(clock, 3.0), clock)
    assert len(clock.run) == 1


def test_a_remembered_candidate_that_is_not_offered_is_timed_anew(tmp_path) -> None:
    clock = Clock()
    _tuner(tmp_path).choose("a", _candidates(clock, 3.0, 1.0), clock)
    assert _tuner(tmp_path).choose("a", _candidates(clock, 3.0, 2.0), clock).name == b"2.0"


def test_a_spent_budget_ends_tuning_and_what_was_not_compared_is_not_remembered(tmp_path) -> None:
    clock, tuner = Clock(), _tuner(tmp_path, budget_s=10.0)
    assert tuner.choose("a", _candidates(clock, 3.0, 1.0), clock).name == b"3.0", "twelve seconds were spent"
    assert tuner.choose("b", _candidates(clock, 5.0, 1.0), clock).name == b"5.0"
    assert clock.run.count(b"5.0") == 1, "the first of the heuristics runs, and is not timed again"
    assert _tuner(tmp_path).find("a") is None
    assert tuner.find("a") == b"3.0", "this session stays with it"


def test_an_error_that_is_none_of_the_librarys_is_not_swallowed(tmp_path) -> None:
    def fail() -> None:
        raise KeyError("a mistake of ours")

    with pytest.raises(KeyError):
        _tuner(tmp_path).choose("a", [Candidate(b"x", fail)], Clock())


def test_sizes_are_rounded_up_to_powers_of_two() -> None:
    assert [bucket(size) for size in (1, 2, 3, 4, 5, 512, 513)] == [1, 2, 4, 4, 8, 512, 1024]
