"""Counts of numbers in bins that adapt to them: any count of samples takes the memory of one histogram.

Bins lie evenly between minus and plus a reach, which is a power of two. Numbers beyond it double the reach: pairs of
bins become one. What methods ask for, bins between the extremes that were seen, is read off the cumulative counts,
linearly within a bin; there are at least two of ours to one of theirs. The first numbers are kept as they are: few
numbers are counted exactly.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

_BINS = 8192  # 64 KB a tensor
_FINER = 4
_KEPT = 2**14  # numbers, as much memory as the bins take
_PIECE = 2**15  # numbers that are counted at once: what that takes beside them stays in the processor's cache


class Histogram:
    """The numbers of one tensor, as far as ranges depend on them.

    Args:
        num_bins: how many bins will be asked for.
    """

    def __init__(self, num_bins: int) -> None:
        self._counts = np.zeros(max(_BINS, 2 ** int(np.ceil(np.log2(_FINER * num_bins)))), np.int64)
        self._reach = 0.0
        self._first: list[np.ndarray] = []
        self.dtype = np.dtype(np.float32)
        self.least = np.inf
        self.most = -np.inf
        self.skipped = 0  # numbers that are not finite
        self._ends = np.array([0.0, 0.0])  # the same with infinities; NaN where a number was none

    @property
    def is_empty(self) -> bool:
        """Whether no finite number was seen."""
        return self.least > self.most

    @property
    def is_masked(self) -> bool:
        """Whether there were infinities of one sign beside finite numbers, as masks leave them."""
        return not self.is_empty and not np.isnan(self._ends).any() and int(np.isinf(self._ends).sum()) == 1

    @property
    def lower_end(self) -> float:
        """The smallest number, infinities included."""
        return min(self.least, float(self._ends[0]))

    @property
    def upper_end(self) -> float:
        """The largest number, infinities included."""
        return max(self.most, float(self._ends[1]))

    def add(self, values: np.ndarray) -> None:
        """Count the finite numbers of an array."""
        self.dtype = values.dtype
        flat = values.reshape(-1)
        finite = np.isfinite(flat)
        if not finite.all():
            self.skipped += int(flat.size - np.count_nonzero(finite))
            others = flat[~finite].astype(np.float64)
            self._ends = np.array([np.minimum(self._ends[0], others.min()), np.maximum(self._ends[1], others.max())])
            flat = flat[finite]
        if not flat.size:
            return
        least, most = float(flat.min()), float(flat.max())
        self.least, self.most = min(self.least, least), max(self.most, most)
        self._first.append(flat)
        if sum(each.size for each in self._first) > _KEPT:
            self._count_first()
        else:
            self._first[-1] = flat.copy()  # the caller's array is another one's soon

    def _count_first(self) -> None:
        """Count the numbers that were kept, and every number from now on."""
        for flat in self._first:
            self._grow(max(abs(float(flat.min())), abs(float(flat.max()))))
            self._counts += self._counted(flat)
        self._first = []

    @property
    def _is_exact(self) -> bool:
        return not self._counts.any()

    def _grow(self, needed: float) -> None:
        if needed <= self._reach or needed == 0:
            return
        whole = float(2.0 ** np.ceil(np.log2(needed)))
        if self._reach == 0:  # all numbers were zero: they lie in the bin that begins there
            self._reach = whole
        while self._reach < whole:
            pairs = self._counts.reshape(-1, 2).sum(axis=1)
            self._counts[:] = 0
            quarter = len(pairs) // 2
            self._counts[quarter : quarter + len(pairs)] = pairs
            self._reach *= 2

    def _counted(self, flat: np.ndarray) -> np.ndarray:
        half = len(self._counts) // 2
        counts = np.zeros(2 * half, np.int64)
        if self._reach == 0:
            counts[half] = flat.size
            return counts
        for first in range(0, flat.size, _PIECE):
            places = flat[first : first + _PIECE].astype(np.float64) * (half / self._reach)
            places += half
            counts += np.bincount(np.minimum(places.astype(np.int64), 2 * half - 1), minlength=2 * half)
        return counts

    def between(self, low: float, high: float, num_bins: int) -> tuple[np.ndarray, np.ndarray]:
        """Return counts (bins,) and the ends (bins + 1,) of even bins between two numbers."""
        edges = np.linspace(low, high, num_bins + 1)
        if self._is_exact:
            return self._exact(low, high, num_bins, np.concatenate(self._first))
        self._count_first()
        reach = self._reach or 1.0
        own = np.linspace(-reach, reach, len(self._counts) + 1)
        return self._spread(own, self._counts, edges), edges.astype(self.dtype)

    def of_magnitudes(self, num_bins: int) -> tuple[np.ndarray, np.ndarray]:
        """Return counts and ends of even bins of absolute values, from the least one on."""
        if self._is_exact:
            magnitudes = np.abs(np.concatenate(self._first))
            return self._exact(float(magnitudes.min()), float(magnitudes.max()), num_bins, magnitudes)
        self._count_first()
        half = len(self._counts) // 2
        counts = self._counts[half:] + self._counts[:half][::-1]
        is_around_zero = self.least <= 0 <= self.most
        low = 0.0 if is_around_zero else min(abs(self.least), abs(self.most))
        edges = np.linspace(low, self.reach, num_bins + 1)
        own = np.linspace(0.0, self._reach or 1.0, half + 1)
        return self._spread(own, counts, edges), edges.astype(self.dtype)

    def _exact(self, low: float, high: float, num_bins: int, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if low == high:  # one number only
            low, high = low - 0.5, high + 0.5
        if (high - low) / num_bins <= 2 * np.spacing(values.dtype.type(max(abs(low), abs(high)))):
            values = values.astype(np.float64)  # its own type has no numbers between the ends of bins so small
        counts, edges = np.histogram(values, num_bins, (low, high))
        return counts, edges.astype(self.dtype)

    @property
    def reach(self) -> float:
        """The greatest absolute value that was seen."""
        return max(abs(self.least), abs(self.most))

    def state(self) -> dict[str, np.ndarray]:
        """Return all that is known, as arrays by name."""
        facts = np.array([self._reach, self.least, self.most, self.skipped, *self._ends], np.float64)
        first = np.concatenate(self._first) if self._first else np.zeros(0, self.dtype)
        counts = self._counts if self._counts.any() else np.zeros(0, np.int64)
        return {"facts": facts, "first": first, "counts": counts}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what ``state`` gave."""
        self._reach, self.least, self.most = (float(each) for each in arrays["facts"][:3])
        self.skipped = int(arrays["facts"][3])
        self._ends = arrays["facts"][4:6]
        self._first = [arrays["first"]] if arrays["first"].size else []
        self.dtype = arrays["first"].dtype
        if arrays["counts"].size:
            self._counts[:] = arrays["counts"]

    def share_outside(self, low: float, high: float) -> float:
        """Return the share of the numbers below one number or above another, to within a bin."""
        if self._is_exact:
            values = np.concatenate(self._first)
            return float(np.count_nonzero((values < low) | (values > high)) / values.size)
        self._count_first()
        reach = self._reach or 1.0
        own = np.linspace(-reach, reach, len(self._counts) + 1)
        below = np.interp([low, high], own, np.concatenate([[0], np.cumsum(self._counts)])) / self._counts.sum()
        inside = [0.0 if low <= self.least else below[0], 1.0 if high >= self.most else below[1]]
        return float(1 - (inside[1] - inside[0]))

    @staticmethod
    def _spread(own: np.ndarray, counts: np.ndarray, edges: np.ndarray) -> np.ndarray:
        below = np.interp(edges, own, np.concatenate([[0], np.cumsum(counts)]))
        below[0], below[-1] = 0, counts.sum()  # the extremes are exact: everything lies between them
        return np.diff(np.rint(below).astype(np.int64))
