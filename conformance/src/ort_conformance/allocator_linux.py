"""glibc's allocator: memory that it holds free goes back to the system, so that resident memory is memory in use."""

from __future__ import annotations

import ctypes


def give_back_free_memory() -> None:
    """Release free pages of all arenas; nothing happens with a C library that cannot, such as musl."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
