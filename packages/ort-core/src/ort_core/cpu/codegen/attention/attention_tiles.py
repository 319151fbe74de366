"""Attention whose two products are of bfloat16 pairs in registers of tiles (AMX).

Few queries, as while decoding, read keys and values in float32 where they are: to round and pack a cache takes longer
than to multiply with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ort_core.cpu.codegen.attention.attention import (
    AttentionDriver,
    AttentionFacts,
    keys_per_block,
    shaped_scratch_count,
)
from ort_core.cpu.codegen.attention.attention_pairs import PairDriver
from ort_core.cpu.codegen.attention.few_queries import FEW_QUERIES, key_scores
from ort_core.cpu.codegen.llvm_ir import matrix_tiles
from ort_core.cpu.codegen.llvm_ir.emitter import IRValue, module_text
from ort_core.cpu.codegen.machine_code.code_table import CodeTable, code_table
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products import bfloat16_tiles
from ort_core.cpu.codegen.products.bfloat16_product import ROUND_BLOCK, round_block
from ort_core.cpu.codegen.products.bfloat16_tiles import ROUND_STRIP, round_strip
from ort_core.cpu.codegen.products.microkernel import tile, tile_name, tile_shape
from ort_core.cpu.codegen.products.packing import COPY_BLOCK, copy_block
from ort_core.plugin.ir import DataType, KnownDim

_LINE = 16  # words in a cache line
_ROUND_STRIP = 2 + bfloat16_tiles.SHAPE.rows  # in the table, behind the copy, the tiles and the rounding of rows
_FIRST_FLOAT = _ROUND_STRIP + 1


def tile_attention_text(name: str, target: Target, facts: AttentionFacts) -> str:
    """Return the module of one attention in tiles; ``tiles`` is the address of ``attention_tile_table``."""
    driver = TileDriver(name, bfloat16_tiles.SHAPE, facts).emit()
    return module_text([driver, key_scores(target.lanes)] if facts.may_be_few else [driver])


def tile_scratch_count(
    target: Target, rows: KnownDim, depth: KnownDim, width: KnownDim, stored: DataType = DataType.FLOAT
) -> KnownDim:
    """Return how many floats of scratch each thread needs; rows are ``group * queries``."""
    del target
    shape = bfloat16_tiles.SHAPE
    keys = keys_per_block(shape)
    words = depth + 2 * _LINE  # more than a row's
    return shaped_scratch_count(shape, rows, depth, width, stored) + (2 * keys + shape.rows) * words + shape.rows * keys


def attention_tiles_text(target: Target) -> str:
    """Return the module with what ``attention_tile_table`` names."""
    few = (tile(tile_shape(target), rows) for rows in range(1, FEW_QUERIES + 1))
    return module_text(
        [copy_block(target), round_block(target.lanes), round_strip(target.lanes), *bfloat16_tiles.tiles(), *few]
    )


def attention_tile_table(module: CompiledModule) -> CodeTable:
    """Return addresses: the block copy, the tiles by rows, both roundings, tiles of few rows of float32."""
    tiles = bfloat16_tiles.tile_names()
    return code_table(
        module, [COPY_BLOCK, *tiles, ROUND_BLOCK, ROUND_STRIP, *map(tile_name, range(1, FEW_QUERIES + 1))]
    )


class TileDriver(PairDriver):
    """Emits the kernel: as in pairs, of whole tiles of K, or as in float32 for few queries."""

    @contextmanager
    def _working(self) -> Iterator[None]:
        rows = bfloat16_tiles.tile_rows(self.queries, self.emitter)
        with matrix_tiles.configured(self.emitter, bfloat16_tiles.shapes(rows)):
            yield

    def _may_be_few(self) -> bool:
        return self.facts.may_be_few

    def _whole(self, words: IRValue) -> IRValue:
        return self._lines(words)

    def _strip_row(self, height: IRValue, apart: IRValue) -> IRValue:
        return height

    def _round_strip(
        self,
        to: IRValue,
        to_row: IRValue,
        source: IRValue,
        row: IRValue,
        rows: IRValue,
        columns: IRValue,
        padded: IRValue,
    ) -> None:
        del to_row
        self._call(_ROUND_STRIP, [to, source, row, rows, columns, padded])

    def _lay_out_scratch(self) -> None:
        e = self.emitter
        in_place = e.binary("and", self.reads_in_place, self.is_few)
        super()._lay_out_scratch()
        self.reads_in_place = in_place
        self.keys = e.element(self.weight_words, self.shape.rows * self.block)

    def _pack_values(self, source: IRValue, count: IRValue) -> None:
        with self.emitter.either(self.is_few) as branch:
            AttentionDriver._pack_values(self, source, count)
            with branch.otherwise():
                super()._pack_values(source, count)

    def _packed_scores(self, height: IRValue, seen: IRValue) -> None:
        e = self.emitter
        with e.when(e.binary("xor", self.is_few, IRValue("i1", "true"))):
            super()._packed_scores(height, seen)

    def _weighted_values(
        self, height: IRValue, block: IRValue, seen: IRValue, local: IRValue, is_first: IRValue
    ) -> None:
        with self.emitter.either(self.is_few) as branch:
            AttentionDriver._weighted_values(self, height, block, seen, local, is_first)
            with branch.otherwise():
                super()._weighted_values(height, block, seen, local, is_first)

    def _float_tile(self, height: IRValue) -> IRValue:
        return self.emitter.add(height, _FIRST_FLOAT - 1)
