"""Pages of memory by VirtualAlloc and VirtualProtect, as Windows has them."""

from __future__ import annotations

import ctypes
import mmap
import sys

PAGE_NBYTES = mmap.PAGESIZE
_RESERVE_AND_COMMIT, _RELEASE = 0x3000, 0x8000
_NOACCESS, _READONLY, _READWRITE = 0x01, 0x02, 0x04

if sys.platform == "win32":
    _kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel.VirtualAlloc.restype = ctypes.c_void_p
    _kernel.VirtualAlloc.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint32)
    _kernel.VirtualProtect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_void_p)
    _kernel.VirtualFree.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32)

    def take_pages(nbytes: int) -> int:
        """Return the address of new pages that cannot be touched.

        Raises:
            MemoryError: the system gives none.
        """
        address = _kernel.VirtualAlloc(None, nbytes, _RESERVE_AND_COMMIT, _NOACCESS)
        if not address:
            raise MemoryError(f"no {nbytes} bytes of pages: error {ctypes.get_last_error()}")
        return int(address)

    def allow(address: int, nbytes: int, *, writing: bool) -> None:
        """Let whole pages be read and, if asked, written.

        Raises:
            MemoryError: the system refuses.
        """
        before = ctypes.c_uint32()
        if not _kernel.VirtualProtect(address, nbytes, _READWRITE if writing else _READONLY, ctypes.byref(before)):
            raise MemoryError(f"pages cannot be protected: error {ctypes.get_last_error()}")

    def give_pages_back(address: int, nbytes: int) -> None:
        """Free what ``take_pages`` gave."""
        del nbytes  # Windows knows
        _kernel.VirtualFree(address, 0, _RELEASE)
