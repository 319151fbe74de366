"""Slots of the arena: buffers of one program whose lifetimes do not meet lie in the same memory."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence

from ort_core.cpu.lowering.steps import Step
from ort_core.cpu.lowering.views import Buffer, Place
from ort_core.plugin.ir import KnownDim


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
        self._free_numbers: dict[bool, list[tuple[int, int]]] = {False: [], True: []}  # (bytes, slot), in order
        self._free_symbolic: dict[tuple[bool, KnownDim], list[int]] = {}  # slots, as heaps
        for number, step in enumerate(steps):
            for buffer in step.writes:
                if buffer.place in (Place.ARENA, Place.SCRATCH) and buffer not in self._slot:
                    self._slot[buffer] = self._take(buffer)
            for buffer in {*step.reads, *step.writes}:
                if self._shares and last[buffer] == number and buffer in self._slot:
                    self._give_back(self._slot[buffer])

    def fixed(self) -> tuple[bool, ...]:
        """Say of each slot whether it is scratch whose size no run changes: the machine's choice, not the model's."""
        return tuple(each and isinstance(size, int) for each, size in zip(self.per_thread, self.nbytes, strict=True))

    def of(self, buffer: Buffer) -> int:
        """Return the slot of a buffer."""
        return self._slot[buffer]

    def find(self, buffer: Buffer) -> object:
        """Return what two buffers share when they share memory."""
        return self._slot.get(buffer, buffer)

    def _take(self, buffer: Buffer) -> int:
        """Return the smallest free slot that fits a buffer, of equal ones the first, or a new one."""
        nbytes = buffer.count * buffer.itemsize
        per_thread = buffer.place is Place.SCRATCH
        chosen = self._fitting(nbytes, per_thread)
        if chosen is not None:
            return chosen
        self.nbytes.append(nbytes)
        self.per_thread.append(per_thread)
        return len(self.nbytes) - 1

    def _fitting(self, nbytes: KnownDim, per_thread: bool) -> int | None:
        if not isinstance(nbytes, int):
            same = self._free_symbolic.get((per_thread, nbytes))
            return heapq.heappop(same) if same else None
        free = self._free_numbers[per_thread]
        at = bisect.bisect_left(free, (nbytes, -1))
        # No barrier keeps threads in one step: of scratch each must have the same share in all steps.
        most = nbytes if per_thread else 4 * nbytes + 4096
        return free.pop(at)[1] if at < len(free) and free[at][0] <= most else None

    def _give_back(self, slot: int) -> None:
        nbytes, per_thread = self.nbytes[slot], self.per_thread[slot]
        if isinstance(nbytes, int):
            bisect.insort(self._free_numbers[per_thread], (nbytes, slot))
        else:
            heapq.heappush(self._free_symbolic.setdefault((per_thread, nbytes), []), slot)
