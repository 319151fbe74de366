"""The memory that LLVM takes in this process: some 70 MB of its library's pages once it has compiled something.

They are the file's own, and come back from the system's cache when somebody compiles again.
"""

from __future__ import annotations

import logging
import sys
import threading

log = logging.getLogger(__name__)
_used = threading.Event()


def note_use() -> None:
    """Take note that LLVM compiles something now."""
    _used.set()


def has_compiled() -> bool:
    """Return whether LLVM has compiled something in this process, and is likely to go on."""
    return _used.is_set()


def release() -> None:
    """Give back the pages of LLVM's library, where that is known how to; safe at any time, also while it compiles."""
    if sys.platform != "linux" or not _used.is_set():
        return
    from ort_core.cpu.codegen.library_pages_linux import release_library  # of this system

    log.debug("%d bytes of LLVM's library were given back", release_library("libllvmlite"))
