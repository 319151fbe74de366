"""Attention whose two products are of bfloat16 pairs; the softmax and all sums stay float32.

What is packed and copied for the tiles is words of two numbers: of keys and queries two of the depth, of weights and
values two keys. Sums of the weights are those of the weights before they are rounded.
"""

from __future__ import annotations

from ort_core.cpu.codegen.attention.attention import AttentionDriver, AttentionFacts, keys_per_block, scratch_count
from ort_core.cpu.codegen.llvm_ir.bfloat16_lanes import joined_words, rounded_bits
from ort_core.cpu.codegen.llvm_ir.emitter import IRValue, integer, module_text
from ort_core.cpu.codegen.llvm_ir.vectors import lane_mask, load_vector
from ort_core.cpu.codegen.machine_code.code_table import CodeTable, code_table
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.bfloat16_product import PREFIX, ROUND_BLOCK
from ort_core.cpu.codegen.products.bfloat16_tiles import PAIR
from ort_core.cpu.codegen.products.microkernel import tile_name, tile_shape
from ort_core.cpu.codegen.products.packing import COPY_BLOCK
from ort_core.plugin.ir import DataType, KnownDim

_LINE = 16  # words in a cache line


def pair_attention_text(name: str, target: Target, facts: AttentionFacts) -> str:
    """Return the module of one attention in pairs; ``tiles`` is the address of ``attention_pair_table``."""
    return module_text([PairDriver(name, tile_shape(target), facts).emit()])


def pair_scratch_count(
    target: Target, rows: KnownDim, depth: KnownDim, width: KnownDim, stored: DataType = DataType.FLOAT
) -> KnownDim:
    """Return how many floats of scratch each thread needs; rows are ``group * queries``."""
    shape = tile_shape(target)
    keys = keys_per_block(shape)
    words = depth + 2 * _LINE  # more than a row's
    return scratch_count(target, rows, depth, width, stored) + (keys + shape.rows) * words + shape.rows * keys


def attention_pair_table(module: CompiledModule, target: Target) -> CodeTable:
    """Return addresses in the module of ``pair_tiles_text``: the block copy, the tiles by rows, the rounding."""
    tiles = (tile_name(rows, PREFIX) for rows in range(1, tile_shape(target).rows + 1))
    return code_table(module, [COPY_BLOCK, *tiles, ROUND_BLOCK])


class PairDriver(AttentionDriver):
    """Emits the kernel: as in float32, but for what the products read."""

    def _may_be_few(self) -> bool:
        return False  # what is read is rounded to pairs first

    def _lay_out_scratch(self) -> None:
        super()._lay_out_scratch()
        e = self.emitter
        self.reads_in_place = IRValue("i1", "false")  # values are rounded for each block
        self.words = self._whole(e.udiv(e.add(self.given["depth"], PAIR - 1), PAIR))
        self.word_row = self._lines(self.words)
        self.rounded_keys = e.element(self.totals, self._rows_held())
        self.query_words = e.element(self.rounded_keys, e.mul(self.word_row, self.block))
        self.weight_words = e.element(self.query_words, e.mul(self.word_row, self.shape.rows))

    def _whole(self, words: IRValue) -> IRValue:
        """Return how many words of K are multiplied where there are so many, the rest zeros."""
        return words

    def _round(
        self, to: IRValue, to_row: IRValue, source: IRValue, row: IRValue, rows: IRValue, columns: IRValue,
        padded: IRValue,
    ) -> None:  # fmt: skip
        """Round rows of floats to rows of words, zeros up to ``padded`` of them."""
        self._call(self.shape.rows + 1, [to, to_row, source, row, rows, columns, padded])

    def _strip_row(self, height: IRValue, apart: IRValue) -> IRValue:
        """Return what a tile is told of its rows of A: how far they are apart."""
        return apart

    def _round_strip(
        self, to: IRValue, to_row: IRValue, source: IRValue, row: IRValue, rows: IRValue, columns: IRValue,
        padded: IRValue,
    ) -> None:  # fmt: skip
        """Round rows of floats to the rows of a tile of A, as ``_round`` does."""
        self._round(to, to_row, source, row, rows, columns, padded)

    def _pack(self, to: IRValue, source: IRValue, count: IRValue) -> None:
        e, given, columns = self.emitter, self.given, self.shape.columns
        rounded = (self.rounded_keys, self.word_row)
        self._round(*rounded, source, self.key_row, count, given["depth"], self.word_row)
        with e.loop(0, count, columns, unroll=False, hint="panel") as first:
            panel = e.element(to, e.mul(first, self.words))
            here = e.element(self.rounded_keys, e.mul(first, self.word_row))
            width, stride = e.minimum(e.sub(count, first), columns), integer(columns)
            self._call(0, [panel, stride, here, integer(1), self.word_row, self.words, width, stride])

    def _pack_values(self, source: IRValue, count: IRValue) -> None:
        e, given, columns, lanes = self.emitter, self.given, self.shape.columns, self.shape.lanes
        pairs = self._whole(e.udiv(e.add(count, PAIR - 1), PAIR))
        with (
            e.loop(0, self.panels, unroll=False, hint="panel") as number,
            e.loop(0, pairs, unroll=False, hint="pair") as pair,
        ):
            first, key = e.mul(number, columns), e.mul(pair, PAIR)
            to = e.element(self.values, e.add(e.mul(first, self.block // PAIR), e.mul(pair, columns)))
            even = e.element(e.element(source, first), e.mul(key, self.value_row))
            has_even, has_odd = (e.compare("slt", each, count) for each in (key, e.add(key, 1)))
            for start in range(0, columns, lanes):
                left = e.sub(given["width"], e.add(first, start))
                halves = []
                for row, is_there in enumerate((has_even, has_odd)):
                    place = e.element(e.element(even, e.mul(self.value_row, row)), start)
                    present = e.select(is_there, left, integer(0))
                    halves.append(load_vector(e, place, lanes, lane_mask(e, present, lanes)))
                low, high = (rounded_bits(e, half, lanes) for half in halves)
                e.store(joined_words(e, low, high, lanes), e.element(to, start), 4)

    def _packed_scores(self, height: IRValue, seen: IRValue) -> None:
        e, columns, depth = self.emitter, self.shape.columns, self.given["depth"]
        strips = (self.query_words, self._strip_row(height, self.word_row))
        self._round_strip(*strips, self.strip, depth, height, depth, self.word_row)
        with e.loop(0, seen, columns, unroll=False, hint="panel") as first:
            panel = e.element(self.keys, e.mul(first, self.words))
            to = e.element(self.scores, first)
            none = [integer(1), panel, integer(0)]
            self._call(height, [self.words, *strips, panel, integer(columns), to, integer(self.block), *none])

    def _weighted_values(
        self, height: IRValue, block: IRValue, seen: IRValue, local: IRValue, is_first: IRValue
    ) -> None:
        e, columns = self.emitter, self.shape.columns
        pairs = self._whole(e.udiv(e.add(seen, PAIR - 1), PAIR))
        strips = (self.weight_words, self._strip_row(height, integer(self.block // PAIR)))
        self._round_strip(*strips, self.scores, integer(self.block), height, seen, self._lines(pairs))
        fresh = e.assign("i64", f"zext {is_first.typed} to i64")
        sums = e.element(self.sums, e.mul(local, self.columns))
        with e.loop(0, self.panels, unroll=False, hint="panel") as number:
            first = e.mul(number, columns)
            panel = e.element(self.values, e.mul(first, self.block // PAIR))
            to = e.element(sums, first)
            self._call(height, [pairs, *strips, panel, integer(columns), to, self.columns, fresh, panel, integer(0)])
