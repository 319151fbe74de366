"""Which memory arrays occupy: whether one more overlaps any of them, for thousands of arrays."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

import numpy as np
from numpy.lib.array_utils import byte_bounds

FEW = 8  # arrays that are compared one by one: cheaper than their addresses


def may_share(result: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two arrays may share memory: as ``numpy.may_share_memory``, sooner where owners tell it.

    A result of a kernel that is no view of ``other`` itself, nor of what that is a view of, has memory of its own.
    """
    if result is other:
        return True
    owner = result if result.base is None else result.base
    is_apart = owner is not other and owner is not other.base and type(owner) is np.ndarray and owner.flags.owndata
    return not is_apart and np.may_share_memory(result, other)


class TakenMemoryState:
    """The memory of some arrays, between the first and the last byte of each (as ``numpy.may_share_memory`` judges)."""

    def __init__(self, arrays: Iterable[np.ndarray] = ()) -> None:
        self._few: list[np.ndarray] | None = []
        self._starts: list[int] = []  # of intervals that do not overlap, in order
        self._ends: list[int] = []
        for array in arrays:
            self.add(array)

    def copy(self) -> TakenMemoryState:
        """Return the same, to go on by itself."""
        found = TakenMemoryState()
        found._few = None if self._few is None else list(self._few)
        found._starts, found._ends = list(self._starts), list(self._ends)
        return found

    def overlaps(self, array: np.ndarray) -> bool:
        """Return whether an array may share memory with one that was added."""
        if self._few is not None:
            return any(may_share(array, other) for other in self._few)
        if not array.size:
            return False
        low, high = byte_bounds(array)
        return bisect_right(self._starts, high - 1) > bisect_right(self._ends, low)

    def add(self, array: np.ndarray) -> None:
        """Add an array."""
        if self._few is not None:
            self._few.append(array)
            if len(self._few) > FEW:
                known, self._few = self._few, None
                for each in known:
                    self._insert(each)
            return
        self._insert(array)

    def _insert(self, array: np.ndarray) -> None:
        if not array.size:
            return
        low, high = byte_bounds(array)
        first, last = bisect_left(self._ends, low), bisect_right(self._starts, high)
        if first < last:
            low, high = min(low, self._starts[first]), max(high, self._ends[last - 1])
        self._starts[first:last] = [low]
        self._ends[first:last] = [high]
