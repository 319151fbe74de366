"""How the threads go through steps together: which steps one thread runs alone, and behind which all threads meet.

All threads run the same steps, each its share. They meet where a step touches what another thread may have written, or
overwrites what another may still read. Small steps in a row are run by thread 0 alone: shares of them would be over
sooner than the threads have met between them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ort_core.cpu.threads.pool_code import BARRIER, SERIAL

if TYPE_CHECKING:
    import numpy.typing as npt

    from ort_core.cpu.lowering.steps import Step
    from ort_core.cpu.lowering.views import Buffer

Flags: TypeAlias = "npt.NDArray[np.int64]"
SERIAL_WORK = 3_000  # estimated work (1 us) below which one thread does a step alone if its neighbour is as small;
# with 2 threads EfficientNet-B0 takes 1 % less time than without, with 6,000 and 12,000 as much as without or more
MAX_KEPT = 16  # patterns of small steps whose flags are kept


class StepOrder:
    """The order of one program's steps.

    Args:
        reads: for each step the numbers of the memories that it reads.
        writes: those that it writes, but for what each thread has of its own.
    """

    def __init__(self, reads: Sequence[Collection[int]], writes: Sequence[Collection[int]]) -> None:
        self.reads = [frozenset(each) for each in reads]
        self.writes = [frozenset(each) for each in writes]
        self._kept: dict[tuple[bool, ...], Flags] = {}

    @classmethod
    def of(cls, steps: Sequence[Step], find: Callable[[Buffer], object]) -> StepOrder:
        """Return the order of steps; ``find`` tells what two buffers share when they share memory."""
        from ort_core.cpu.lowering.views import Place  # a program out of the cache comes with its order

        numbers: dict[object, int] = {}

        def number(buffer: Buffer) -> int:
            return numbers.setdefault(find(buffer), len(numbers))

        reads = [[number(b) for b in step.reads] for step in steps]
        return cls(reads, [[number(b) for b in step.writes if b.place is not Place.SCRATCH] for step in steps])

    def flags(self, work: Sequence[int]) -> Flags:
        """Return the flags of each step, given the work of each."""
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
        since: list[int] = []  # steps since the last meeting
        for number, alone in enumerate(serial):
            others = [before for before in since if not (alone and serial[before])]
            if any(self._meets(before, number) for before in others):
                flags[number - 1] |= BARRIER
                since = []
            since.append(number)
        return flags

    def _meets(self, before: int, number: int) -> bool:
        """Return whether a step must wait for all threads to be through with one before it."""
        touched = self.reads[number] | self.writes[number]
        return bool(touched & self.writes[before] or self.writes[number] & self.reads[before])
