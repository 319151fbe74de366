"""Memory in pages of 2 MiB, where the system has them.

A processor knows where some two thousand pages lie. Of 4 KiB they are 8 MB, less than the weights that a step reads;
and to clear 512 times as many takes twice the time. Arrays that are smaller than a large page share a piece.
"""

from __future__ import annotations

import contextlib
import mmap
import sys

import numpy as np

_ADVICE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)  # Linux alone has it
_LEAST_NBYTES = 1 << 22  # of one piece: below, large pages save nothing
_PIECE_NBYTES = 1 << 25  # what nobody has written to of it takes no memory
_SMALL_NBYTES, _LARGE_NBYTES = 1 << 16, 1 << 22  # arrays between these share pieces; numpy advises for those above
_LINE_NBYTES = 64


def large_memory(nbytes: int) -> mmap.mmap:
    """Return memory of zeros, in large pages where it is worth them."""
    if sys.platform == "win32":
        return mmap.mmap(-1, nbytes)
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if _ADVICE is not None and nbytes >= _LEAST_NBYTES:
        with contextlib.suppress(OSError):  # a system without large pages
            memory.madvise(_ADVICE)
    return memory


class LargePages:
    """Pieces of memory that arrays share, which go with the last array in them; one thread uses it."""

    def __init__(self) -> None:
        self._piece: np.ndarray = np.zeros(0, np.uint8)
        self._used = 0

    def empty(self, nbytes: int) -> np.ndarray:
        """Return bytes that start on a cache line, in memory of their own where they are few or many."""
        if not _SMALL_NBYTES <= nbytes < _LARGE_NBYTES:
            raw = np.empty(nbytes + _LINE_NBYTES, np.uint8)
            start = -raw.ctypes.data % _LINE_NBYTES
            return raw[start : start + nbytes]
        if nbytes > self._piece.size - self._used:
            self._piece, self._used = np.frombuffer(large_memory(_PIECE_NBYTES), np.uint8), 0
        start = self._used
        self._used += -(-nbytes // _LINE_NBYTES) * _LINE_NBYTES
        return self._piece[start : start + nbytes]

    def copied(self, array: np.ndarray) -> np.ndarray:
        """Return a contiguous copy of an array that starts on a cache line."""
        out = self.empty(array.nbytes).view(array.dtype).reshape(array.shape)
        out[...] = array
        return out
