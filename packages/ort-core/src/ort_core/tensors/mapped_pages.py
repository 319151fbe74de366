"""Pages of memory-mapped files: read before a copy that would fault on each of them, given back behind it.

A weight that was copied into another order leaves its file's pages in the process's resident memory, a second time the
size of the model. They can always be dropped: whoever reads them again gets them from the file. All functions do
nothing for arrays that lie elsewhere, or where the system has no such call.
"""

from __future__ import annotations

import logging
import mmap
import sys

import numpy as np
from numpy.lib.array_utils import byte_bounds

log = logging.getLogger(__name__)
_DROP: int | None = getattr(mmap, "MADV_DONTNEED", None)  # Windows has none
_SMALL: int | None = getattr(mmap, "MADV_NOHUGEPAGE", None)  # Linux alone has it
_POPULATE_READ = 22 if sys.platform == "linux" else None  # MADV_POPULATE_READ of Linux 5.14; Python does not name it


def is_mapped(array: np.ndarray) -> bool:
    """Return whether an array lies in a file that is mapped to be read only."""
    return _readonly_mapping(array) is not None


def read_ahead(array: np.ndarray) -> None:
    """Map all pages of a file-backed array in one call: a fifth of what faulting on each of them takes."""
    if _POPULATE_READ is not None:
        _advise(array, _POPULATE_READ)


def map_few_pages(array: np.ndarray) -> None:
    """Let a file-backed array come into resident memory in small pages: those around what is read, and few others.

    For tables of which single rows are picked: Linux maps up to 2 MiB around each of them, which is right for weights
    that are read whole.
    """
    if _SMALL is not None:
        _advise(array, _SMALL)


def release_pages(array: np.ndarray) -> None:
    """Drop the whole pages of a file-backed, read-only array from resident memory; its contents stay as they are."""
    if _DROP is not None:
        _advise(array, _DROP)


def _advise(array: np.ndarray, advice: int) -> None:
    if sys.platform == "win32":
        return
    mapping = _readonly_mapping(array)
    if mapping is None or not array.size:
        return
    start = np.frombuffer(mapping, np.uint8).ctypes.data
    low, high = byte_bounds(array)
    first = -(-(low - start) // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (high - start) // mmap.PAGESIZE * mmap.PAGESIZE
    if first >= end:
        return
    try:
        mapping.madvise(advice, first, end - first)
    except OSError as error:  # an older kernel: slower, or more memory, and nothing else
        log.debug("the system takes no advice %d for mapped pages: %s", advice, error)


def mapping_of(array: np.ndarray) -> mmap.mmap | None:
    """Return the mapping whose memory an array shows, through views and memoryviews; ``None`` if it lies elsewhere."""
    owner: object = array
    while not isinstance(owner, mmap.mmap):
        if isinstance(owner, np.ndarray):
            owner = owner.base
        elif isinstance(owner, memoryview):
            owner = owner.obj
        else:
            return None
    return owner


def _readonly_mapping(array: np.ndarray) -> mmap.mmap | None:
    """Return the read-only mapping that an array lies in: of a writable one, pages may hold what no file has."""
    owner = mapping_of(array)
    return owner if owner is not None and memoryview(owner).readonly else None
