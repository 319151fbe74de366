"""BoundRounds: the records of rounds for one signature of shapes, and the call that runs them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.cpu.codegen.machine_code.code_cache import compiled_for_host
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.program.program import DataError
from ort_core.cpu.rounds.round_code import Copy, Patch, RoundsHead, rounds_text
from ort_core.plugin import frozen, keep_for_ever

if TYPE_CHECKING:
    from ort_core.cpu.program.program import BoundState
    from ort_core.cpu.threads.pool import ThreadPool


@frozen
class Place:
    """Memory of a round: an address in even rounds, one in odd rounds, and how far both move with each round."""

    even: int
    odd: int
    stride: int = 0

    @classmethod
    def at(cls, array: np.ndarray, stride: int = 0) -> Place:
        """Return the place of an array, or of as many equal parts of it as there are rounds."""
        address = array.__array_interface__["data"][0]
        return cls(address, address, stride)

    @classmethod
    def in_turn(cls, even: np.ndarray, odd: np.ndarray) -> Place:
        """Return two arrays of which even rounds have the one and odd rounds the other."""
        return cls(even.__array_interface__["data"][0], odd.__array_interface__["data"][0])

    @property
    def words(self) -> tuple[int, int, int]:
        """The words by which the native side finds the address of a round."""
        return self.even, self.odd, self.stride


class BoundRounds:
    """A run state of a program with the records of its rounds; one run at a time has it.

    Args:
        bound: the run state.
        pool: the threads that run the program.
    """

    def __init__(self, bound: BoundState, pool: ThreadPool) -> None:
        self.bound, self.number = bound, np.zeros(1, np.int64)
        places = (*bound.inputs, *bound.outputs)
        rows = [(target, added, index) for index, own in enumerate(places) for target, added in own]
        table = np.array(rows, np.int64).reshape(-1, 3)
        self._added, self._index = table[:, 1:2], table[:, 2]
        self._patches = np.zeros((len(rows), Patch.COUNT), np.int64)
        self._patches[:, Patch.TARGET] = table[:, 0]
        self._head = np.zeros(RoundsHead.COUNT, np.int64)
        words = {
            RoundsHead.STEPS: bound.steps, RoundsHead.STEP_COUNT: bound.count, RoundsHead.WANTED: bound.wanted,
            RoundsHead.ERROR: bound.error, RoundsHead.NUMBER: self.number.ctypes.data,
            RoundsHead.PATCHES: self._patches.ctypes.data, RoundsHead.PATCH_COUNT: len(rows),
        }  # fmt: skip
        for word, value in words.items():
            self._head[word] = value
        self._head[RoundsHead.POOL_RUN], self._head[RoundsHead.POOL] = pool.entry_points
        self._run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
            _code().address("ort_rounds")
        )

    def place(
        self, operands: Sequence[Place], copies: Sequence[tuple[Place, Place, int]], goes_on: np.ndarray | None
    ) -> None:
        """Say where the next rounds read and write.

        Args:
            operands: of each input of the program, then of each output.
            copies: from where, to where and how many bytes, made in this order behind the steps of a round.
            goes_on: the bool that a round leaves; ``None``: every round is followed by another.
        """
        words = np.array([place.words for place in operands], np.int64).reshape(-1, 3)[self._index]
        words[:, :2] += self._added
        self._patches[:, Patch.EVEN :] = words
        self._copies = copy_rows(copies)
        self._head[RoundsHead.COPIES], self._head[RoundsHead.COPY_COUNT] = self._copies.ctypes.data, len(copies)
        self._head[RoundsHead.GOES_ON] = 0 if goes_on is None else goes_on.ctypes.data

    @property
    def head(self) -> int:
        """The address of the head."""
        return int(self._head.ctypes.data)

    def placed(self) -> Iterator[tuple[int, int, int]]:
        """Give the words that ``place`` wrote: the address of each, what it holds, and what of that was added."""
        for table, columns, added in (
            (self._patches, (Patch.EVEN, Patch.ODD), self._added),
            (self._copies, (Copy.FROM_EVEN, Copy.FROM_ODD, Copy.TO_EVEN, Copy.TO_ODD), np.zeros((1, 1), np.int64)),
        ):
            for (row, column), more in np.ndenumerate(np.broadcast_to(added, (len(table), len(columns)))):
                word = table[row, columns[column] :]
                yield int(word.ctypes.data), int(word[0]), int(more)

    def run(self, first: int, limit: int) -> int:
        """Run rounds from ``first`` on and return the number of the one that comes next.

        Raises:
            DataError: an index lay out of bounds.
        """
        done = int(self._run(self._head.ctypes.data, first, limit))
        if self.bound.take_error():
            raise DataError("an index lies out of bounds")
        return done


def copy_rows(copies: Sequence[tuple[Place, Place, int]]) -> np.ndarray:
    """Return the rows of copies: from where, to where and how many bytes."""
    return np.array([(*f.words, *t.words, n) for f, t, n in copies], np.int64).reshape(-1, Copy.COUNT)


def rounds_call_address() -> int:
    """Return where ``ort_rounds_call`` lies."""
    return _code().address("ort_rounds_call")


def prepare_rounds() -> None:
    """Have the code of rounds made at load, so that a compiled model holds it and no run has to wait for it."""
    _code()


_module: list[CompiledModule] = keep_for_ever([])


def _code() -> CompiledModule:
    if not _module:
        _module.append(compiled_for_host("rounds of control flow", rounds_text))
    return _module[0]
