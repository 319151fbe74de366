"""GuardedArrays: the arrays of one native call on guarded memory, for calls that are not part of a program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.cpu.guarded.mode import GuardedMode, GuardViolation
from ort_core.cpu.guarded.region import GuardedRegion, Part

PATTERN = 0xFF  # as a float not a number, as an integer -1: an index that is out of bounds everywhere


class GuardedArrays:
    """Arrays that lie, each by itself, against a page that cannot be touched; they live no longer than this does.

    Args:
        reads: what the call reads; copied, and not to be written.
        writes: what it writes; filled with a pattern first.
        mode: which side lies against a page.
    """

    def __init__(self, reads: Sequence[np.ndarray], writes: Sequence[np.ndarray], mode: GuardedMode) -> None:
        self._region = GuardedRegion([Part(array.nbytes) for array in (*reads, *writes)], mode)
        self._first, self._count = len(reads), len(reads) + len(writes)
        self.arrays: list[np.ndarray] = []
        for number, array in enumerate((*reads, *writes)):
            self._region.fill(number, PATTERN)
            own = self._region.bytes_of(number)
            if number < self._first:
                own[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                self._region.let_read_only(number)
            self.arrays.append(own.view(array.dtype).reshape(array.shape))

    def address(self, number: int) -> int:
        """Return where an array lies, also one of no bytes."""
        return self._region.addresses[number]

    def check(self, call: str) -> None:
        """Look at what lies beside the arrays that were written.

        Raises:
            GuardViolation: some of it was changed.
        """
        for number in range(self._first, self._count):
            found = self._region.changed_beside(number)
            if found is not None:
                nbytes = self.arrays[number].nbytes
                raise GuardViolation(f"{call}: byte {found} of array {number}, of {nbytes} bytes, was written")
