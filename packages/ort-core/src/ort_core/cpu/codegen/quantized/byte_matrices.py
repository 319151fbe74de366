"""Products of computed matrices of bytes: exact sums of 32 bits, through an expression, to memory.

    y[m, n] = expression(sum over k of a[m, k] b[k, n], operands...)

B lies in panels (``byte_panels``). A unit of work is a tile of rows of one matrix with a few panels: sums of a tile and
a panel go to the stack, and from there through the expression, whole vectors of columns first. Where the target has
registers of tiles, they multiply (``byte_tile_sums``), else dot products do (``byte_sums``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from ort_core.cpu.codegen.images.channels_last import ceil_divide, divide, kernel_emitter, share_of
from ort_core.cpu.codegen.llvm_ir import matrix_tiles
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.llvm_ir.matrix_tiles import LINE_NBYTES
from ort_core.cpu.codegen.llvm_ir.narrow_lanes import NarrowLanes
from ort_core.cpu.codegen.llvm_ir.scalar_printer import STORED, ScalarPrinter
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.quantized.byte_panels import BATCH_DIMS, panel_columns, uses_tiles
from ort_core.cpu.codegen.quantized.byte_sums import VectorSums
from ort_core.cpu.codegen.quantized.byte_tile_sums import TileSums, tile_shapes
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar

OPERAND_WORDS = 2 + BATCH_DIMS  # of the argument table: pointer, elements from row to row, and from matrix to matrix
_PANELS = 4  # of a unit


@dataclass(frozen=True, slots=True)
class ByteMatricesArguments:
    """Positions in the argument table. Strides of ``a`` count bytes, those of ``panels`` too; of ``y`` elements.

    ``batch`` and what ends in ``_batch`` are four entries each, outermost first. Operands' words follow.
    """

    a: int = 0
    panels: int = 1
    y: int = 2
    rows: int = 3
    columns: int = 4
    depth: int = 5
    words: int = 6
    a_row: int = 7
    y_row: int = 8
    batch: int = 9
    a_batch: int = 13
    b_batch: int = 17
    y_batch: int = 21
    count: int = 25


ARGUMENTS = ByteMatricesArguments()


@dataclass(frozen=True, slots=True)
class ByteOperand:
    """What an expression reads beside the sum.

    ``kind`` is ``one`` (a number), ``row`` (one for each row), ``column`` (one for each column of a matrix) or
    ``tensor``.
    """

    kind: str
    dtype: DataType


@dataclass(frozen=True, slots=True)
class ByteMatrices:
    """What is known when the kernel is generated. ``is_signed`` says so of the bytes of A.

    ``expression`` reads the sum as input 0 and operand ``i`` as input ``i + 1``; its type is stored. Where tiles do not
    multiply, signed bytes are read as unsigned ones, larger by ``shift``.
    """

    expression: Scalar
    operands: tuple[ByteOperand, ...]
    is_signed: bool


def shift_of(is_signed: bool, target: Target) -> int:
    """Return by how much the bytes of A are larger as a kernel reads them."""
    return 128 if is_signed and not uses_tiles(target) else 0


def byte_matrices_kernel(name: str, spec: ByteMatrices, target: Target) -> list[Emitter]:
    """Return the kernel, behind the functions that it calls."""
    return _Driver(name, spec, target).emit()


@dataclass(frozen=True, slots=True)
class _Columns:
    """A vector of columns: its place in a panel, its first column of the matrix, and how many they are."""

    at: IRValue
    column: IRValue
    width: int


class _Driver:
    """Prints the kernel."""

    def __init__(self, name: str, spec: ByteMatrices, target: Target) -> None:
        self.spec, self.target, self.lanes = spec, target, target.lanes
        self.emitter = kernel_emitter(name)
        self.width = panel_columns(target)
        self.sums: VectorSums | TileSums = (TileSums if uses_tiles(target) else VectorSums)(
            name, spec.is_signed, target, self.width
        )

    def emit(self) -> list[Emitter]:
        """Return all functions."""
        e, args = self.emitter, self.emitter.parameter("args")
        self.rows, self.columns, self.depth, self.words = (
            e.argument(args, i) for i in (ARGUMENTS.rows, ARGUMENTS.columns, ARGUMENTS.depth, ARGUMENTS.words)
        )
        kept = e.variable(f"[{(self.sums.head + self.sums.rows) * self.width} x i32]", align=LINE_NBYTES)
        kept = e.element(kept, self.sums.head * self.width, "i32")
        sizes = [e.argument(args, ARGUMENTS.batch + i) for i in range(BATCH_DIMS)]
        matrices = integer(1)
        for size in sizes:
            matrices = e.mul(matrices, size)
        tiles, self.panels = ceil_divide(e, self.rows, self.sums.rows), ceil_divide(e, self.columns, self.width)
        groups = ceil_divide(e, self.panels, _PANELS)
        height = e.maximum(e.minimum(self.rows, matrix_tiles.ROWS), 1)
        configured = matrix_tiles.configured(e, tile_shapes(height)) if uses_tiles(self.target) else nullcontext()
        with configured, share_of(e, e.mul(e.mul(matrices, tiles), groups)) as unit:
            line, group = divide(e, unit, groups)
            matrix, tile = divide(e, line, tiles)
            indices: list[IRValue] = []
            for size in reversed(sizes):
                matrix, index = divide(e, matrix, size)
                indices.insert(0, index)
            first = e.mul(tile, self.sums.rows)
            self._unit(indices, first, e.mul(group, _PANELS), height, kept)
        return [*self.sums.functions, e]

    def _unit(self, indices: Sequence[IRValue], first: IRValue, panel: IRValue, height: IRValue, kept: IRValue) -> None:
        """Append a tile of rows from ``first`` on and the panels from ``panel`` on."""
        e, args = self.emitter, self.emitter.parameter("args")
        count = e.minimum(e.sub(self.rows, first), self.sums.rows)
        base = self._matrix(ARGUMENTS.a, ARGUMENTS.a_batch, indices, "i8")
        panels = self._matrix(ARGUMENTS.panels, ARGUMENTS.b_batch, indices, "i8")
        result = self._matrix(ARGUMENTS.y, ARGUMENTS.y_batch, indices, STORED[self.spec.expression.dtype])
        starts = [
            self._matrix(at, at + 2, indices, STORED[operand.dtype])
            for at, operand in zip(self._entries(), self.spec.operands, strict=True)
        ]
        tile = self.sums.tile(e, base, e.argument(args, ARGUMENTS.a_row), first, count, height, self.depth)
        with e.loop(panel, e.minimum(e.add(panel, _PANELS), self.panels), unroll=False, hint="panel") as each:
            tile(e.element(panels, e.mul(each, self.words), f"[{self.width} x i32]"), kept)
            column = e.mul(each, self.width)
            left = e.minimum(e.sub(self.columns, column), self.width)
            places = (result, starts)
            with e.either(e.compare("eq", left, self.width)) as branch:
                whole = [integer(at) for at in range(0, self.width, self.lanes)]
                self._finish(kept, (first, count), (column, whole), self.lanes, places)
                with branch.otherwise():
                    stop = e.sub(left, e.urem(left, self.lanes))
                    with e.loop(0, stop, self.lanes, unroll=False, hint="at") as at:
                        self._finish(kept, (first, count), (column, [at]), self.lanes, places)
                    with e.loop(stop, left, unroll=False, hint="at") as at:
                        self._finish(kept, (first, count), (column, [at]), 1, places)

    def _finish(
        self, kept: IRValue, rows: tuple[IRValue, IRValue], columns: tuple[IRValue, Sequence[IRValue]], width: int,
        places: tuple[IRValue, Sequence[IRValue]],
    ) -> None:  # fmt: skip
        """Append the expression for vectors of columns, of all rows of a tile, row by row."""
        e, spec = self.emitter, self.spec
        (first, count), (start, vectors), (result, starts) = rows, columns, places
        parts = [_Columns(at, e.add(start, at), width) for at in vectors]
        fixed = [
            {
                number: self._read(number, starts[number], part.column, width)
                for number, operand in enumerate(spec.operands)
                if operand.kind in ("one", "column")
            }
            for part in parts
        ]
        stored, y_row = STORED[spec.expression.dtype], e.argument(e.parameter("args"), ARGUMENTS.y_row)
        with e.loop(0, count, unroll=False, hint="row") as row:
            line = e.add(first, row)
            y = e.element(result, e.mul(line, y_row), stored)
            for part, known in zip(parts, fixed, strict=True):
                sums = e.element(kept, e.add(e.mul(row, self.width), part.at), "i32")
                found = self._value(e.load(vector_type(width, "i32"), sums, 4), line, part, known, starts)
                place = e.element(y, part.column, stored)
                NarrowLanes(width, width).write(e, found, place, spec.expression.dtype)

    def _value(
        self, total: IRValue, line: IRValue, part: _Columns, fixed: Mapping[int, IRValue], starts: Sequence[IRValue]
    ) -> IRValue:
        """Return the expression of sums of a row; ``fixed`` are operands that are the same for all of them."""
        e, args = self.emitter, self.emitter.parameter("args")
        steps = [e.argument(args, entry + 1) for entry in self._entries()]

        def read(index: int) -> IRValue:
            number = index - 1
            if index == 0 or number in fixed:
                return total if index == 0 else fixed[number]
            type_ = STORED[self.spec.operands[number].dtype]
            own = e.element(starts[number], e.mul(line, steps[number]), type_)
            return self._read(number, own, part.column, part.width)

        return ScalarPrinter(e, part.width, read).print(self.spec.expression)

    def _read(self, number: int, line: IRValue, column: IRValue, width: int) -> IRValue:
        """Load an operand for some columns of a row."""
        operand = self.spec.operands[number]
        if operand.kind in ("one", "row"):
            one = NarrowLanes(1, 1).read(self.emitter, line, operand.dtype)
            return self.emitter.splat(one, width)
        place = self.emitter.element(line, column, STORED[operand.dtype])
        return NarrowLanes(width, width).read(self.emitter, place, operand.dtype)

    def _entries(self) -> list[int]:
        return [ARGUMENTS.count + OPERAND_WORDS * number for number in range(len(self.spec.operands))]

    def _matrix(self, entry: int, batch: int, indices: Sequence[IRValue], type_: str) -> IRValue:
        """Return where the matrix of these indices begins."""
        e, args = self.emitter, self.emitter.parameter("args")
        found = e.argument(args, entry, "ptr")
        for i, index in enumerate(indices):
            found = e.element(found, e.mul(index, e.argument(args, batch + i)), type_)
        return found
