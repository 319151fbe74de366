"""Regions of shared memory that clients registered: inputs are read from them, outputs written to them.

A region is a POSIX shared memory object, or a file mapping of that name on Windows; nothing else of the file system
can be named, because a key is one name without separators. Whoever may register regions can read and write any such
object that the server's user can: servers that listen to other machines offer it only where they are told to.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from ort_serve.failures import Forbidden, InvalidRequest, NotFound
from ort_serve.protocol.platform_memory import SharedObject

_MOST_REGIONS = 1024  # each holds a descriptor
_MOST_BYTES = 2**62


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
    memory: SharedObject

    def start_of(self, wanted: RegionSlice) -> int:
        """Return where in the object a slice begins.

        Raises:
            InvalidRequest: it reaches beyond the region.
        """
        if wanted.offset < 0 or wanted.nbytes < 0 or wanted.offset + wanted.nbytes > self.nbytes:
            raise InvalidRequest(
                f"{wanted.nbytes} bytes at offset {wanted.offset} reach beyond shared memory region {self.name!r} of "
                f"{self.nbytes} bytes"
            )
        return self.offset + wanted.offset


class SharedMemoryRegions:
    """The regions of one server. Safe to use from many threads: none is closed while somebody reads or writes it."""

    def __init__(self, refusal: str = "") -> None:
        """Begin without regions; a ``refusal`` says why there shall be none."""
        self._regions: dict[str, Region] = {}
        self._refusal = refusal
        self._lock = threading.Lock()

    def register(self, name: str, key: str, offset: int, nbytes: int) -> None:
        """Open a region.

        Raises:
            Forbidden: this server offers none.
            InvalidRequest: the name is taken, or there is no such memory of that size.
            Unsupported: this system has none.
        """
        if self._refusal:
            raise Forbidden(f"this server takes no shared memory{self._refusal}")
        if name in self._regions:
            raise InvalidRequest(f"shared memory region {name!r} is registered already; unregister it first")
        if len(self._regions) >= _MOST_REGIONS:
            raise InvalidRequest(f"{_MOST_REGIONS} regions are registered, and no more may be; unregister some")
        if offset < 0 or nbytes <= 0 or offset + nbytes > _MOST_BYTES:
            raise InvalidRequest(f"region {name!r}: offset {offset} and byte_size {nbytes} must be at least 0 and 1")
        self._regions[name] = Region(name, key, offset, nbytes, SharedObject(key, offset + nbytes))

    def unregister(self, name: str) -> None:
        """Forget a region; all for an empty name."""
        names = [name] if name else list(self._regions)
        for each in names:
            with self._lock:
                region = self._regions.pop(each, None)
                if region is not None:
                    region.memory.close()

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

    def check(self, wanted: RegionSlice) -> None:
        """Refuse a slice that no result can be put into, before the result is computed.

        Raises:
            NotFound: its region is not registered.
            InvalidRequest: it reaches beyond the region.
        """
        self.get_region(wanted.region).start_of(wanted)

    def read(self, wanted: RegionSlice) -> bytes:
        """Return a copy of a slice's bytes: its owner may change them, or cut the object short, at any time."""
        with self._lock:
            region = self.get_region(wanted.region)
            return region.memory.read(region.start_of(wanted), wanted.nbytes)

    def write(self, wanted: RegionSlice, raw: bytes) -> None:
        """Put a result into a slice.

        Raises:
            InvalidRequest: it does not fit.
        """
        if len(raw) > wanted.nbytes:
            raise InvalidRequest(
                f"the output takes {len(raw)} bytes, its shared memory region slice has {wanted.nbytes}"
            )
        with self._lock:
            region = self.get_region(wanted.region)
            region.memory.write(region.start_of(wanted), raw)
