"""Products with weights of 4 or 8 bits in integers: rows are bytes with a scale for each block (``byte_rows``).

The weights of a block are unpacked to bytes once for all rows of a tile, and multiplied four at a time; the sum of a
block is exact, and only then scaled. A row gives the same numbers however many others there are beside it.

Where a number is two bytes, a row is two rows of bytes, whose scaled sums are added to the same total.

Weights are read once for all rows that a tile has room for: the last tile of a product computes more rows than there
are, and leaves those out that are none. What it reads of them is memory of ``byte_rows``, whatever stands there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ort_core.cpu.codegen.convolutions.convolution import prefetch
from ort_core.cpu.codegen.convolutions.convolution_plan import Tiling
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.quantized.byte_rows import HEAD_NBYTES
from ort_core.cpu.codegen.quantized.integer_dot import WORD, has_byte_products, pair_instruction, splat_text
from ort_core.cpu.codegen.quantized.integer_driver import IntegerDriver, TileCall
from ort_core.cpu.codegen.quantized.integer_tile import IntegerTile
from ort_core.cpu.codegen.quantized.nbits_tile import PREFETCHED_NBYTES, NBitsProduct

_HELD_VECTORS = 8  # of unpacked weights; so many products of 4 bits with bytes also fit a sum of 16 bits
_BYTE_PAIRS = {
    16: "llvm.x86.avx512.pmaddubs.w.512",
    8: "llvm.x86.avx2.pmadd.ub.sw",
    4: "llvm.x86.ssse3.pmadd.ub.sw.128",
}


def multiplies_bytes(bits: int, target: Target) -> bool:
    """Return whether the target multiplies weights of so many bits by bytes faster than by float32.

    Without VPDPBUSD pairs are summed in 16 bits, where products of 8 bits do not fit.
    """
    if has_byte_products(target):
        return True
    if bits != 4 or pair_instruction(target) is None:
        return False
    return target.lanes > 4 or target.has("ssse3")


def byte_tiling(target: Target, parts: int = 1) -> Tiling:
    """Return the tiles: rows whose sums fit the registers beside unpacked weights."""
    most = (8 if target.vector_registers >= 32 else 4) // parts
    return Tiling(1, tuple(width for width in (8, 4, 2, 1) if width <= most), 1)


class NBitsByteDriver(IntegerDriver):
    """The kernel of a product of any number of rows."""

    def _walk(self, emitter: Emitter, first: IRValue, end: IRValue, call: TileCall) -> None:
        """Append the calls of tiles: a tile is taken where more rows are left than the next smaller one has."""
        at, widths = emitter.variable("i64", first, "row"), self.tiling.widths
        for width, smaller in zip(widths, (*widths[1:], 0), strict=True):
            begin = emitter.load("i64", at)
            with emitter.loop(begin, emitter.sub(end, smaller), width, unroll=False, hint="row") as row:
                call(row, width, (emitter.minimum(emitter.sub(end, row), width),))
                emitter.store(emitter.add(row, width), at)


class NBitsByteTile(IntegerTile):
    """Rows of bytes by one vector of columns, of which the first ``count`` are stored; the sums are float32."""

    spec: NBitsProduct
    sum_element = "float"
    own_parameters = (("i64", "count"),)
    begins_with_operand = False

    def __init__(
        self, name: str, spec: NBitsProduct, target: Target, rows: int, pixels: int, panel: int, channels: int
    ) -> None:
        super().__init__(name, spec, target, rows, pixels, panel, channels)
        self.target = target
        self.words = vector_type(self.lanes, "i32")

    def _accumulate(self, sums: list[list[IRValue]]) -> None:
        emitter, spec = self.emitter, self.spec
        totals, rows, weights = self._totals(sums), self._byte_rows(len(sums)), emitter.parameter("w")
        with emitter.loop(0, integer(spec.blocks), unroll=False, hint="block") as block:
            at = emitter.element(weights, emitter.mul(block, spec.block_words * self.panel), "i32")
            offset = emitter.mul(block, HEAD_NBYTES + spec.block)
            self._block(totals, [emitter.element(row, offset, "i8") for row in rows], at)

    def _totals(self, sums: list[list[IRValue]]) -> list[IRValue]:
        """Return the total of each row of bytes."""
        return [slots[0] for slots in sums for _ in range(self.spec.parts)]

    def _byte_rows(self, count: int) -> list[IRValue]:
        """Return where the rows of bytes of so many rows begin."""
        emitter, x = self.emitter, self.emitter.parameter("x")
        starts = [emitter.element(x, emitter.mul(self.x_pixel, row), "i8") for row in range(count)]
        return [
            emitter.element(row, part * self.part_nbytes, "i8") for row in starts for part in range(self.spec.parts)
        ]

    @property
    def part_nbytes(self) -> int:
        """Bytes of a row of bytes."""
        return self.spec.blocks * (HEAD_NBYTES + self.spec.block)

    def _stored(self, count: int) -> IRValue:
        return self.emitter.parameter("count")

    @contextmanager
    def _storing(self, number: int) -> Iterator[None]:
        with self.emitter.when(self.emitter.compare("slt", integer(number), self.emitter.parameter("count"))):
            yield

    def _block(self, totals: list[IRValue], rows: list[IRValue], at: IRValue) -> None:
        """Append a block of each column."""
        emitter = self.emitter
        scale, zero = self._factors(at)
        sums = [emitter.variable(self.words, self._begun(row), "part") for row in rows]
        self._products(sums, rows, emitter.element(at, self.spec.head * self.panel, "i32"))
        for total, sum_, row in zip(totals, sums, rows, strict=True):
            self._add_scaled(total, emitter.load(self.words, sum_), row, scale, zero)

    def _factors(self, at: IRValue) -> tuple[IRValue, IRValue | None]:
        """Load the scales of a block and its zero points, if it has any."""
        emitter, type_ = self.emitter, self.type
        scale = emitter.load(type_, at, 4)
        if not self.spec.has_zero_points:
            return scale, None
        return scale, emitter.load(type_, emitter.element(at, self.panel, "i32"), 4)

    def _add_scaled(self, total: IRValue, whole: IRValue, row: IRValue, scale: IRValue, zero: IRValue | None) -> None:
        """Append the scaled sums of a block of a row to its total."""
        emitter, type_ = self.emitter, self.type
        real = emitter.assign(type_, f"sitofp {whole.typed} to {type_}")
        if zero is not None:
            bytes_ = emitter.splat(emitter.load("float", row, 4), self.lanes)
            real = emitter.binary("fsub", real, emitter.binary("fmul", bytes_, zero))
        own = emitter.splat(emitter.load("float", emitter.element(row, 1), 4), self.lanes)
        factor = emitter.binary("fmul", scale, own)
        emitter.store(emitter.fma(real, factor, emitter.load(type_, total)), total)

    def _begun(self, row: IRValue) -> IRValue:
        """Return what the sums of a block begin with: weights are unsigned, around the middle of their range."""
        if self.spec.has_zero_points:
            return IRValue(self.words, "zeroinitializer")
        return self.emitter.splat(self.emitter.load("i32", row, 4), self.lanes)

    def _products(self, sums: list[IRValue], rows: list[IRValue], words: IRValue) -> None:
        emitter, spec = self.emitter, self.spec
        of_word = 8 // spec.bits
        count = spec.block // spec.per_word
        step = max(size for size in range(1, _HELD_VECTORS // of_word + 1) if count % size == 0)
        with emitter.loop(0, integer(count), step, unroll=False, hint="word") as word:
            weights = [each for part in range(step) for each in self._unpacked(words, emitter.add(word, part))]
            first = emitter.add(emitter.mul(word, of_word * WORD), HEAD_NBYTES)
            for sum_, row in zip(sums, rows, strict=True):
                bytes_ = emitter.element(row, first, "i8")
                factors = [emitter.load("i32", emitter.element(bytes_, i, "i32"), 4) for i in range(len(weights))]
                total = emitter.load(self.words, sum_)
                emitter.store(self._summed(total, weights, [emitter.splat(f, self.lanes) for f in factors]), sum_)

    def _unpacked(self, words: IRValue, number: IRValue) -> list[IRValue]:
        """Return a word of each column as vectors of words of four unsigned bytes."""
        emitter, packed = self.emitter, self._packed(words, number)
        if self.spec.bits == 8:
            return [packed]
        mask = splat_text(0x0F0F0F0F, 32, self.lanes)
        shifted = emitter.assign(self.words, f"lshr {packed.typed}, {splat_text(4, 32, self.lanes)}")
        return [emitter.assign(self.words, f"and {each.typed}, {mask}") for each in (packed, shifted)]

    def _packed(self, words: IRValue, number: IRValue) -> IRValue:
        emitter = self.emitter
        place = emitter.element(words, emitter.mul(number, self.panel), "i32")
        prefetch(emitter, emitter.element(place, PREFETCHED_NBYTES, "i8"), 3)
        return emitter.load(self.words, place, 4)

    def _summed(self, total: IRValue, weights: list[IRValue], factors: list[IRValue]) -> IRValue:
        """Return the sums with the products of unsigned and signed bytes."""
        emitter, bytes_ = self.emitter, vector_type(self.lanes * WORD, "i8")
        pairs = [
            [emitter.assign(bytes_, f"bitcast {each.typed} to {bytes_}") for each in pair]
            for pair in zip(weights, factors, strict=True)
        ]
        if has_byte_products(self.target):
            for pair in pairs:
                total = emitter.call(total.type, f"llvm.x86.avx512.vpdpbusd.{self.lanes * 32}", total, *pair)
            return total
        halves = vector_type(self.lanes * 2, "i16")
        sums = [emitter.call(halves, _BYTE_PAIRS[self.lanes], *pair) for pair in pairs]
        part = sums[0]
        for each in sums[1:]:
            part = emitter.binary("add", part, each)
        instruction = pair_instruction(self.target)
        assert instruction is not None
        ones = IRValue(halves, splat_text(1, 16, self.lanes * 2))
        return emitter.binary("add", total, emitter.call(total.type, instruction, part, ones))
