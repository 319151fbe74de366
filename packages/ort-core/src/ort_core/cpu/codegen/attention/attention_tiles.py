"""Attention whose two products are of bfloat16 pairs in registers of tiles (AMX).

Keys and values of a head are packed once, as many as half of the second-level cache holds. Then each tile of 32 queries
goes through them, a chunk at a time. Vectors and tiles hardly work at the same time: to turn one chunk into weights
while tiles multiply the next one gained nothing, and chunks of few keys, whose scores stay near, gained most.

Few queries, as while decoding, read keys and values in float32 where they are: to round and pack a cache takes longer
than to multiply with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ort_core.cpu.codegen.attention.attention import (
    ARGUMENTS,
    AttentionDriver,
    AttentionFacts,
    shaped_scratch_count,
)
from ort_core.cpu.codegen.attention.attention_rows import RowsEmitter
from ort_core.cpu.codegen.attention.few_queries import FEW_QUERIES, key_scores
from ort_core.cpu.codegen.attention.tile_products import PANEL, STRIP, TILE_ROWS, panel_product
from ort_core.cpu.codegen.attention.tile_weights import CHUNK, CHUNK_PANELS, SCORES, RowState, TileWeights
from ort_core.cpu.codegen.llvm_ir import matrix_tiles
from ort_core.cpu.codegen.llvm_ir.bfloat16_lanes import rounded_row
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, module_text
from ort_core.cpu.codegen.llvm_ir.matrix_tiles import LINE_NBYTES, ROWS
from ort_core.cpu.codegen.llvm_ir.scalar_printer import STORED
from ort_core.cpu.codegen.llvm_ir.vectors import lane_mask, load_vector, prefetch, shuffle
from ort_core.cpu.codegen.machine_code.code_table import CodeTable, code_table
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS
from ort_core.cpu.codegen.products import bfloat16_tiles
from ort_core.cpu.codegen.products.bfloat16_product import ROUND_BLOCK, round_block
from ort_core.cpu.codegen.products.bfloat16_tiles import PAIR
from ort_core.cpu.codegen.products.microkernel import TileShape, tile, tile_name, tile_shape
from ort_core.cpu.codegen.products.packing import COPY_BLOCK, copy_block
from ort_core.plugin.ir import DataType, KnownDim

_LARGE_HEAD = 512  # numbers of a key and its value that half of the second-level cache is divided for
_NUMBER_NBYTES, _FLOAT_NBYTES = 2, 4
_LINE = 16  # floats in a cache line
_ROUND_BLOCK = 1 + FEW_QUERIES  # in the table, behind the copy and tiles of few rows


def tile_attention_text(name: str, target: Target, facts: AttentionFacts) -> str:
    """Return the module of one attention in tiles; ``tiles`` is the address of ``attention_tile_table``."""
    if not facts.may_be_few:
        return module_text([TileDriver(name, target, facts).emit()])
    few, many = f"{name}_few", f"{name}_many"
    drivers = [FewDriver(few, _few_shape(target), facts).emit(), TileDriver(many, target, facts).emit()]
    return module_text([*drivers, key_scores(target.lanes), _choice(name, few, many)])


def _choice(name: str, few: str, many: str) -> Emitter:
    """Return the kernel that runs one of two, by the number of queries of a key head."""
    e = Emitter(name, KERNEL_PARAMETERS)
    args = e.parameter("args")
    rows = e.mul(e.argument(args, ARGUMENTS.group), e.argument(args, ARGUMENTS.queries))
    given = [e.parameter(parameter) for _, parameter in KERNEL_PARAMETERS]
    with e.either(e.compare("sle", rows, FEW_QUERIES)) as branch:
        e.call_void(few, *given)
        with branch.otherwise():
            e.call_void(many, *given)
    return e


def _few_shape(target: Target) -> TileShape:
    return TileShape(FEW_QUERIES, tile_shape(target).vectors, target.lanes)


def keys_packed(target: Target) -> int:
    """Return how many keys are packed at once: whole chunks."""
    fitting = target.second_level_nbytes // 2 // (_LARGE_HEAD * _NUMBER_NBYTES)
    return max(fitting // CHUNK, 1) * CHUNK


def tile_scratch_count(
    target: Target, rows: KnownDim, depth: KnownDim, width: KnownDim, stored: DataType = DataType.FLOAT
) -> KnownDim:
    """Return how many floats of scratch each thread needs; rows are ``group * queries``."""
    depth_words, columns = depth + PANEL, width + PANEL  # twice the words of a row at least, and whole panels
    packed = keys_packed(target) // PAIR * (depth_words + columns)
    strips = TILE_ROWS * (depth_words + CHUNK + CHUNK // PAIR + ROWS)
    widened: KnownDim = 0 if stored is DataType.FLOAT else PANEL * (depth + width)
    many = packed + strips + widened + rows * (columns + ROWS + 2) + 8 * _LINE
    return many + shaped_scratch_count(_few_shape(target), FEW_QUERIES, depth, width, stored)


def attention_tiles_text(target: Target) -> str:
    """Return the module with what ``attention_tile_table`` names."""
    few = (tile(tile_shape(target), rows) for rows in range(1, FEW_QUERIES + 1))
    return module_text([copy_block(target), *few, round_block(target.lanes)])


def attention_tile_table(module: CompiledModule) -> CodeTable:
    """Return addresses: the block copy, tiles of few rows of float32, the rounding of a block."""
    return code_table(module, [COPY_BLOCK, *map(tile_name, range(1, FEW_QUERIES + 1)), ROUND_BLOCK])


class FewDriver(AttentionDriver):
    """Emits the kernel for few queries: that of float32."""

    def _has_few_queries(self) -> IRValue:
        return IRValue("i1", "true")


class TileDriver(AttentionDriver):
    """Emits the kernel for more queries."""

    def __init__(self, name: str, target: Target, facts: AttentionFacts) -> None:
        super().__init__(name, bfloat16_tiles.SHAPE, facts)
        self.block = keys_packed(target)
        self.stored_nbytes = facts.stored.bits // 8

    def _may_be_few(self) -> bool:
        return False

    @contextmanager
    def _working(self) -> Iterator[None]:
        rows = bfloat16_tiles.tile_rows(self.queries, self.emitter)
        with matrix_tiles.configured(self.emitter, bfloat16_tiles.shapes(rows)):
            yield

    def _lay_out_scratch(self) -> None:
        e, given = self.emitter, self.given
        self.words = self._lines(e.udiv(e.add(given["depth"], PAIR - 1), PAIR))
        self.key_row, self.value_row = given["key_row"], given["value_row"]
        rows = self._rows_held()
        self._free = e.element(given["scratch"], e.mul(e.parameter("thread"), given["scratch_stride"]), "i8")
        self.keys = self._taken(e.mul(self.words, self.block))
        self.values = self._taken(e.mul(self.columns, self.block // PAIR))
        self.strip = self._taken(e.mul(self.words, TILE_ROWS))
        self.rounded = self._taken(e.mul(self.words, PANEL))
        self.scores = self._taken(integer(CHUNK_PANELS * SCORES))
        self.weights = self._taken(integer(CHUNK_PANELS * STRIP))
        if self.is_widened:
            self.key_row, self.value_row = given["depth"], given["width"]
            self.wide_keys, self.wide_values = (self._taken(e.mul(given[n], PANEL)) for n in ("depth", "width"))
        self.held_sums = self._taken(e.mul(rows, self.columns))
        self.held_totals = self._taken(e.mul(rows, ROWS))
        self.fresh_totals = self._taken(integer(TILE_ROWS * ROWS))
        self.held_shifts, self.held_bounds = self._taken(rows), self._taken(rows)
        self.peaks = self.totals = self.sums = self.scores  # of another layout: nobody reads them

    def _taken(self, count: IRValue) -> IRValue:
        """Return where so many floats of scratch begin."""
        place = self._free
        self._free = self.emitter.element(place, self._lines(count))
        return place

    def _entry(self, entry: IRValue, low: IRValue, high: IRValue) -> None:
        e, given = self.emitter, self.given
        self.batch = e.udiv(entry, given["key_heads"])
        self.key_head = e.urem(entry, given["key_heads"])
        self.first_local = self._local(low)
        self._read_length()
        self.is_alone = e.compare("sle", self.length, self.block)
        stored = STORED[self.facts.stored]
        key, value = (self._place(name, self.key_head, stored) for name in ("key", "value"))
        stop = e.maximum(self.length, 1)  # once at least: rows that see no key need their zeros
        with e.loop(0, stop, self.block, unroll=False, hint="block") as block:
            count = e.maximum(e.minimum(e.sub(self.length, block), self.block), 0)
            self.is_last = e.compare("sge", e.add(block, self.block), self.length)
            self._pack_block(key, value, block, count)
            with e.loop(low, high, unroll=False, hint="tile") as tile:
                self._tile(tile, block, count)

    # packing ----------------------------------------------------------------------------------------------------------

    def _pack_block(self, key: IRValue, value: IRValue, block: IRValue, count: IRValue) -> None:
        """Round and pack keys and values, a panel of keys at a time."""
        e = self.emitter
        with e.loop(0, count, PANEL, unroll=False, hint="first") as first:
            present = e.minimum(e.sub(count, first), PANEL)
            at, coming = e.add(block, first), e.maximum(e.minimum(e.sub(e.sub(count, first), PANEL), PANEL), 0)
            for name, rows, size in (("key", key, "depth"), ("value", value, "width")):
                row = e.mul(self.given[f"{name}_row"], self.stored_nbytes)
                behind = e.element(rows, e.mul(e.add(at, PANEL), row), "i8")
                self._fetch(behind, row, coming, e.mul(self.given[size], self.stored_nbytes))
            self._pack_keys(first, present, self._floats("key", key, at, present))
            source = self._floats("value", value, at, present)
            with e.loop(0, self.panels, unroll=False, hint="panel") as number:
                column = e.mul(number, PANEL)
                offset = e.mul(e.udiv(first, PAIR), PANEL)
                to = e.element(self.values, e.add(e.mul(column, self.block // PAIR), offset))
                self._pack_values_of(to, e.element(source, column), present, e.sub(self.given["width"], column))

    def _fetch(self, start: IRValue, row: IRValue, rows: IRValue, nbytes: IRValue, *, write: bool = False) -> None:
        """Ask for rows to come: they lie apart, so that the processor does not foresee them. ``row`` is in bytes."""
        e = self.emitter
        with (
            e.loop(0, rows, unroll=False, hint="row") as number,
            e.loop(0, nbytes, LINE_NBYTES, unroll=False, hint="line") as line,
        ):
            prefetch(e, e.element(start, e.add(e.mul(number, row), line), "i8"), write=write, level=2)

    def _pack_keys(self, first: IRValue, present: IRValue, source: IRValue) -> None:
        e, depth, words = self.emitter, self.given["depth"], self.words
        self._call(_ROUND_BLOCK, [self.rounded, words, source, self.key_row, present, depth, words])
        panel, stride = e.element(self.keys, e.mul(first, words)), integer(PANEL)
        self._call(0, [panel, stride, self.rounded, integer(1), words, words, present, stride])

    def _pack_values_of(self, to: IRValue, source: IRValue, present: IRValue, left: IRValue) -> None:
        """Round 32 values of up to 32 columns to words of two keys; what is not there are zeros."""
        e = self.emitter
        is_whole = e.binary("and", e.compare("eq", present, PANEL), e.compare("sge", left, PANEL))
        with e.either(is_whole) as branch:
            self._pack_pairs(to, source, None)
            with branch.otherwise():
                self._pack_pairs(to, source, (present, left))

    def _pack_pairs(self, to: IRValue, source: IRValue, there: tuple[IRValue, IRValue] | None) -> None:
        e = self.emitter
        joined = [lane // 2 + lane % 2 * ROWS for lane in range(2 * ROWS)]
        with e.loop(0, integer(ROWS), unroll=False, hint="pair") as pair:
            for start in range(0, PANEL, ROWS):
                halves = []
                for odd in range(PAIR):
                    key = e.add(e.mul(pair, PAIR), odd)
                    place, mask = e.element(e.element(source, e.mul(key, self.value_row)), start), None
                    if there is not None:
                        present, left = there
                        lanes = e.select(e.compare("slt", key, present), e.sub(left, start), integer(0))
                        mask = lane_mask(e, lanes, ROWS)
                    halves.append(load_vector(e, place, ROWS, mask))
                both = rounded_row(e, *halves)
                words = shuffle(e, both, both, joined)
                e.store(words, e.element(e.element(to, e.mul(pair, PANEL)), start), 4)

    # tiles ------------------------------------------------------------------------------------------------------------

    def _tile(self, tile: IRValue, block: IRValue, count: IRValue) -> None:
        e = self.emitter
        head, row, height = self._rows_of(tile)
        local = e.select(self.is_alone, integer(0), e.sub(self._local(tile), self.first_local))
        state = RowState(
            e.element(self.held_shifts, local), e.element(self.held_bounds, local),
            e.element(self.held_totals, e.mul(local, ROWS)), self.fresh_totals,
            e.element(self.held_sums, e.mul(local, self.columns)), self.columns,
        )  # fmt: skip
        with e.when(e.compare("eq", block, 0)):
            state.clear(e, height)
        seen = self._seen_by(e.add(row, e.sub(height, 1)), block, count)
        with e.when(e.compare("sgt", seen, 0)):
            self._fetch_ahead(head, row, height, tile)
            self._round_queries(head, row, height)
            rows = self._row_facts(head, row, height, block, count, seen, local, self.is_last)
            self._stream(height, seen, TileWeights(e, rows, state, self.scores, self.weights), state)
        with e.when(self.is_last):
            self._divide(head, row, height, state)

    def _fetch_ahead(self, head: IRValue, row: IRValue, height: IRValue, tile: IRValue) -> None:
        """Ask for the result's rows, and for the queries of the next tile."""
        e, given = self.emitter, self.given
        following, begins, rows = self._rows_of(e.add(tile, 1))
        is_there = e.compare("slt", following, self.group)
        for name, at, first, count, size in (
            ("out", head, row, e.select(self.is_last, height, integer(0)), "width"),
            ("query", following, begins, e.select(is_there, rows, integer(0)), "depth"),
        ):
            step = e.mul(self.rows[name], _FLOAT_NBYTES)
            start = e.element(self._place(name, self._query_head(at)), e.mul(first, step), "i8")
            self._fetch(start, step, count, e.mul(given[size], _FLOAT_NBYTES), write=name == "out")

    def _round_queries(self, head: IRValue, row: IRValue, height: IRValue) -> None:
        """Store the tile's queries, scaled and rounded, as the rows of A."""
        e, depth = self.emitter, self.given["depth"]
        start = e.element(self._place("query", self._query_head(head)), e.mul(row, self.rows["query"]))
        scale = e.splat(self._scale(), ROWS)
        with (
            e.loop(0, height, unroll=False, hint="row") as number,
            e.loop(0, self.words, ROWS, unroll=False, hint="word") as word,
        ):
            source = e.element(e.element(start, e.mul(number, self.rows["query"])), e.mul(word, PAIR))
            left = e.sub(depth, e.mul(word, PAIR))
            halves = []
            for i in range(PAIR):
                mask = lane_mask(e, e.sub(left, i * ROWS), ROWS)
                value = load_vector(e, e.element(source, i * ROWS), ROWS, mask)
                halves.append(e.binary("fmul", value, scale))
            place = e.element(self.strip, e.add(e.mul(word, TILE_ROWS), e.mul(number, ROWS)))
            e.store(rounded_row(e, *halves), place, 4)

    def _stream(self, height: IRValue, seen: IRValue, weights: TileWeights, state: RowState) -> None:
        """Emit a tile's way through the keys of a block."""
        e = self.emitter
        unseen, parity = e.variable("i1", IRValue("i1", "true")), e.variable("i64", integer(0), "parity")
        with e.loop(0, seen, CHUNK, unroll=False, hint="chunk") as chunk:
            panels, odd = self._panels_from(chunk, seen), e.load("i64", parity)
            with e.loop(0, panels, unroll=False, hint="panel") as panel:
                self._scores_of(height, chunk, panel)
            weights.mask(chunk, panels)
            with e.when(e.load("i1", unseen)):
                e.store(weights.raise_shifts(panels, weights.totals(odd)), unseen)
            weights.store(panels, odd)
            self._add_values(height, chunk, panels, state)
            e.store(e.binary("xor", odd, integer(1)), parity)
        weights.settle(e.load("i64", parity))

    def _panels_from(self, chunk: IRValue, seen: IRValue) -> IRValue:
        """Return how many panels of a chunk have keys that are seen."""
        e = self.emitter
        left = e.maximum(e.minimum(e.sub(seen, chunk), CHUNK), 0)
        return e.udiv(e.add(left, PANEL - 1), PANEL)

    def _scores_of(self, height: IRValue, chunk: IRValue, panel: IRValue) -> None:
        e = self.emitter
        keys = e.element(self.keys, e.mul(e.add(chunk, e.mul(panel, PANEL)), self.words))
        to = e.element(self.scores, e.mul(panel, SCORES))
        panel_product(e, height, self.words, self.strip, keys, to, PANEL, adds=False)

    def _add_values(self, height: IRValue, chunk: IRValue, panels: IRValue, state: RowState) -> None:
        e = self.emitter
        words = e.mul(panels, PANEL // PAIR)
        with e.loop(0, self.panels, unroll=False, hint="panel") as number:
            column = e.mul(number, PANEL)
            offset = e.add(e.mul(column, self.block // PAIR), e.mul(e.udiv(chunk, PAIR), PANEL))
            values, sums = e.element(self.values, offset), e.element(state.sums, column)
            panel_product(e, height, words, self.weights, values, sums, self.columns, adds=True)

    def _divide(self, head: IRValue, row: IRValue, height: IRValue, state: RowState) -> None:
        """Store the sums divided by the totals, which take the place of m."""
        e, given = self.emitter, self.given
        with e.loop(0, height, unroll=False, hint="row") as number:
            e.store(state.total(e, number), e.element(state.shifts, number), 4)
        out = e.element(self._place("out", self._query_head(head)), e.mul(row, self.rows["out"]))
        replaces = e.compare("eq", given["keys"], 0) if self.facts.is_hidden_nan else IRValue("i1", "true")
        RowsEmitter.divide(
            e, ROWS, state.sums, self.columns, state.shifts, out, self.rows["out"], given["width"], height, replaces
        )
