"""Named shared memory of each system: POSIX objects, and file mappings of Windows."""

from __future__ import annotations

import mmap
import os
import sys

from ort_serve.failures import InvalidRequest, Unsupported


class SharedObject:
    """One object of shared memory, opened by its key.

    Bytes are copied by the system's reads and writes where it has them for such objects (Linux): what another program
    cuts short meanwhile is a short read then, not the end of this process. Elsewhere the object is mapped.
    """

    def __init__(self, key: str, nbytes: int) -> None:
        """Open the object ``key``.

        Raises:
            InvalidRequest: there is none of that name and size.
            Unsupported: this system has none.
        """
        name = key.removeprefix("/")
        if not name or len(name) > 250 or any(letter in name for letter in "/\\\0") or name in (".", ".."):
            raise InvalidRequest(f"shared memory key {key[:80]!a} must be one name without separators")
        self._key = key
        self._descriptor = -1
        self._map: mmap.mmap | None = None
        if sys.platform == "win32":
            self._map = _mapped(key, nbytes)
            return
        self._descriptor = _opened(key, name)
        try:
            self.need(nbytes)
            if not _is_readable(self._descriptor):
                self._map = mmap.mmap(self._descriptor, nbytes)
        except BaseException:
            self.close()
            raise

    def need(self, nbytes: int) -> None:
        """Check that the object still has so many bytes: pages beyond its end would end the process.

        Raises:
            InvalidRequest: it has not.
        """
        if self._descriptor >= 0 and os.fstat(self._descriptor).st_size < nbytes:
            raise InvalidRequest(f"shared memory {self._key!a} is smaller than the {nbytes} bytes named")

    def read(self, offset: int, nbytes: int) -> bytes:
        """Return a copy of a part.

        Raises:
            InvalidRequest: the object ends before it.
        """
        self.need(offset + nbytes)
        if self._map is not None:
            return bytes(memoryview(self._map)[offset : offset + nbytes])
        if sys.platform == "win32":
            raise InvalidRequest(f"shared memory {self._key!a} is closed")
        parts: list[bytes] = []
        while nbytes:
            part = os.pread(self._descriptor, nbytes, offset)
            if not part:
                raise InvalidRequest(f"shared memory {self._key!a} was cut short while it was read")
            parts.append(part)
            offset, nbytes = offset + len(part), nbytes - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, offset: int, raw: bytes) -> None:
        """Put bytes into a part.

        Raises:
            InvalidRequest: the object ends before it.
        """
        self.need(offset + len(raw))
        if self._map is not None:
            self._map[offset : offset + len(raw)] = raw
            return
        if sys.platform == "win32":
            raise InvalidRequest(f"shared memory {self._key!a} is closed")
        left = memoryview(raw)
        while left:
            count = os.pwrite(self._descriptor, left, offset)
            left, offset = left[count:], offset + count

    def close(self) -> None:
        """Give the object back."""
        if self._map is not None:
            self._map.close()
            self._map = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


if sys.platform == "win32":
    import _winapi

    def _mapped(key: str, nbytes: int) -> mmap.mmap:
        """Return the memory of an object that another program made; ``mmap`` alone would make one that is not there.

        A slash before the name, which POSIX wants, is a letter of it on Windows: Python's clients keep it.
        """
        for name in (key, key.removeprefix("/")):
            try:
                held = _winapi.OpenFileMapping(_winapi.FILE_MAP_READ, False, name)
            except OSError:
                continue
            try:
                return mmap.mmap(-1, nbytes, tagname=name)
            except OSError as error:
                raise InvalidRequest(f"shared memory {key!a} is smaller than the {nbytes} bytes named") from error
            finally:
                _winapi.CloseHandle(held)
        raise InvalidRequest(f"shared memory {key!a} cannot be opened: there is none of that name")


def _opened(key: str, name: str) -> int:
    try:
        from _posixshmem import shm_open  # type: ignore[import-not-found]  # SharedMemory would unlink it at exit
    except ImportError as error:
        raise Unsupported("this system has no shared memory by name") from error
    try:
        return int(shm_open("/" + name, os.O_RDWR, mode=0o600))
    except (OSError, ValueError) as error:
        told = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidRequest(f"shared memory {key!a} cannot be opened: {told}") from error


def _is_readable(descriptor: int) -> bool:
    """Return whether the system reads such objects as it reads files (macOS does not)."""
    if sys.platform == "win32":
        return False
    try:
        os.pread(descriptor, 1, 0)
    except OSError:
        return False
    return True
