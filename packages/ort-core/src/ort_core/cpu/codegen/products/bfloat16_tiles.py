"""Matrix products of bfloat16 by registers of tiles (AMX): 32 rows of A with a panel of 32 columns in four tiles.

Words and panels are those of ``bfloat16_product``; K is a multiple of 16 words, the rest zeros on both sides. A strip
of A lies as its tiles do, ``[k / 16, row, 16 words]``. Tiles of C have ``min(m, 16)`` rows each. Where C's rows are
fewer than 32, the second tile of rows ends with the last row and computes some rows again. Sums stay in registers for
the whole of K where a block of A has it all, as it nearly always does.
"""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir import matrix_tiles
from ort_core.cpu.codegen.llvm_ir.bfloat16_lanes import rounded_row
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.matrix_tiles import FLOAT_PAIRS, LINE_NBYTES, ROWS
from ort_core.cpu.codegen.llvm_ir.vectors import lane_mask, load_vector, prefetch
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.matrix_product import Blocking
from ort_core.cpu.codegen.products.microkernel import TILE_PARAMETERS, TileShape

ONE_TILE, TWO_TILES = "bfloat16_one_tile", "bfloat16_two_tiles"
LANE_NBYTES = 4
PAIR = 2  # weights of a word
SHAPE = TileShape(2 * ROWS, 2, ROWS)
BLOCKING = Blocking(depth=1504, tiles=5)  # words of a block of A: it stays in the second-level cache
ROUND_STRIP = "bfloat16_round_strip"
_A, _B = 4, 6  # the first of two tiles each; sums are 0 to 3


def has_tile_products(target: Target) -> bool:
    """Return whether the target multiplies tiles of bfloat16."""
    names = ("amx-tile", "amx-bf16", "avx512bf16")  # the last one rounds
    return target.lanes == ROWS and all(target.has(name) for name in names)


def tiles() -> list[Emitter]:
    """Return two functions of ``microkernel``'s form: of one tile of rows, and of two; tiles are configured.

    ``a_row`` is the number of rows. All tiles of a thread have the rows of the product where these are at most 16.
    """
    return [_tile(ONE_TILE, 1), _tile(TWO_TILES, 2)]


def _tile(name: str, count: int) -> Emitter:
    e = Emitter(name, TILE_PARAMETERS)
    depth, rows, a, b, c = (e.parameter(name) for name in ("depth", "a_row", "a", "b", "c"))
    b_step, c_step = (e.mul(e.parameter(name), LANE_NBYTES) for name in ("b_row", "c_row"))
    firsts = [integer(0), e.sub(rows, ROWS)][:count]
    places = [
        (2 * i + j, e.element(e.element(c, e.mul(e.parameter("c_row"), first)), j * ROWS))
        for i, first in enumerate(firsts)
        for j in range(2)
    ]
    with e.either(e.compare("ne", e.parameter("first"), 0)) as branch:
        for number, _ in places:
            matrix_tiles.clear(e, number)
        with branch.otherwise():
            for number, place in places:
                matrix_tiles.load(e, number, place, c_step)
    fetched = e.mul(e.parameter("ahead_step"), ROWS)
    with e.loop(0, depth, ROWS, unroll=False, hint="k") as k:
        panel = e.element(b, e.mul(k, e.parameter("b_row")))
        for j in range(2):
            matrix_tiles.load(e, _B + j, e.element(panel, j * ROWS), b_step)
        strip = e.element(a, e.mul(k, rows))
        for i, first in enumerate(firsts):
            matrix_tiles.load(e, _A + i, e.element(strip, e.mul(first, ROWS)), LINE_NBYTES)
            for j in range(2):
                matrix_tiles.multiply(e, FLOAT_PAIRS, 2 * i + j, _A + i, _B + j)
        ahead = e.element(e.parameter("ahead"), e.mul(k, e.parameter("ahead_step")), "i8")
        with e.loop(0, fetched, LINE_NBYTES, unroll=False, hint="line") as line:
            prefetch(e, e.element(ahead, line, "i8"), write=False, level=2)
    for number, place in places:
        matrix_tiles.store(e, number, place, c_step)
    return e


def tile_names() -> list[str]:
    """Return the names of the functions for 1 to 32 rows."""
    return [ONE_TILE] * ROWS + [TWO_TILES] * ROWS


def tile_rows(m: IRValue, emitter: Emitter) -> IRValue:
    """Return the rows of each tile of sums in a product of ``m`` rows, at least one."""
    return emitter.minimum(m, integer(ROWS))


def round_strip(lanes: int) -> Emitter:
    """Return the function that rounds ``rows`` x ``columns`` floats to a strip of ``words``, a multiple of 16."""
    parameters = [("ptr noalias", "to"), ("ptr noalias readonly", "from")]
    e = Emitter(ROUND_STRIP, [*parameters, *(("i64", name) for name in ("row", "rows", "columns", "words"))])
    rows, columns, words = (e.parameter(name) for name in ("rows", "columns", "words"))
    whole = e.mul(e.udiv(columns, lanes * PAIR), lanes)
    with e.loop(0, rows, unroll=False, hint="row") as row:
        source = e.element(e.parameter("from"), e.mul(row, e.parameter("row")))
        to = e.element(e.parameter("to"), e.mul(row, ROWS))
        with e.loop(0, whole, ROWS, unroll=False, hint="word") as word:
            place = e.element(source, e.mul(word, PAIR))
            prefetch(e, e.element(place, 256), write=False, level=3)
            halves = [load_vector(e, e.element(place, i * lanes), lanes) for i in range(PAIR)]
            e.store(rounded_row(e, *halves), e.element(to, e.mul(word, rows)), 4)
        with e.loop(whole, words, ROWS, unroll=False, hint="word") as word:
            place, left = e.element(source, e.mul(word, PAIR)), e.sub(columns, e.mul(word, PAIR))
            masks = [lane_mask(e, e.sub(left, i * lanes), lanes) for i in range(PAIR)]
            halves = [load_vector(e, e.element(place, i * lanes), lanes, mask) for i, mask in enumerate(masks)]
            e.store(rounded_row(e, *halves), e.element(to, e.mul(word, rows)), 4)
    return e


def shapes(rows: IRValue) -> list[tuple[IRValue | int, IRValue | int]]:
    """Return the rows and bytes a row of each register: of sums and of A ``rows``, of B all."""
    return [(rows, LINE_NBYTES)] * _B + [(ROWS, LINE_NBYTES)] * 2
