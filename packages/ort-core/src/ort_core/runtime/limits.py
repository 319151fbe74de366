"""Limits of a run: cancelling, a deadline, and how large one value may be."""

from __future__ import annotations

import functools
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from ort_core.errors import AllocationLimitExceeded, RunTerminated, RunTimeout
from ort_core.frozen import frozen

if TYPE_CHECKING:
    from ort_core.kernels.observer import Observer


@frozen
class RunSettings:
    """What the caller asks of one run.

    ``terminate`` is polled; ``deadline_ns`` is on the clock of ``time.monotonic_ns``; ``max_allocation_nbytes`` bounds
    a single value (``None``: the machine's default); ``observer`` is called behind every node. ``in_place`` are the
    addresses of arrays that are bound as an input and an output at once, ``bound`` those of them by the names of these
    outputs, which may be written there.
    """

    terminate: Callable[[], bool] | None = None
    deadline_ns: int | None = None
    max_allocation_nbytes: int | None = None
    observer: Observer | None = None
    in_place: frozenset[int] = frozenset()
    bound: Mapping[str, int] = field(default_factory=dict)


DEFAULT_RUN = RunSettings()


class LimitGuard:
    """The guard of one run: raises when the caller cancelled it, its time is over, or a value would be too large."""

    __slots__ = ("_deadline_ns", "_limit", "_terminate", "bound", "in_place", "is_shared", "may_stop")

    def __init__(self, settings: RunSettings, *, is_shared: bool = False) -> None:
        self.is_shared = is_shared
        self._terminate = settings.terminate
        self._deadline_ns = settings.deadline_ns
        self._limit = settings.max_allocation_nbytes
        self.may_stop = settings.terminate is not None or settings.deadline_ns is not None
        self.in_place, self.bound = settings.in_place, settings.bound

    def check(self) -> None:
        """Raise ``RunTerminated`` or ``RunTimeout`` when the run must stop."""
        if self._terminate is not None and self._terminate():
            raise RunTerminated("Exiting due to terminate flag being set to true.")
        if self._deadline_ns is not None and time.monotonic_ns() > self._deadline_ns:
            raise RunTimeout(
                "the run passed its time limit (RunOptions.time_limit_s, --time-limit); raise it or make inputs smaller"
            )

    def check_allocation(self, nbytes: int, what: str) -> None:
        """Raise ``AllocationLimitExceeded`` when a value of ``nbytes`` bytes may not be made."""
        limit = default_max_allocation() if self._limit is None else self._limit
        if nbytes > limit:
            raise AllocationLimitExceeded(
                f"{what} would take {nbytes} bytes, above the limit of {limit} bytes for one value; "
                "check the model's shapes, or raise max_allocation_bytes"
            )


DEFAULT_GUARD = LimitGuard(DEFAULT_RUN, is_shared=True)  # of all runs that ask for nothing: it never changes


@functools.cache
def default_max_allocation() -> int:
    """Return half of the memory that this process may use, in bytes; no limit where the system does not tell it."""
    from ort_core.machine_memory import usable_memory  # asked once, at the first run

    try:
        return usable_memory() // 2
    except OSError as error:
        warnings.warn(
            f"values of any size are allowed: {error}; set max_allocation_bytes for a limit",
            RuntimeWarning,
            stacklevel=2,
        )
        return sys.maxsize
