"""How the threads go through steps together: alone, each its share, or piece by piece; behind which steps they meet.

All threads run the same steps. Of a long one they claim small pieces until none is left: cores are not equally fast
(one is shared with another program, or made to save energy), and equal shares would all wait for the slowest. They meet
where a step touches what another thread may have written, or overwrites what another may still read. Small steps in a
row are run by one thread alone: shares of them would be over sooner than the threads have met between them. Branches
that need nothing of each other may be run by one thread each (``sharing``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ort_core.cpu.program.sharing import ALL, Part, StepCost, TouchedState, handed_out
from ort_core.cpu.threads.pool_code import BARRIER, OWNER_AT, PIECES_AT, SERIAL
from ort_core.plugin import environment_value

if TYPE_CHECKING:
    import numpy.typing as npt

    from ort_core.cpu.lowering.steps import Step
    from ort_core.cpu.lowering.views import Buffer

Flags: TypeAlias = "npt.NDArray[np.int64]"
SERIAL_WORK = 3_000  # estimated work (1 us) below which one thread does a step alone if its neighbor is as small;
# with 2 threads EfficientNet-B0 takes 1 % less time than without, with 6,000 and 12,000 as much as without or more
OWN_WORK = 1 << 16  # estimated work (20 us) from which on all share a step, unless few threads can
PIECE_WORK = 60_000  # estimated work (20 us) of the smallest piece that threads claim
MAX_PIECES = 8  # of a step for each thread; 2 or more, or each thread has its share
MAX_KEPT = 64  # patterns of work whose flags are kept


class StepOrder:
    """The order of one program's steps.

    Args:
        reads: for each step the numbers of the memories that it reads.
        writes: those that it writes, but for what each thread has of its own.
        parts: for each step one of those of which it writes a part of its own, if there is one, and the number of what
            it is a part of (``Step.part``).
        whole: the numbers of steps that lose by being cut into more pieces than there are threads.
        bounded: the numbers of steps of which only so many threads can do anything.
        least_pieces: steps whose pieces are to be longer than usual, by numbers, with the least estimated work of each.
    """

    def __init__(
        self,
        reads: Sequence[Collection[int]],
        writes: Sequence[Collection[int]],
        parts: Sequence[Part | None],
        whole: Collection[int] = (),
        bounded: Sequence[int] = (),
        least_pieces: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self.reads = [frozenset(each) for each in reads]
        self.writes = [frozenset(each) for each in writes]
        self.parts = tuple(None if each is None else Part(*each) for each in parts)
        self.whole = frozenset(whole)
        self.bounded = tuple(bounded)
        self.least_pieces = {number: max(PIECE_WORK, least) for number, least in least_pieces.items()}
        self._least = np.full(len(self.reads), PIECE_WORK, np.int64)
        self._least[list(self.least_pieces)] = list(self.least_pieces.values())
        self._kept: dict[tuple[object, ...], Flags] = {}
        self._kept_of_owners: dict[tuple[object, ...], Flags] = {}  # which are the same for many patterns of work

    @classmethod
    def of(cls, steps: Sequence[Step], find: Callable[[Buffer], object]) -> StepOrder:
        """Return the order of steps; ``find`` tells what two buffers share when they share memory."""
        from ort_core.cpu.lowering.views import Place  # a program out of the cache comes with its order

        numbers: dict[object, int] = {}

        def number(buffer: Buffer) -> int:
            return numbers.setdefault(find(buffer), len(numbers))

        reads = [[number(b) for b in step.reads] for step in steps]
        writes = [[number(b) for b in step.writes if b.place is not Place.SCRATCH] for step in steps]
        whole = [i for i, step in enumerate(steps) if not step.is_divisible]
        wholes: dict[Buffer, int] = {}
        parts = [
            None if step.part is None else Part(number(step.part), wholes.setdefault(step.part, len(wholes)))
            for step in steps
        ]
        bounded = [i for i, step in enumerate(steps) if step.most_pieces is not None]
        least_pieces = {i: step.least_piece for i, step in enumerate(steps) if step.least_piece > PIECE_WORK}
        return cls(reads, writes, parts, whole, bounded, least_pieces)

    def flags(self, work: Sequence[int] | Flags, threads: int, most_pieces: Sequence[int] = ()) -> Flags:
        """Return the flags of each step.

        Args:
            work: the work of each step.
            threads: how many threads there are.
            most_pieces: for each of the bounded steps how many threads can do something of it.
        """
        pieces_each = int(environment_value("ORT_STEP_PIECES"))
        if pieces_each > 0:
            return self._cut(pieces_each)
        works = np.asarray(work, np.int64)
        flags = self._meetings(works, threads, most_pieces)
        if threads > 1 and works.max(initial=0) >= 2 * PIECE_WORK * threads:
            pieces = np.minimum(works // (self._least * threads), MAX_PIECES)
            pieces[(pieces < 2) | (flags & SERIAL > 0)] = 0
            pieces[list(self.whole)] = 0
            flags = flags | pieces << PIECES_AT
        return flags

    def alike(self, work: Flags, threads: int) -> tuple[Flags, Flags]:
        """Return the least and the most work of each step for which flags of this work serve as well.

        Flags of any work are right for every other: who must wait for whom is a matter of memory. They are good for
        work of the same order of magnitude.
        """
        most_cut = MAX_PIECES * self._least * threads  # there are no more pieces, however much there is to do
        is_small, is_large = work < SERIAL_WORK, work >= most_cut
        least = np.where(is_small, 0, np.maximum(SERIAL_WORK, np.where(is_large, most_cut, work) // 2))
        most = np.where(is_small, SERIAL_WORK - 1, np.where(is_large, np.iinfo(np.int64).max, work * 2))
        return least, most

    def _cut(self, pieces_each: int) -> Flags:
        """Return the flags of steps that are all cut into that many pieces for each thread, however short they are."""
        pieces = np.full(len(self.reads), max(1, pieces_each), np.int64)
        pieces[list(self.whole)] = 0
        return self._flags([ALL] * len(self.reads)) | pieces << PIECES_AT

    def _meetings(self, work: Flags, threads: int, most_pieces: Sequence[int]) -> Flags:
        _, bits = np.frexp(np.minimum(work, OWN_WORK))  # of a whole number the exponent is how many bits it has
        are_small = work < SERIAL_WORK
        limits = zip(self.bounded, most_pieces, strict=True)
        bounds = [(min(most, threads), int(work[i]).bit_length()) for i, most in limits]
        key = (threads, are_small.tobytes(), bits.tobytes(), tuple(bounds))
        found = self._kept.get(key)
        if found is None:
            small, sizes = are_small.tolist(), bits.tolist()
            together = [
                0 if is_small and any(small[max(i - 1, 0) : i] + small[i + 1 : i + 2]) else ALL
                for i, is_small in enumerate(small)
            ]
            owners, meetings = self._handed_out(together, sizes, bounds, threads)
            found = self._kept_flags(owners, meetings)
            if len(self._kept) < MAX_KEPT:
                self._kept[key] = found
        return found

    def _kept_flags(self, owners: Sequence[int], meetings: Collection[int]) -> Flags:
        key = (tuple(owners), frozenset(meetings))
        found = self._kept_of_owners.get(key)
        if found is None:
            found = self._flags(owners, meetings)
            if len(self._kept_of_owners) < MAX_KEPT:
                self._kept_of_owners[key] = found
        return found

    def _handed_out(
        self, owners: list[int], sizes: Sequence[int], bounds: Sequence[tuple[int, int]], threads: int
    ) -> tuple[list[int], set[int]]:
        """Return who does each step, and behind which all must meet.

        Of work no more is known than how many bits it has. So what is found for some sizes is what would be found for
        all that have the same key, whichever come first.
        """
        meetings: set[int] = set()
        if threads == 1:
            return owners, meetings
        bounded = dict(zip(self.bounded, bounds, strict=False))
        for first, behind in self._rows(sizes, bounded, threads):
            steps = [
                StepCost(self.reads[i], self.writes[i], self.parts[i], 3 << most_bits >> 2, most)
                for i in range(first, behind)
                for most, most_bits in (bounded.get(i, (threads, sizes[i])),)
            ]
            made = handed_out(steps, owners[first:behind], threads)
            if made is not None:
                owners[first:behind] = made.owners
                meetings.update(first + each for each in made.meetings)
        return owners, meetings

    def _rows(
        self, sizes: Sequence[int], bounded: Mapping[int, tuple[int, int]], threads: int
    ) -> Iterator[tuple[int, int]]:
        """Yield first and end of rows of steps that one thread may do: short ones, and those that few can share."""
        first = 0
        for number in range(len(sizes) + 1):
            is_last = number == len(sizes)
            few = not is_last and bounded.get(number, (threads, 0))[0] <= threads // 2
            if is_last or not (few or sizes[number] < OWN_WORK.bit_length()):
                if number - first > 1:
                    yield first, number
                first = number + 1

    def _flags(self, owners: Sequence[int], meetings: Collection[int] = ()) -> Flags:
        flags = np.array([0 if owner == ALL else SERIAL | owner << OWNER_AT for owner in owners], np.int64)
        touched = TouchedState()
        for number, owner in enumerate(owners):
            memories = self.reads[number], self.writes[number], self.parts[number]
            if number - 1 in meetings or touched.must_wait(*memories, owner):
                flags[number - 1] |= BARRIER
                touched = TouchedState()
            touched.add(*memories, owner)
        return flags
