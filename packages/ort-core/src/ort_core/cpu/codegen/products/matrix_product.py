"""Matrix products: ``C[b, m, n] = epilogue(A[b, m, k] @ B[b, k, n])`` of float32 or float64, sizes known at run time.

M is cut into tiles of nearly equal heights, at most MR rows; N into panels of NR columns. Tiles are numbered panel by
panel over all batch entries, and each thread takes an equal, contiguous range of them; tall single matrices are cut by
rows. A thread goes over its range in blocks of tiles (the rows of A that stay near) and blocks of K (the part of a
panel of B that stays near); unfinished sums lie in C, those of a partial last panel in scratch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.llvm_ir.vectors import lane_mask, load_vector, store_vector
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS
from ort_core.cpu.codegen.products.epilogue import Epilogue
from ort_core.cpu.codegen.products.microkernel import TileShape, tile_shape
from ort_core.cpu.codegen.products.packing import ALIGNMENT

BATCH_DIMS = 4

_COLLIDING = 2048  # bytes: rows that lie a multiple of it apart fall on few sets of the first-level cache
PREFETCH_DISTANCE = 3072  # bytes ahead in a stream of B; less and more (1024, 8192) read 5 to 10 % slower


@dataclass(frozen=True, slots=True)
class ProductArguments:
    """The argument table of a product: each field is the position of an i64. Strides count elements.

    ``b`` points to packed panels (``pack_panels``; then ``b_k`` and ``b_n`` are not read, and the batch strides count
    elements of packed memory) or to a strided matrix. ``batch``, ``a_batch``, ``b_batch`` and ``c_batch`` are
    the first of four entries each, outermost first: the sizes (1 where not used) and the strides of the operands.
    Rows of C are contiguous. ``scratch`` is memory of ``scratch_nbytes`` for each thread, ``scratch_stride`` bytes
    apart, both multiples of 64. ``tiles`` is the address of ``microkernel.tile_table``. Epilogues use positions from
    ``count`` on.
    """

    a: int = 0
    b: int = 1
    c: int = 2
    m: int = 3
    n: int = 4
    k: int = 5
    a_row: int = 6
    a_k: int = 7
    b_k: int = 8
    b_n: int = 9
    c_row: int = 10
    scratch: int = 11
    scratch_stride: int = 12
    tiles: int = 13
    batch: int = 14
    a_batch: int = 18
    b_batch: int = 22
    c_batch: int = 26
    count: int = 30


ARGUMENTS = ProductArguments()


@dataclass(frozen=True, slots=True)
class Blocking:
    """How much of the operands stays near: ``depth`` rows of a panel of B and ``tiles`` heights of A, both in L2.

    Blocks are cut evenly below these limits. Deeper blocks write C less often. Measured on a core with 2 MiB of L2: 256
    x 768 x 3072 runs at 109, 141 and 151 GFLOP/s with depths of 256, 512 and 768; the panel need not fit L1, as it is
    prefetched.
    """

    depth: int = 768
    tiles: int = 20

    def __post_init__(self) -> None:
        """Check that whole blocks fit the scratch: evened depths are rounded up to 8."""
        if self.depth < 8 or self.depth % 8 or self.tiles < 1:
            raise ValueError(f"depth {self.depth} must be a positive multiple of 8, tiles {self.tiles} positive")


def blocking_of(word: str) -> Blocking:
    """Return the usual blocks of a product: those of doubles have half the rows, and so as many bytes of A."""
    return Blocking() if word == "float" else Blocking(tiles=10)


def scratch_nbytes(target: Target, blocking: Blocking | None = None, word: str = "float") -> int:
    """Return how much scratch a product needs for each thread, whatever the sizes."""
    shape = tile_shape(target, word)
    layout = Scratch.of(shape, blocking or blocking_of(word))
    return -(-layout.count * shape.word_nbytes // ALIGNMENT) * ALIGNMENT


def product_functions(
    name: str,
    target: Target,
    *,
    packed: bool,
    epilogue: Epilogue | None = None,
    blocking: Blocking | None = None,
    word: str = "float",
) -> list[Emitter]:
    """Return the functions of one product; the last one is a step kernel with the parameters of every kernel.

    Args:
        name: the kernel's symbol.
        target: what the code is for; ``tiles_text`` of the same target and word gives the microkernels.
        packed: B is constant and packed by ``pack_panels``; else it is a strided matrix, packed as the product runs.
        epilogue: what to do with the sums before they are stored; may be emitted more than once.
        blocking: the sizes of blocks, if not the usual ones.
        word: the type of the elements, ``float`` or ``double``.
    """
    shape, blocking = tile_shape(target, word), blocking or blocking_of(word)
    finish = finish_function(f"{name}_finish", shape, epilogue)
    return [finish, ProductDriver(name, shape, blocking, packed=packed, has_epilogue=epilogue is not None).emit()]


@dataclass(frozen=True, slots=True)
class Scratch:
    """Where things lie in a thread's scratch, in words: the partial panel's sums, a panel of B, a block of A."""

    sums: int
    panel: int
    strips: int
    strip: int  # the row stride of the block of A; off a power of two, so that its rows do not share cache sets
    count: int

    @classmethod
    def of(cls, shape: TileShape, blocking: Blocking) -> Scratch:
        """Return the layout for tiles and blocks of these sizes."""
        rows = shape.rows * blocking.tiles
        panel = rows * shape.columns
        strips = panel + blocking.depth * shape.columns
        strip = -(-blocking.depth // 16) * 16 + 16
        return cls(0, panel, strips, strip, strips + rows * strip)


_FINISH = [
    ("ptr", "args"), ("ptr", "sums"), ("i64", "sums_row"), ("ptr", "out"), ("i64", "out_row"), ("i64", "start"),
    ("i64", "height"), ("i64", "column"), ("i64", "columns"), *(("i64", f"batch{i}_") for i in range(BATCH_DIMS)),
]  # fmt: skip


def finish_function(name: str, shape: TileShape, epilogue: Epilogue | None) -> Emitter:
    """Emit the last step of a tile: sums, through the epilogue, to C; in whole vectors or with a masked tail."""
    emitter = Emitter(name, _FINISH, linkage="internal", word=shape.word)
    columns = emitter.parameter("columns")
    if epilogue:
        batch = [emitter.parameter(f"batch{i}_") for i in range(BATCH_DIMS)]
        epilogue.prepare(emitter, emitter.parameter("args"), batch)
    with emitter.either(emitter.compare("sge", columns, shape.columns)) as branch:
        with emitter.loop(0, emitter.parameter("height"), unroll=False) as row:
            for vector in range(shape.vectors):
                _finish_vector(emitter, shape, epilogue, row, integer(vector * shape.lanes), None)
        with branch.otherwise(), emitter.loop(0, columns, shape.lanes, unroll=False) as start:
            mask = lane_mask(emitter, emitter.sub(columns, start), shape.lanes)
            with emitter.loop(0, emitter.parameter("height"), unroll=False) as row:
                _finish_vector(emitter, shape, epilogue, row, start, mask)
    return emitter


def _finish_vector(
    emitter: Emitter, shape: TileShape, epilogue: Epilogue | None, row: IRValue, start: IRValue, mask: IRValue | None
) -> None:
    source = emitter.add(emitter.mul(row, emitter.parameter("sums_row")), start)
    value = load_vector(emitter, emitter.element(emitter.parameter("sums"), source), shape.lanes)
    if epilogue:
        at_row = emitter.add(emitter.parameter("start"), row)
        column = emitter.add(emitter.parameter("column"), start)
        value = epilogue.apply(emitter, value, at_row, column, shape.lanes, mask)
        assert value.type == vector_type(shape.lanes, shape.word)
    place = emitter.add(emitter.mul(row, emitter.parameter("out_row")), start)
    store_vector(emitter, value, emitter.element(emitter.parameter("out"), place), mask)


@dataclass(frozen=True, slots=True)
class _Part:
    """The tiles ``low`` to ``high`` over one panel and one block of K, while the kernel is emitted."""

    panel: IRValue
    left: IRValue  # columns of C from the panel's first on
    low: IRValue
    high: IRValue
    start: IRValue  # the first row of the block of tiles
    strips: IRValue  # A at that row and at the block of K
    strip_row: IRValue
    b: IRValue
    b_row: IRValue
    count: IRValue  # how much of K
    is_first: IRValue
    is_last: IRValue


@dataclass(frozen=True, slots=True)
class _Ahead:
    """What tiles prefetch: bytes from ``start`` for the first, ``each`` further for the next, ``step`` for each k."""

    start: IRValue
    step: IRValue
    each: IRValue


class ProductDriver:
    """Emits the kernel itself: the share of a thread, the blocks, and the calls of the tiles."""

    def __init__(self, name: str, shape: TileShape, blocking: Blocking, *, packed: bool, has_epilogue: bool) -> None:
        self.shape, self.blocking, self.packed, self.has_epilogue = shape, blocking, packed, has_epilogue
        self.emitter = Emitter(name, KERNEL_PARAMETERS, word=shape.word)
        self.name = name
        self.scratch = Scratch.of(shape, blocking)
        args = self.emitter.parameter("args")
        pointers = ("a", "b", "c", "scratch", "tiles")
        self.given = {
            f.name: self.emitter.argument(args, getattr(ARGUMENTS, f.name), "ptr" if f.name in pointers else "i64")
            for f in fields(ProductArguments)
            if f.name != "count"
        }
        offset = self.emitter.mul(self.emitter.parameter("thread"), self.given["scratch_stride"])
        self.mine = self.emitter.element(self.given["scratch"], offset, "i8")
        self._begin()

    def _begin(self) -> None:
        """Change what was given before anything is made of it."""

    def emit(self) -> Emitter:
        """Return the kernel."""
        e, given = self.emitter, self.given
        self.panels = e.udiv(e.add(given["n"], self.shape.columns - 1), self.shape.columns)
        self.heights = e.udiv(e.add(given["m"], self.shape.rows - 1), self.shape.rows)
        divisor = e.maximum(self.heights, 1)
        self.base, self.extra = e.udiv(given["m"], divisor), e.urem(given["m"], divisor)
        self._choose_share()
        self._choose_blocks()
        with e.when(e.compare("slt", self.low, self.high)), self._working():
            each = e.mul(self.panels, self.tiles)
            first, stop = e.udiv(self.low, each), e.add(e.udiv(e.sub(self.high, 1), each), 1)
            with e.loop(first, stop, unroll=False, hint="entry") as entry:
                before = e.mul(entry, each)
                low = e.maximum(e.sub(self.low, before), 0)
                self._entry(entry, low, e.minimum(e.sub(self.high, before), each))
        return e

    def _choose_share(self) -> None:
        """Set this piece's tiles: all heights and a range of the panels' tiles, or all panels and some heights."""
        e = self.emitter
        piece, pieces = e.parameter("piece"), e.parameter("pieces")
        batch = self._batch_count()
        tall = e.compare("sgt", self.given["m"], self.given["n"])
        balanced = e.compare("sge", self.heights, e.mul(pieces, 16))
        single = e.compare("eq", batch, 1)
        by_rows = e.binary("and", e.binary("and", tall, balanced), single)
        following = e.add(piece, 1)
        self.tile_low = e.select(by_rows, e.udiv(e.mul(self.heights, piece), pieces), integer(0))
        tile_high = e.select(by_rows, e.udiv(e.mul(self.heights, following), pieces), self.heights)
        self.tiles = e.sub(tile_high, self.tile_low)
        total = e.mul(batch, e.mul(self.panels, self.tiles))
        self.low = e.select(by_rows, integer(0), e.udiv(e.mul(total, piece), pieces))
        self.high = e.select(by_rows, total, e.udiv(e.mul(total, following), pieces))

    def _batch_count(self) -> IRValue:
        """Return how many entries the batch has."""
        e, count = self.emitter, integer(1)
        for i in range(BATCH_DIMS):
            count = e.mul(count, e.argument(e.parameter("args"), ARGUMENTS.batch + i))
        return count

    def _choose_blocks(self) -> None:
        """Set the blocks: of even numbers of tiles, and of all K where there is a single tile, which gains nothing."""
        e, given = self.emitter, self.given
        blocks = e.maximum(e.udiv(e.add(self.tiles, self.blocking.tiles - 1), self.blocking.tiles), 1)
        self.block = e.maximum(e.udiv(e.sub(e.add(self.tiles, blocks), 1), blocks), 1)
        self.copies_a = self._must_copy()
        depths = e.maximum(e.udiv(e.add(given["k"], self.blocking.depth - 1), self.blocking.depth), 1)
        even = e.udiv(e.sub(e.add(given["k"], depths), 1), depths)
        self.depth = e.maximum(self._evened(even), 8)
        if self.packed:
            single = e.compare("sle", self.heights, 1)
            whole = e.binary("and", single, e.binary("xor", self.copies_a, IRValue("i1", "true")))
            self.depth = e.select(whole, e.maximum(given["k"], 1), self.depth)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Emit the body, which computes this piece's tiles, between what must come before and behind it."""
        yield

    def _evened(self, depth: IRValue) -> IRValue:
        """Return how deep blocks are that are to be so deep."""
        e = self.emitter
        return e.mul(e.udiv(e.add(depth, 7), 8), 8)

    def _must_copy(self) -> IRValue:
        """Return whether blocks of A are copied: its rows are strided, or fall on the same few sets of the cache."""
        e, given = self.emitter, self.given
        strided = e.compare("ne", given["a_k"], 1)
        below = integer(_COLLIDING // self.shape.word_nbytes - 1)
        colliding = e.compare("eq", e.binary("and", given["a_row"], below), 0)
        reused = e.binary("and", e.compare("sge", self.panels, 8), e.compare("sge", given["m"], 8))
        return e.binary("or", strided, e.binary("and", colliding, reused))

    def _entry(self, entry: IRValue, low: IRValue, high: IRValue) -> None:
        """Emit the tiles ``low`` to ``high`` of one batch entry."""
        e = self.emitter
        self.index = self._batch_indices(entry)
        self.a, self.b, self.c = (self._batch_pointer(name) for name in ("a", "b", "c"))
        self.panel_low = e.udiv(low, self.tiles)
        self.panel_last = e.udiv(e.sub(high, 1), self.tiles)
        self.first_low = e.add(self.tile_low, e.sub(low, e.mul(self.panel_low, self.tiles)))
        self.last_high = e.add(self.tile_low, e.sub(high, e.mul(self.panel_last, self.tiles)))
        tile_high = e.add(self.tile_low, self.tiles)
        depth_stop = e.maximum(self.given["k"], 1)
        with e.loop(self.tile_low, tile_high, self.block, unroll=False, hint="block") as block:
            block_high = e.minimum(e.add(block, self.block), tile_high)
            with e.loop(0, depth_stop, self.depth, unroll=False, hint="depth") as depth:
                self._block(block, block_high, depth)

    def _block(self, block: IRValue, block_high: IRValue, depth: IRValue) -> None:
        """Emit one block of tiles over one block of K."""
        e, given = self.emitter, self.given
        count = e.minimum(self.depth, e.sub(given["k"], depth))
        is_last = e.compare("sge", e.add(depth, count), given["k"])
        is_first = e.compare("eq", depth, 0)
        start = self._row_of(block)
        strips, strip_row = self._strips(start, self._row_of(block_high), depth, count)
        with e.loop(self.panel_low, e.add(self.panel_last, 1), unroll=False, hint="panel") as panel:
            at_first = e.compare("eq", panel, self.panel_low)
            at_last = e.compare("eq", panel, self.panel_last)
            low = e.maximum(e.select(at_first, self.first_low, block), block)
            high = e.minimum(e.select(at_last, self.last_high, block_high), block_high)
            with e.when(e.compare("slt", low, high)):
                left = e.sub(given["n"], e.mul(panel, self.shape.columns))
                b, b_row = self._panel(panel, left, depth, count, e.sub(high, low))
                part = _Part(panel, left, low, high, start, strips, strip_row, b, b_row, count, is_first, is_last)
                self._tiles(part, self._ahead(part, at_first))

    def _tiles(self, part: _Part, ahead: _Ahead) -> None:
        """Emit the tiles of one block that lie in one panel."""
        e, given = self.emitter, self.given
        column = e.mul(part.panel, self.shape.columns)
        apart = self._sums_apart(e.compare("slt", part.left, self.shape.columns))
        sums_row = e.select(apart, integer(self.shape.columns), given["c_row"])
        finishing = part.is_last if self.has_epilogue else e.binary("and", part.is_last, apart)
        first = e.assign("i64", f"zext {part.is_first.typed} to i64")
        with e.loop(part.low, part.high, unroll=False, hint="tile") as tile:
            row, height = self._row_of(tile), self._height_of(tile)
            below = e.sub(row, part.start)
            a = e.element(part.strips, e.mul(below, part.strip_row))
            out = e.element(self.c, e.add(e.mul(row, given["c_row"]), column))
            sums = e.select(apart, e.element(self.mine, e.mul(self._row_apart(below), self.shape.columns)), out)
            fetched = e.element(ahead.start, e.mul(e.sub(tile, part.low), ahead.each), "i8")
            self._fetch_out(out, e.select(part.is_last, height, integer(0)))
            operands = (a, self._strip_row(part, height), part.b, part.b_row, sums, sums_row)
            self._call(height, [part.count, *operands, first, fetched, ahead.step])
            with e.when(finishing):
                position = (row, height, column, part.left)
                arguments = (e.parameter("args"), sums, sums_row, out, given["c_row"], *position, *self.index)
                e.call_void(f"{self.name}_finish", *arguments)

    def _fetch_out(self, out: IRValue, rows: IRValue) -> None:
        """Ask for the rows of C that a tile is about to fill, where the tile does not do so itself."""

    def _strip_row(self, part: _Part, height: IRValue) -> IRValue:
        """Return what a tile is told of the rows of A: how far they are apart."""
        return part.strip_row

    def _sums_apart(self, partial: IRValue) -> IRValue:
        """Return whether sums lie in scratch until they are finished: those of a partial panel."""
        return partial

    def _row_apart(self, row: IRValue) -> IRValue:
        """Return where in that scratch the sums of a row of the block lie."""
        return row

    def _strips(self, start: IRValue, stop: IRValue, depth: IRValue, count: IRValue) -> tuple[IRValue, IRValue]:
        """Return the block of A and its row stride: in place, or copied where it has strides that are slow to read."""
        e, given = self.emitter, self.given
        row = e.element(self.a, e.mul(start, given["a_row"]))
        place = e.element(row, e.mul(depth, given["a_k"]))
        copied = e.element(self.mine, self.scratch.strips)
        with e.when(self.copies_a):
            padded = self._padded(count)
            stride = integer(self.scratch.strip)
            self._call(0, [copied, stride, place, given["a_row"], given["a_k"], e.sub(stop, start), count, padded])
        return (
            e.select(self.copies_a, copied, place),
            e.select(self.copies_a, integer(self.scratch.strip), given["a_row"]),
        )

    def _panel(
        self, panel: IRValue, left: IRValue, depth: IRValue, count: IRValue, tiles: IRValue
    ) -> tuple[IRValue, IRValue]:
        """Return the part of a panel of B and its row stride: packed, in place, or packed now."""
        e, given, columns = self.emitter, self.given, self.shape.columns
        if self.packed:
            offset = e.mul(e.add(e.mul(panel, given["k"]), depth), columns)
            return e.element(self.b, offset), integer(columns)
        column = e.mul(panel, columns)
        offset = e.add(e.mul(depth, given["b_k"]), e.mul(column, given["b_n"]))
        place = e.element(self.b, offset)
        copied = e.element(self.mine, self.scratch.panel)
        readable = e.binary("and", e.compare("eq", given["b_n"], 1), e.compare("sge", left, columns))
        in_place = e.binary("and", readable, e.compare("sle", tiles, 1))
        with e.when(e.compare("eq", in_place, IRValue("i1", "false"))):
            width = e.minimum(left, columns)
            stride = integer(columns)
            self._call(0, [copied, stride, place, given["b_k"], given["b_n"], count, width, stride])
        return e.select(in_place, place, copied), e.select(in_place, given["b_k"], integer(columns))

    def _ahead(self, part: _Part, at_first: IRValue) -> _Ahead:
        """Return what to prefetch while the tiles of a panel run.

        Over the first panel, where A is cold, each tile fetches the strip of A below it, if its rows lie one behind the
        other. Over others, all tiles together fetch the panel behind; a single tile reads B as a stream and fetches
        what lies a bit ahead in it.
        """
        e, columns = self.emitter, self.shape.columns
        tiles = e.sub(part.high, part.low)
        single = e.compare("eq", tiles, 1)
        start, step = part.b, integer(0)
        if self.packed:
            behind = e.element(part.b, e.mul(self.given["k"], columns))
            start = e.select(single, e.element(part.b, PREFETCH_DISTANCE, "i8"), behind)
            step = e.udiv(integer(self.shape.word_nbytes * columns), tiles)
        contiguous = self._fetches_strips(e.compare("eq", part.strip_row, part.count))
        cold = e.binary("and", e.binary("and", at_first, contiguous), e.compare("sgt", tiles, 1))
        height = e.add(self.base, 1)
        below = e.add(e.sub(self._row_of(part.low), part.start), height)
        step = e.select(cold, e.mul(height, self.shape.word_nbytes), step)
        start = e.select(cold, e.element(part.strips, e.mul(below, part.strip_row)), start)
        return _Ahead(start, step, e.mul(part.count, step))

    def _fetches_strips(self, contiguous: IRValue) -> IRValue:
        """Return whether strips of A are fetched ahead, given whether they lie one behind the other."""
        return contiguous

    def _call(self, index: IRValue | int, arguments: Sequence[IRValue]) -> None:
        """Call a function of the tile table."""
        e = self.emitter
        function = e.load("ptr", e.element(self.given["tiles"], index, "i64"))
        e.line(f"call void {function.text}({', '.join(a.typed for a in arguments)})")

    def _row_of(self, tile: IRValue) -> IRValue:
        """Return the first row of a tile: the first ``extra`` tiles have a row more than the others."""
        e = self.emitter
        return e.add(e.mul(tile, self.base), e.minimum(tile, self.extra))

    def _height_of(self, tile: IRValue) -> IRValue:
        e = self.emitter
        more = e.compare("slt", tile, self.extra)
        return e.add(self.base, e.assign("i64", f"zext {more.typed} to i64"))

    def _padded(self, count: IRValue) -> IRValue:
        e, lanes = self.emitter, self.shape.lanes
        return e.mul(e.udiv(e.add(count, lanes - 1), lanes), lanes)

    def _batch_indices(self, entry: IRValue) -> list[IRValue]:
        e = self.emitter
        indices = []
        for i in reversed(range(BATCH_DIMS)):
            size = e.argument(e.parameter("args"), ARGUMENTS.batch + i)
            indices.append(e.urem(entry, size))
            entry = e.udiv(entry, size)
        return indices[::-1]

    def _batch_pointer(self, name: str) -> IRValue:
        e = self.emitter
        pointer = self.given[name]
        for i, index in enumerate(self.index):
            stride = e.argument(e.parameter("args"), getattr(ARGUMENTS, f"{name}_batch") + i)
            pointer = e.element(pointer, e.mul(index, stride))
        return pointer
