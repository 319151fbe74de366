"""Regions of shared memory that clients registered: inputs are read from them, outputs written to them.

A region is a POSIX shared memory object, or a file mapping of that name on Windows; nothing else of the file system
can be named, because a key is one name without separators.
"""

from __future__ import annotations

import mmap
import os
import sys
from dataclasses import dataclass

from ort_serve.failures import InvalidRequest, NotFound, Unsupported


@dataclass(frozen=True, slots=True)
class RegionSlice:
    """A part of a registered region, in bytes."""

    region: str
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Region:
    """A registered region: ``nbytes`` from ``offset`` of the object named ``key``."""

    name: str
    key: str
    offset: int
    nbytes: int
    memory: mmap.mmap
    descriptor: int | None  # of the object, to see its size

    def part(self, wanted: RegionSlice) -> memoryview:
        """Return the bytes of a slice.

        Raises:
            InvalidRequest: it reaches beyond the region, or the object has been cut short.
        """
        if wanted.offset < 0 or wanted.nbytes < 0 or wanted.offset + wanted.nbytes > self.nbytes:
            raise InvalidRequest(
                f"{wanted.nbytes} bytes at offset {wanted.offset} reach beyond shared memory region {self.name!r} of "
                f"{self.nbytes} bytes"
            )
        if self.descriptor is not None and os.fstat(self.descriptor).st_size < self.offset + self.nbytes:
            raise InvalidRequest(f"shared memory region {self.name!r} was cut short behind its registration")
        start = self.offset + wanted.offset
        return memoryview(self.memory)[start : start + wanted.nbytes]


class SharedMemoryRegions:
    """The regions of one server. Used by its event loop only."""

    def __init__(self) -> None:
        self._regions: dict[str, Region] = {}

    def register(self, name: str, key: str, offset: int, nbytes: int) -> None:
        """Map a region.

        Raises:
            InvalidRequest: the name is taken, or there is no such memory of that size.
            Unsupported: this system has none.
        """
        if name in self._regions:
            raise InvalidRequest(f"shared memory region {name!r} is registered already; unregister it first")
        if offset < 0 or nbytes <= 0:
            raise InvalidRequest(f"region {name!r}: offset {offset} and byte_size {nbytes} must be at least 0 and 1")
        memory, descriptor = _mapped(key, offset + nbytes)
        self._regions[name] = Region(name, key, offset, nbytes, memory, descriptor)

    def unregister(self, name: str) -> None:
        """Forget a region; all for an empty name."""
        names = [name] if name else list(self._regions)
        for each in names:
            region = self._regions.pop(each, None)
            if region is not None and region.descriptor is not None:
                os.close(region.descriptor)

    def status(self, name: str) -> list[Region]:
        """Return one region, or all for an empty name.

        Raises:
            NotFound: there is none of that name.
        """
        return [self.get_region(name)] if name else list(self._regions.values())

    def get_region(self, name: str) -> Region:
        """Return a region.

        Raises:
            NotFound: there is none of that name.
        """
        found = self._regions.get(name)
        if found is None:
            known = ", ".join(sorted(self._regions)) or "none"
            raise NotFound(f"shared memory region {name!r} is not registered; registered: {known}")
        return found

    def read(self, wanted: RegionSlice) -> bytes:
        """Return a copy of a slice's bytes: its owner may change them, or cut the object short, at any time."""
        return bytes(self.get_region(wanted.region).part(wanted))

    def write(self, wanted: RegionSlice, raw: bytes) -> None:
        """Put a result into a slice.

        Raises:
            InvalidRequest: it does not fit.
        """
        if len(raw) > wanted.nbytes:
            raise InvalidRequest(
                f"the output takes {len(raw)} bytes, its shared memory region slice has {wanted.nbytes}"
            )
        part = self.get_region(wanted.region).part(wanted)
        part[: len(raw)] = raw


def _mapped(key: str, nbytes: int) -> tuple[mmap.mmap, int | None]:
    name = key.removeprefix("/")
    if not name or any(letter in name for letter in "/\\\0") or name in (".", ".."):
        raise InvalidRequest(f"shared memory key {key!r} must be one name without separators")
    if sys.platform == "win32":
        return mmap.mmap(-1, nbytes, tagname=name), None
    try:
        from _posixshmem import shm_open  # type: ignore[import-not-found]  # SharedMemory would unlink it at exit
    except ImportError as error:
        raise Unsupported("this system has no shared memory by name") from error
    try:
        descriptor = shm_open("/" + name, os.O_RDWR, mode=0o600)
    except OSError as error:
        raise InvalidRequest(f"shared memory {key!r} cannot be opened: {error.strerror}") from error
    try:
        if os.fstat(descriptor).st_size < nbytes:  # touching pages beyond the end would end the process
            raise InvalidRequest(f"shared memory {key!r} is smaller than the {nbytes} bytes named")
        return mmap.mmap(descriptor, nbytes), descriptor
    except BaseException:
        os.close(descriptor)
        raise
