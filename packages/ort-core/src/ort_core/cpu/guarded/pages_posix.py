"""Pages of memory by mmap and mprotect, as Linux and macOS have them."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

PAGE_NBYTES = mmap.PAGESIZE
assert sys.platform != "win32", "Windows has pages_windows"

_NONE, _READ, _WRITE = 0, 1, 2  # PROT_*, the same on both systems
_FAILED = ctypes.c_void_p(-1).value

_library = ctypes.CDLL(None, use_errno=True)
_library.mmap.restype = ctypes.c_void_p
_library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_library.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def take_pages(nbytes: int) -> int:
    """Return the address of new pages that cannot be touched.

    Raises:
        MemoryError: the system gives none.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = _library.mmap(None, nbytes, _NONE, flags, -1, 0)
    if address in (None, _FAILED):
        raise MemoryError(f"no {nbytes} bytes of pages: {os.strerror(ctypes.get_errno())}")
    return int(address)


def allow(address: int, nbytes: int, *, writing: bool) -> None:
    """Let whole pages be read and, if asked, written.

    Raises:
        MemoryError: the system refuses, as beyond its number of areas of memory.
    """
    if _library.mprotect(address, nbytes, _READ | _WRITE if writing else _READ):
        raise MemoryError(f"pages cannot be protected: {os.strerror(ctypes.get_errno())}")


def give_pages_back(address: int, nbytes: int) -> None:
    """Free what ``take_pages`` gave."""
    _library.munmap(address, nbytes)
