"""WeightStore: packed weights shared by everything in the process that needs the same packing of the same memory.

Weights lie in files that are mapped once for all sessions (``mapped_files``), so the address of a weight says which
one it is, without a look at its contents. An entry lives as long as somebody holds what ``claim`` returned; the store
itself keeps nothing alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ort_core.forks import new_lock
from ort_core.frozen import frozen

if TYPE_CHECKING:
    from concurrent.futures import Future


@frozen
class WeightKey:
    """What makes two packed weights the same: memory, shape, strides and element type of the source, and the packing.

    ``packing`` names the order of the packed elements, and the device or processor that it is for.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    packing: str

    @classmethod
    def of(cls, source: np.ndarray, packing: str) -> WeightKey:
        """Return the key of an array in a packing; it says nothing once the array's memory is given back."""
        place = source.__array_interface__
        return cls(place["data"][0], source.shape, source.strides, source.dtype.str, packing)


class PackedWeight:
    """A packed weight: hold it as long as the buffer is used, and read it when ``packed`` is done.

    ``source`` is held, too: as long as it is, its address is that of no other weight.
    """

    __slots__ = ("__weakref__", "buffer", "packed", "source")

    def __init__(self, source: np.ndarray, buffer: np.ndarray) -> None:
        from concurrent.futures import Future  # sessions out of the cache pack nothing

        self.source = source
        self.buffer = buffer
        self.packed: Future[None] = Future()


class WeightStore:
    """Packed weights by key; thread-safe."""

    def __init__(self) -> None:
        self._entries: weakref.WeakValueDictionary[WeightKey, PackedWeight] = weakref.WeakValueDictionary()
        self._lock = new_lock()

    def claim(
        self, key: WeightKey, source: np.ndarray, allocate: Callable[[], np.ndarray]
    ) -> tuple[PackedWeight, bool]:
        """Return the weight of ``key``, and whether it is new: then the caller packs it and says so in ``packed``.

        One whose packing failed counts as absent.
        """
        with self._lock:
            found = self._entries.get(key)
            if found is not None and not _has_failed(found.packed):
                return found, False
            made = self._entries[key] = PackedWeight(source, allocate())
            return made, True

    def __len__(self) -> int:
        return len(self._entries)

    def keys(self) -> list[WeightKey]:
        """Return what is in use."""
        return list(self._entries)

    @property
    def nbytes(self) -> int:
        """Bytes of all packed weights that are in use."""
        return sum(entry.buffer.nbytes for entry in list(self._entries.values()))


def _has_failed(packed: Future[None]) -> bool:
    return packed.done() and (packed.cancelled() or packed.exception() is not None)
