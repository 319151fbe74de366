"""Slots of the arena: buffers of one program whose lifetimes do not meet lie in the same memory.

Where a small buffer took the memory of one in another branch, threads could not run the two branches side by side
(``sharing``): it takes only what steps have left that come before it in any order.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Mapping, Sequence

from ort_core.cpu.lowering.steps import Step
from ort_core.cpu.lowering.views import Buffer, Place
from ort_core.plugin.ir import KnownDim

SMALL_NBYTES = 1 << 14  # of a buffer that has memory of its own rather than that of another branch
MOST_STEPS = 4096  # of a program whose branches are told apart
MOST_TRIED = 4  # slots that are free, and perhaps left by another branch


class Slots:
    """Arena slots: buffers whose lifetimes do not meet share one when their sizes are equal or fit as numbers.

    Args:
        steps: what reads and writes the buffers.
        shares: whether buffers may share a slot; in guarded runs none does, so that each has ends of its own.
    """

    def __init__(self, steps: Sequence[Step], *, shares: bool = True) -> None:
        self._shares = shares
        self.nbytes: list[KnownDim] = []
        self.per_thread: list[bool] = []
        self._slot: dict[Buffer, int] = {}
        last: dict[Buffer, int] = {}
        for number, step in enumerate(steps):
            for buffer in (*step.reads, *step.writes):
                last[buffer] = number
        before = _steps_before(steps) if shares and len(steps) <= MOST_STEPS else None
        self._touched: list[int] = []  # for each slot the steps that touch it, as bits; of many steps nobody asks
        self._free_numbers: dict[bool, list[tuple[int, int]]] = {False: [], True: []}  # (bytes, slot), in order
        self._free_symbolic: dict[tuple[bool, KnownDim], list[int]] = {}  # slots, as heaps
        for number, step in enumerate(steps):
            for buffer in step.writes:
                if buffer.place in (Place.ARENA, Place.SCRATCH) and buffer not in self._slot:
                    keeps = before is not None and _keeps_apart(step, buffer)
                    taken = self._overwritten(step, buffer, number, last)
                    if taken is None:
                        taken = self._take(buffer, before[number] if before and keeps else None)
                    self._slot[buffer] = taken
            for buffer in {*step.reads, *step.writes}:
                slot = self._slot.get(buffer)
                if slot is None:
                    continue
                if before is not None:
                    self._touched[slot] |= 1 << number
                if shares and last[buffer] == number and not self._is_passed_on(step, buffer):
                    self._give_back(slot)

    def fixed(self) -> tuple[bool, ...]:
        """Say of each slot whether it is scratch whose size no run changes: the machine's choice, not the model's."""
        return tuple(each and isinstance(size, int) for each, size in zip(self.per_thread, self.nbytes, strict=True))

    def of(self, buffer: Buffer) -> int:
        """Return the slot of a buffer."""
        return self._slot[buffer]

    def find(self, buffer: Buffer) -> object:
        """Return what two buffers share when they share memory."""
        return self._slot.get(buffer, buffer)

    def _overwritten(self, step: Step, buffer: Buffer, number: int, last: Mapping[Buffer, int]) -> int | None:
        """Return the slot of the buffer that a step may overwrite with this one, if nobody reads it later."""
        if not self._shares or step.over is None or buffer is not step.over[1]:
            return None
        old = step.over[0]
        is_left = old in self._slot and last[old] == number and old.place is buffer.place is Place.ARENA
        is_equal = old.count * old.itemsize == buffer.count * buffer.itemsize
        return self._slot[old] if is_left and is_equal else None

    def _is_passed_on(self, step: Step, buffer: Buffer) -> bool:
        """Return whether a step writes another buffer over this one."""
        return step.over is not None and buffer is step.over[0] and self._slot.get(step.over[1]) == self._slot[buffer]

    def _take(self, buffer: Buffer, before: int | None) -> int:
        """Return the smallest free slot that fits a buffer, of equal ones the first, or a new one.

        With ``before`` none is taken that steps have touched which are not among those bits.
        """
        nbytes = buffer.count * buffer.itemsize
        per_thread = buffer.place is Place.SCRATCH
        chosen = self._fitting(nbytes, per_thread, before)
        if chosen is not None:
            return chosen
        self.nbytes.append(nbytes)
        self.per_thread.append(per_thread)
        self._touched.append(0)
        return len(self.nbytes) - 1

    def _fitting(self, nbytes: KnownDim, per_thread: bool, before: int | None) -> int | None:
        if not isinstance(nbytes, int):
            same = self._free_symbolic.get((per_thread, nbytes))
            return heapq.heappop(same) if same and self._is_left(same[0], before) else None
        free = self._free_numbers[per_thread]
        at = bisect.bisect_left(free, (nbytes, -1))
        # No barrier keeps threads in one step: of scratch each must have the same share in all steps.
        most = nbytes if per_thread else 4 * nbytes + 4096
        for place in range(at, min(at + MOST_TRIED, len(free))):
            if free[place][0] > most:
                break
            if self._is_left(free[place][1], before):
                return free.pop(place)[1]
        return None

    def _is_left(self, slot: int, before: int | None) -> bool:
        return before is None or not self._touched[slot] & ~before

    def _give_back(self, slot: int) -> None:
        nbytes, per_thread = self.nbytes[slot], self.per_thread[slot]
        if isinstance(nbytes, int):
            bisect.insort(self._free_numbers[per_thread], (nbytes, slot))
        else:
            heapq.heappush(self._free_symbolic.setdefault((per_thread, nbytes), []), slot)


def _keeps_apart(step: Step, buffer: Buffer) -> bool:
    """Return whether a buffer that a step writes takes no memory of another branch."""
    if buffer.place is not Place.ARENA:
        return False
    nbytes = buffer.count * buffer.itemsize
    return step.most_pieces is not None or (isinstance(nbytes, int) and nbytes <= SMALL_NBYTES)


def _steps_before(steps: Sequence[Step]) -> list[int]:
    """Return for each step the steps that come before it in any order, as bits."""
    before: list[int] = []
    read: dict[Buffer, int] = {}
    written: dict[Buffer, int] = {}
    parts: dict[Buffer, int] = {}
    for number, step in enumerate(steps):
        found = 0
        for buffer in (*step.reads, *step.writes):
            found |= written.get(buffer, 0)
            if buffer is not step.part:
                found |= parts.get(buffer, 0)
        for buffer in step.writes:
            found |= read.get(buffer, 0)
        before.append(found)
        behind = found | 1 << number
        for buffer in step.reads:
            if buffer.place is not Place.CONSTANT:
                read[buffer] = read.get(buffer, 0) | behind
        for buffer in step.writes:
            seen = parts if buffer is step.part else written
            seen[buffer] = seen.get(buffer, 0) | behind
    return before
