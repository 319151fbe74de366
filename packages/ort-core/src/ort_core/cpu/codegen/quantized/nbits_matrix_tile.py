"""Products with weights of 4 or 8 bits in integers by registers of tiles (AMX): the rows of ``byte_rows``.

The weights of a block are unpacked to a tile of B on the stack, once for all rows of a tile of A, which is read where
the rows lie. Sums of a block are exact, and scaled by the operations that ``nbits_byte_tile`` scales them by: a row
gives the same numbers whichever tile it is in. Weights are unpacked two blocks ahead, and sums scaled two behind:
what is stored is not read at once, and there is work between a product, which takes some 50 cycles, and the storing of
its sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ort_core.cpu.codegen.convolutions.convolution_plan import Tiling
from ort_core.cpu.codegen.llvm_ir import matrix_tiles
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, float32, integer
from ort_core.cpu.codegen.llvm_ir.matrix_tiles import LINE_NBYTES, ROWS
from ort_core.cpu.codegen.quantized.byte_rows import HEAD_NBYTES
from ort_core.cpu.codegen.quantized.integer_dot import WORD, splat_text
from ort_core.cpu.codegen.quantized.nbits_byte_tile import NBitsByteDriver, NBitsByteTile
from ort_core.cpu.codegen.quantized.nbits_tile import NBitsProduct

_UNROLLED_WORDS = 8
_APART = 2  # blocks
_PLACES = 2 * _APART  # of blocks in a buffer
_LONG_BLOCK = 32  # weights; storing the sums of shorter ones takes 8 rows as long as vectors take to multiply them
_TILE_ROWS = (ROWS, 8)  # each with a tile of sums and one of A of its own
_A, _B = 2, 4  # the first of A's tiles, behind those of sums, and B's


def matrix_tiling(parts: int = 1) -> Tiling:
    """Return the tiles: rows of bytes by registers of tiles, and fewer."""
    return Tiling(1, tuple(width for width in (*_TILE_ROWS, 4, 2, 1) if width * parts <= ROWS), 1)


def tile_rows(spec: NBitsProduct) -> tuple[int, ...]:
    """Return how many rows of bytes are multiplied in tiles; fewer are as fast in vectors."""
    return _TILE_ROWS if spec.block >= _LONG_BLOCK else _TILE_ROWS[:1]


class NBitsTileDriver(NBitsByteDriver):
    """The same with registers of tiles around all work of a thread."""

    @contextmanager
    def _working(self, emitter: Emitter) -> Iterator[None]:
        spec = self.spec
        assert isinstance(spec, NBitsProduct)
        nbytes = min(spec.block, LINE_NBYTES)
        shapes = [*((rows, LINE_NBYTES) for rows in _TILE_ROWS), *((rows, nbytes) for rows in _TILE_ROWS)]
        with matrix_tiles.configured(emitter, [*shapes, (nbytes // WORD, LINE_NBYTES)]):
            yield


class NBitsMatrixTile(NBitsByteTile):
    """Rows of bytes by one vector of columns: in tiles, or few of them in vectors."""

    def _accumulate(self, sums: list[list[IRValue]]) -> None:
        rows_of_tiles, totals = tile_rows(self.spec), self._totals(sums)
        if len(totals) not in rows_of_tiles:
            super()._accumulate(sums)
            return
        emitter, spec = self.emitter, self.spec
        self.number = rows_of_tiles.index(len(totals))
        x, weights, rows = emitter.parameter("x"), emitter.parameter("w"), self._byte_rows(len(sums))
        self.unpacked = emitter.variable(f"[{_PLACES * spec.block * self.lanes} x i8]", align=LINE_NBYTES)
        self.stored = emitter.variable(f"[{_PLACES * len(totals) * self.lanes} x i32]", align=LINE_NBYTES)
        for number in range(min(_APART, spec.blocks)):
            self._unpack(weights, integer(number))
        with emitter.loop(0, integer(spec.blocks), unroll=False, hint="block") as block:
            self._multiply_block(x, block)
            with emitter.when(emitter.compare("slt", block, spec.blocks - _APART)):
                self._unpack(weights, emitter.add(block, _APART))
            with emitter.when(emitter.compare("sge", block, _APART)):
                self._scale(totals, rows, weights, emitter.sub(block, _APART))
            matrix_tiles.store(emitter, self.number, self._sums(block), self.lanes * WORD)
        for number in range(max(0, spec.blocks - _APART), spec.blocks):
            self._scale(totals, rows, weights, integer(number))

    def _place_of(self, buffer: IRValue, block: IRValue, words: int) -> IRValue:
        """Return where a block's words are in a buffer of several blocks."""
        number = self.emitter.binary("and", block, integer(_PLACES - 1))
        return self.emitter.element(buffer, self.emitter.mul(number, words), "i32")

    def _head(self, weights: IRValue, block: IRValue) -> IRValue:
        """Return where a block of the panel begins."""
        emitter = self.emitter
        return emitter.element(weights, emitter.mul(block, self.spec.block_words * self.panel), "i32")

    def _unpack(self, weights: IRValue, block: IRValue) -> None:
        """Append the unpacking of a block to words of bytes, less the middle of their range where that is fixed."""
        emitter, spec = self.emitter, self.spec
        words = emitter.element(self._head(weights, block), spec.head * self.panel, "i32")
        to = self._place_of(self.unpacked, block, spec.block // WORD * self.lanes)
        of_word = 8 // spec.bits
        count = spec.block // spec.per_word
        step = max(size for size in range(1, _UNROLLED_WORDS + 1) if count % size == 0)
        with emitter.loop(0, integer(count), step, unroll=False, hint="word") as first:
            for number in range(step):
                word = emitter.add(first, number)
                for part, each in enumerate(self._tile_words(words, word)):
                    place = emitter.mul(emitter.add(emitter.mul(word, of_word), part), self.lanes)
                    emitter.store(each, emitter.element(to, place, "i32"), LINE_NBYTES)

    def _tile_words(self, words: IRValue, word: IRValue) -> list[IRValue]:
        """Return a word of each column as vectors of words of bytes.

        Of 4 bits around the middle of their range those are 16 times the weights: in the upper half of a byte, turning
        the highest bit takes the middle off.
        """
        if self.spec.has_zero_points:
            return self._unpacked(words, word)
        emitter, type_ = self.emitter, self.words
        packed = self._packed(words, word)
        middle = splat_text(-0x7F7F7F80, 32, self.lanes)
        if self.spec.bits == 8:
            return [emitter.assign(type_, f"xor {packed.typed}, {middle}")]
        shifted = emitter.assign(type_, f"shl {packed.typed}, {splat_text(4, 32, self.lanes)}")
        upper = splat_text(-0x0F0F0F10, 32, self.lanes)
        found = []
        for each in (shifted, packed):
            kept = emitter.assign(type_, f"and {each.typed}, {upper}")
            found.append(emitter.assign(type_, f"xor {kept.typed}, {middle}"))
        return found

    def _multiply_block(self, x: IRValue, block: IRValue) -> None:
        """Append the products of a block, whose sums stay in their register."""
        emitter, spec = self.emitter, self.spec
        sums, a = self.number, _A + self.number
        instruction = matrix_tiles.byte_products(True, not spec.has_zero_points)
        place = emitter.add(emitter.mul(block, HEAD_NBYTES + spec.block), HEAD_NBYTES)
        row, b = emitter.element(x, place, "i8"), self._place_of(self.unpacked, block, spec.block // WORD * self.lanes)
        matrix_tiles.clear(emitter, sums)
        for first in range(0, spec.block, LINE_NBYTES):
            matrix_tiles.load(emitter, _B, emitter.element(b, first // WORD * self.lanes, "i32"), LINE_NBYTES)
            matrix_tiles.load(emitter, a, emitter.element(row, first, "i8"), self._row_pitch)
            matrix_tiles.multiply(emitter, instruction, sums, a, _B)

    @property
    def _row_pitch(self) -> IRValue:
        """Bytes from one row of bytes to the next; those of a row follow each other without gaps."""
        return self.x_pixel if self.spec.parts == 1 else integer(self.part_nbytes)

    def _sums(self, block: IRValue) -> IRValue:
        return self._place_of(self.stored, block, tile_rows(self.spec)[self.number] * self.lanes)

    def _scale(self, totals: list[IRValue], rows: list[IRValue], weights: IRValue, block: IRValue) -> None:
        """Append a block's sums, scaled, to the totals."""
        emitter, spec = self.emitter, self.spec
        at, sums = self._head(weights, block), self._sums(block)
        scale, zero = self._factors(at)
        if spec.bits == 4 and zero is None:
            scale = emitter.binary("fmul", scale, emitter.splat(float32(1 / 16), self.lanes))
        offset = emitter.mul(block, HEAD_NBYTES + spec.block)
        for number, (total, row) in enumerate(zip(totals, rows, strict=True)):
            whole = emitter.load(self.words, emitter.element(sums, number * self.lanes, "i32"), LINE_NBYTES)
            self._add_scaled(total, whole, emitter.element(row, offset, "i8"), scale, zero)
