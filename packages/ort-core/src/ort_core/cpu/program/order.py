"""How the threads go through steps together: alone, each its share, or piece by piece; behind which steps they meet.

All threads run the same steps. Of a long one they claim small pieces until none is left: cores are not equally fast
(one is shared with another program, or made to save energy), and equal shares would all wait for the slowest. They meet
where a step touches what another thread may have written, or overwrites what another may still read. Small steps in a
row are run by thread 0 alone: shares of them would be over sooner than the threads have met between them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ort_core.cpu.threads.pool_code import BARRIER, PIECES_AT, SERIAL
from ort_core.plugin import environment_value

if TYPE_CHECKING:
    import numpy.typing as npt

    from ort_core.cpu.lowering.steps import Step
    from ort_core.cpu.lowering.views import Buffer

Flags: TypeAlias = "npt.NDArray[np.int64]"
SERIAL_WORK = 3_000  # estimated work (1 us) below which one thread does a step alone if its neighbor is as small;
# with 2 threads EfficientNet-B0 takes 1 % less time than without, with 6,000 and 12,000 as much as without or more
PIECE_WORK = 60_000  # estimated work (20 us) of the smallest piece that threads claim
MAX_PIECES = 8  # of a step for each thread; 2 or more, or each thread has its share
MAX_KEPT = 16  # patterns of small steps whose flags are kept


class StepOrder:
    """The order of one program's steps.

    Args:
        reads: for each step the numbers of the memories that it reads.
        writes: those that it writes, but for what each thread has of its own.
        whole: the numbers of steps that lose by being cut into more pieces than there are threads.
    """

    def __init__(
        self, reads: Sequence[Collection[int]], writes: Sequence[Collection[int]], whole: Collection[int] = ()
    ) -> None:
        self.reads = [frozenset(each) for each in reads]
        self.writes = [frozenset(each) for each in writes]
        self.whole = frozenset(whole)
        self._kept: dict[tuple[bool, ...], Flags] = {}

    @classmethod
    def of(cls, steps: Sequence[Step], find: Callable[[Buffer], object]) -> StepOrder:
        """Return the order of steps; ``find`` tells what two buffers share when they share memory."""
        from ort_core.cpu.lowering.views import Place  # a program out of the cache comes with its order

        numbers: dict[object, int] = {}

        def number(buffer: Buffer) -> int:
            return numbers.setdefault(find(buffer), len(numbers))

        reads = [[number(b) for b in step.reads] for step in steps]
        writes = [[number(b) for b in step.writes if b.place is not Place.SCRATCH] for step in steps]
        return cls(reads, writes, [i for i, step in enumerate(steps) if not step.is_divisible])

    def flags(self, work: Sequence[int], threads: int) -> Flags:
        """Return the flags of each step, given the work of each and how many threads there are."""
        pieces_each = int(environment_value("ORT_STEP_PIECES"))
        if pieces_each > 0:
            return self._cut(pieces_each)
        flags = self._meetings(work)
        if threads > 1 and max(work, default=0) >= 2 * PIECE_WORK * threads:
            pieces = np.minimum(np.array(work, np.int64) // (PIECE_WORK * threads), MAX_PIECES)
            pieces[(pieces < 2) | (flags & SERIAL > 0)] = 0
            pieces[list(self.whole)] = 0
            flags = flags | pieces << PIECES_AT
        return flags

    def _cut(self, pieces_each: int) -> Flags:
        """Return the flags of steps that are all cut into that many pieces for each thread, however short they are."""
        pieces = np.full(len(self.reads), max(1, pieces_each), np.int64)
        pieces[list(self.whole)] = 0
        return self._flags([False] * len(self.reads)) | pieces << PIECES_AT

    def _meetings(self, work: Sequence[int]) -> Flags:
        small = [each < SERIAL_WORK for each in work]
        serial = tuple(
            is_small and any(small[max(i - 1, 0) : i] + small[i + 1 : i + 2]) for i, is_small in enumerate(small)
        )
        found = self._kept.get(serial)
        if found is None:
            found = self._flags(serial)
            if len(self._kept) < MAX_KEPT:
                self._kept[serial] = found
        return found

    def _flags(self, serial: Sequence[bool]) -> Flags:
        flags = np.array([SERIAL if alone else 0 for alone in serial], np.int64)
        reads, writes = _SinceMeetingState(), _SinceMeetingState()
        for number, alone in enumerate(serial):
            read, written = self.reads[number], self.writes[number]
            if writes.has(read, alone) or writes.has(written, alone) or reads.has(written, alone):
                flags[number - 1] |= BARRIER
                reads, writes = _SinceMeetingState(), _SinceMeetingState()
            reads.add(read, alone)
            writes.add(written, alone)
        return flags


class _SinceMeetingState:
    """What steps have touched since all threads met, kept apart by whether one thread ran them."""

    def __init__(self) -> None:
        self._alone: set[int] = set()
        self._shared: set[int] = set()

    def has(self, touched: frozenset[int], alone: bool) -> bool:
        """Return whether a step must wait before it touches these: what one thread runs is in order by itself."""
        return not (self._shared.isdisjoint(touched) and (alone or self._alone.isdisjoint(touched)))

    def add(self, touched: frozenset[int], alone: bool) -> None:
        """Note what a step touches."""
        (self._alone if alone else self._shared).update(touched)
