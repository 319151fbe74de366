"""Runs in the background: onnxruntime's callback form and awaitables, over one small pool per session."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ort_core.errors import OrtError
from ort_core.forks import new_lock
from ort_core.side_threads import side_threads

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

log = logging.getLogger(__name__)
T = TypeVar("T")
Callback = Callable[[list, object, str], None]
_MAX_WORKERS = 8  # runs at the same time; further ones wait. Each run may use all intra-op threads by itself.


class BackgroundRunsState:
    """The pool of a session, made at the first use and again in a forked child."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._lock = new_lock()
        self._process_id = os.getpid()

    def call(self, work: Callable[[], list], callback: Callback | None, user_data: object) -> None:
        """Run ``work``, then ``callback(results, user_data, error)``; the error is text, empty when there is none."""

        def run() -> None:
            try:
                results, error = work(), ""
            except BaseException as failure:  # noqa: BLE001 - an operator's sys.exit, too: the callback hears, or waits
                results, error = [], _text(failure)
            if callback is None:
                return
            try:
                callback(results, user_data, error)
            except Exception:  # it has no caller that could catch it
                log.exception("the callback of run_async, %r, failed", callback)

        self._executor().submit(run)

    async def wait(self, work: Callable[[Callable[[], bool]], T]) -> T:
        """Await ``work(is_cancelled)``; when the awaiting task is cancelled, ``is_cancelled`` turns true."""
        import asyncio  # who awaits has it already; a load does without its 25 ms

        cancelled = threading.Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor(), work, cancelled.is_set)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def close(self) -> None:
        """Let running work finish and take no more."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown(wait=False)
                self._pool = None

    def _executor(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None or self._process_id != os.getpid():
                self._pool = side_threads(_MAX_WORKERS, "ort-run")
                self._process_id = os.getpid()
            return self._pool


def _text(failure: BaseException) -> str:
    name, text = type(failure).__name__, Exception.__str__(failure) if isinstance(failure, OrtError) else str(failure)
    return (text or name) if isinstance(failure, Exception) else f"{name}: {text}"
