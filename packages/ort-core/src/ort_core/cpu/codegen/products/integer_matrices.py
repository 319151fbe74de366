"""Products of matrices of 32-bit and 64-bit integers, which wrap: tiles of a few rows by two vectors of columns."""

from __future__ import annotations

from ort_core.cpu.codegen.images.channels_last import ceil_divide, divide, kernel_emitter, position, share_of
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.machine_code.target import Target

ROWS = 4  # of a tile
_VECTORS = 2  # of columns of a tile


def integer_matrices_kernel(name: str, bits: int, target: Target) -> list[Emitter]:
    """Return the kernel.

    The argument table: out, a, b (pointers), matrices, rows of each, their length, columns, elements of a and of b from
    matrix to matrix. Each matrix is row-major without gaps.
    """
    emitter = kernel_emitter(name)
    args = emitter.parameter("args")
    out, a, b = (emitter.argument(args, i, "ptr") for i in range(3))
    batch, rows, depth, columns, a_step, b_step = (emitter.argument(args, i) for i in range(3, 9))
    type_, width = f"i{bits}", target.vector_nbytes * 8 // bits
    tile = _VECTORS * width
    row_tiles, column_tiles = ceil_divide(emitter, rows, ROWS), ceil_divide(emitter, columns, tile)
    with share_of(emitter, emitter.mul(emitter.mul(batch, row_tiles), column_tiles)) as unit:
        line, column_tile = divide(emitter, unit, column_tiles)
        image, row_tile = divide(emitter, line, row_tiles)
        start, first = emitter.mul(row_tile, ROWS), emitter.mul(column_tile, tile)
        stop, last = (
            emitter.minimum(emitter.add(begin, size), whole)
            for begin, size, whole in ((start, ROWS, rows), (first, tile, columns))
        )
        left = position(emitter, a, [(image, a_step)], type_)
        right = position(emitter, b, [(image, b_step)], type_)
        result = position(emitter, out, [(image, emitter.mul(rows, columns))], type_)
        product = _Product(emitter, type_, left, right, result, depth, columns)
        with emitter.either(emitter.compare("eq", emitter.sub(stop, start), ROWS)) as branch:
            product.columns(start, ROWS, first, last, width)
            with branch.otherwise(), emitter.loop(start, stop, unroll=False, hint="row") as row:
                product.columns(row, 1, first, last, width)
    return [emitter]


class _Product:
    """Prints tiles of one product."""

    def __init__(
        self, emitter: Emitter, type_: str, left: IRValue, right: IRValue, result: IRValue, depth: IRValue,
        columns: IRValue,
    ) -> None:  # fmt: skip
        self._emitter, self._type = emitter, type_
        self._left, self._right, self._result = left, right, result
        self._depth, self._columns = depth, columns

    def columns(self, row: IRValue, count: int, first: IRValue, last: IRValue, width: int) -> None:
        """Append the columns of some rows: all of a tile at once, or vector by vector, then one by one."""
        emitter = self._emitter
        length = emitter.sub(last, first)
        with emitter.either(emitter.compare("eq", length, _VECTORS * width)) as branch:
            self._tile(row, count, first, _VECTORS, width)
            with branch.otherwise():
                whole = emitter.sub(last, emitter.urem(length, width))
                with emitter.loop(first, whole, width, unroll=False, hint="column") as column:
                    self._tile(row, count, column, 1, width)
                with emitter.loop(whole, last, unroll=False, hint="column") as column:
                    self._tile(row, count, column, 1, 1)

    def _tile(self, row: IRValue, count: int, column: IRValue, vectors: int, width: int) -> None:
        emitter, type_, align = self._emitter, self._type, int(self._type[1:]) // 8
        wide = vector_type(width, type_)
        nothing = IRValue(wide, "zeroinitializer") if width > 1 else integer(0, type_)
        sums = [[emitter.variable(wide, nothing, "sum") for _ in range(vectors)] for _ in range(count)]
        with emitter.loop(0, self._depth, unroll=False, hint="k") as k:
            line = position(emitter, self._right, [(k, self._columns), (column, 1)], type_)
            right = [emitter.load(wide, emitter.element(line, v * width, type_), align) for v in range(vectors)]
            for number, slots in enumerate(sums):
                at = position(emitter, self._left, [(emitter.add(row, number), self._depth), (k, 1)], type_)
                left = emitter.splat(emitter.load(type_, at, align), width)
                for slot, factor in zip(slots, right, strict=True):
                    part = emitter.assign(wide, f"mul {left.typed}, {factor.text}")
                    before = emitter.load(wide, slot)
                    emitter.store(emitter.assign(wide, f"add {before.typed}, {part.text}"), slot)
        for number, slots in enumerate(sums):
            at_row = emitter.add(row, number)
            goal = position(emitter, self._result, [(at_row, self._columns), (column, 1)], type_)
            for v, slot in enumerate(slots):
                emitter.store(emitter.load(wide, slot), emitter.element(goal, v * width, type_), align)
