"""How many threads suit this process: the processors it may use, its container's share of them, one for each core."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from contextlib import suppress


def available_threads() -> int:
    """Return how many threads keep this process's processors busy: at least 1.

    The affinity mask and the container's quota of processor time count. Two hardware threads of one core share its
    arithmetic units, which one thread of dense products fills: they count once where the system tells of them.
    """
    usable = _usable()
    count, quota = len(usable), None
    if sys.platform == "linux":
        from ort_core.cpu.threads.topology_linux import container_quota, count_cores

        count, quota = count_cores(usable), container_quota()
    return max(1, count if quota is None else min(count, math.ceil(quota)))


def _usable() -> Sequence[int]:
    """Return the processors of the affinity mask; all where there is none, or a sandbox does not tell it."""
    if hasattr(os, "sched_getaffinity"):
        with suppress(OSError):
            return sorted(os.sched_getaffinity(0))
    return range(os.cpu_count() or 1)
