"""Files mapped into memory once for all in the process who read them at the same time.

Two sessions of one model so see its weights at the same addresses: what was made of them in one serves the other. A
mapping lives as long as somebody holds it, and keeps the file's inode from being given to another file.
"""

from __future__ import annotations

import mmap
import os
import weakref

import numpy as np
from numpy.lib.array_utils import byte_bounds

from ort_core.file_changes import changed_ns
from ort_core.forks import new_lock
from ort_core.tensors.mapped_pages import mapping_of

Stamp = tuple[int, int, int, int, int]  # device, file number, size, times of change: no program can set the last
Place = tuple[str, Stamp, int]


class _FileMapping(mmap.mmap):
    """A mapping that knows the file that it shows."""

    path: str
    stamp: Stamp


_mappings: weakref.WeakValueDictionary[Stamp, _FileMapping] = weakref.WeakValueDictionary()
_lock = new_lock()


def map_file(path: str | os.PathLike[str]) -> memoryview:
    """Return the content of a file as read-only mapped memory, at an address of its own for each state of the file.

    Args:
        path: the file; one that was replaced, or changed in place since it was mapped, is mapped anew.

    Raises:
        OSError: the file cannot be read.
    """
    return _map(path, None)


def place_of(array: np.ndarray) -> Place | None:
    """Return the file that a contiguous array is mapped from, what tells the file's state, and where it begins there.

    ``None``: the array lies elsewhere.
    """
    owner = mapping_of(array)
    if not isinstance(owner, _FileMapping):
        return None
    start = np.frombuffer(owner, np.uint8).ctypes.data
    return owner.path, owner.stamp, byte_bounds(array)[0] - start


def map_place(place: Place, nbytes: int) -> memoryview:
    """Return bytes of a file that is in the state in which ``place_of`` saw it.

    Raises:
        OSError: the file has changed, or cannot be read.
    """
    path, stamp, offset = place
    found = _map(path, stamp)
    if not 0 <= offset <= offset + nbytes <= len(found):
        raise OSError(f"{path} does not have {nbytes} bytes at {offset}")
    return found[offset : offset + nbytes]


def _map(path: str | os.PathLike[str], wanted: Stamp | None) -> memoryview:
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, changed_ns(file.fileno(), status))
        if wanted is not None and stamp != tuple(wanted):
            raise OSError(f"{path} has changed")
        if status.st_size == 0:
            return memoryview(b"")  # an empty file cannot be mapped
        with _lock:
            found = _mappings.get(stamp)
            if found is None:
                found = _mappings[stamp] = _mapping(file.fileno(), status.st_size, path)
                found.path, found.stamp = os.path.abspath(path), stamp
    return memoryview(found)


def _mapping(descriptor: int, nbytes: int, path: str | os.PathLike[str]) -> _FileMapping:
    try:
        return _FileMapping(descriptor, nbytes, access=mmap.ACCESS_READ)
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and os.fstat(descriptor).st_size >= nbytes:
            raise  # else Windows speaks of memory
        raise OSError(f"{path} became shorter than {nbytes} bytes while it was opened") from error
