"""SideThreads: an executor for work beside the calling thread.

A container or a user's limit may give a process no more threads. The calling thread does the work itself then: a load
takes longer, and is not refused.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from ort_core.forks import new_lock
from ort_core.interruptions import raise_interruption

Arguments = ParamSpec("Arguments")
T = TypeVar("T")


class SideThreads(ThreadPoolExecutor):
    """An executor that does on the calling thread what the system gives no thread for."""

    def submit(self, fn: Callable[Arguments, T], /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Future[T]:
        """Schedule a call, or make it now where no thread can be started, also as the interpreter ends."""
        task = _Task(lambda: fn(*args, **kwargs))
        try:
            super().submit(task.run)
        except RuntimeError:
            task.run()  # unless a thread that was there before has begun: what is refused may be in the queue
        return task.result


class _Task:
    """A call that is made once, by whoever comes first."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Future[Any] = Future()
        self._call = call
        self._turn = new_lock()

    def run(self) -> None:
        """Make the call, unless somebody has."""
        if not self._turn.acquire(blocking=False) or not self.result.set_running_or_notify_cancel():
            return
        try:
            found = self._call()
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            self.result.set_exception(error)
            raise_interruption(error)
        else:
            self.result.set_result(found)
