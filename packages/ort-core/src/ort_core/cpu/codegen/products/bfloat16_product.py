"""Matrix products whose constant right side is bfloat16; sums are float32.

Weights lie in panels as words of two: ``panel[k / 2, j]`` holds rows ``k`` and ``k + 1`` of column ``j``, the even row
in the low half. A processor with dot products of bfloat16 pairs (VDPBF16PS) multiplies them with rows of A that each
thread rounds to bfloat16, block by block, into its scratch: to the driver and the tiles such a word is what a float is
to a float32 product, and K counts words. Any other processor rounds nothing of A: its tiles take each word apart into
two floats, in registers, and multiply these.

Having the instruction is not enough. Intel's cores with AMX run it a quarter as often as a multiply-add: half of the
products of float32 in the same time (Emerald Rapids: 0.75 ns and 0.19 ns for one). They count as having none. Where the
system permits AMX itself, its tiles multiply the same words (``bfloat16_tiles``), 15 times as many in the same time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ort_core.cpu.codegen.llvm_ir import matrix_tiles
from ort_core.cpu.codegen.llvm_ir.bfloat16_lanes import rounded_row
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, module_text, vector_type
from ort_core.cpu.codegen.llvm_ir.vectors import lane_mask, load_vector, prefetch
from ort_core.cpu.codegen.machine_code.code_table import CodeTable, code_table
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products import bfloat16_tiles
from ort_core.cpu.codegen.products.bfloat16_tiles import PAIR, has_tile_products
from ort_core.cpu.codegen.products.epilogue import Epilogue
from ort_core.cpu.codegen.products.matrix_product import Blocking, ProductDriver, Scratch, finish_function
from ort_core.cpu.codegen.products.microkernel import TileShape, products_of, tile, tile_name, tile_shape
from ort_core.cpu.codegen.products.packing import COPY_BLOCK, copy_block
from ort_core.cpu.codegen.products.piece_grid import TileCosts, row_groups

PREFIX = "bfloat16"
SPLIT_PREFIX = "bfloat16_split"
SPLIT_DEPTH = 384  # words of a block of K: as many floats of A as blocks of float32 products have
SLOW_PAIRS = frozenset({"sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"})  # by LLVM's names
ROUND_BLOCK = "bfloat16_round_block"
_DOT = "llvm.x86.avx512bf16.dpbf16ps.512"
_ROUND = [
    ("ptr noalias", "to"),
    ("i64", "to_row"),
    ("ptr noalias readonly", "from"),
    ("i64", "row"),
    ("i64", "rows"),
    ("i64", "columns"),
    ("i64", "padded"),
]


def has_pair_products(target: Target) -> bool:
    """Return whether one instruction multiplies and sums pairs of bfloat16 faster than two would do it in float32."""
    return target.lanes == 16 and target.has("avx512bf16") and target.cpu not in SLOW_PAIRS


def rounds_both(target: Target) -> bool:
    """Return whether products of constant bfloat16 weights round the other operand, too."""
    return has_pair_products(target) or has_tile_products(target)


def least_piece_sums(target: Target) -> int:
    """Return how many sums a piece of a product has that is long beside the rounding of its rows of A; 0: nothing is.

    They are 256 x 512 by tiles, which multiply so fast, and 64 x 256 by dot products.
    """
    if has_tile_products(target):
        return 256 * 512
    return 64 * 256 if has_pair_products(target) else 0


def pairs_shape(shape: Sequence[int], panel: int, step: int = 1) -> tuple[int, int, int]:
    """Return the shape of ``[k, n]`` when it is packed, in words of 32 bits; K is a multiple of ``step`` words."""
    depth, columns = shape
    return -(-columns // panel), -(-depth // (PAIR * step)) * step, panel


def pack_pairs(matrix: np.ndarray, panel: int, out: npt.NDArray[np.float32]) -> None:
    """Pack ``[k, n]``, rounded to the nearest bfloat16, into words ``out[panels, k / 2, panel]`` (``pairs_shape``).

    Columns and rows that do not exist are 0. Works through a few rows at a time: a rounded copy of the whole matrix
    is not made.
    """
    depth, columns = matrix.shape
    panels, _, _ = out.shape
    halves = out.view(np.uint16).reshape(panels, -1, panel, PAIR)
    whole = columns // panel
    if whole < panels:
        halves[whole:] = 0
    halves[:, depth // PAIR :] = 0
    step = max(PAIR, (1 << 18) // max(columns, 1) // PAIR * PAIR)  # about a megabyte of float32: stays near
    for start in range(0, depth, step):
        rows = matrix[start : start + step]
        rounded = np.ascontiguousarray(rows).astype(ml_dtypes.bfloat16, copy=False).view(np.uint16)
        for odd in range(PAIR):
            each = rounded[odd::PAIR]
            low, high = start // PAIR, start // PAIR + len(each)
            split = each[:, : whole * panel].reshape(len(each), whole, panel)
            halves[:whole, low:high, :, odd] = split.transpose(1, 0, 2)
            if whole < panels:
                halves[whole, low:high, : columns - whole * panel, odd] = each[:, whole * panel :]


def bfloat16_functions(name: str, target: Target, *, epilogue: Epilogue | None = None) -> list[Emitter]:
    """Return the functions of a product with packed pairs, a step kernel; the last one is the kernel.

    Its argument table is that of a float32 product. Columns of A must be contiguous (``a_k`` is not read). ``tiles``
    is the address of ``tiled_table`` where the target ``has_tile_products``, of ``pair_table`` where it
    ``has_pair_products``, else that of ``split_table``.
    """
    make: type[ProductDriver]
    shape, make, blocking = tile_shape(target), PairDriver, Blocking()
    if has_tile_products(target):
        shape, make, blocking = bfloat16_tiles.SHAPE, TileDriver, bfloat16_tiles.BLOCKING
    elif not has_pair_products(target):
        shape, make = split_shape(target), _SplitDriver
    finish = finish_function(f"{name}_finish", shape, epilogue)
    return [finish, make(name, shape, blocking, packed=True, has_epilogue=epilogue is not None).emit()]


# with dot products of pairs -------------------------------------------------------------------------------------------


def pair_tiles_text(target: Target) -> str:
    """Return the module with the rounding of a block, its copy, and a tile for each row count."""
    shape = tile_shape(target)
    tiles = (tile(shape, rows, products_of(dot_pairs), PREFIX) for rows in range(1, shape.rows + 1))
    return module_text([round_block(target.lanes), copy_block(target), *tiles])


def pair_table(module: CompiledModule, target: Target) -> CodeTable:
    """Return the addresses that a product's ``tiles`` argument points to: the rounding, then the tiles by rows."""
    names = [ROUND_BLOCK, *(tile_name(rows, PREFIX) for rows in range(1, tile_shape(target).rows + 1))]
    return code_table(module, names)


def dot_pairs(emitter: Emitter, a: IRValue, b: IRValue, total: IRValue) -> IRValue:
    """Return float32 sums increased by the products of two vectors of pairs."""
    pairs = [emitter.assign("<32 x bfloat>", f"bitcast {each.typed} to <32 x bfloat>") for each in (a, b)]
    return emitter.call(total.type, _DOT, total, *pairs)


def round_block(lanes: int) -> Emitter:
    """Return the function that rounds ``rows`` x ``columns`` floats to words, zeros up to ``padded`` words."""
    emitter = Emitter(ROUND_BLOCK, _ROUND)
    columns, padded = emitter.parameter("columns"), emitter.parameter("padded")
    whole = emitter.udiv(columns, lanes * PAIR)
    with emitter.loop(0, emitter.parameter("rows"), unroll=False) as row:
        source = emitter.element(emitter.parameter("from"), emitter.mul(row, emitter.parameter("row")))
        to = emitter.element(emitter.parameter("to"), emitter.mul(row, emitter.parameter("to_row")))
        with emitter.loop(0, emitter.mul(whole, lanes), lanes, unroll=False, hint="j") as j:
            place = emitter.element(source, emitter.mul(j, PAIR))
            prefetch(emitter, emitter.element(place, 256), write=False, level=3)
            halves = [load_vector(emitter, emitter.element(place, i * lanes), lanes) for i in range(PAIR)]
            emitter.store(rounded_row(emitter, *halves), emitter.element(to, j), 4)
        with emitter.loop(emitter.mul(whole, lanes), padded, lanes, unroll=False, hint="j") as j:
            place = emitter.element(source, emitter.mul(j, PAIR))
            left = emitter.sub(columns, emitter.mul(j, PAIR))
            halves = []
            for i in range(PAIR):
                mask = lane_mask(emitter, emitter.sub(left, i * lanes), lanes)
                halves.append(load_vector(emitter, emitter.element(place, i * lanes), lanes, mask))
            emitter.store(rounded_row(emitter, *halves), emitter.element(to, j), 4)
    return emitter


class PairDriver(ProductDriver):
    """A product over words: K counts pairs, and A is always rounded into the scratch."""

    costs = TileCosts(strip=1, panel=1)

    def _begin(self) -> None:
        e = self.emitter
        self.floats = self.given["k"]
        self.given["k"] = e.udiv(e.add(self.floats, PAIR - 1), PAIR)

    def _choose_share(self) -> None:
        """Set this piece's tiles: some heights and a range of the panels' tiles; pieces too many have none.

        Pieces that follow one another have the same panels, which are then still near.
        """
        e, batch = self.emitter, self._batch_count()
        piece, pieces = e.parameter("piece"), e.parameter("pieces")
        groups = row_groups(e, self.heights, self.panels, pieces, self.costs)
        groups = e.select(e.compare("eq", batch, 1), groups, integer(1))
        part, group, parts = e.udiv(piece, groups), e.urem(piece, groups), e.udiv(pieces, groups)
        self.tile_low = e.udiv(e.mul(self.heights, group), groups)
        self.tiles = e.sub(e.udiv(e.mul(self.heights, e.add(group, 1)), groups), self.tile_low)
        total = e.mul(batch, e.mul(self.panels, self.tiles))
        self.low = e.minimum(e.udiv(e.mul(total, part), parts), total)
        self.high = e.minimum(e.udiv(e.mul(total, e.add(part, 1)), parts), total)

    def _must_copy(self) -> IRValue:
        return IRValue("i1", "true")

    def _strips(self, start: IRValue, stop: IRValue, depth: IRValue, count: IRValue) -> tuple[IRValue, IRValue]:
        e, given = self.emitter, self.given
        first = e.mul(depth, PAIR)
        place = e.element(e.element(self.a, e.mul(start, given["a_row"])), first)
        rounded = e.element(self.mine, self.scratch.strips)
        stride = integer(self.scratch.strip)
        columns = e.minimum(e.mul(count, PAIR), e.sub(self.floats, first))
        rows = e.sub(stop, start)
        self._call(0, [rounded, stride, place, given["a_row"], rows, columns, self._padded(count)])
        return rounded, stride


# with tiles of pairs ------------------------------------------------------------------------------------------------


def tiled_text(target: Target) -> str:
    """Return the module with the rounding of a strip, and the tiles."""
    return module_text([bfloat16_tiles.round_strip(target.lanes), *bfloat16_tiles.tiles()])


def tiled_table(module: CompiledModule) -> CodeTable:
    """Return the addresses that a product's ``tiles`` argument points to: the rounding, then the tiles by rows."""
    return code_table(module, [bfloat16_tiles.ROUND_STRIP, *bfloat16_tiles.tile_names()])


def tiled_scratch(shape: TileShape, blocking: Blocking) -> Scratch:
    """Return the layout of a thread's scratch: sums of a partial panel where K is cut, at half the depth or more."""
    rows = shape.rows * blocking.tiles
    sums = 2 * rows * shape.columns
    return Scratch(0, sums, sums, 0, sums + rows * blocking.depth)


class TileDriver(PairDriver):
    """A product over words whose K is filled up with zeros to whole tiles."""

    costs = TileCosts(strip=3, panel=1)

    def _begin(self) -> None:
        e = self.emitter
        self.floats = self.given["k"]
        step = PAIR * matrix_tiles.ROWS
        self.given["k"] = e.mul(e.udiv(e.add(self.floats, step - 1), step), matrix_tiles.ROWS)
        self.scratch = tiled_scratch(self.shape, self.blocking)

    @contextmanager
    def _working(self) -> Iterator[None]:
        rows = bfloat16_tiles.tile_rows(self.given["m"], self.emitter)
        with matrix_tiles.configured(self.emitter, bfloat16_tiles.shapes(rows)):
            yield

    def _evened(self, depth: IRValue) -> IRValue:
        e = self.emitter
        return e.mul(e.udiv(e.add(depth, matrix_tiles.ROWS - 1), matrix_tiles.ROWS), matrix_tiles.ROWS)

    def _choose_blocks(self) -> None:
        """Set the blocks: as deep as K where they may be, and of as many tiles as then fit the scratch."""
        super()._choose_blocks()
        e, blocking = self.emitter, self.blocking
        most = e.udiv(integer(blocking.tiles * blocking.depth), self.depth)
        blocks = e.maximum(e.udiv(e.sub(e.add(self.tiles, most), 1), most), 1)
        self.block = e.maximum(e.udiv(e.sub(e.add(self.tiles, blocks), 1), blocks), 1)
        self.is_whole = e.compare("sge", self.depth, self.given["k"])

    def _block(self, block: IRValue, block_high: IRValue, depth: IRValue) -> None:
        self.block_tiles = block, block_high
        super()._block(block, block_high, depth)

    def _strips(self, start: IRValue, stop: IRValue, depth: IRValue, count: IRValue) -> tuple[IRValue, IRValue]:
        """Round the rows of the block tile by tile, each a strip."""
        e, row_step = self.emitter, self.given["a_row"]
        first = e.mul(depth, PAIR)
        columns = e.minimum(e.mul(count, PAIR), e.sub(self.floats, first))
        strips = e.element(self.mine, self.scratch.strips)
        with e.loop(*self.block_tiles, unroll=False, hint="strip") as number:
            row = self._row_of(number)
            place = e.element(e.element(self.a, e.mul(row, row_step)), first)
            to = e.element(strips, e.mul(e.sub(row, start), count))
            self._call(0, [to, place, row_step, self._height_of(number), columns, count])
        return strips, count

    def _fetch_out(self, out: IRValue, rows: IRValue) -> None:
        e = self.emitter
        with e.loop(0, rows, unroll=False, hint="row") as row:
            place = e.element(out, e.mul(row, self.given["c_row"]))
            for line in range(0, self.shape.columns, matrix_tiles.ROWS):
                prefetch(e, e.element(place, line), write=True, level=3)

    def _strip_row(self, part: object, height: IRValue) -> IRValue:
        return height

    def _sums_apart(self, partial: IRValue) -> IRValue:
        return self.emitter.binary("or", partial, self.is_whole)  # rows of C far apart are written slowly

    def _row_apart(self, row: IRValue) -> IRValue:
        return self.emitter.select(self.is_whole, integer(0), row)

    def _fetches_strips(self, contiguous: IRValue) -> IRValue:
        return IRValue("i1", "false")  # they were written right now


# without ------------------------------------------------------------------------------------------------------------


def split_shape(target: Target) -> TileShape:
    """Return the tile of a target without them: beside its sums lie both halves of a row of B and one number of A."""
    shape = tile_shape(target)
    rows = (target.vector_registers - 1 - PAIR * shape.vectors) // shape.vectors
    return TileShape(min(rows, shape.rows), shape.vectors, shape.lanes)


def split_tiles_text(target: Target) -> str:
    """Return the module with the block copy and a tile for each row count."""
    shape = split_shape(target)
    tiles = (tile(shape, rows, _add_halves, SPLIT_PREFIX) for rows in range(1, shape.rows + 1))
    return module_text([copy_block(target), *tiles])


def split_table(module: CompiledModule, target: Target) -> CodeTable:
    """Return the addresses that a product's ``tiles`` argument points to: the block copy, then the tiles by rows."""
    rows = range(1, split_shape(target).rows + 1)
    return code_table(module, [COPY_BLOCK, *(tile_name(each, SPLIT_PREFIX) for each in rows)])


def _add_halves(
    emitter: Emitter, shape: TileShape, row: IRValue, strips: list[IRValue], k: IRValue, sums: list[list[IRValue]]
) -> None:
    """Add the products of both halves of a row of words of B with two floats of each strip of A to the sums."""
    floats, words = vector_type(shape.lanes, "float"), vector_type(shape.lanes, "i32")
    halves: list[list[IRValue]] = [[] for _ in range(PAIR)]
    for vector in range(shape.vectors):
        packed = emitter.load(words, emitter.element(row, vector * shape.lanes), 4)
        low = emitter.assign(words, f"shl {packed.typed}, {_splat(16, shape.lanes)}")
        high = emitter.assign(words, f"and {packed.typed}, {_splat(-65536, shape.lanes)}")
        for odd, bits in enumerate((low, high)):
            halves[odd].append(emitter.assign(floats, f"bitcast {bits.typed} to {floats}"))
    first = emitter.mul(k, PAIR)
    for strip, slots in zip(strips, sums, strict=True):
        for odd, factors in enumerate(halves):
            place = emitter.element(strip, emitter.add(first, odd))
            value = emitter.splat(emitter.load("float", place), shape.lanes)
            for factor, slot in zip(factors, slots, strict=True):
                emitter.store(emitter.fma(value, factor, emitter.load(floats, slot)), slot)


class _SplitDriver(ProductDriver):
    """A product over words with A in float32: K counts pairs. A is copied where its rows end within a pair."""

    def _begin(self) -> None:
        e = self.emitter
        self.floats = self.given["k"]
        self.given["k"] = e.udiv(e.add(self.floats, PAIR - 1), PAIR)
        self.blocking = Blocking(depth=SPLIT_DEPTH)

    def _must_copy(self) -> IRValue:
        e = self.emitter
        is_odd = e.compare("ne", e.urem(self.floats, PAIR), 0)
        return e.binary("or", is_odd, super()._must_copy())

    def _strips(self, start: IRValue, stop: IRValue, depth: IRValue, count: IRValue) -> tuple[IRValue, IRValue]:
        e, given = self.emitter, self.given
        first = e.mul(depth, PAIR)
        place = e.element(e.element(self.a, e.mul(start, given["a_row"])), first)
        copied, stride = e.element(self.mine, self.scratch.strips), integer(self.scratch.strip)
        with e.when(self.copies_a):
            floats = e.mul(count, PAIR)
            columns, padded = e.minimum(floats, e.sub(self.floats, first)), self._padded(floats)
            rows = e.sub(stop, start)
            self._call(0, [copied, stride, place, given["a_row"], integer(1), rows, columns, padded])
        return e.select(self.copies_a, copied, place), e.select(self.copies_a, stride, given["a_row"])


@functools.cache
def _splat(value: int, lanes: int) -> str:
    return f"<{', '.join([f'i32 {value}'] * lanes)}>"
