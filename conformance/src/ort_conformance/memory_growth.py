"""Growth of the memory in use while something is repeated: a leak grows in most windows, a cache fills in one.

Resident memory alone misleads: memory that the allocator holds free hides what is leaked into it, and gets smaller
when free pages of others are given back or the system, short of memory, takes pages of mapped files away. So free pages
are given back before each look and pages of files are not counted, where the system can. What callers of malloc have is
asked apart: that is exact, but knows nothing of other memory. The growth is the larger of the two, each the median over
windows: what happens once, in either direction, does not count.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import sys
from collections.abc import Callable

import psutil

WINDOWS = 5


def growth_of(repeated: Callable[[], object], count: int) -> float:
    """Repeat something and return by how many bytes the memory in use grew, from the median of equal windows.

    Args:
        repeated: what is done again and again; it has reached its level already.
        count: how often in all; the last window may be longer.
    """
    sizes, looks = [count // WINDOWS] * WINDOWS, [_used_nbytes()]
    sizes[-1] += count % WINDOWS
    for size in sizes:
        for _ in range(size):
            repeated()
        looks.append(_used_nbytes())
    measures = zip(*looks, strict=True)
    return WINDOWS * max(statistics.median(b - a for a, b in itertools.pairwise(measure)) for measure in measures)


def _used_nbytes() -> tuple[int, int]:
    """Return the memory that the process holds, and what of it was asked of malloc (0 where nobody counts)."""
    gc.collect()
    if sys.platform == "linux":
        from ort_conformance.memory_linux import allocated_nbytes, give_back_free_memory, held_nbytes

        give_back_free_memory()
        held = held_nbytes()
        if held is not None:
            return held, allocated_nbytes()
    return int(psutil.Process().memory_info().rss), 0
