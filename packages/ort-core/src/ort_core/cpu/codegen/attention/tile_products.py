"""The two products of an attention in registers of tiles: up to 32 rows with panels of 32 columns.

Rows of A lie as tiles read them, ``[K / 16, 32 rows, 16 words]``, panels of B as ``[K, 32 columns]`` words. Above 16
rows the second tile ends with the last row, and computes some rows again.
"""

from __future__ import annotations

from collections.abc import Callable

from ort_core.cpu.codegen.llvm_ir import matrix_tiles
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.matrix_tiles import FLOAT_PAIRS, LINE_NBYTES, ROWS

TILE_ROWS = 2 * ROWS
PANEL = 2 * ROWS  # columns
STRIP = TILE_ROWS * ROWS  # words of A that a step of K takes
_A, _B = 4, 6  # the first of two tiles each; sums are 0 to 3
_WORD_NBYTES = 4


def panel_product(
    e: Emitter, height: IRValue, words: IRValue, strip: IRValue, panel: IRValue, to: IRValue, to_row: IRValue | int,
    *, adds: bool,
) -> None:  # fmt: skip
    """Store, or add to what is at ``to``, the product of ``height`` rows and a panel; K has ``words`` words."""

    def emit(firsts: list[IRValue]) -> None:
        _product(e, firsts, words, strip, panel, to, to_row, adds)

    _for_height(e, height, emit)


def _for_height(e: Emitter, height: IRValue, emit: Callable[[list[IRValue]], None]) -> None:
    with e.either(e.compare("sgt", height, ROWS)) as branch:
        emit([integer(0), e.sub(height, ROWS)])
        with branch.otherwise():
            emit([integer(0)])


def _product(
    e: Emitter, firsts: list[IRValue], words: IRValue, strip: IRValue, panel: IRValue, to: IRValue,
    to_row: IRValue | int, adds: bool,
) -> None:  # fmt: skip
    row = integer(to_row) if isinstance(to_row, int) else to_row
    step = e.mul(row, _WORD_NBYTES)
    places = [
        (2 * i + j, e.element(e.element(to, e.mul(row, first)), j * ROWS))
        for i, first in enumerate(firsts)
        for j in range(2)
    ]
    for number, place in places:
        if adds:
            matrix_tiles.load(e, number, place, step)
        else:
            matrix_tiles.clear(e, number)
    with e.loop(0, words, ROWS, unroll=False, hint="k") as k:
        columns, rows = e.element(panel, e.mul(k, PANEL)), e.element(strip, e.mul(k, TILE_ROWS))
        for j in range(2):
            matrix_tiles.load(e, _B + j, e.element(columns, j * ROWS), PANEL * _WORD_NBYTES)
        for i, first in enumerate(firsts):
            matrix_tiles.load(e, _A + i, e.element(rows, e.mul(first, ROWS)), LINE_NBYTES)
            for j in range(2):
                matrix_tiles.multiply(e, FLOAT_PAIRS, 2 * i + j, _A + i, _B + j)
    for number, place in places:
        matrix_tiles.store(e, number, place, step)
