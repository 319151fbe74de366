"""OutputMemory: memory of large outputs that callers have dropped, given out again.

The system clears every page that it gives: a decoding step that returns its caches in new memory spends more time on
that than on reading them. So the memory of a large output comes back here when the array and all its views are gone,
and serves a later output of nearly the same size. What the caller still holds is never touched.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

import numpy as np

from ort_core.plugin.forks import new_lock

# Bytes. Smaller ones the C library keeps itself; larger ones it may ask of the system, and give back, each time.
LEAST = 1 << 17
ALIGNMENT = 64
_ROUNDED_BY = 16  # what is taken for an output is up to a sixteenth larger


class OutputMemory:
    """Gives arrays; keeps at most as much idle memory as ``keep`` allows, oldest first to go."""

    def __init__(self) -> None:
        self._idle: list[_Block] = []
        self._idle_nbytes = 0
        self._returned: deque[_Block] = deque()  # and not yet counted
        self._lock = new_lock()
        self._limit = 0

    def keep(self, outputs: Iterable[tuple[tuple[int, ...], np.dtype]]) -> None:
        """Let as much memory lie idle as a run takes that returns outputs of these shapes and element types."""
        sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in outputs]
        self._limit = max(self._limit, sum(_rounded(size) + ALIGNMENT for size in sizes if size >= LEAST))

    def lease(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray | None:
        """Return what ``empty`` returns, ``None`` where there is no room."""
        try:
            return self.empty(shape, dtype)
        except MemoryError:
            return None

    def lease_next(self, shape: tuple[int, ...], dtype: np.dtype, leased: int) -> np.ndarray | None:
        """Return what ``lease`` returns, and let as much memory lie idle as the outputs of a run take, one by one.

        Args:
            shape: of the output.
            dtype: of its elements.
            leased: bytes of this run's large outputs, this one's among them.
        """
        self._limit = max(self._limit, leased + leased // _ROUNDED_BY + leased // LEAST * ALIGNMENT)
        return self.lease(shape, dtype)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return an uninitialized array of its own memory, C-contiguous."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < LEAST:
            return np.empty(shape, dtype)
        size = _rounded(nbytes) + ALIGNMENT
        if dtype.isbuiltin == 1:
            return np.asarray(_Lease(self, self._block(size), shape, dtype.str))
        # numpy does not know the types of ml_dtypes, such as bfloat16, by the text of their storage.
        return np.asarray(_Lease(self, self._block(size), shape, f"u{dtype.itemsize}")).view(dtype)

    def _block(self, size: int) -> _Block:
        with self._lock:
            if self._returned:
                self._settle()
            for position in range(len(self._idle) - 1, -1, -1):
                if self._idle[position].nbytes == size:
                    self._idle_nbytes -= size
                    return self._idle.pop(position)
        return _Block(size)

    def _back(self, block: _Block) -> None:
        """Take memory back. Waits for nobody: the garbage collector may call it while this very thread has the lock."""
        self._returned.append(block)
        while self._returned and self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def _settle(self) -> None:
        while self._returned:
            block = self._returned.popleft()
            self._idle.append(block)
            self._idle_nbytes += block.nbytes
        while self._idle_nbytes > self._limit:
            self._idle_nbytes -= self._idle.pop(0).nbytes


class _Block:
    """A piece of memory; its address is asked for once, which takes as long as all the rest of a lease."""

    __slots__ = ("address", "array", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.array, self.nbytes = np.empty(nbytes, np.uint8), nbytes
        self.address = -(-self.array.ctypes.data // ALIGNMENT) * ALIGNMENT


class _Lease:
    """The owner of an array's memory: when it goes, the memory goes back."""

    owns_memory = True  # no other array has it meanwhile
    __slots__ = ("__array_interface__", "_block", "_memory")

    def __init__(self, memory: OutputMemory, block: _Block, shape: tuple[int, ...], typestr: str) -> None:
        self._memory, self._block = memory, block
        self.__array_interface__ = {"shape": shape, "typestr": typestr, "data": (block.address, False), "version": 3}

    def __del__(self) -> None:
        self._memory._back(self._block)


def _rounded(nbytes: int) -> int:
    """Return a size up to a ``_ROUNDED_BY``th larger: a cache that grows by a row at a time finds its memory again."""
    step = 1 << max(12, nbytes.bit_length() - 5)
    return -(-nbytes // step) * step
