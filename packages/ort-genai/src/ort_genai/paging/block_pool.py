"""Blocks of rows that caches consist of: who holds which, how many there are, and the memory that they lie in.

A block has ``BLOCK_ROWS`` rows of each cache of a model. Holders are counted: rows that run, and beginnings of prompts
that are kept. Memory is asked for as it is needed, twice as much each time; what nobody has written to takes none. When
three quarters of it or more are held by nobody, half or more is given back: the blocks that are held move together, and
keep their numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ort_genai.paging.large_pages import large_zeros

Array = np.ndarray
BLOCK_ROWS = 64  # a step reads such a run of keys at once; the last block of a sequence is half empty on the average
_FIRST = 8  # blocks that a new pool has memory for; more lie in large pages, which take memory as a whole
_TOGETHER_NBYTES = 32 << 20  # of arrays in one piece of memory: so much more is taken while a pool grows


class OutOfBlocks(Exception):
    """All blocks are held."""


class BlockPool:
    """Blocks of the caches of one model; one thread uses it.

    Args:
        caches: heads, elements of a head and type of each cache.
        row_nbytes: of blocks that rows may hold; ``None``: any number.
        kept_nbytes: of further blocks, for beginnings that are kept.

    Attributes:
        arrays: (places, BLOCK_ROWS, heads, size) of each cache.
        places: where in the arrays each block lies, by its number.
        version: another one each time the arrays are others.
        give_up: is asked to let go of a beginning that is kept where no block is free; returns whether one was.
    """

    def __init__(
        self, caches: Sequence[tuple[int, int, np.dtype]], row_nbytes: int | None = None, kept_nbytes: int = 0
    ) -> None:
        self.arrays = [np.zeros((0, BLOCK_ROWS, heads, size), dtype) for heads, size, dtype in caches]
        self.block_nbytes = sum(BLOCK_ROWS * heads * size * dtype.itemsize for heads, size, dtype in caches)
        self._row_limit = None if row_nbytes is None else row_nbytes // self.block_nbytes
        self._kept_limit = kept_nbytes // self.block_nbytes
        self.version = 0
        self.give_up: Callable[[], bool] = lambda: False
        self.places = np.zeros(0, np.int32)
        self._free_places: list[int] = []
        self._free_numbers: list[int] = []
        self._by_rows: Counter[int] = Counter()
        self._kept: Counter[int] = Counter()

    @property
    def held_by_rows(self) -> int:
        """How many blocks rows hold; one that several hold counts once."""
        return len(self._by_rows)

    @property
    def held(self) -> int:
        """How many blocks anybody holds."""
        return len(self._by_rows.keys() | self._kept.keys())

    @property
    def left_for_rows(self) -> int:
        """How many further blocks rows may hold."""
        return (1 << 62) if self._row_limit is None else max(0, self._row_limit - len(self._by_rows))

    def shared(self, blocks: Iterable[int]) -> int:
        """Return how many of some blocks rows hold already."""
        return sum(block in self._by_rows for block in blocks)

    def take(self) -> int:
        """Return a block that nobody held; a row holds it now.

        Raises:
            OutOfBlocks: rows hold as many as they may.
        """
        if self.left_for_rows < 1:
            raise OutOfBlocks
        while not self._free_places and not self._grow():
            if not self.give_up():
                raise OutOfBlocks
        block = self._free_numbers.pop()
        self.places[block] = self._free_places.pop()
        self._by_rows[block] = 1
        return block

    def hold(self, blocks: Iterable[int], *, is_kept: bool = False) -> None:
        """Count one more holder of blocks: a row, or a beginning that is kept."""
        (self._kept if is_kept else self._by_rows).update(blocks)

    def release(self, blocks: Iterable[int], *, is_kept: bool = False) -> None:
        """Count one holder less; blocks without any are free, and memory that is far too large gets smaller."""
        holders = self._kept if is_kept else self._by_rows
        others = self._by_rows if is_kept else self._kept
        for block in blocks:
            holders[block] -= 1
            if holders[block] <= 0:
                del holders[block]
                if block not in others:
                    self._free_numbers.append(block)
                    self._free_places.append(int(self.places[block]))
        self._shrink()

    def copy(self, source: int, target: int, count: int) -> None:
        """Copy the first rows of a block to another one."""
        first, second = self.places[source], self.places[target]
        for array in self.arrays:
            array[second, :count] = array[first, :count]

    @property
    def _capacity(self) -> int:
        return len(self.arrays[0]) if self.arrays else 0

    def _grow(self) -> bool:
        """Make memory for twice as many blocks, if there may be more; return whether."""
        had = self._capacity
        most = 1 << 31 if self._row_limit is None else self._row_limit + self._kept_limit
        wanted = min(max(_FIRST, 2 * had), most)
        if wanted <= had:
            return False
        self._move(np.arange(had), wanted)
        self._free_places += range(wanted - 1, had - 1, -1)  # low ones first: memory that was written is written again
        return True

    def _shrink(self) -> None:
        """Give memory back, unless a fourth of it or more is held."""
        had = self._capacity
        wanted = max(_FIRST, 2 * self.held)
        if 2 * wanted > had:
            return
        blocks = sorted(self._by_rows.keys() | self._kept.keys())
        self._move(self.places[blocks], wanted)
        self.places[blocks] = np.arange(len(blocks))
        self._free_places = list(range(wanted - 1, len(blocks) - 1, -1))

    def _groups(self, wanted: int) -> list[tuple[int, int]]:
        """Return which arrays of so many blocks lie side by side in memory."""
        found, first, nbytes = list[tuple[int, int]](), 0, 0
        for place, array in enumerate(self.arrays):
            own = wanted * array.itemsize * math.prod(array.shape[1:])
            if place > first and nbytes + own > _TOGETHER_NBYTES:
                found.append((first, place))
                first, nbytes = place, 0
            nbytes += own
        return [*found, (first, len(self.arrays))]

    def _move(self, kept: np.ndarray, wanted: int) -> None:
        """Make arrays of so many blocks, the first ones those of some places, and numbers for all that fit."""
        for first, end in self._groups(wanted):  # one after another: the old ones go as the new ones come
            had = self.arrays[first:end]
            shapes = [((wanted, *array.shape[1:]), array.dtype) for array in had]
            made = large_zeros(shapes) if wanted > _FIRST else [np.zeros(*each) for each in shapes]
            for array, new in zip(had, made, strict=True):
                new[: len(kept)] = array[kept]
            self.arrays[first:end] = made
        known = len(self.places)
        if wanted > known:
            self.places = np.concatenate([self.places, np.zeros(wanted - known, np.int32)])
            self._free_numbers += range(wanted - 1, known - 1, -1)
        self.version += 1
