"""Files mapped into memory once for all in the process who read them at the same time.

Two sessions of one model so see its weights at the same addresses: what was made of them in one serves the other. A
mapping lives as long as somebody holds it, and keeps the file's inode from being given to another file.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Collection

_mappings: weakref.WeakValueDictionary[tuple[int, ...], mmap.mmap] = weakref.WeakValueDictionary()
_lock = threading.Lock()


class ForeignFile(OSError):
    """A file belongs to a user, ``owner``, whose files are not to be read."""

    def __init__(self, path: str | os.PathLike[str], owner: int) -> None:
        super().__init__(f"{os.fspath(path)} belongs to user {owner}")
        self.owner = owner


def map_file(
    path: str | os.PathLike[str], *, is_final: bool = False, owners: Collection[int] | None = None
) -> memoryview:
    """Return the content of a file as read-only mapped memory, at an address of its own for each state of the file.

    Args:
        path: the file; one that was replaced, or changed in place since it was mapped, is mapped anew.
        is_final: nobody writes to the file once it exists: a new time of change means nothing.
        owners: the users whose files are read, by number; of any without.

    Raises:
        ForeignFile: the file belongs to another user.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if owners is not None and status.st_uid not in owners:
            raise ForeignFile(path, status.st_uid)
        if status.st_size == 0:
            return memoryview(b"")  # an empty file cannot be mapped
        key = (status.st_dev, status.st_ino, status.st_size, 0 if is_final else status.st_mtime_ns)
        with _lock:
            found = _mappings.get(key)
            if found is None:
                found = _mappings[key] = _mapping(file.fileno(), status.st_size, path)
    return memoryview(found)


def _mapping(descriptor: int, nbytes: int, path: str | os.PathLike[str]) -> mmap.mmap:
    try:
        return mmap.mmap(descriptor, nbytes, access=mmap.ACCESS_READ)
    except ValueError as error:
        raise OSError(f"{path} became shorter than {nbytes} bytes while it was opened") from error
