"""How many processors and cores this process may use: by its affinity mask, and by its container's share of time."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from contextlib import suppress


def usable_processors() -> Sequence[int]:
    """Return the processors of the affinity mask; all where there is none, or a sandbox does not tell it."""
    if hasattr(os, "sched_getaffinity"):
        with suppress(OSError):
            return sorted(os.sched_getaffinity(0))
    return range(os.cpu_count() or 1)


def processor_quota() -> float | None:
    """Return the container's, or the service's, share of processor time in processors; ``None`` without a limit."""
    if sys.platform != "linux":
        return None
    from ort_core.machine_linux import group_quota

    return group_quota()


def available_processors() -> int:
    """Return how many processors this process can keep busy, hardware threads of one core each: at least 1."""
    return _within_quota(len(usable_processors()))


def available_threads() -> int:
    """Return how many threads of dense products keep this process's processors busy: at least 1.

    Two hardware threads of one core share its arithmetic units, which one such thread fills: they count once where the
    system tells of them.
    """
    usable = usable_processors()
    if sys.platform != "linux":
        return _within_quota(len(usable))
    from ort_core.machine_linux import count_cores

    return _within_quota(count_cores(usable))


def _within_quota(count: int) -> int:
    quota = processor_quota()
    return max(1, count if quota is None else min(count, math.ceil(quota)))
