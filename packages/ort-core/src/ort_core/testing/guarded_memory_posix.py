"""Memory of which one side meets a page that cannot be touched: a read or a write beyond it ends the process.

What lies between the other side and its page holds the pattern that all of it was filled with, and is looked at later.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from typing import Literal

import numpy as np

Edge = Literal["end", "begin"]
ALIGNMENT = 16  # bytes: of the most that one instruction of a device reads; up to 15 of them lie behind the end
_READ, _WRITE = 1, 2  # PROT_READ, PROT_WRITE

_library = ctypes.CDLL(None, use_errno=True)
_library.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class GuardedMemory:
    """Bytes with an address, filled with a pattern.

    Args:
        nbytes: how many.
        edge: which side meets the page that cannot be touched.
        pattern: the byte that all are filled with.

    Raises:
        MemoryError: the system gives none.
    """

    def __init__(self, nbytes: int, edge: Edge = "end", pattern: int = 0xFF) -> None:
        page = mmap.PAGESIZE
        room = -(-max(nbytes, 1) // page) * page
        region = mmap.mmap(-1, room + 2 * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(region))  # the buffer keeps the region
        for guard in (start, start + page + room):
            if _library.mprotect(guard, page, 0):
                raise MemoryError(f"pages cannot be protected: {os.strerror(ctypes.get_errno())}")
        first = start + page
        self.nbytes, self.pattern = nbytes, pattern
        self.address = first if edge == "begin" else (first + room - nbytes) // ALIGNMENT * ALIGNMENT
        self._all = np.ctypeslib.as_array((ctypes.c_uint8 * room).from_address(first))
        self._all.fill(pattern)
        self._before = self.address - first
        weakref.finalize(self, _give_back, region, start, page, room)

    def is_whole(self) -> bool:
        """Return whether the bytes around the memory are what they were."""
        around = (self._all[: self._before], self._all[self._before + self.nbytes :])
        return all(bool((part == self.pattern).all()) for part in around)

    def array(self) -> np.ndarray:
        """Return the bytes, for as long as the memory is kept."""
        return self._all[self._before : self._before + self.nbytes]


def _give_back(region: mmap.mmap, start: int, page: int, room: int) -> None:
    """Let the pages be touched again, as the system's allocator of the next region may expect; they go with it."""
    _library.mprotect(start, room + 2 * page, _READ | _WRITE)
    del region
