"""Threads beside the calling one: each call is made once, whether the system gives threads or not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from ort_core.plugin.forks import side_threads


def refusing(first: int) -> Callable[[threading.Thread], None]:
    """Return what stands for ``Thread.start`` where the system gives so many threads."""
    start, left = threading.Thread.start, [first]

    def refuse(thread: threading.Thread) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("can't start new thread")
        start(thread)

    return refuse


@pytest.mark.parametrize("given", [0, 1, 2, 9])
def test_each_call_is_made_once_however_many_threads_there_are(monkeypatch: pytest.MonkeyPatch, given: int) -> None:
    monkeypatch.setattr(threading.Thread, "start", refusing(given))
    made, lock = [], threading.Lock()

    def call(number: int) -> tuple[int, int]:
        time.sleep(0.001)
        with lock:
            made.append(number)
        return number, threading.get_ident()

    with side_threads(4, "named") as pool:
        found = list(pool.map(call, range(50)))
    assert sorted(made) == list(range(50))
    assert [number for number, _ in found] == list(range(50))
    assert (threading.get_ident() in {thread for _, thread in found}) == (given < 4)


@pytest.mark.parametrize("given", [0, 9])
def test_an_error_is_raised_where_the_result_is_asked_for(monkeypatch: pytest.MonkeyPatch, given: int) -> None:
    monkeypatch.setattr(threading.Thread, "start", refusing(given))
    with side_threads(2) as pool:
        failing = pool.submit(lambda: 1 // 0)
        assert pool.submit(lambda: 2).result() == 2
    with pytest.raises(ZeroDivisionError):
        failing.result()


def test_a_call_that_was_given_up_is_not_made() -> None:
    may_go, made = threading.Event(), []
    with side_threads(1) as pool:
        first = pool.submit(may_go.wait, 60)
        second = pool.submit(made.append, 1)
        assert second.cancel()
        may_go.set()
        assert first.result()
    assert not made
