"""Pages of a shared library given back on Linux: those that are as they are in its file, which fills them again.

``/proc/self/smaps`` tells which ranges of addresses show a file, and whether pages in them were changed: by the loader
(addresses filled in) or by anything else. Only ranges without one are given back.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import re
from collections.abc import Iterable, Iterator

from ort_core.plugin import frozen

MAPS = "/proc/self/smaps"
_HEAD = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \d+ +(/.*)")


@frozen
class LibraryRange:
    """Addresses from ``start`` to ``end`` that show a file, ``resident_nbytes`` of them now."""

    start: int
    end: int
    path: str
    resident_nbytes: int


def release_library(name: str) -> int:
    """Give back the unchanged pages of a loaded library whose file's name begins so; returns their bytes.

    Who runs in it meanwhile gets them again, at the cost of a page fault each.
    """
    try:
        with open(MAPS, encoding="utf-8", errors="surrogateescape") as lines:
            found = [each for each in unchanged(lines) if os.path.basename(each.path).startswith(name)]
    except OSError:  # a system without this file gives nothing back
        return 0
    return sum(each.resident_nbytes for each in found if _advise(each.start, each.end - each.start) == 0)


def unchanged(lines: Iterable[str]) -> Iterator[LibraryRange]:
    """Yield the ranges that show files, may not be written, and have no page of their own."""
    head, resident, changed = None, 0, 0
    for line in lines:
        found = _HEAD.match(line)
        if found is not None:
            head, changed = found, 0
        elif head is not None and line.startswith("Rss:"):
            resident = 1024 * int(line.split()[1])
        elif line.startswith("Anonymous:"):
            changed = int(line.split()[1])
        elif head is not None and line.startswith("Swap:"):  # behind the others; changed pages may lie there alone
            if changed + int(line.split()[1]) == 0 and "w" not in head[3]:
                yield LibraryRange(int(head[1], 16), int(head[2], 16), head[4], resident)
            head = None


def _advise(start: int, nbytes: int) -> int:
    return int(_madvise()(start, nbytes, mmap.MADV_DONTNEED))


@functools.cache
def _madvise() -> ctypes._NamedFuncPointer:
    found = ctypes.CDLL(None, use_errno=True).madvise
    found.argtypes, found.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    return found
