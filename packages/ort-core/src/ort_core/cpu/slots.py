"""Slots of the arena: buffers of one program whose lifetimes do not meet lie in the same memory."""

from __future__ import annotations

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
        free: list[int] = []
        for number, step in enumerate(steps):
            for buffer in step.writes:
                if buffer.place in (Place.ARENA, Place.SCRATCH) and buffer not in self._slot:
                    self._slot[buffer] = self._take(buffer, free)
            for buffer in {*step.reads, *step.writes}:
                if self._shares and last[buffer] == number and buffer in self._slot:
                    free.append(self._slot[buffer])
            free.sort()

    def fixed(self) -> tuple[bool, ...]:
        """Say of each slot whether it is scratch whose size no run changes: the machine's choice, not the model's."""
        return tuple(each and isinstance(size, int) for each, size in zip(self.per_thread, self.nbytes, strict=True))

    def of(self, buffer: Buffer) -> int:
        """Return the slot of a buffer."""
        return self._slot[buffer]

    def find(self, buffer: Buffer) -> object:
        """Return what two buffers share when they share memory."""
        return self._slot.get(buffer, buffer)

    def _take(self, buffer: Buffer, free: list[int]) -> int:
        nbytes = buffer.count * buffer.itemsize
        per_thread = buffer.place is Place.SCRATCH
        fitting = [s for s in free if self.per_thread[s] == per_thread and _fits(nbytes, self.nbytes[s])]
        if per_thread:  # no barrier keeps threads in one step: each must have the same share in all steps
            fitting = [s for s in fitting if self.nbytes[s] == nbytes]
        if fitting:
            chosen = min(fitting, key=lambda s: self.nbytes[s] if isinstance(self.nbytes[s], int) else 0)  # type: ignore[arg-type,return-value]  # an int, asked for
            free.remove(chosen)
            return chosen
        self.nbytes.append(nbytes)
        self.per_thread.append(per_thread)
        return len(self.nbytes) - 1


def _fits(wanted: KnownDim, available: KnownDim) -> bool:
    if wanted == available:
        return True
    return isinstance(wanted, int) and isinstance(available, int) and wanted <= available <= 4 * wanted + 4096
