"""MovedWords: words that point into arrays which stand for the inputs and outputs of a direct call.

Records are written over such arrays once; each call then writes the addresses of its own arrays into those words.
"""

from __future__ import annotations

import bisect
import ctypes
from collections.abc import Sequence

import numpy as np

from ort_core.plugin import frozen

Places = tuple[tuple[tuple[int, int], ...], ...]


class MovedWords:
    """The memory of the arrays that stand for inputs and outputs, and the words that point into it."""

    def __init__(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        self._count = len(inputs)
        arrays = [*inputs, *outputs]
        spans = sorted((int(each.ctypes.data), number) for number, each in enumerate(arrays))
        self._starts, self._numbers = [start for start, _ in spans], [number for _, number in spans]
        self._stops = [start + max(arrays[number].nbytes, 1) for start, number in spans]
        self._found: list[list[tuple[int, int]]] = [[] for _ in arrays]

    def add(self, address: int, value: int, added: int = 0) -> None:
        """Take note of a word at an address: what it holds, and what of that was added to an array's own address."""
        pointed = value - added
        place = bisect.bisect_right(self._starts, pointed) - 1
        if place >= 0 and pointed < self._stops[place]:
            self._found[self._numbers[place]].append((address, value - self._starts[place]))

    def add_table(self, table: np.ndarray) -> None:
        """Take note of all words of a table."""
        start = int(table.ctypes.data)
        for index, value in enumerate(table.reshape(-1).tolist()):
            self.add(start + 8 * index, value)

    @property
    def inputs(self) -> Places:
        """For each input the addresses of words, and what is added to its own address there."""
        return tuple(map(tuple, self._found[: self._count]))

    @property
    def outputs(self) -> Places:
        """Likewise for each output."""
        return tuple(map(tuple, self._found[self._count :]))


@frozen
class WordMemory:
    """The memory of records, with all that they point to: a ``StateMemory``."""

    kept: tuple[object, ...]

    def write(self, places: Sequence[tuple[int, int]], address: int) -> None:
        """Write the address of data into words."""
        for place, added in places:
            ctypes.c_int64.from_address(place).value = address + added
