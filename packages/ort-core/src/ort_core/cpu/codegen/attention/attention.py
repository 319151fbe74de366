"""Attention: ``softmax(scale Q K' + mask) V`` with a streaming softmax; the matrix of scores is never stored.

For each batch entry and key head: keys and values are packed a block at a time (keys of few queries, and values of
whole panels if one tile alone reads them, are read where they are); each tile of query rows takes its
scores with the block, turns them into weights relative to the greatest score so far, and adds its share of the values:

    m' = max(m, max(s))    w = 2**(s - m')    c = 2**(m - m')    l = c l + sum(w)    O = c O + w V

and at the end ``O / l``. Scores are kept in units of log 2, so that weights are powers of two. A row that may see no
key at all gives zeros, or no numbers where the operator wants that of scores that are all minus infinity. Query heads
that share a key head are tiles of one entry: keys are packed once for all of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields

from ort_core.cpu.codegen.attention.attention_rows import LOG2_E, RowFacts, RowsEmitter, ScoreMask
from ort_core.cpu.codegen.attention.few_queries import FEW_QUERIES, KEY_SCORES, key_scores
from ort_core.cpu.codegen.attention.stored_rows import Scales, widen_row
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, module_text
from ort_core.cpu.codegen.llvm_ir.scalar_printer import STORED
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, share
from ort_core.cpu.codegen.products.microkernel import TileShape, tile_shape
from ort_core.plugin.ir import DataType, KnownDim

KEYS = 256  # about so many per block: a tile of scores stays in the first-level cache, packed operands in the second
_LINE = 16  # floats in a cache line
_BYTES = 4  # of a float


@dataclass(frozen=True, slots=True)
class AttentionArguments:
    """The argument table: each field is the position of an i64. Strides count elements; last axes are dense.

    ``offset`` is the position of the first query among the keys, for causal attention. ``lengths`` points to one
    integer for each batch entry: how many keys count; with it the offset is that number less the queries, and not
    read. ``mask`` has the strides (batch, head, query, key) from ``mask_batch`` on; 0 repeats. ``rows`` is
    ``group * queries``, which the scratch was sized for (``scratch_count``). ``tiles`` is ``microkernel.tile_table``.
    ``key_scale`` and ``value_scale`` are read where keys and values are stored as integers: one scale, or those of each
    head's elements, ``key_scale_head`` floats from one head to the next. ``scale`` is ``AttentionFacts.scale_word``.
    """

    query: int = 0
    key: int = 1
    value: int = 2
    out: int = 3
    mask: int = 4
    lengths: int = 5
    error: int = 6
    scratch: int = 7
    scratch_stride: int = 8
    tiles: int = 9
    batch: int = 10
    key_heads: int = 11
    group: int = 12
    queries: int = 13
    keys: int = 14
    depth: int = 15
    width: int = 16
    offset: int = 17
    query_batch: int = 18
    query_head: int = 19
    query_row: int = 20
    key_batch: int = 21
    key_head: int = 22
    key_row: int = 23
    value_batch: int = 24
    value_head: int = 25
    value_row: int = 26
    out_batch: int = 27
    out_head: int = 28
    out_row: int = 29
    mask_batch: int = 30
    mask_head: int = 31
    mask_row: int = 32
    mask_key: int = 33
    key_scale: int = 34
    value_scale: int = 35
    key_scale_head: int = 36
    value_scale_head: int = 37
    scale: int = 38
    count: int = 39


ARGUMENTS = AttentionArguments()
_POINTERS = frozenset(
    {"query", "key", "value", "out", "mask", "lengths", "error", "scratch", "tiles", "key_scale", "value_scale"}
)


@dataclass(frozen=True, slots=True)
class AttentionFacts:
    """What an attention is; all but the scale is in its code.

    ``window`` is how many keys up to its own a query may see (0: all), only with ``is_causal``. ``lengths_bits`` is the
    size of the integers in ``lengths`` (0: there are none), to which ``lengths_rest`` is added; with
    ``lengths_cover_queries`` a length below the number of queries leaves the first query at the first key: the queries
    behind the length are padding, and see the keys that count. ``is_hidden_nan``: a query whose scores are all minus
    infinity gets no numbers in place of zeros; without any key it gets zeros still. ``stored`` is the type of keys and
    values in memory, which are widened a block at a time, ``scales`` what its integers are multiplied by.
    """

    scale: float
    mask: ScoreMask = ScoreMask.NONE
    mask_is_dense: bool = True
    is_causal: bool = False
    window: int = 0
    softcap: float = 0.0
    lengths_bits: int = 0
    lengths_rest: int = 0
    lengths_cover_queries: bool = False
    is_hidden_nan: bool = False
    stored: DataType = DataType.FLOAT
    scales: Scales = Scales.NONE
    may_be_few: bool = True

    @property
    def is_in_log2(self) -> bool:
        """Whether scores are kept in units of log 2. Not with an addend: the lowest float would become infinite."""
        return self.mask is not ScoreMask.ADDED

    @property
    def scale_word(self) -> int:
        """The bits of the float32 that queries are multiplied by, for the argument table."""
        factor = self.scale * LOG2_E if self.is_in_log2 and not self.softcap else self.scale
        (word,) = struct.unpack("<I", struct.pack("<f", factor))
        return int(word)


def keys_per_block(shape: TileShape) -> int:
    """Return the number of keys in a block: whole panels."""
    return KEYS // shape.columns * shape.columns


def scratch_count(
    target: Target, rows: KnownDim, depth: KnownDim, width: KnownDim, stored: DataType = DataType.FLOAT
) -> KnownDim:
    """Return how many floats of scratch each thread needs; rows are ``group * queries``."""
    return shaped_scratch_count(tile_shape(target), rows, depth, width, stored)


def shaped_scratch_count(
    shape: TileShape, rows: KnownDim, depth: KnownDim, width: KnownDim, stored: DataType
) -> KnownDim:
    """Return the same for tiles of a shape."""
    columns = width + shape.columns  # at least the width rounded up to whole panels
    keys = keys_per_block(shape)
    fixed = keys * depth + keys * columns + shape.rows * keys + shape.rows * depth
    widened: KnownDim = 0 if stored is DataType.FLOAT else keys * (depth + width) + 2 * _LINE
    return fixed + widened + rows * columns + 2 * rows + 5 * _LINE


def attention_text(name: str, target: Target, facts: AttentionFacts) -> str:
    """Return the module of one attention, a step kernel with the parameters of every kernel."""
    driver = AttentionDriver(name, tile_shape(target), facts).emit()
    return module_text([driver, key_scores(target.lanes)] if facts.may_be_few else [driver])


class AttentionDriver:
    """Emits the kernel: a thread's tiles, entry by entry, block by block."""

    def __init__(self, name: str, shape: TileShape, facts: AttentionFacts) -> None:
        self.shape, self.facts, self.block = shape, facts, keys_per_block(shape)
        self.is_widened = facts.stored is not DataType.FLOAT
        self.emitter = Emitter(name, KERNEL_PARAMETERS)
        args = self.emitter.parameter("args")
        self.given = {
            f.name: self.emitter.argument(args, getattr(ARGUMENTS, f.name), "ptr" if f.name in _POINTERS else "i64")
            for f in fields(AttentionArguments)
            if f.name != "count"
        }

    def emit(self) -> Emitter:
        """Return the kernel."""
        e, given = self.emitter, self.given
        self.is_few = self._has_few_queries()
        self._fold_heads_into_rows()
        self.heights = e.udiv(e.add(self.queries, self.shape.rows - 1), self.shape.rows)
        divisor = e.maximum(self.heights, 1)
        self.base, self.extra = e.udiv(self.queries, divisor), e.urem(self.queries, divisor)
        self.panels = e.udiv(e.add(given["width"], self.shape.columns - 1), self.shape.columns)
        self.columns = e.mul(self.panels, self.shape.columns)
        is_whole = e.compare("eq", self.columns, given["width"])
        one = e.compare("eq", e.mul(self.group, self.heights), 1)
        self.reads_in_place = e.binary("and", is_whole, e.binary("or", one, self.is_few))
        self._lay_out_scratch()
        each = e.mul(self.group, self.heights)
        entries = e.mul(given["batch"], given["key_heads"])
        low, high = share(e, e.mul(entries, each))
        with e.when(e.compare("slt", low, high)), self._working():
            first, stop = e.udiv(low, each), e.add(e.udiv(e.sub(high, 1), each), 1)
            with e.loop(first, stop, unroll=False, hint="entry") as entry:
                before = e.mul(entry, each)
                self._entry(entry, e.maximum(e.sub(low, before), 0), e.minimum(e.sub(high, before), each))
        return e

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Emit the body, which computes this piece's tiles, between what must come before and behind it."""
        yield

    def _has_few_queries(self) -> IRValue:
        """Return whether keys are read where they are."""
        e, given = self.emitter, self.given
        if not self._may_be_few():
            return IRValue("i1", "false")
        return e.compare("sle", e.mul(given["group"], given["queries"]), FEW_QUERIES)

    def _may_be_few(self) -> bool:
        """Return whether there is code for few queries."""
        return self.facts.may_be_few

    def _fold_heads_into_rows(self) -> None:
        """Make the query heads of a key head the rows of one tile where there is a single query: while decoding."""
        e, given = self.emitter, self.given
        folded = e.compare("eq", given["queries"], 1)
        self.queries = e.select(folded, given["group"], given["queries"])
        self.group = e.select(folded, integer(1), given["group"])
        self.rows = {n: e.select(folded, given[f"{n}_head"], given[f"{n}_row"]) for n in ("query", "out", "mask")}
        self.advance = e.select(folded, integer(0), integer(1))  # how far a row is behind the one above it

    def _lay_out_scratch(self) -> None:
        e, given, shape = self.emitter, self.given, self.shape
        mine = e.element(given["scratch"], e.mul(e.parameter("thread"), given["scratch_stride"]), "i8")
        self.key_row, self.value_row = given["key_row"], given["value_row"]
        if self.is_widened:
            self.key_row, self.value_row = given["depth"], given["width"]
            self.wide_keys = mine
            self.wide_values = e.element(mine, self._lines(e.mul(given["depth"], self.block)))
            mine = e.element(self.wide_values, self._lines(e.mul(given["width"], self.block)))
        self.keys = mine
        self.values = e.element(self.keys, self._lines(e.mul(given["depth"], self.block)))
        self.scores = e.element(self.values, e.mul(self.columns, self.block))
        self.strip = e.element(self.scores, shape.rows * self.block)
        self.sums = e.element(self.strip, self._lines(e.mul(given["depth"], shape.rows)))
        rows = self._rows_held()
        self.peaks = e.element(self.sums, e.mul(rows, self.columns))
        self.totals = e.element(self.peaks, rows)

    def _rows_held(self) -> IRValue:
        """Return how many rows of queries have sums at once."""
        return self.emitter.mul(self.group, self.queries)

    def _lines(self, count: IRValue) -> IRValue:
        """Round a number of floats up to whole cache lines."""
        e = self.emitter
        return e.mul(e.udiv(e.add(count, _LINE - 1), _LINE), _LINE)

    def _entry(self, entry: IRValue, low: IRValue, high: IRValue) -> None:
        """Emit the tiles ``low`` to ``high`` of one batch entry and key head."""
        e, given = self.emitter, self.given
        self.batch = e.udiv(entry, given["key_heads"])
        self.key_head = e.urem(entry, given["key_heads"])
        self.first_local = self._local(low)
        self._read_length()
        key, value = (self._place(name, self.key_head, STORED[self.facts.stored]) for name in ("key", "value"))
        stop = e.maximum(self.length, 1)  # once at least: rows that see no key need their zeros
        self.next_key = self._next_key(entry)
        with e.loop(0, stop, self.block, unroll=False, hint="block") as block:
            count = e.maximum(e.minimum(e.sub(self.length, block), self.block), 0)
            self.block_keys, self.block_values = (
                self._floats(name, rows, block, count) for name, rows in (("key", key), ("value", value))
            )
            self.is_last = e.compare("sge", e.add(block, self.block), self.length)
            with e.when(e.binary("xor", self.is_few, IRValue("i1", "true"))):
                self._pack(self.keys, self.block_keys, count)
            with e.when(e.binary("xor", self.reads_in_place, IRValue("i1", "true"))):
                self._pack_values(self.block_values, count)
            with e.loop(low, high, unroll=False, hint="tile") as tile:
                self._tile(tile, block, count)
        with e.loop(low, high, unroll=False, hint="tile") as tile:
            self._finish(tile)

    def _next_key(self, entry: IRValue) -> IRValue:
        """Return where the keys of the entry behind this one start; of the last one its own."""
        e, given = self.emitter, self.given
        behind = e.minimum(e.add(entry, 1), e.sub(e.mul(given["batch"], given["key_heads"]), 1))
        batch, head = e.udiv(behind, given["key_heads"]), e.urem(behind, given["key_heads"])
        offset = e.add(e.mul(batch, given["key_batch"]), e.mul(head, given["key_head"]))
        return e.element(given["key"], offset, STORED[self.facts.stored])

    def _floats(self, name: str, rows: IRValue, block: IRValue, count: IRValue) -> IRValue:
        """Return where the rows of a block start, as floats: widened first if they are stored otherwise."""
        e, given, facts = self.emitter, self.given, self.facts
        stored, row = STORED[facts.stored], given[f"{name}_row"]
        start = e.element(rows, e.mul(block, row), stored)
        if not self.is_widened:
            return start
        to, length = (self.wide_keys, given["depth"]) if name == "key" else (self.wide_values, given["width"])
        scale = e.element(given[f"{name}_scale"], e.mul(self.key_head, given[f"{name}_scale_head"]))
        with e.loop(0, count, unroll=False, hint="key") as key:
            source, target = e.element(start, e.mul(key, row), stored), e.element(to, e.mul(key, length))
            widen_row(e, self.shape.lanes, facts.stored, facts.scales, source, scale, target, length)
        return to

    def _read_length(self) -> None:
        """Set how many keys count in this batch entry, and where its first query stands among them."""
        e, given, bits = self.emitter, self.given, self.facts.lengths_bits
        self.length, self.offset = given["keys"], given["offset"]
        if not bits:
            return
        found = e.load(f"i{bits}", e.element(given["lengths"], self.batch, f"i{bits}"))
        length = found if bits == 64 else e.assign("i64", f"sext {found.typed} to i64")
        length = e.add(length, self.facts.lengths_rest)
        inside = e.compare("ule", length, given["keys"])  # unsigned: a negative length is huge
        with e.when(e.binary("xor", inside, IRValue("i1", "true"))):
            e.store(integer(1), given["error"], 8)
        self.length = covered = e.select(inside, length, integer(0))
        if self.facts.lengths_cover_queries:
            covered = e.minimum(e.maximum(self.length, given["queries"]), given["keys"])
        self.offset = e.sub(covered, given["queries"])

    def _place(self, name: str, head: IRValue, type_: str = "float") -> IRValue:
        """Return where the rows of a head of this batch entry start, of an array of ``type_``."""
        e, given = self.emitter, self.given
        offset = e.add(e.mul(self.batch, given[f"{name}_batch"]), e.mul(head, given[f"{name}_head"]))
        return e.element(given[name], offset, type_)

    def _pack(self, to: IRValue, source: IRValue, count: IRValue) -> None:
        """Copy a block of keys into panels, each a column a key: ``panel[d, key]``."""
        e, given, columns = self.emitter, self.given, self.shape.columns
        with e.loop(0, count, columns, unroll=False, hint="panel") as first:
            panel = e.element(to, e.mul(first, given["depth"]))
            here = e.element(source, e.mul(first, self.key_row))
            width = e.minimum(e.sub(count, first), columns)
            stride = integer(columns)
            self._call(0, [panel, stride, here, integer(1), self.key_row, given["depth"], width, stride])

    def _pack_values(self, source: IRValue, count: IRValue) -> None:
        """Copy a block of values into panels of columns."""
        e, given, columns = self.emitter, self.given, self.shape.columns
        with e.loop(0, self.panels, unroll=False, hint="panel") as number:
            first = e.mul(number, columns)
            panel = e.element(self.values, e.mul(first, self.block))
            width = e.minimum(e.sub(given["width"], first), columns)
            stride, row = integer(columns), self.value_row
            self._call(0, [panel, stride, e.element(source, first), row, integer(1), count, width, stride])

    def _tile(self, tile: IRValue, block: IRValue, count: IRValue) -> None:
        """Emit one tile of queries over one block of keys."""
        e = self.emitter
        head, row, height = self._rows_of(tile)
        seen = self._seen_by(e.add(row, e.sub(height, 1)), block, count)
        is_first = self._is_first(block)
        with e.when(e.binary("or", is_first, e.compare("sgt", seen, 0))):
            self._scores(head, row, height, seen)
            local = e.sub(self._local(tile), self.first_local)
            rows = self._row_facts(head, row, height, block, count, seen, local, is_first)
            RowsEmitter(e, self.shape.lanes, rows).emit()
            self._weighted_values(height, block, seen, local, is_first)

    def _is_first(self, block: IRValue) -> IRValue:
        """Return whether nothing was summed up before this block."""
        return self.emitter.compare("eq", block, 0)

    def _scores(self, head: IRValue, row: IRValue, height: IRValue, seen: IRValue) -> None:
        """Emit the products of a tile of queries, scaled, with the keys of the block."""
        e, given = self.emitter, self.given
        self._copy_queries(head, row, height)
        depth = given["depth"]
        if self._may_be_few():
            with e.when(self.is_few):
                keys = (self.block_keys, self.key_row, seen, depth)
                size = e.select(self.is_last, e.mul(given["width"], _BYTES), integer(0))
                values = (self.block_values, e.mul(self.value_row, _BYTES), size)
                e.call_void(KEY_SCORES, height, self.strip, depth, *keys, self.scores, integer(self.block), *values)
        self._packed_scores(height, e.select(self.is_few, integer(0), seen))

    def _packed_scores(self, height: IRValue, seen: IRValue) -> None:
        """Emit the products of the strip of queries with packed keys; of none where there are few queries."""
        e, depth, columns = self.emitter, self.given["depth"], self.shape.columns
        with e.loop(0, seen, columns, unroll=False, hint="panel") as first:
            panel = e.element(self.keys, e.mul(first, depth))
            to = e.element(self.scores, first)
            none = [integer(1), panel, integer(0)]
            self._call(height, [depth, self.strip, depth, panel, integer(columns), to, integer(self.block), *none])

    def _copy_queries(self, head: IRValue, row: IRValue, height: IRValue) -> None:
        e, depth = self.emitter, self.given["depth"]
        start = e.element(self._place("query", self._query_head(head)), e.mul(row, self.rows["query"]))
        RowsEmitter.copy_scaled(
            e, self.shape.lanes, start, self.rows["query"], self.strip, depth, height, self._scale()
        )

    def _scale(self) -> IRValue:
        e = self.emitter
        word = e.assign("i32", f"trunc {self.given['scale'].typed} to i32")
        return e.assign("float", f"bitcast {word.typed} to float")

    def _weighted_values(
        self, height: IRValue, block: IRValue, seen: IRValue, local: IRValue, is_first: IRValue
    ) -> None:
        """Emit the products of the weights with the values of the block, added to the sums."""
        e, columns = self.emitter, self.shape.columns
        fresh = e.assign("i64", f"zext {is_first.typed} to i64")
        sums = e.element(self.sums, e.mul(local, self.columns))
        row = e.select(self.reads_in_place, self.value_row, integer(columns))
        with e.loop(0, self.panels, unroll=False, hint="panel") as number:
            first = e.mul(number, columns)
            packed = e.element(self.values, e.mul(first, self.block))
            panel = e.select(self.reads_in_place, e.element(self.block_values, first), packed)
            to = e.element(sums, first)
            a = (self.scores, integer(self.block))
            ahead, step = panel, integer(0)
            if self.facts.may_be_few and not self.is_widened:
                begins = e.binary("and", self.is_few, self.is_last)
                ahead = e.select(begins, e.element(self.next_key, first), panel)
                step = e.select(begins, e.mul(self.key_row, _BYTES), integer(0))
            self._call(self._float_tile(height), [seen, *a, panel, row, to, self.columns, fresh, ahead, step])

    def _float_tile(self, height: IRValue) -> IRValue:
        """Return which function of the table multiplies so many rows of float32."""
        return height

    def _row_facts(
        self, head: IRValue, row: IRValue, height: IRValue, block: IRValue, count: IRValue, seen: IRValue,
        local: IRValue, is_first: IRValue,
    ) -> RowFacts:  # fmt: skip
        e, given, facts = self.emitter, self.given, self.facts
        mask = given["mask"]
        if facts.mask is not ScoreMask.NONE:
            mask = self._place("mask", self._query_head(head), facts.mask.stored)
            at = e.add(e.mul(row, self.rows["mask"]), e.mul(block, given["mask_key"]))
            mask = e.element(mask, at, facts.mask.stored)

        def limit(index: IRValue) -> IRValue:
            return self._seen_by(e.add(row, index), block, count)

        def lowest(index: IRValue) -> IRValue | None:
            if not facts.window:
                return None
            own = e.add(self.offset, e.mul(e.add(row, index), self.advance))
            if facts.lengths_cover_queries:
                own = e.minimum(own, e.sub(self.length, 1))  # padding looks from the last key that counts
            return e.sub(e.sub(own, facts.window - 1), block)

        return RowFacts(
            height, seen, self.scores, self.block, self.peaks, self.totals, self.sums, self.columns, local, is_first,
            facts.mask, facts.mask_is_dense, mask, self.rows["mask"], facts.softcap, facts.is_in_log2, limit, lowest,
        )  # fmt: skip

    def _seen_by(self, row: IRValue, block: IRValue, count: IRValue) -> IRValue:
        """Return how many keys of a block a query may see; 0 or less for none."""
        if not self.facts.is_causal:
            return count
        e = self.emitter
        own = e.add(self.offset, e.mul(row, self.advance))
        return e.maximum(e.minimum(e.sub(e.add(own, 1), block), count), 0)

    def _finish(self, tile: IRValue) -> None:
        """Emit the division by the sum of weights, into the result."""
        e, given = self.emitter, self.given
        head, row, height = self._rows_of(tile)
        local = e.sub(self._local(tile), self.first_local)
        out = e.element(self._place("out", self._query_head(head)), e.mul(row, self.rows["out"]))
        sums = e.element(self.sums, e.mul(local, self.columns))
        totals = e.element(self.totals, local)
        replaces = e.compare("eq", given["keys"], 0) if self.facts.is_hidden_nan else IRValue("i1", "true")
        RowsEmitter.divide(
            e, self.shape.lanes, sums, self.columns, totals, out, self.rows["out"], given["width"], height, replaces
        )

    def _rows_of(self, tile: IRValue) -> tuple[IRValue, IRValue, IRValue]:
        """Return the query head of a tile within its group, its first row and its height."""
        e = self.emitter
        head, number = e.udiv(tile, self.heights), e.urem(tile, self.heights)
        row = e.add(e.mul(number, self.base), e.minimum(number, self.extra))
        more = e.compare("slt", number, self.extra)
        return head, row, e.add(self.base, e.assign("i64", f"zext {more.typed} to i64"))

    def _local(self, tile: IRValue) -> IRValue:
        """Return the number, within the group, of a tile's first row."""
        e = self.emitter
        head, row, _ = self._rows_of(tile)
        return e.add(e.mul(head, self.queries), row)

    def _query_head(self, head: IRValue) -> IRValue:
        return self.emitter.add(self.emitter.mul(self.key_head, self.given["group"]), head)

    def _call(self, index: IRValue | int, arguments: Sequence[IRValue]) -> None:
        """Call a function of the tile table."""
        e = self.emitter
        function = e.load("ptr", e.element(self.given["tiles"], index, "i64"))
        e.line(f"call void {function.text}({', '.join(a.typed for a in arguments)})")
