"""Attention of packed sequences over caches of blocks: keys and values are found through a table, block by block.

The tiles are those of ``AttentionDriver``. Of a sequence with few queries, while it decodes, floats are read where they
are, a run of rows that lie side by side at once, all key heads before the next turn: a row has those of all heads, and
memory is read in order. Of more queries, and of stored halves or integers, the rows of a turn are gathered as floats
first, once for all query heads of a key head.
Threads share tiles by what they cost: sequences are of any length, a prompt among texts that decode. Long caches that
few rows attend to are cut into parts (``paged_parts``), so that one text keeps more threads busy than it has key heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

from ort_core.cpu.codegen.attention.attention import KEYS, AttentionDriver, AttentionFacts
from ort_core.cpu.codegen.attention.attention_pairs import PairDriver, pair_scratch_count
from ort_core.cpu.codegen.attention.few_queries import FEW_QUERIES, KEY_SCORES, key_scores
from ort_core.cpu.codegen.attention.paged_parts import MergedRows, part_stride
from ort_core.cpu.codegen.attention.paged_places import SEQUENCE
from ort_core.cpu.codegen.attention.stored_rows import widen_row
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, module_text
from ort_core.cpu.codegen.llvm_ir.scalar_printer import STORED
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, share
from ort_core.cpu.codegen.products.microkernel import TileShape, tile_shape
from ort_core.plugin.ir import DataType, KnownDim, ceil_div

_BYTES = 4  # of a float
_LINE = 16  # floats in a cache line
PART = 2 * KEYS  # about so many keys of a long cache are one part


@dataclass(frozen=True, slots=True)
class PagedArguments:
    """The argument table: each field is the position of an i64. Strides count elements; last axes are dense.

    ``sequences`` is what ``paged_places`` writes, ``table`` (sequences, ``table_width``) i32. Rows of the caches are
    ``key_row`` and ``value_row`` elements apart, heads ``key_head`` and ``value_head``. ``tokens`` is what the scratch
    was sized for (``paged_scratch_count``). ``partials`` has what parts give (``partial_counts``), for all threads,
    ``finished`` how many parts of each tile are done, zeros before and behind. The other fields are those of
    ``AttentionArguments``.
    """

    query: int = 0
    key: int = 1
    value: int = 2
    out: int = 3
    sequences: int = 4
    table: int = 5
    scratch: int = 6
    scratch_stride: int = 7
    tiles: int = 8
    batch: int = 9
    key_heads: int = 10
    group: int = 11
    depth: int = 12
    width: int = 13
    block_rows: int = 14
    table_width: int = 15
    query_head: int = 16
    query_row: int = 17
    out_head: int = 18
    out_row: int = 19
    key_row: int = 20
    key_head: int = 21
    value_row: int = 22
    value_head: int = 23
    key_scale: int = 24
    value_scale: int = 25
    key_scale_head: int = 26
    value_scale_head: int = 27
    partials: int = 28
    finished: int = 29
    scale: int = 30
    count: int = 31


ARGUMENTS = PagedArguments()
_POINTERS = frozenset(
    {"query", "key", "value", "out", "sequences", "table", "scratch", "tiles", "key_scale", "value_scale", "partials",
     "finished"}
)  # fmt: skip


def keys_in_rows(shape: TileShape) -> int:
    """Return how far rows of scores are apart: whole panels, and room for a vector behind the last key of a turn."""
    panels = KEYS // shape.columns + 1
    return (panels if panels * shape.columns >= KEYS + shape.lanes else panels + 1) * shape.columns


def paged_scratch_count(
    target: Target, group: int, groups: int, tokens: KnownDim, depth: KnownDim, width: KnownDim
) -> KnownDim:
    """Return how many floats of scratch each thread needs, of groups of query heads."""
    shape = tile_shape(target)
    tiles = groups * -(-FEW_QUERIES // shape.rows)  # of a sequence of few queries
    rows = group * tokens + tiles * FEW_QUERIES
    further = keys_in_rows(shape) - KEYS // shape.columns * shape.columns
    fewer = pair_scratch_count(target, rows, depth, width, DataType.FLOAT16)  # floats that are gathered among them
    return fewer + further * (3 * depth + 2 * width + 2 * shape.columns + 2 * shape.rows + 2 * _LINE)


def partial_counts(
    target: Target, batch: KnownDim, groups: int, group: int, positions: KnownDim, width: KnownDim
) -> tuple[KnownDim, KnownDim]:
    """Return how many floats all parts of tiles give, and how many tiles may have parts, at so many positions."""
    tiles = batch * (groups * max(FEW_QUERIES, group))
    return ceil_div(positions, PART) * tiles * part_stride(width + tile_shape(target).columns), tiles


def paged_attention_text(name: str, target: Target, facts: AttentionFacts, *, in_pairs: bool) -> str:
    """Return the module of one attention, a step kernel; in pairs, ``tiles`` is that of ``attention_pairs``."""
    make = _PagedPairDriver if in_pairs else _PagedDriver
    driver = make(name, tile_shape(target), facts).emit()
    return module_text([driver, key_scores(target.lanes)] if facts.may_be_few else [driver])


class _PagedDriver(AttentionDriver):
    """What differs from an attention over caches that lie in one piece: sequence by sequence, run by run."""

    def __init__(self, name: str, shape: TileShape, facts: AttentionFacts) -> None:
        self.shape, self.facts, self.block = shape, facts, keys_in_rows(shape)
        self.is_widened = True  # rows are gathered, unless they are read where they are
        self.reads_runs = facts.may_be_few and facts.stored is DataType.FLOAT
        self.emitter = Emitter(name, KERNEL_PARAMETERS)
        args = self.emitter.parameter("args")
        self.given = {
            f.name: self.emitter.argument(args, getattr(ARGUMENTS, f.name), "ptr" if f.name in _POINTERS else "i64")
            for f in fields(PagedArguments)
            if f.name != "count"
        }
        self.given |= {"mask": self.given["query"], "mask_head": integer(0), "mask_row": integer(0)}  # there is none
        self.group_of_all = self.given["group"]
        e = self.emitter
        self.most_rows = e.maximum(self.group_of_all, FEW_QUERIES)  # of a key head, that parts are for
        positions = e.mul(self.given["table_width"], self.given["block_rows"])
        self.most_parts = e.udiv(e.add(positions, PART - 1), PART)

    def emit(self) -> Emitter:
        """Return the kernel."""
        e, given = self.emitter, self.given
        self.panels = e.udiv(e.add(given["width"], self.shape.columns - 1), self.shape.columns)
        self.columns = e.mul(self.panels, self.shape.columns)
        self.is_whole = e.compare("eq", self.columns, given["width"])
        total = e.variable("i64", integer(0), "total")
        with e.loop(0, given["batch"], unroll=False, hint="sequence") as number:
            self._begin(number)
            e.store(e.add(e.load("i64", total), e.mul(self.units, self.cost)), total)
        low, high = share(e, e.load("i64", total))
        before = e.variable("i64", integer(0), "before")
        with e.loop(0, given["batch"], unroll=False, hint="sequence") as number:
            self._begin(number)
            own = e.load("i64", before)
            first, stop = (self._unit_from(e.sub(bound, own)) for bound in (low, high))
            with e.when(e.compare("slt", first, stop)):
                self._sequence(first, stop)
            e.store(e.add(own, e.mul(self.units, self.cost)), before)
        return e

    def _begin(self, number: IRValue) -> None:
        """Set what is told of a sequence: its tokens, its length, and how many units of which cost it makes."""
        e, given = self.emitter, self.given
        self.number = number
        told = e.element(given["sequences"], e.mul(number, SEQUENCE), "i64")
        start, count, past = (e.load("i64", e.element(told, place, "i64"), 8) for place in range(SEQUENCE))
        self.start, self.given["queries"], self.offset = start, count, past
        self.length = e.add(past, count)
        self.pages = e.element(given["table"], e.mul(number, given["table_width"]), "i32")
        self.is_few = self._has_few_queries()
        self._fold_heads_into_rows()
        self.heights = e.udiv(e.add(self.queries, self.shape.rows - 1), self.shape.rows)
        divisor = e.maximum(self.heights, 1)
        self.base, self.extra = e.udiv(self.queries, divisor), e.urem(self.queries, divisor)
        self.each = e.mul(self.group, self.heights)  # tiles of a key head
        none = e.compare("eq", count, 0)
        self.tiles = e.select(none, integer(0), e.mul(self.each, given["key_heads"]))
        self._cut_into_parts()
        self.units = e.mul(self.tiles, self.parts)
        self.cost = e.add(e.udiv(e.udiv(e.sub(self.length, self.seen_from), self.parts), KEYS), 1)

    def _cut_into_parts(self) -> None:
        """Set how many parts the keys have that any query of the sequence sees, and how many keys a part has.

        Numbers of threads and other sequences change nothing of it. All queries see the first key of each part.
        """
        e = self.emitter
        self.seen_from = integer(0)
        if self.facts.window:
            self.seen_from = e.maximum(e.sub(self.offset, self.facts.window - 1), 0)
        before = e.sub(self.offset, self.seen_from)
        count = e.maximum(e.udiv(e.add(before, PART - 1), PART), 1)
        rows = e.mul(self.group_of_all, self.given["queries"])
        self.parts = e.select(e.compare("sle", rows, self.most_rows), count, integer(1))
        self.part_keys = e.udiv(before, self.parts)

    def _unit_from(self, cost: IRValue) -> IRValue:
        """Return the first unit of the sequence, a tile of a part, that begins at a cost or behind it."""
        e = self.emitter
        number = e.udiv(e.add(e.maximum(cost, 0), e.sub(self.cost, 1)), self.cost)
        return e.minimum(number, self.units)

    def _sequence(self, low: IRValue, high: IRValue) -> None:
        """Emit units of a sequence, part by part."""
        e = self.emitter
        self._lay_out_scratch()
        stop = e.add(e.udiv(e.sub(high, 1), self.tiles), 1)
        with e.loop(e.udiv(low, self.tiles), stop, unroll=False, hint="part") as part:
            before = e.mul(part, self.tiles)
            self.part, self.part_from = part, e.add(self.seen_from, e.mul(part, self.part_keys))
            is_last = e.compare("eq", e.add(part, 1), self.parts)
            self.part_to = e.select(is_last, self.length, e.add(self.part_from, self.part_keys))
            self._part(e.maximum(e.sub(low, before), 0), e.minimum(e.sub(high, before), self.tiles))

    def _part(self, low: IRValue, high: IRValue) -> None:
        """Emit tiles of a part: of few queries turn by turn, else key head by key head."""
        if not self.reads_runs:
            self._by_heads(low, high)
            return
        with self.emitter.either(self.runs_values) as branch:
            self._by_turns(low, high)
            with branch.otherwise():
                self._by_heads(low, high)

    def _by_turns(self, low: IRValue, high: IRValue) -> None:
        """Emit tiles of few queries, those of all key heads before the next keys."""
        e = self.emitter
        self.first_local, self.is_certain = integer(0), True
        with e.loop(self.part_from, self.part_to, KEYS, unroll=False, hint="block") as block:
            self.first_key = block
            count = e.minimum(e.sub(self.part_to, block), KEYS)
            with e.loop(low, high, unroll=False, hint="tile") as tile:
                self.is_last_tile = e.compare("eq", e.add(tile, 1), high)
                behind = e.select(self.is_last_tile, low, e.add(tile, 1))
                self.next_head = e.udiv(behind, self.each)
                self._tile(self._of_head(tile, low), block, count)
        with e.loop(low, high, unroll=False, hint="tile") as tile:
            self._finish(self._of_head(tile, low))
        self.slot, self.is_certain = None, False

    def _of_head(self, tile: IRValue, low: IRValue) -> IRValue:
        """Return the number of a sequence's tile within its key head, and let that be the one that is read."""
        e = self.emitter
        self.key_head = e.udiv(tile, self.each)
        self.slot = e.mul(e.sub(tile, low), FEW_QUERIES)
        return e.urem(tile, self.each)

    slot: IRValue | None = None

    def _rows_held(self) -> IRValue:
        e, own = self.emitter, super()._rows_held()
        if not self.reads_runs:
            return own
        return e.select(self.is_few, e.mul(e.mul(self.given["key_heads"], self.each), FEW_QUERIES), own)

    def _local(self, tile: IRValue) -> IRValue:
        return super()._local(tile) if self.slot is None else self.slot

    def _by_heads(self, low: IRValue, high: IRValue) -> None:
        e = self.emitter
        first, stop = e.udiv(low, self.each), e.add(e.udiv(e.sub(high, 1), self.each), 1)
        with e.loop(first, stop, unroll=False, hint="head") as head:
            before = e.mul(head, self.each)
            self._entry(head, e.maximum(e.sub(low, before), 0), e.minimum(e.sub(high, before), self.each))

    def _lay_out_scratch(self) -> None:
        super()._lay_out_scratch()
        e = self.emitter
        false = IRValue("i1", "false")
        self.runs_keys = self.is_few if self.reads_runs else false
        self.runs_values = e.binary("and", self.is_few, self.is_whole) if self.reads_runs else false
        if not self.is_in_pairs:
            self.reads_in_place = self.is_whole  # where they are, or as they were gathered

    is_in_pairs = False
    is_certain = False  # that runs are read, where the code for all else is left out

    def _entry(self, entry: IRValue, low: IRValue, high: IRValue) -> None:
        """Emit the tiles ``low`` to ``high`` of one key head."""
        e = self.emitter
        self.key_head = entry
        self.first_local = self._local(low)
        true = IRValue("i1", "true")
        with e.loop(self.part_from, self.part_to, KEYS, unroll=False, hint="block") as block:
            self.first_key = block
            count = e.minimum(e.sub(self.part_to, block), KEYS)
            self.block_keys, self.block_values = self.wide_keys, self.wide_values
            self.is_last = e.compare("sge", e.add(block, KEYS), self.part_to)
            with e.when(e.binary("xor", self.runs_keys, true)):
                self._gather("key", self.wide_keys, self.given["depth"], count)
                with e.when(e.binary("xor", self.is_few, true)):
                    self._pack(self.keys, self.block_keys, count)
            self._gather("value", self.wide_values, self.given["width"], count)
            with e.when(e.binary("xor", self.reads_in_place, true)):
                self._pack_values(self.block_values, count)
            with e.loop(low, high, unroll=False, hint="tile") as tile:
                self._tile(tile, block, count)
        with e.loop(low, high, unroll=False, hint="tile") as tile:
            self._finish(tile)

    def _is_first(self, block: IRValue) -> IRValue:
        return self.emitter.compare("eq", block, self.part_from)

    def _finish(self, tile: IRValue) -> None:
        """Emit what is done behind the last key of a part: its result, or what it gives to that of all parts."""
        e = self.emitter
        with e.either(e.compare("eq", self.parts, 1)) as branch:
            super()._finish(tile)
            with branch.otherwise():
                self._keep_part(tile)

    def _keep_part(self, tile: IRValue) -> None:
        """Emit the copy of a tile's sums for the other parts; whoever has the last of them adds all up, in order."""
        e, given = self.emitter, self.given
        _, _, height = self._rows_of(tile)
        local = e.sub(self._local(tile), self.first_local)
        per_part = e.mul(given["key_heads"], self.most_rows)
        of_head = e.mul(self.key_head, self.most_rows)
        first = e.mul(e.mul(self.number, self.most_parts), per_part)
        first = e.add(first, e.add(of_head, super()._local(tile)))
        merged = MergedRows(e, self.shape.lanes, given["partials"], self.columns, first, per_part, height)
        held = (e.element(self.sums, e.mul(local, self.columns)), *(
            e.element(each, local) for each in (self.peaks, self.totals)))  # fmt: skip
        merged.keep(self.part, *held)
        done = e.element(given["finished"], e.add(e.mul(self.number, per_part), e.add(of_head, tile)), "i64")
        before = e.assign("i64", f"atomicrmw add ptr {done.text}, i64 1 acq_rel")
        with e.when(e.compare("eq", e.add(before, 1), self.parts)):
            e.store(integer(0), done, 8)
            merged.merge(self.parts, *held)
            super()._finish(tile)

    @contextmanager
    def _runs(self, count: IRValue) -> Iterator[tuple[IRValue, IRValue, IRValue]]:
        """Loop over runs of keys that lie side by side, of the first ``count`` of a turn.

        The body gets the number of the first one within the turn, how many there are, and the row of the caches.
        """
        e, rows = self.emitter, self.given["block_rows"]
        stop = e.add(self.first_key, count)
        last = e.udiv(e.add(stop, e.sub(rows, 1)), rows)
        with e.loop(e.udiv(self.first_key, rows), last, unroll=False, hint="page") as page:
            self.page, start = page, e.mul(page, rows)
            begin = e.maximum(start, self.first_key)
            length = e.sub(e.minimum(e.add(start, rows), stop), begin)
            found = e.load("i32", e.element(self.pages, page, "i32"), 4)
            row = e.mul(e.assign("i64", f"zext {found.typed} to i64"), rows)
            yield e.sub(begin, self.first_key), length, e.add(row, e.sub(begin, start))

    def _rows_at(self, name: str, row: IRValue) -> IRValue:
        """Return where a row of this key head lies in a cache."""
        e, given = self.emitter, self.given
        at = e.add(e.mul(row, given[f"{name}_row"]), e.mul(self.key_head, given[f"{name}_head"]))
        return e.element(given[name], at, STORED[self.facts.stored])

    def _gather(self, name: str, to: IRValue, size: IRValue, count: IRValue) -> None:
        """Copy the rows of a turn as floats, one behind the other."""
        e, given, facts = self.emitter, self.given, self.facts
        scale = e.element(given[f"{name}_scale"], e.mul(self.key_head, given[f"{name}_scale_head"]))
        with self._runs(count) as (first, length, row):
            start = self._rows_at(name, row)
            with e.loop(0, length, unroll=False, hint="key") as key:
                source = e.element(start, e.mul(key, given[f"{name}_row"]), STORED[facts.stored])
                target = e.element(to, e.mul(e.add(first, key), size))
                widen_row(e, self.shape.lanes, facts.stored, facts.scales, source, scale, target, size)

    def _place(self, name: str, head: IRValue, type_: str = "float") -> IRValue:
        """Return where the rows of a head of this sequence start, of queries or results."""
        e, given = self.emitter, self.given
        offset = e.add(e.mul(self.start, given[f"{name}_row"]), e.mul(head, given[f"{name}_head"]))
        return e.element(given[name], offset, type_)

    def _query_head(self, head: IRValue) -> IRValue:
        return self.emitter.add(self.emitter.mul(self.key_head, self.group_of_all), head)

    def _scores(self, head: IRValue, row: IRValue, height: IRValue, seen: IRValue) -> None:
        if not self.reads_runs:
            super()._scores(head, row, height, seen)
            return
        self._copy_queries(head, row, height)
        if self.is_certain:
            self._scores_of_runs(height, seen)
            return
        with self.emitter.either(self.is_few) as branch:
            self._scores_of_runs(height, seen)
            with branch.otherwise():
                self._packed_scores(height, seen)

    def _scores_of_runs(self, height: IRValue, seen: IRValue) -> None:
        e, given = self.emitter, self.given
        depth, value_row, size = given["depth"], e.mul(given["value_row"], _BYTES), e.mul(given["width"], _BYTES)
        with self._runs(seen) as (first, length, at):
            keys = (self._rows_at("key", at), given["key_row"], length, depth)
            to = (e.element(self.scores, first), integer(self.block))
            values = (self._rows_at("value", at), value_row, size)
            e.call_void(KEY_SCORES, height, self.strip, depth, *keys, *to, *values)

    def _weighted_values(
        self, height: IRValue, block: IRValue, seen: IRValue, local: IRValue, is_first: IRValue
    ) -> None:
        if self.is_certain:
            self._values_of_runs(height, seen, local, is_first)
            return
        super()._weighted_values(height, block, seen, local, is_first)

    def _values_of_runs(self, height: IRValue, seen: IRValue, local: IRValue, is_first: IRValue) -> None:
        e = self.emitter
        sums = e.element(self.sums, e.mul(local, self.columns))
        with self._runs(seen) as (first, length, row):
            starts = e.binary("and", is_first, e.compare("eq", first, 0))
            fresh = e.assign("i64", f"zext {starts.typed} to i64")
            self._run_of_values(height, first, length, row, sums, fresh)

    def _run_of_values(
        self, height: IRValue, first: IRValue, length: IRValue, row: IRValue, sums: IRValue, fresh: IRValue
    ) -> None:
        e, columns = self.emitter, self.shape.columns
        start, behind = self._rows_at("value", row), self._keys_behind()
        step = e.mul(self.given["key_row"], _BYTES)
        with e.loop(0, self.panels, unroll=False, hint="panel") as number:
            column = e.mul(number, columns)
            panel, to = e.element(start, column), e.element(sums, column)
            weights = (e.element(self.scores, first), integer(self.block))
            ahead = (e.element(behind, column), step)
            self._call(height, [length, *weights, panel, self.given["value_row"], to, self.columns, fresh, *ahead])

    def _keys_behind(self) -> IRValue:
        """Return where the keys lie that are read behind the values of a page: of the next head, turn or sequence."""
        e, rows = self.emitter, self.given["block_rows"]
        last = e.udiv(e.sub(self.length, 1), rows)
        next_turn = e.minimum(e.add(self.page, e.udiv(integer(KEYS), rows)), last)
        page = e.element(self.pages, e.select(self.is_last_tile, next_turn, self.page), "i32")
        turns_end = e.compare("sle", e.sub(self.part_to, self.first_key), KEYS)
        ends = e.binary("and", self.is_last_tile, turns_end)
        found = e.load("i32", e.select(ends, self._page_of_next(), page), 4)
        row = e.mul(e.assign("i64", f"zext {found.typed} to i64"), rows)
        at = e.add(e.mul(row, self.given["key_row"]), e.mul(self.next_head, self.given["key_head"]))
        return e.element(self.given["key"], at)

    def _page_of_next(self) -> IRValue:
        """Return where the table names the page of the next sequence that stands where the one that is read stands."""
        e, given = self.emitter, self.given
        following = e.minimum(e.add(self.number, 1), e.sub(given["batch"], 1))
        told = e.element(given["sequences"], e.mul(following, SEQUENCE), "i64")
        count, past = (e.load("i64", e.element(told, place, "i64"), 8) for place in range(1, SEQUENCE))
        last = e.udiv(e.maximum(e.sub(e.add(count, past), 1), 0), given["block_rows"])
        own = e.mul(following, given["table_width"])
        return e.element(given["table"], e.add(own, e.minimum(self.page, last)), "i32")


class _PagedPairDriver(_PagedDriver, PairDriver):
    """In pairs of bfloat16: rows are always gathered, and rounded."""

    is_in_pairs = True
