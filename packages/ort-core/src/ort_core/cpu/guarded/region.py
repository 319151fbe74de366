"""GuardedRegion: buffers that each lie between two pages that nobody may touch, tight against one of them.

    | page | bytes beside, buffer | page | bytes beside, buffer | page |        (edge: the end)

What is left of a buffer's pages on its other side holds a byte that no neighbor's does; ``changed_beside`` tells
whether somebody wrote there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from ort_core.cpu.guarded.mode import GuardedMode
from ort_core.plugin import frozen

if sys.platform == "win32":
    from ort_core.cpu.guarded.pages_windows import PAGE_NBYTES, allow, give_pages_back, take_pages
else:
    from ort_core.cpu.guarded.pages_posix import PAGE_NBYTES, allow, give_pages_back, take_pages


@frozen
class Part:
    """A buffer of a region: its bytes, and what its address must be a multiple of."""

    nbytes: int
    alignment: int = 1


class GuardedRegion:
    """Memory of some buffers. Views of it live no longer than it does.

    Args:
        parts: the buffers.
        mode: which of their sides lies against a page that cannot be touched.

    Raises:
        MemoryError: the system has no more pages, or no more areas of them.
    """

    def __init__(self, parts: Sequence[Part], mode: GuardedMode) -> None:
        spans = [-(-part.nbytes // PAGE_NBYTES) * PAGE_NBYTES for part in parts]
        self._nbytes = sum(spans) + PAGE_NBYTES * (len(parts) + 1)
        self._base = take_pages(self._nbytes)
        self._spans: list[tuple[int, int]] = []
        self.addresses: list[int] = []
        at = self._base + PAGE_NBYTES
        for part, span in zip(parts, spans, strict=True):
            if span:
                allow(at, span, writing=True)
            tight = (at + span - part.nbytes) // part.alignment * part.alignment
            self.addresses.append(tight if mode is GuardedMode.END else at)
            self._spans.append((at, span))
            at += span + PAGE_NBYTES
        self._parts = tuple(parts)

    def __del__(self) -> None:
        if hasattr(self, "_base"):
            give_pages_back(self._base, self._nbytes)

    def bytes_of(self, number: int) -> np.ndarray:
        """Return a buffer as uint8."""
        return self._view(self.addresses[number], self._parts[number].nbytes)

    def fill(self, number: int, pattern: int) -> None:
        """Write a byte everywhere in a buffer, and beside it what must stay."""
        self._view(*self._spans[number])[...] = _beside(number)
        self.bytes_of(number)[...] = pattern

    def let_read_only(self, number: int) -> None:
        """Let nobody write to a buffer from now on."""
        address, span = self._spans[number]
        if span:
            allow(address, span, writing=False)

    def changed_beside(self, number: int) -> int | None:
        """Return how far from the buffer's first byte a byte beside it was changed, ``None`` if none was."""
        start, span = self._spans[number]
        whole, first = self._view(start, span), self.addresses[number] - start
        beside = whole != _beside(number)
        beside[first : first + self._parts[number].nbytes] = False
        return int(np.argmax(beside)) - first if beside.any() else None

    @staticmethod
    def _view(address: int, nbytes: int) -> np.ndarray:
        return np.asarray(_Bytes(address, nbytes)) if nbytes else np.empty(0, np.uint8)


def _beside(number: int) -> int:
    return (0xA5 + 37 * number) % 256


class _Bytes:
    """Some bytes of memory, for numpy."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}
