"""Files mapped into memory once for all in the process who read them at the same time.

Two sessions of one model so see its weights at the same addresses: what was made of them in one serves the other. A
mapping lives as long as somebody holds it, and keeps the file's inode from being given to another file.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from pathlib import Path

_mappings: weakref.WeakValueDictionary[tuple[int, ...], mmap.mmap] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def map_file(path: Path, *, is_final: bool = False) -> memoryview:
    """Return the content of a file as read-only mapped memory, at an address of its own for each state of the file.

    Args:
        path: the file; one that was replaced, or changed in place since it was mapped, is mapped anew.
        is_final: nobody writes to the file once it exists: a new time of change means nothing.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if status.st_size == 0:
            return memoryview(b"")  # an empty file cannot be mapped
        key = (status.st_dev, status.st_ino, status.st_size, 0 if is_final else status.st_mtime_ns)
        with _lock:
            found = _mappings.get(key)
            if found is None:
                found = _mappings[key] = mmap.mmap(file.fileno(), status.st_size, access=mmap.ACCESS_READ)
    return memoryview(found)
