"""An epilogue that is a scalar expression: input 0 is the sum, the others are matrices, rows or columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue
from ort_core.cpu.codegen.llvm_ir.scalar_printer import ScalarPrinter
from ort_core.cpu.codegen.llvm_ir.vectors import load_vector, word_nbytes
from ort_core.plugin.loops import Scalar, structure

WORDS = 6  # of the argument table for each operand: pointer, row stride, four batch strides


@dataclass(slots=True)
class ExpressionEpilogue:
    """``expression(sum, operands...)``.

    ``dense`` says of each operand whether it steps along the columns (1) or is the same for a row (0). Its words
    stand in the argument table from ``argument`` on, ``WORDS`` for each operand.
    """

    expression: Scalar
    dense: tuple[bool, ...]
    argument: int
    _starts: list[IRValue] = field(default_factory=list, init=False)
    _rows: list[IRValue] = field(default_factory=list, init=False)

    @property
    def structure(self) -> str:
        """What the epilogue computes and where it finds its operands, as text: equal for equal epilogues."""
        return f"{self.dense} {self.argument} {structure(self.expression)}"

    def prepare(self, emitter: Emitter, args: IRValue, batch: Sequence[IRValue]) -> None:
        """Load each operand's pointer, moved to the batch entry, and its row stride."""
        self._starts, self._rows = [], []
        for number in range(len(self.dense)):
            at = self.argument + number * WORDS
            start = emitter.argument(args, at, "ptr")
            for place, index in enumerate(batch):
                start = emitter.element(start, emitter.mul(index, emitter.argument(args, at + 2 + place)))
            self._starts.append(start)
            self._rows.append(emitter.argument(args, at + 1))

    def apply(
        self, emitter: Emitter, value: IRValue, row: IRValue, column: IRValue, width: int, mask: IRValue | None
    ) -> IRValue:
        """Return the expression's value for ``width`` columns of a row."""
        loaded: dict[int, IRValue] = {0: value}

        def read(index: int) -> IRValue:
            if index not in loaded:
                start, step = self._starts[index - 1], self._rows[index - 1]
                place = emitter.element(start, emitter.mul(row, step))
                if self.dense[index - 1]:
                    loaded[index] = load_vector(emitter, emitter.element(place, column), width, mask)
                else:
                    loaded[index] = emitter.splat(emitter.load(emitter.word, place, word_nbytes(emitter.word)), width)
            return loaded[index]

        return ScalarPrinter(emitter, width, read).print(self.expression)
