"""ArtefactCache: files named by their key, written atomically, checked when read, bounded in size.

Anything that does not fit is removed and counts as absent, so a corrupt or foreign file costs a rebuild and nothing
else; one in another version's format is no fault, and is replaced without a warning.
Several processes may share a cache, on network disks, too, for nothing is locked: a writer renames a finished file into
place, a reader never sees half of one, and keeps a copy of its own (``entry_file``).
Entries hold machine code, so only those that nobody but this user, or the system's administrator, can have written are
read (``folder``). Whoever may write into the cache may write what he likes, as into the program.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import time
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ort_core.cache.about import current_about
from ort_core.cache.entry_file import (
    HEADER_NBYTES,
    START_NBYTES,
    VERSION,
    Damaged,
    about_of,
    encode_about,
    read_content,
    read_head,
    version_of,
    write_entry,
)
from ort_core.cache.folder import (
    NotPlain,
    Untrusted,
    append_plain,
    cache_directory,
    make_private,
    open_entry,
    require_trusted,
    warn_of_failed_write,
    warn_of_untrusted,
)
from ort_core.cache.key import CacheKey
from ort_core.forks import new_lock
from ort_core.frozen import frozen
from ort_core.settings import environment_value

if TYPE_CHECKING:
    import mmap
    from pathlib import Path  # which takes 3 ms to import: not for those who find what they look for, as most do

log = logging.getLogger(__name__)

_SUFFIX = ".artefact"
_PARTIAL = ".writing-"
_ABANDONED_S = 3_600  # a writer takes seconds: whoever began a file an hour ago has ended without finishing it
_LARGE_NBYTES = 1 << 20  # whoever writes that much looks for what others left unfinished
_TRIM_FRACTION = 16  # the part of the limit by which a cache may grow beyond it

_memories: weakref.WeakValueDictionary[tuple[str, int, int, bytes], mmap.mmap] = weakref.WeakValueDictionary()
"""Contents in memory, by the file that they were read from: sessions of one model share them."""
_memories_lock = new_lock()


@frozen
class CacheEntry:
    """One file of the cache; ``used_at`` is in seconds since the epoch."""

    kind: str
    name: str
    path: Path
    nbytes: int
    used_at: float

    @property
    def about(self) -> str:
        """What the entry says that it is about, as ``ort_core.cache.about`` has it; not checked."""
        header = _start_of(self.path, HEADER_NBYTES)
        return about_of(header) if version_of(header) == VERSION else ""


class ArtefactCache:
    """Artefacts by key in one folder.

    Args:
        folder: where they lie; made when the first is written. Without one, and where this user has none, nothing is
            kept.
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
        """Return the content of an entry, read-only, in memory of this process; ``None`` as for ``get``.

        It begins at a page, and is the same memory for all who hold it at the same time. Nothing that happens to the
        file changes it.
        """
        if self.folder is None:
            return None
        path, name = self._path(key), key.digest()
        try:
            descriptor, status = open_entry(path)
        except Untrusted as error:
            warn_of_untrusted(self.folder, error)
            return None
        except NotPlain:
            log.warning("%s is not a plain file and is replaced", path)
            _unlink(path)
            return None
        except OSError:
            return None
        try:
            content = self._checked(path, descriptor, status, name)
        except Untrusted as error:
            warn_of_untrusted(self.folder, error)
            return None
        except Damaged as error:
            self._remove_damaged(path, error)
            return None
        except (OSError, MemoryError) as error:
            log.info("cache entry %s cannot be read: %s", path, error)
            return None
        _touch(path)
        return memoryview(content).toreadonly()

    def put(self, key: CacheKey, *parts: bytes | memoryview) -> bool:
        """Write an entry, its content in one or more parts; returns whether that worked.

        A full or read-only disk is no error, the cache is then unused. What is larger than all entries may be together
        is not written.
        """
        nbytes = HEADER_NBYTES + sum(map(len, parts))
        if nbytes > self.max_nbytes or self.folder is None:
            return False
        path = self._path(key)
        try:
            self._make_folders(os.path.dirname(path))
            if nbytes >= _LARGE_NBYTES:
                _remove_abandoned(os.path.dirname(path))
            _write(path, key.digest(), parts)
        except Untrusted as error:
            warn_of_untrusted(self.folder, error)
            return False
        except OSError as error:
            warn_of_failed_write(self.folder, error)
            return False
        if self._is_trim_due(nbytes):
            self.trim()
        return True

    def remove(self, key: CacheKey) -> None:
        """Remove one entry if it is there."""
        if self.folder is not None:
            _unlink(self._path(key))

    def entries(self) -> Iterator[CacheEntry]:
        """Yield all entries, in no order; what vanishes meanwhile, and what is not a plain file, is passed over."""
        if self.folder is None:
            return
        from pathlib import Path  # as above

        for path in Path(self.folder).glob(f"*/*{_SUFFIX}"):
            try:
                status = path.lstat()
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                yield CacheEntry(path.parent.name, path.stem, path, status.st_size, status.st_mtime)

    def nbytes(self) -> int:
        """Return the size of all entries."""
        return sum(entry.nbytes for entry in self.entries())

    def trim(self, max_nbytes: int | None = None) -> int:
        """Remove what no version reads any more, and the least recently used entries until the rest fits.

        Returns:
            How many entries went.
        """
        if self.folder is None:
            return 0
        limit = self.max_nbytes if max_nbytes is None else max_nbytes
        self._remove_all_abandoned(self.folder)
        entries = sorted(self.entries(), key=lambda entry: entry.used_at)
        stale = {entry for entry in entries if (version_of(_start_of(entry.path)) or VERSION) < VERSION}
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

    def _checked(self, path: str, descriptor: int, status: os.stat_result, name: str) -> mmap.mmap | bytes:
        """Return the checked content of an open file, and close it: Windows removes no file that is open.

        Raises:
            Untrusted: others may write to it.
            Damaged: it is not the entry of this name.
            OSError: it cannot be read.
            MemoryError: its content has no room.
        """
        try:
            self._require_trusted(path)
            return _content(path, descriptor, status, name)
        finally:
            os.close(descriptor)

    def _require_trusted(self, path: str) -> None:
        assert self.folder is not None
        require_trusted(self.folder)
        require_trusted(os.path.dirname(path))

    def _make_folders(self, kind: str) -> None:
        assert self.folder is not None
        for folder in (self.folder, kind):
            if not os.path.isdir(folder):
                make_private(folder)
            require_trusted(folder)

    def _remove_damaged(self, path: str, error: Damaged) -> None:
        if version_of(_start_of(path)) not in (None, VERSION):
            log.info("cache entry %s was written by another version of ort-core and is made anew", path)
        else:
            log.warning("cache entry %s is corrupt (%s) and is replaced", path, error)
        _unlink(path)

    def _is_trim_due(self, nbytes: int) -> bool:
        """Note that an entry was written; return whether all writers wrote much since the last time this said so.

        To list a large cache takes longer than to write an entry. A file counts: it grows by a byte for each
        ``max_nbytes / 65536`` written, and appending is safe from many processes.
        """
        assert self.folder is not None
        unit = max(1, self.max_nbytes // 65536)
        count = os.path.join(self.folder, ".written")
        try:
            written = append_plain(count, b"." * -(-nbytes // unit)) * unit
            if written < self.max_nbytes // _TRIM_FRACTION:
                return False
            os.unlink(count)
        except OSError as error:  # then the entries are counted each time
            log.debug("cannot count in %s: %s", count, error)
            _unlink(count)
        return True

    def _remove_all_abandoned(self, folder: str) -> None:
        with contextlib.suppress(OSError), os.scandir(folder) as kinds:
            for kind in kinds:
                if kind.is_dir(follow_symlinks=False):
                    _remove_abandoned(kind.path)

    def _path(self, key: CacheKey) -> str:
        assert self.folder is not None
        return os.path.join(self.folder, key.kind, f"{key.digest()}{_SUFFIX}")


def _content(path: str, descriptor: int, status: os.stat_result, name: str) -> mmap.mmap | bytes:
    """Return the checked content of an open file: that which somebody holds, or what is read now."""
    head = read_head(descriptor, status.st_size)
    known = (path, status.st_dev, status.st_ino, head.header)
    with _memories_lock:
        found = _memories.get(known)
    if found is not None:
        return found
    content = read_content(descriptor, head, name)
    if isinstance(content, bytes):
        return content
    with _memories_lock:
        return _memories.setdefault(known, content)


def _write(path: str, name: str, parts: tuple[bytes | memoryview, ...]) -> None:
    import tempfile  # here and below: not for those who find what they look for, as most do

    handle, partial = tempfile.mkstemp(prefix=_PARTIAL, dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb", buffering=0) as file:
            write_entry(file, name, encode_about(current_about()), parts)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


def _remove_abandoned(folder: str) -> None:
    """Remove files that a process did not live to finish."""
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        for each in found:
            if not each.name.startswith(_PARTIAL):
                continue
            try:
                if each.stat(follow_symlinks=False).st_mtime < time.time() - _ABANDONED_S:
                    os.unlink(each.path)
            except OSError as error:  # finished, or removed, by another process meanwhile
                log.debug("%s cannot be removed: %s", each.path, error)


def _limit() -> int:
    given = environment_value("ORT_CACHE_MAX_NBYTES")
    assert isinstance(given, int)
    return given


def _start_of(path: str | Path, nbytes: int = START_NBYTES) -> bytes:
    try:
        descriptor, _ = open_entry(os.fspath(path))
    except OSError:  # it vanished, or is not ours
        return b""
    try:
        return os.read(descriptor, nbytes)
    finally:
        os.close(descriptor)


def _unlink(path: str | Path) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:  # another process removed it
        return True
    except OSError as error:  # another user's file, or, on Windows, one that somebody reads
        log.info("cache entry %s cannot be removed: %s", path, error)
        return False
    return True


def _touch(path: str) -> None:
    try:
        os.utime(path)
    except OSError:  # a cache on a read-only disk serves without remembering use
        log.debug("cannot note the use of %s", path)
