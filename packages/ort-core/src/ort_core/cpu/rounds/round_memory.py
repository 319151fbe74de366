"""RoundMemory: the arrays that rounds read and write: carried values in two places in turn, results that pile up."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ort_core.cpu.rounds.bound_rounds import Place

FIRST_ROUNDS, FIRST_NBYTES = 16, 1 << 20  # what a stack has room for at first: a limit of rounds is seldom reached
MOST_FIRST_NBYTES = 1 << 26  # of more than one round: results of 4 MB and more begin with fewer rounds


class Carried:
    """A value that a round leaves for the next one: written in one place while it is read in the other."""

    def __init__(self, initial: np.ndarray) -> None:
        self.even, self.odd = initial.copy(order="C"), np.empty(initial.shape, initial.dtype)

    @property
    def read(self) -> Place:
        """Where a round finds what the one before has left."""
        return Place.in_turn(self.even, self.odd)

    @property
    def written(self) -> Place:
        """Where a round leaves it."""
        return Place.in_turn(self.odd, self.even)

    def after(self, rounds: int) -> np.ndarray:
        """Return the value behind so many rounds."""
        return self.odd if rounds % 2 else self.even


class Stack:
    """What rounds yield, one behind the other, in memory that grows.

    Args:
        shape: of one round's result.
        dtype: of its elements.
        limit: how many rounds there are at most, ``None`` where nobody knows.
    """

    def __init__(self, shape: Sequence[int], dtype: np.dtype, limit: int | None) -> None:
        self.nbytes = math.prod(shape) * dtype.itemsize
        fitting = MOST_FIRST_NBYTES // max(self.nbytes, 1)
        room = max(1, min(FIRST_ROUNDS, fitting), FIRST_NBYTES // max(self.nbytes, 1))
        self._array = np.empty((room if limit is None else min(limit, room), *shape), dtype)
        self._is_backward = False

    @property
    def capacity(self) -> int:
        """Rounds for which there is room."""
        return len(self._array)

    @property
    def array(self) -> np.ndarray:
        """The results of all rounds for which there is room."""
        return self._array

    @property
    def place(self) -> Place:
        """Where a round leaves its result."""
        return Place.at(self._array[-1:], -self.nbytes) if self._is_backward else Place.at(self._array, self.nbytes)

    def take_room(self, rounds: int, is_backward: bool) -> None:
        """Have room for exactly so many rounds, before any has run; backward: the last one comes first."""
        self._array, self._is_backward = np.empty((rounds, *self._array.shape[1:]), self._array.dtype), is_backward

    def grow(self, capacity: int) -> None:
        """Make room for so many rounds, where there is less; what is there stays."""
        if capacity <= self.capacity:
            return
        larger = np.empty((capacity, *self._array.shape[1:]), self._array.dtype)
        larger[: len(self._array)] = self._array
        self._array = larger

    def after(self, rounds: int) -> np.ndarray:
        """Return the results of so many rounds, in memory of their own."""
        return self._array if rounds == len(self._array) else self._array[:rounds].copy()
