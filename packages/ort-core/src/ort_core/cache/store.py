"""ArtefactCache: files named by their key, written atomically, checked when read, bounded in size.

An entry is a header line (format, length, digest of the content, padded to a fixed length) and the content. The digest
is the SHA-256 of the SHA-256 of each 16 MiB, so that several threads check a large entry. Anything that does not fit is
removed and counts as absent, so a corrupt or foreign file costs a rebuild and nothing else; one in another version's
format is no fault, and is replaced without a warning.
Several processes may share a cache: a writer renames a finished file into place, a reader never sees half of one.
Entries hold machine code, so only those of this user, or of the system's administrator, are read.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ort_core.cache.key import CacheKey
from ort_core.frozen import frozen
from ort_core.settings import environment_value
from ort_core.tensors.mapped_files import ForeignFile, map_file
from ort_core.tensors.mapped_pages import release_pages

log = logging.getLogger(__name__)

_FAMILY, _VERSION = b"ort-core-artefact-", 3  # of this format
_MAGIC = b"%s%d" % (_FAMILY, _VERSION)
_START_NBYTES = 32
_HEADER_NBYTES = 128  # fixed, so that what is aligned within the content is aligned in the mapped file
_SUFFIX = ".artefact"
_CHUNK_NBYTES = 1 << 24  # digested at once; its pages are given back behind it, for most readers use few of them
_PARTIAL = ".writing-"
_ABANDONED_S = 86_400  # a writer takes seconds: whoever began a file a day ago has ended without finishing it
_TRIM_FRACTION = 16  # the part of the limit by which a cache may grow beyond it


def cache_directory() -> Path:
    """Return the folder of the cache: ``ORT_CACHE_DIR``, or the platform's cache folder of this user."""
    given = environment_value("ORT_CACHE_DIR")
    if given:
        return Path(str(given)).expanduser()
    import platformdirs  # only asked where the variable is not set

    return Path(platformdirs.user_cache_dir("ort-core"))


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

    def __init__(self, folder: Path | None = None, max_nbytes: int | None = None) -> None:
        self.folder = folder if folder is not None else cache_directory()
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
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, partial = tempfile.mkstemp(prefix=_PARTIAL, dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_header(sum(map(len, parts)), _chunk_digests(parts)))
                    file.writelines(parts)
                Path(partial).replace(path)
            except BaseException:
                Path(partial).unlink(missing_ok=True)
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
        for path in self.folder.glob(f"*/*{_SUFFIX}"):
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
        count = self.folder / ".written"
        try:
            with count.open("ab") as file:
                file.write(b"." * -(-nbytes // unit))
                written = file.tell() * unit
            if written < self.max_nbytes // _TRIM_FRACTION:
                return False
            count.unlink(missing_ok=True)
        except OSError as error:  # then the entries are counted each time
            log.debug("cannot count in %s: %s", count, error)
        return True

    def _remove_abandoned(self) -> None:
        """Remove files that a process did not live to finish."""
        for path in self.folder.glob(f"*/{_PARTIAL}*"):
            try:
                if path.stat().st_mtime < time.time() - _ABANDONED_S:
                    path.unlink()
            except OSError as error:  # finished, or removed, by another process meanwhile
                log.debug("%s cannot be removed: %s", path, error)

    def _path(self, key: CacheKey) -> Path:
        return self.folder / key.kind / f"{key.digest()}{_SUFFIX}"


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


def _mapped(path: Path) -> memoryview | None:
    try:
        return map_file(path, is_final=True, owners=_owners())
    except ForeignFile as error:
        _warn_of_foreign_entries(path.parent.parent, error.owner)
        return None
    except OSError:
        return None


def _owners() -> frozenset[int] | None:
    """Return whose entries are read; ``None``, of all: Windows, where files have no number of an owner."""
    return frozenset({0, os.geteuid()}) if sys.platform != "win32" else None


@functools.cache
def _warn_of_foreign_entries(folder: Path, owner: int) -> None:
    """Say once that entries are not used."""
    log.warning(
        "the cache %s holds entries of user %d, which are not used: whoever wrote them could run code as you. "
        "Set ORT_CACHE_DIR to a folder of your own, or remove them.",
        folder,
        owner,
    )


def _header(length: int, digests: Sequence[bytes]) -> bytes:
    digest = hashlib.sha256(b"".join(digests)).hexdigest()
    return (b"%s %d %s" % (_MAGIC, length, digest.encode())).ljust(_HEADER_NBYTES - 1) + b"\n"


def _chunk_digests(parts: Sequence[bytes | memoryview]) -> list[bytes]:
    """Return the digest of each chunk of the parts joined."""
    digests: list[bytes] = []
    hasher, room = hashlib.sha256(), _CHUNK_NBYTES
    for part in parts:
        rest = memoryview(part)
        while len(rest) >= room:
            hasher.update(rest[:room])
            digests.append(hasher.digest())
            rest, hasher, room = rest[room:], hashlib.sha256(), _CHUNK_NBYTES
        hasher.update(rest)
        room -= len(rest)
    return [*digests, hasher.digest()]


def _checked(stored: memoryview) -> memoryview | None:
    content = stored[_HEADER_NBYTES:]
    # one chunk more than are full, as _chunk_digests has it
    chunks = [content[at : at + _CHUNK_NBYTES] for at in range(0, len(content) + 1, _CHUNK_NBYTES)]
    if len(chunks) == 1:
        digests = [hashlib.sha256(content).digest()]
    else:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            digests = list(pool.map(_digest_and_release, chunks))
    fits = len(stored) >= _HEADER_NBYTES and stored[:_HEADER_NBYTES] == _header(len(content), digests)
    return content if fits else None


def _digest_and_release(chunk: memoryview) -> bytes:
    digest = hashlib.sha256(chunk).digest()
    if len(chunk):
        release_pages(np.frombuffer(chunk, np.uint8))
    return digest


def _unlink(path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:  # another user's file, or, on Windows, one that somebody maps
        log.info("cache entry %s cannot be removed: %s", path, error)
        return False
    return True


def _touch(path: Path) -> None:
    try:
        os.utime(path)
    except OSError:  # a cache on a read-only disk serves without remembering use
        log.debug("cannot note the use of %s", path)
