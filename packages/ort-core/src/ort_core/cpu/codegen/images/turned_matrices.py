"""Matrices of open sizes turned: columns that lie side by side in memory become rows.

Squares are exchanged in registers as ``layout`` does for a known number of channels. Here neither size is known: the
last square of a row or column overlaps the one before it, which needs no mask. Matrices too small for squares of a
vector are copied by squares of four, those too small for them element by element.
"""

from __future__ import annotations

from ort_core.cpu.codegen.images.channels_last import ceil_divide, divide, kernel_emitter, position, share_of
from ort_core.cpu.codegen.images.layout import square_of
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.llvm_ir.vectors import transpose
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.plugin import frozen

_SMALL = 4  # rows and columns of the smaller squares


@frozen
class TurnArguments:
    """Positions in the argument table. Strides count elements; rows lie side by side in the source, a column apart.

    The target is row-major without gaps.
    """

    source: int = 0
    target: int = 1
    batch: int = 2
    rows: int = 3
    columns: int = 4
    source_column: int = 5
    source_matrix: int = 6


TURN_ARGUMENTS = TurnArguments()


def turned_matrices_kernel(name: str, target: Target, bits: int) -> list[Emitter]:
    """Return the kernel ``target[m, r, c] = source[m * source_matrix + c * source_column + r]``."""
    emitter, whole = kernel_emitter(name), square_of(bits, target)
    args, at = emitter.parameter("args"), TURN_ARGUMENTS
    batch, rows, columns, step, between = (
        emitter.argument(args, i) for i in (at.batch, at.rows, at.columns, at.source_column, at.source_matrix)
    )
    source, destination = emitter.argument(args, at.source, "ptr"), emitter.argument(args, at.target, "ptr")
    bands = ceil_divide(emitter, rows, whole.width)
    least = emitter.minimum(rows, columns)
    with share_of(emitter, emitter.mul(batch, bands)) as unit:
        matrix, band = divide(emitter, unit, bands)
        row = emitter.mul(band, whole.width)
        stop = emitter.minimum(emitter.add(row, whole.width), rows)
        turn = _Turn(
            emitter, whole.element, position(emitter, source, [(matrix, between)], whole.element),
            position(emitter, destination, [(matrix, emitter.mul(rows, columns))], whole.element), rows, columns, step,
        )  # fmt: skip
        with emitter.either(emitter.compare("sge", least, whole.width)) as branch:
            turn.band(row, stop, whole.width)
            with branch.otherwise(), emitter.either(emitter.compare("sge", least, _SMALL)) as smaller:
                turn.band(row, stop, _SMALL)
                with smaller.otherwise():
                    turn.elements(row, stop)
    return [emitter]


@frozen
class _Turn:
    """One matrix: where it lies and goes, and its sizes."""

    emitter: Emitter
    element: str
    source: IRValue
    target: IRValue
    rows: IRValue
    columns: IRValue
    step: IRValue

    def band(self, first: IRValue, stop: IRValue, width: int) -> None:
        """Turn the rows from ``first`` on by squares; both sizes of the matrix are ``width`` at least."""
        emitter = self.emitter
        last_row, last_column = emitter.sub(self.rows, width), emitter.sub(self.columns, width)
        with emitter.loop(first, stop, width, unroll=False, hint="row") as block:
            row = emitter.minimum(block, last_row)
            with emitter.loop(0, self.columns, width, unroll=False, hint="column") as start:
                self._square(row, emitter.minimum(start, last_column), width)

    def elements(self, first: IRValue, stop: IRValue) -> None:
        """Turn the rows from ``first`` on one by one."""
        emitter = self.emitter
        with (
            emitter.loop(first, stop, unroll=False, hint="row") as row,
            emitter.loop(0, self.columns, unroll=False, hint="column") as column,
        ):
            value = emitter.load(self.element, self._read(row, column), self._align)
            emitter.store(value, self._written(row, column), self._align)

    def _square(self, row: IRValue, column: IRValue, width: int) -> None:
        emitter, type_ = self.emitter, vector_type(width, self.element)
        columns = [
            emitter.load(type_, self._read(row, emitter.add(column, integer(i))), self._align) for i in range(width)
        ]
        for i, turned in enumerate(transpose(emitter, columns)):
            emitter.store(turned, self._written(emitter.add(row, integer(i)), column), self._align)

    def _read(self, row: IRValue, column: IRValue) -> IRValue:
        return self.emitter.element(
            self.source, self.emitter.add(self.emitter.mul(column, self.step), row), self.element
        )

    def _written(self, row: IRValue, column: IRValue) -> IRValue:
        place = self.emitter.add(self.emitter.mul(row, self.columns), column)
        return self.emitter.element(self.target, place, self.element)

    @property
    def _align(self) -> int:
        return 4 if self.element == "float" else int(self.element[1:]) // 8
