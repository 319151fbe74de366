"""Epilogues: what happens to an element of a product between its sum and its store.

An epilogue emits vector IR. It is emitted once for whole panels and once for the masked tail, and may read the step's
argument table behind the product's own entries (from ``ProductArguments.count``), where its caller puts what it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue
from ort_core.cpu.codegen.llvm_ir.vectors import load_vector, zero


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


@dataclass(slots=True)
class Scale:
    """``value * alpha``; the argument holds the bits of a float32 in its low half."""

    argument: int
    _alpha: IRValue | None = field(default=None, init=False)

    def prepare(self, emitter: Emitter, args: IRValue, batch: Sequence[IRValue]) -> None:
        """Load alpha."""
        self._alpha = emitter.load("float", emitter.element(args, 2 * self.argument))

    def apply(
        self, emitter: Emitter, value: IRValue, row: IRValue, column: IRValue, width: int, mask: IRValue | None
    ) -> IRValue:
        """Return the product with alpha."""
        assert self._alpha is not None
        return emitter.binary("fmul", value, emitter.splat(self._alpha, width))


@dataclass(slots=True)
class Bias:
    """``value + bias[column]``; the argument is the pointer to a contiguous vector."""

    argument: int
    _bias: IRValue | None = field(default=None, init=False)

    def prepare(self, emitter: Emitter, args: IRValue, batch: Sequence[IRValue]) -> None:
        """Load the pointer."""
        self._bias = emitter.argument(args, self.argument, "ptr")

    def apply(
        self, emitter: Emitter, value: IRValue, row: IRValue, column: IRValue, width: int, mask: IRValue | None
    ) -> IRValue:
        """Return the sum with the bias of the columns."""
        assert self._bias is not None
        bias = load_vector(emitter, emitter.element(self._bias, column), width, mask)
        return emitter.binary("fadd", value, bias)


@dataclass(slots=True)
class Residual:
    """``value + residual[batch, row, column]``.

    Arguments from ``argument`` on: the pointer, the row stride, and four batch strides, in elements; columns are
    contiguous. A stride of 0 broadcasts.
    """

    argument: int
    _start: IRValue | None = field(default=None, init=False)
    _row: IRValue | None = field(default=None, init=False)

    def prepare(self, emitter: Emitter, args: IRValue, batch: Sequence[IRValue]) -> None:
        """Load the pointer to the batch entry's matrix and the row stride."""
        start = emitter.argument(args, self.argument, "ptr")
        for i, index in enumerate(batch):
            offset = emitter.mul(index, emitter.argument(args, self.argument + 2 + i))
            start = emitter.element(start, offset)
        self._start, self._row = start, emitter.argument(args, self.argument + 1)

    def apply(
        self, emitter: Emitter, value: IRValue, row: IRValue, column: IRValue, width: int, mask: IRValue | None
    ) -> IRValue:
        """Return the sum with the residual's elements."""
        assert self._start is not None
        assert self._row is not None
        place = emitter.element(self._start, emitter.add(emitter.mul(row, self._row), column))
        return emitter.binary("fadd", value, load_vector(emitter, place, width, mask))


@dataclass(frozen=True, slots=True)
class Rectifier:
    """``max(value, 0)``; NaN stays NaN."""

    def prepare(self, emitter: Emitter, args: IRValue, batch: Sequence[IRValue]) -> None:
        """Nothing to load."""

    def apply(
        self, emitter: Emitter, value: IRValue, row: IRValue, column: IRValue, width: int, mask: IRValue | None
    ) -> IRValue:
        """Return the value where it is not negative."""
        condition = emitter.assign(f"<{width} x i1>", f"fcmp olt {value.typed}, zeroinitializer")
        return emitter.select(condition, zero(value.type), value)


@dataclass(frozen=True, slots=True)
class Chain:
    """Epilogues one after another."""

    parts: tuple[Epilogue, ...]

    def prepare(self, emitter: Emitter, args: IRValue, batch: Sequence[IRValue]) -> None:
        """Prepare each."""
        for part in self.parts:
            part.prepare(emitter, args, batch)

    def apply(
        self, emitter: Emitter, value: IRValue, row: IRValue, column: IRValue, width: int, mask: IRValue | None
    ) -> IRValue:
        """Apply each to what the one before it gives."""
        for part in self.parts:
            value = part.apply(emitter, value, row, column, width, mask)
        return value
