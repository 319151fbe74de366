"""Sums of rows with a panel of bytes in registers of tiles (AMX): up to 32 rows by 32 columns in four of them.

Tiles of A are read where they lie; bytes behind the last whole row of a tile are copied beside zeros first, once for
all panels of a unit. Fewer rows than a pair of tiles has begin earlier, and sum some again.
"""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir import matrix_tiles
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.matrix_tiles import LINE_NBYTES, ROWS
from ort_core.cpu.codegen.llvm_ir.part_access import load_masked
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.quantized.byte_sums import Tile
from ort_core.cpu.codegen.quantized.integer_dot import WORD

PAIR = 2  # tiles of rows, and of columns
_A, _B = 4, 6  # the first of two tiles each; sums are 0 to 3
_LINE = f"<{LINE_NBYTES} x i8>"
_PARAMETERS = (
    ("ptr noalias readonly", "a"), ("i64", "a_row"), ("i64", "second"), ("ptr noalias readonly", "rest"),
    ("ptr noalias readonly", "panel"), ("i64", "depth"), ("ptr", "kept"), ("i64", "shift"),
)  # fmt: skip


def tile_shapes(rows: IRValue) -> list[tuple[IRValue | int, IRValue | int]]:
    """Return the rows and the bytes of a row of the eight tiles, where tiles of A have so many rows."""
    own: tuple[IRValue | int, IRValue | int] = (rows, LINE_NBYTES)
    return [own] * _B + [(ROWS, LINE_NBYTES)] * PAIR


class TileSums:
    """The functions that sum one and two tiles of rows."""

    rows = PAIR * ROWS
    head = ROWS  # of sums that may be written in front of those asked for

    def __init__(self, name: str, is_signed: bool, target: Target, width: int) -> None:
        assert width == PAIR * target.lanes == PAIR * ROWS
        self._width = width
        self._by_tiles = {
            tiles: _function(f"{name}.sums{tiles}", is_signed, tiles, width) for tiles in range(1, PAIR + 1)
        }

    @property
    def functions(self) -> list[Emitter]:
        """Both of them."""
        return list(self._by_tiles.values())

    def tile(
        self, emitter: Emitter, a: IRValue, a_row: IRValue, first: IRValue, count: IRValue, height: IRValue,
        depth: IRValue,
    ) -> Tile:  # fmt: skip
        """Return what appends the sums of ``count`` rows from ``first`` on; tiles have ``height`` rows.

        The last rows of a matrix of more than a tile end the last tile.
        """
        is_pair = emitter.compare("sgt", count, ROWS)
        skip = emitter.select(is_pair, integer(0), emitter.sub(height, count))
        shift = emitter.sub(count, ROWS)  # of the second tile
        start = emitter.element(a, emitter.mul(emitter.sub(first, skip), a_row), "i8")
        second = emitter.mul(shift, a_row)
        copies = emitter.variable(f"[{self.rows * LINE_NBYTES} x i8]", align=LINE_NBYTES)
        last = emitter.urem(depth, LINE_NBYTES)
        with emitter.when(emitter.compare("sgt", last, 0)):
            at = emitter.sub(depth, last)
            _copy_rest(emitter, emitter.element(start, at, "i8"), a_row, height, last, copies)
            with emitter.when(is_pair):
                line = emitter.element(emitter.element(start, second, "i8"), at, "i8")
                _copy_rest(emitter, line, a_row, height, last, emitter.element(copies, ROWS * LINE_NBYTES, "i8"))

        def append(panel: IRValue, kept: IRValue) -> None:
            with emitter.either(is_pair) as branch:
                operands = (start, a_row, second, copies, panel, depth, kept, shift)
                emitter.call_void(self._by_tiles[PAIR].name, *operands)
                with branch.otherwise():
                    before = emitter.element(kept, emitter.mul(skip, -self._width), "i32")
                    operands = (start, a_row, integer(0), copies, panel, depth, before, integer(0))
                    emitter.call_void(self._by_tiles[1].name, *operands)

        return append


def _copy_rest(emitter: Emitter, line: IRValue, a_row: IRValue, rows: IRValue, count: IRValue, to: IRValue) -> None:
    """Append copies of ``count`` bytes of each row of a tile, with zeros behind them."""
    ones = emitter.sub(emitter.binary("shl", integer(1), count), 1)
    mask = emitter.assign(f"<{LINE_NBYTES} x i1>", f"bitcast {ones.typed} to <{LINE_NBYTES} x i1>")
    with emitter.loop(0, rows, unroll=False, hint="row") as row:
        value = load_masked(emitter, _LINE, emitter.element(line, emitter.mul(row, a_row), "i8"), 1, mask)
        emitter.store(value, emitter.element(to, emitter.mul(row, LINE_NBYTES), "i8"), LINE_NBYTES)


def _function(name: str, is_signed: bool, tiles: int, width: int) -> Emitter:
    """Return the function of so many tiles of rows; the second one's sums lie ``shift`` rows behind the first's."""
    emitter = Emitter(name, _PARAMETERS, linkage="internal")
    instruction = matrix_tiles.byte_products(is_signed, True)
    a, panel, depth = (emitter.parameter(each) for each in ("a", "panel", "depth"))
    a_row, second = emitter.parameter("a_row"), emitter.parameter("second")
    numbers = [(tile, vector) for tile in range(tiles) for vector in range(PAIR)]
    for tile, vector in numbers:
        matrix_tiles.clear(emitter, tile * PAIR + vector)

    def step(lines: list[IRValue], apart: IRValue | int, b: IRValue) -> None:
        for vector in range(PAIR):
            matrix_tiles.load(emitter, _B + vector, emitter.element(b, vector * ROWS, "i32"), width * WORD)
        for tile, line in enumerate(lines):
            matrix_tiles.load(emitter, _A + tile, line, apart)
            for vector in range(PAIR):
                matrix_tiles.multiply(emitter, instruction, tile * PAIR + vector, _A + tile, _B + vector)

    whole, rest = emitter.udiv(depth, LINE_NBYTES), emitter.urem(depth, LINE_NBYTES)
    with emitter.loop(0, whole, unroll=False, hint="k") as k:
        line = emitter.element(a, emitter.mul(k, LINE_NBYTES), "i8")
        lines = [line, emitter.element(line, second, "i8")][:tiles]
        step(lines, a_row, emitter.element(panel, emitter.mul(k, ROWS * width), "i32"))
    with emitter.when(emitter.compare("sgt", rest, 0)):
        copies = [emitter.element(emitter.parameter("rest"), tile * ROWS * LINE_NBYTES, "i8") for tile in range(tiles)]
        step(copies, LINE_NBYTES, emitter.element(panel, emitter.mul(whole, ROWS * width), "i32"))
    for tile, vector in numbers:
        row = emitter.mul(emitter.parameter("shift"), tile)
        place = emitter.element(emitter.parameter("kept"), emitter.add(emitter.mul(row, width), vector * ROWS), "i32")
        matrix_tiles.store(emitter, tile * PAIR + vector, place, width * WORD)
    return emitter
