"""The processor's cores, shared out among the models that run at once.

A run takes as many cores as its session has threads and waits, in order of arrival, while they are taken: more
threads than cores make every run slower without finishing any sooner.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from ort_core.machine_processors import available_processors


class CoreBudget:
    """So many cores. Safe to use from many threads."""

    def __init__(self, cores: int | None = None) -> None:
        self.cores = cores or available_processors()
        self._free = self.cores
        self._waiting: deque[threading.Event] = deque()
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, wanted: int) -> Iterator[None]:
        """Hold ``wanted`` cores, at most all there are, while the body runs."""
        count = min(wanted, self.cores)
        self._acquire(count)
        try:
            yield
        finally:
            self.release(count)

    def try_hold(self, wanted: int) -> int:
        """Take ``wanted`` cores, at most all there are, if they are free now; return how many, 0 for none."""
        count = min(wanted, self.cores)
        with self._lock:
            if self._waiting or self._free < count:
                return 0
            self._free -= count
        return count

    def release(self, count: int) -> None:
        """Give cores back."""
        with self._lock:
            self._free += count
            if self._waiting:
                self._waiting[0].set()

    def _acquire(self, count: int) -> None:
        with self._lock:
            if not self._waiting and self._free >= count:
                self._free -= count
                return
            turn = threading.Event()
            self._waiting.append(turn)
        while True:
            turn.wait()
            with self._lock:
                turn.clear()
                if self._free >= count:
                    self._free -= count
                    self._waiting.popleft()
                    if self._waiting:  # what is left may be enough for the next
                        self._waiting[0].set()
                    return
