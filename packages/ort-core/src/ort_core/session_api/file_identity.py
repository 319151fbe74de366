"""What tells that a file is the one that it was, without reading it: where it lies, its size, and when it changed.

Whoever writes to a file changes its time of change, which no program can set. A clock ticks, though: a file that was
written just now may be written again at the same time. So nothing is remembered of files that are too young.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from ort_core.file_changes import changed_ns

MIN_AGE_S = 2.0  # times of change are exact to 10 ms on common file systems, to 2 s on the coarsest (FAT)

Identity = tuple[str, int, int, int, int, int]


def identity_of(path: str | os.PathLike[str]) -> Identity | None:
    """Return the absolute path, device, file number, size and times of change of a file; ``None``: it is not there."""
    where = os.path.abspath(path)
    try:
        status = os.stat(where)
    except (OSError, ValueError):  # a name with a NUL in it is none of a file
        return None
    return where, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, changed_ns(where, status)


def are_settled(identities: Iterable[Identity], now_ns: int | None = None) -> bool:
    """Return whether all files are old enough for their times to tell of every later change."""
    limit = (time.time_ns() if now_ns is None else now_ns) - int(MIN_AGE_S * 1e9)
    return all(max(identity[4], identity[5]) < limit for identity in identities)
