"""The memory that only this process holds, on Linux: nothing that the allocator holds free, no pages of files."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

# What the kernel counts when it walks the page tables. The resident size of /proc/self/statm is no such count: it has
# the pages of mapped files, which the kernel takes away and reads again as it likes, and it is updated in batches.
_ROLLUP = Path("/proc/self/smaps_rollup")
_HELD = re.compile(r"^(?:Anonymous|Pss_Shmem|Swap): +(\d+) kB", re.MULTILINE)


def give_back_free_memory() -> None:
    """Release free pages of all arenas; nothing happens with a C library that cannot, such as musl."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


class _MallocInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33 and later, summed over all arenas (mallinfo(3))."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


def allocated_nbytes() -> int:
    """Return the bytes that callers of malloc have, whether their pages are resident or not; 0 where nobody counts."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return 0
    library.mallinfo2.restype = _MallocInfo
    found = library.mallinfo2()
    return int(found.uordblks) + int(found.hblkhd)


def held_nbytes() -> int | None:
    """Return the bytes of anonymous, shared and swapped memory; None where the kernel does not count them."""
    try:
        counted = _ROLLUP.read_text()
    except OSError:
        return None
    return sum(map(int, _HELD.findall(counted))) << 10
