"""Epilogues: what happens to an element of a product between its sum and its store.

An epilogue emits vector IR. It is emitted once for whole panels and once for the masked tail, and may read the step's
argument table behind the product's own entries (from ``ProductArguments.count``), where its caller puts what it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue


class Epilogue(Protocol):
    """Changes elements of C in registers. Rows and columns count from the start of the batch entry's matrix.

    What it reads must not overlap C: sums that are not complete yet lie there.
    """

    def prepare(self, emitter: Emitter, args: IRValue, batch: Sequence[IRValue]) -> None:
        """Emit what holds for a whole tile: load pointers and sizes. ``batch`` holds the four batch indices."""

    def apply(
        self, emitter: Emitter, value: IRValue, row: IRValue, column: IRValue, width: int, mask: IRValue | None
    ) -> IRValue:
        """Return the changed value of elements ``(row, column .. column + width - 1)``.

        Lanes outside ``mask`` are outside the matrix: they must not be read from memory.
        """
