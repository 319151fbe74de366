"""ArtefactCache: files named by their key, written atomically, checked when read, bounded in size.

An entry is a header line (format, length, check sum of the content, padded to a fixed length) and the content. The
check sum is that of the check sums of each 16 MiB, so that several threads check a large entry: it tells damage, and
whoever may write into the cache may write what he likes, as into the program. Anything that does not fit is
removed and counts as absent, so a corrupt or foreign file costs a rebuild and nothing else; one in another version's
format is no fault, and is replaced without a warning.
Several processes may share a cache: a writer renames a finished file into place, a reader never sees half of one.
Entries hold machine code, so only those of this user, or of the system's administrator, are read.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.cache.digests import check_sum
from ort_core.cache.key import CacheKey
from ort_core.frozen import frozen
from ort_core.settings import environment_value
from ort_core.tensors.mapped_files import ForeignFile, map_file
from ort_core.tensors.mapped_pages import release_pages

if TYPE_CHECKING:
    import io
    from pathlib import Path  # which takes 3 ms to import: not for those who find what they look for, as most do

log = logging.getLogger(__name__)

_FAMILY, _VERSION = b"ort-core-artefact-", 4  # of this format
_MAGIC = b"%s%d" % (_FAMILY, _VERSION)
_START_NBYTES = 32
_HEADER_NBYTES = 128  # fixed, so that what is aligned within the content is aligned in the mapped file
_SUFFIX = ".artefact"
_CHUNK_NBYTES = 1 << 24  # summed at once; its pages are given back behind it, for most readers use few of them
_PARTIAL = ".writing-"
_ABANDONED_S = 86_400  # a writer takes seconds: whoever began a file a day ago has ended without finishing it
_TRIM_FRACTION = 16  # the part of the limit by which a cache may grow beyond it


def cache_directory() -> str:
    """Return the folder of the cache: ``ORT_CACHE_DIR``, or the platform's cache folder of this user."""
    given = environment_value("ORT_CACHE_DIR")
    return os.path.expanduser(str(given)) if given else _user_folder()


def _user_folder() -> str:
    if sys.platform == "linux":
        from ort_core.cache.user_folder_linux import user_cache_folder  # of this system

        return user_cache_folder("ort-core")
    import platformdirs

    return platformdirs.user_cache_dir("ort-core")


@frozen
class CacheEntry:
    """One file of the cache; ``used_at`` is in seconds since the epoch."""

    kind: str
    name: str
    path: Path
    nbytes: int
    used_at: float


class ArtefactCache:
    """Artefacts by key in one folder.

    Args:
        folder: where they lie; made when the first is written.
        max_nbytes: when all entries together grow above this by a sixteenth, the least recently used ones go; 0 keeps
            none; without one ``ORT_CACHE_MAX_NBYTES`` says.
    """

    def __init__(self, folder: str | Path | None = None, max_nbytes: int | None = None) -> None:
        self.folder = os.fspath(folder) if folder is not None else cache_directory()
        self.max_nbytes = _limit() if max_nbytes is None else max_nbytes

    def get(self, key: CacheKey) -> bytes | None:
        """Return the content of an entry, or ``None`` when it is absent, corrupt (it is removed) or not readable."""
        content = self.map(key)
        return None if content is None else bytes(content)

    def map(self, key: CacheKey) -> memoryview | None:
        """Return the content of an entry as mapped memory, checked; ``None`` as for ``get``.

        A writer replaces files and never changes one, so the view stays as it is for as long as it is held.
        """
        path = self._path(key)
        stored = _mapped(path)
        if stored is None:
            return None
        content = _checked(stored)
        if content is None:
            if _version_of(stored[:_START_NBYTES].tobytes()) not in (None, _VERSION):
                log.info("cache entry %s was written by another version of ort-core and is made anew", path)
            else:
                log.warning("cache entry %s is corrupt and is made anew", path)
            stored.release()
            _unlink(path)
            return None
        _touch(path)
        return content

    def put(self, key: CacheKey, *parts: bytes | memoryview) -> bool:
        """Write an entry, its content in one or more parts; returns whether that worked.

        A full or read-only disk is no error, the cache is then unused. What is larger than all entries may be together
        is not written.
        """
        if _HEADER_NBYTES + sum(map(len, parts)) > self.max_nbytes:
            return False
        import tempfile  # here and below: not for those who find what they look for, as most do

        path = self._path(key)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            handle, partial = tempfile.mkstemp(prefix=_PARTIAL, dir=os.path.dirname(path))
            try:
                with os.fdopen(handle, "wb", buffering=0) as file:
                    file.write(bytes(_HEADER_NBYTES))
                    sums = _write(file, parts)
                    file.seek(0)
                    file.write(_header(sum(map(len, parts)), sums))
                os.replace(partial, path)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(partial)
                raise
        except OSError as error:
            log.info("cache entry %s cannot be written: %s", path, error)
            return False
        if self._is_trim_due(_HEADER_NBYTES + sum(len(part) for part in parts)):
            self.trim()
        return True

    def remove(self, key: CacheKey) -> None:
        """Remove one entry if it is there."""
        _unlink(self._path(key))

    def entries(self) -> Iterator[CacheEntry]:
        """Yield all entries, in no order; files that vanish meanwhile are passed over."""
        from pathlib import Path  # as above

        for path in Path(self.folder).glob(f"*/*{_SUFFIX}"):
            try:
                status = path.stat()
            except OSError:
                continue
            yield CacheEntry(path.parent.name, path.stem, path, status.st_size, status.st_mtime)

    def nbytes(self) -> int:
        """Return the size of all entries."""
        return sum(entry.nbytes for entry in self.entries())

    def trim(self, max_nbytes: int | None = None) -> int:
        """Remove what no version reads any more, and the least recently used entries until the rest fits.

        Returns:
            How many entries went.
        """
        limit = self.max_nbytes if max_nbytes is None else max_nbytes
        self._remove_abandoned()
        entries = sorted(self.entries(), key=lambda entry: entry.used_at)
        stale = {entry for entry in entries if (_version_of(_start_of(entry.path)) or _VERSION) < _VERSION}
        total, removed = sum(entry.nbytes for entry in entries), 0
        for entry in (*stale, *(each for each in entries if each not in stale)):
            if total <= limit and entry not in stale:
                break
            if not _unlink(entry.path):
                continue
            total -= entry.nbytes
            removed += 1
        return removed

    def clear(self) -> int:
        """Remove all entries; returns how many went."""
        return self.trim(-1)

    def _is_trim_due(self, nbytes: int) -> bool:
        """Note that an entry was written; return whether all writers wrote much since the last time this said so.

        To list a large cache takes longer than to write an entry. A file counts: it grows by a byte for each
        ``max_nbytes / 65536`` written, and appending is safe from many processes.
        """
        unit = max(1, self.max_nbytes // 65536)
        count = os.path.join(self.folder, ".written")
        try:
            with open(count, "ab") as file:
                file.write(b"." * -(-nbytes // unit))
                written = file.tell() * unit
            if written < self.max_nbytes // _TRIM_FRACTION:
                return False
            os.unlink(count)
        except OSError as error:  # then the entries are counted each time
            log.debug("cannot count in %s: %s", count, error)
        return True

    def _remove_abandoned(self) -> None:
        """Remove files that a process did not live to finish."""
        from pathlib import Path  # as above

        for path in Path(self.folder).glob(f"*/{_PARTIAL}*"):
            try:
                if path.stat().st_mtime < time.time() - _ABANDONED_S:
                    path.unlink()
            except OSError as error:  # finished, or removed, by another process meanwhile
                log.debug("%s cannot be removed: %s", path, error)

    def _path(self, key: CacheKey) -> str:
        return os.path.join(self.folder, key.kind, f"{key.digest()}{_SUFFIX}")


def _limit() -> int:
    given = environment_value("ORT_CACHE_MAX_NBYTES")
    assert isinstance(given, int)
    return given


def _version_of(start: bytes) -> int | None:
    """Return the version of the format that a file starts with, ``None`` if that is no such file."""
    number = start.removeprefix(_FAMILY).partition(b" ")[0]
    return int(number) if start.startswith(_FAMILY) and number.isdigit() else None


def _start_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_START_NBYTES)
    except OSError:  # it vanished
        return b""


def _mapped(path: str) -> memoryview | None:
    try:
        return map_file(path, is_final=True, owners=_owners())
    except ForeignFile as error:
        _warn_of_foreign_entries(os.path.dirname(os.path.dirname(path)), error.owner)
        return None
    except OSError:
        return None


def _owners() -> frozenset[int] | None:
    """Return whose entries are read; ``None``, of all: Windows, where files have no number of an owner."""
    return frozenset({0, os.geteuid()}) if sys.platform != "win32" else None


@functools.cache
def _warn_of_foreign_entries(folder: str, owner: int) -> None:
    """Say once that entries are not used."""
    log.warning(
        "the cache %s holds entries of user %d, which are not used: whoever wrote them could run code as you. "
        "Set ORT_CACHE_DIR to a folder of your own, or remove them.",
        folder,
        owner,
    )


def _header(length: int, sums: Sequence[int]) -> bytes:
    of_all = check_sum(b"".join(each.to_bytes(4, "little") for each in sums))
    return (b"%s %d %08x" % (_MAGIC, length, of_all)).ljust(_HEADER_NBYTES - 1) + b"\n"


def _write(file: io.FileIO, parts: Sequence[bytes | memoryview]) -> list[int]:
    """Write the parts behind each other and return the check sum of each chunk of them."""
    sums: list[int] = []
    found, room = 0, _CHUNK_NBYTES
    for part in parts:
        rest = memoryview(part)
        while len(rest) >= room:
            sums.append(_written(file, rest[:room], found))
            rest, found, room = rest[room:], 0, _CHUNK_NBYTES
        found = _written(file, rest, found)
        room -= len(rest)
    return [*sums, found]


def _written(file: io.FileIO, content: memoryview, start: int) -> int:
    """Write bytes and return the check sum that goes on behind ``start``."""
    rest = content
    while len(rest):
        rest = rest[file.write(rest) :]
    return check_sum(content, start)


def _checked(stored: memoryview) -> memoryview | None:
    content = stored[_HEADER_NBYTES:]
    # one chunk more than are full, as _write has it
    chunks = [content[at : at + _CHUNK_NBYTES] for at in range(0, len(content) + 1, _CHUNK_NBYTES)]
    if len(chunks) == 1:
        sums = [check_sum(content)]
    else:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            sums = list(pool.map(_sum_and_release, chunks))
    fits = len(stored) >= _HEADER_NBYTES and stored[:_HEADER_NBYTES] == _header(len(content), sums)
    return content if fits else None


def _sum_and_release(chunk: memoryview) -> int:
    found = check_sum(chunk)
    _release(chunk)
    return found


def _release(content: memoryview) -> None:
    if len(content):
        release_pages(np.frombuffer(content, np.uint8))


def _unlink(path: str | Path) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:  # another process removed it
        return True
    except OSError as error:  # another user's file, or, on Windows, one that somebody maps
        log.info("cache entry %s cannot be removed: %s", path, error)
        return False
    return True


def _touch(path: str) -> None:
    try:
        os.utime(path)
    except OSError:  # a cache on a read-only disk serves without remembering use
        log.debug("cannot note the use of %s", path)
