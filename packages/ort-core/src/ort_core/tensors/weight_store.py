"""WeightStore: packed weights shared by everything in the process that needs the same packing of the same content.

An entry lives as long as somebody holds what ``get`` returned; the store itself keeps nothing alive.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class WeightKey:
    """What makes two packed weights the same: the content's digest, the device, and the packing's name."""

    digest: bytes
    device: str
    packing: str


class PackedWeight:
    """A packed weight; hold it as long as the buffer is used."""

    __slots__ = ("__weakref__", "buffer", "key")

    def __init__(self, key: WeightKey, buffer: np.ndarray) -> None:
        self.key = key
        self.buffer = buffer


class WeightStore:
    """Packed weights by key; thread-safe."""

    def __init__(self) -> None:
        self._entries: weakref.WeakValueDictionary[WeightKey, PackedWeight] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def get(self, key: WeightKey, pack: Callable[[], np.ndarray]) -> PackedWeight:
        """Return the weight of ``key``; ``pack`` makes it when nobody holds one."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                found = self._entries[key] = PackedWeight(key, pack())
            return found

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        """Bytes of all packed weights that are in use."""
        return sum(entry.buffer.nbytes for entry in self._entries.values())
