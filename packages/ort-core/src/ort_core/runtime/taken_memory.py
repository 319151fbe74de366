"""Which memory arrays occupy: whether one more overlaps any of them, for thousands of arrays."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.lib.array_utils import byte_bounds

_USABLE = 0x1 | 0x400  # numpy's flags: row-major, may be written
_OWN = _USABLE | 0x4  # owns its memory, too


def may_share(result: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two arrays may share memory: as ``numpy.may_share_memory``, sooner where owners tell it.

    A result of a kernel that is no view of ``other`` itself, nor of what that is a view of, has memory of its own.
    """
    if result is other:
        return True
    owner = result if result.base is None else result.base
    is_apart = owner is not other and owner is not other.base and type(owner) is np.ndarray and owner.flags.owndata
    return not is_apart and np.may_share_memory(result, other)


def _owner(array: np.ndarray) -> object | None:
    """Return what has an array's memory, and no other; ``None`` where that is not known."""
    owner: object = array
    while type(owner) is np.ndarray and owner.base is not None:
        owner = owner.base
    is_own = owner.flags.owndata if type(owner) is np.ndarray else getattr(owner, "owns_memory", False)
    return owner if is_own else None


def are_apart(results: Sequence[object], feeds: Sequence[object]) -> bool:
    """Return whether results surely are arrays that own their memory, each for itself: what most kernels return.

    They are contiguous and may be written, too. No view of such an array is older than it is but one that was fed. The
    owner may be an object that numpy does not know, of memory that is kept between runs (``owns_memory``).
    """
    owners = set()
    for result in results:
        if type(result) is not np.ndarray:
            return False
        flags = result.flags.num
        if flags & _OWN == _OWN:
            owners.add(id(result))
        elif flags & _USABLE == _USABLE and getattr(result.base, "owns_memory", False):
            owners.add(id(result.base))
        else:
            return False
    if len(owners) != len(results):
        return False
    for feed in feeds:
        if type(feed) is not np.ndarray:
            return False
        base = feed.base
        if id(feed) in owners or id(base) in owners or (type(base) is np.ndarray and id(base.base) in owners):
            return False
    return True


class TakenMemoryState:
    """The memory of some arrays, between the first and the last byte of each (as ``numpy.may_share_memory`` judges).

    Arrays whose owners are known share memory with views of the same owner alone; addresses are asked for where one
    comes whose owner is not.
    """

    def __init__(self, arrays: Iterable[np.ndarray] = ()) -> None:
        self._of_owner: dict[int, list[np.ndarray]] = {}
        self._waiting: list[np.ndarray] = []  # not among the intervals yet
        self._starts: list[int] = []  # of intervals that do not overlap, in order
        self._ends: list[int] = []
        for array in arrays:
            self.add(array)

    def copy(self) -> TakenMemoryState:
        """Return the same, to go on by itself."""
        found = TakenMemoryState()
        found._of_owner = {key: list(arrays) for key, arrays in self._of_owner.items()}
        found._waiting, found._starts, found._ends = list(self._waiting), list(self._starts), list(self._ends)
        return found

    def overlaps(self, array: np.ndarray) -> bool:
        """Return whether an array may share memory with one that was added."""
        if not array.size:
            return False
        owner = _owner(array)
        if owner is not None:
            return any(np.may_share_memory(array, other) for other in self._of_owner.get(id(owner), ()))
        for other in self._waiting:
            self._insert(other)
        self._waiting.clear()
        low, high = byte_bounds(array)
        return bisect_right(self._starts, high - 1) > bisect_right(self._ends, low)

    def add(self, array: np.ndarray) -> None:
        """Add an array."""
        self._waiting.append(array)  # which keeps its owner, too
        owner = _owner(array)
        if owner is not None:
            self._of_owner.setdefault(id(owner), []).append(array)

    def _insert(self, array: np.ndarray) -> None:
        if not array.size:
            return
        low, high = byte_bounds(array)
        first, last = bisect_left(self._ends, low), bisect_right(self._starts, high)
        if first < last:
            low, high = min(low, self._starts[first]), max(high, self._ends[last - 1])
        self._starts[first:last] = [low]
        self._ends[first:last] = [high]
