"""IdleMemory: what partitions of one device hold for later runs, given back when another run finds no memory.

A slot of a signature that is not running keeps its arena, so that its next run allocates nothing. On a device that is
nearly full that memory is another signature's, or another partition's.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

from ort_core.plugin import AllocationLimitExceeded

Made = TypeVar("Made")
GiveBack = Callable[[], bool]


class IdleMemory:
    """Who holds idle memory of a device. Safe from many threads; a partition that is gone is forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders: list[weakref.WeakMethod[GiveBack]] = []

    def register(self, give_back: GiveBack) -> None:
        """Ask a method when memory is short; it gives back what is idle, and returns whether that was anything."""
        with self._lock:
            self._holders = [holder for holder in self._holders if holder() is not None]
            self._holders.append(weakref.WeakMethod(give_back))

    def make(self, make: Callable[[], Made]) -> Made:
        """Return what allocates memory; where there is not enough, once more when idle memory is given back.

        Raises:
            AllocationLimitExceeded: there is not enough without it either, or none was idle.
        """
        try:
            return make()
        except AllocationLimitExceeded as error:
            methods = [holder() for holder in tuple(self._holders)]
            given = [method() for method in methods if method is not None]  # all are asked
            if not any(given):
                raise
            error.__traceback__ = None  # its frames hold what was made before memory ran out
        return make()
