"""Products with weights of 4 or 8 bits in blocks that have a scale each, unpacked in registers as they are read.

The weights are one stream: for each panel of one vector of columns and each block of K, the block's scales, its zero
points if it has any, then words of 32 bits, each with the next 8 (or 4) weights of one column. Reading that stream
once is all that a single row costs; more rows share what was unpacked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ort_core.cpu.codegen.convolutions.convolution import prefetch
from ort_core.cpu.codegen.convolutions.convolution_plan import Tiling
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.quantized.integer_convolution_plan import IntegerConvolution, aligned
from ort_core.cpu.codegen.quantized.integer_tile import IntegerTile

CHAINS = 2  # sums of one row in flight, to hide the latency of a multiply-add; as many for any number of rows: they
# decide in which order products are added, and a row gives the same numbers however many others there are beside it
PREFETCHED_NBYTES = 1 << 12  # how far ahead in the stream of weights


@dataclass(frozen=True, slots=True)
class NBitsProduct(IntegerConvolution):
    """A product whose right side is ``[out_channels][in_channels]`` weights of ``bits`` in blocks of ``block``.

    Attributes:
        bits: 4 or 8.
        block: weights of a column with one scale, a multiple of 8.
        has_zero_points: whether each block has its own; else it is the middle of the range.
        parts: bytes of a number of the left side, where that is bytes (``byte_rows``).
    """

    bits: int = 4
    block: int = 32
    has_zero_points: bool = False
    parts: int = 1

    @property
    def per_word(self) -> int:
        """Weights of a word."""
        return 32 // self.bits

    @property
    def blocks(self) -> int:
        """Blocks of a column; the last may be part."""
        return -(-self.in_channels // self.block)

    @property
    def head(self) -> int:
        """Words before the weights of a block."""
        return 2 if self.has_zero_points else 1

    @property
    def block_words(self) -> int:
        """Words of a block of one column."""
        return self.head + self.block // self.per_word

    @property
    def panel_words(self) -> int:
        """Words of one column."""
        return self.blocks * self.block_words

    def tiling_for(self, target: Target) -> Tiling:
        """Choose tiles: one vector of columns, and rows whose sums fill the registers: its chains' and all blocks'."""
        return Tiling(1, (8, 4, 2, 1) if target.vector_registers >= 32 else (4, 2, 1), 1)


def pack_nbits(
    spec: NBitsProduct,
    words: np.ndarray,
    scales: np.ndarray,
    zero_points: np.ndarray | None,
    target: Target,
    multiple: int = 1,
    place: Callable[[np.ndarray], np.ndarray] = aligned,
) -> np.ndarray:
    """Return the stream of weights, as int32.

    Args:
        spec: the product.
        words: uint32 ``[out][blocks][block / per_word]``, the first weight of each in its lowest bits.
        scales: float32 ``[out][blocks]``.
        zero_points: float32 ``[out][blocks]``, or ``None``.
        target: whose vectors are panels.
        multiple: of panels that the stream is filled up to, with zeros.
        place: copies the stream to where it stays, on a cache line.
    """
    lanes, outputs = target.lanes, spec.out_channels
    panels = -(-outputs // (lanes * multiple)) * multiple
    stream = np.zeros((panels * lanes, spec.blocks, spec.block_words), np.uint32)
    stream[:outputs, :, 0] = np.ascontiguousarray(scales, np.float32).view(np.uint32)
    if zero_points is not None:
        stream[:outputs, :, 1] = np.ascontiguousarray(zero_points, np.float32).view(np.uint32)
    stream[:outputs, :, spec.head :] = words
    return place(stream.reshape(panels, lanes, -1).transpose(0, 2, 1).view(np.int32))


class NBitsTile(IntegerTile):
    """Rows of float32 by one vector of columns; the sums are float32."""

    spec: NBitsProduct
    sum_element = "float"
    begins_with_operand = False

    def _accumulate(self, sums: list[list[IRValue]]) -> None:
        emitter, spec = self.emitter, self.spec
        x, weights = emitter.parameter("x"), emitter.parameter("w")
        totals = [slots[0] for slots in sums]
        rows = [emitter.element(x, emitter.mul(self.x_pixel, row), "i8") for row in range(len(totals))]
        rest = spec.in_channels % spec.block
        with emitter.loop(0, integer(spec.in_channels // spec.block), unroll=False, hint="block") as block:
            at = emitter.element(weights, emitter.mul(block, spec.block_words * self.panel), "i32")
            first = emitter.mul(block, spec.block)
            self._block(totals, [emitter.element(row, first) for row in rows], at, spec.block)
        if rest:
            whole = spec.blocks - 1
            at = emitter.element(weights, whole * spec.block_words * self.panel, "i32")
            self._block(totals, [emitter.element(row, whole * spec.block) for row in rows], at, rest)

    def _block(self, totals: list[IRValue], rows: list[IRValue], at: IRValue, count: int) -> None:
        """Append ``count`` weights of each column; what lies behind them in the rows may not exist."""
        emitter, spec, type_ = self.emitter, self.spec, self.type
        scale = emitter.load(type_, at, 4)
        zero = emitter.load(type_, emitter.element(at, self.panel, "i32"), 4) if spec.has_zero_points else None
        words = emitter.element(at, spec.head * self.panel, "i32")
        zeros = IRValue(type_, "zeroinitializer")
        slots = [[emitter.variable(type_, zeros, "part") for _ in range(CHAINS)] for _ in totals]

        def step(word: IRValue, limit: int) -> None:
            place = emitter.element(words, emitter.mul(word, self.panel), "i32")
            prefetch(emitter, emitter.element(place, PREFETCHED_NBYTES, "i8"), 3)
            packed = emitter.load(vector_type(self.lanes, "i32"), place, 4)
            for index in range(limit):
                weight = unpacked_weight(emitter, spec.bits, self.lanes, packed, index, zero)
                k = emitter.add(emitter.mul(word, spec.per_word), index)
                for number, row in enumerate(rows):
                    slot = slots[number][index % CHAINS]
                    value = emitter.splat(emitter.load("float", emitter.element(row, k), 4), self.lanes)
                    emitter.store(emitter.fma(value, weight, emitter.load(type_, slot)), slot)

        whole, rest = divmod(count, spec.per_word)
        with emitter.loop(0, integer(whole), unroll=False, hint="word") as word:
            step(word, spec.per_word)
        if rest:
            step(integer(whole), rest)
        for total, parts in zip(totals, slots, strict=True):
            value = emitter.load(type_, parts[0])
            for part in parts[1:]:
                value = emitter.binary("fadd", value, emitter.load(type_, part))
            emitter.store(emitter.fma(value, scale, emitter.load(type_, total)), total)


def unpacked_weight(
    emitter: Emitter, bits: int, lanes: int, packed: IRValue, index: int, zero: IRValue | None
) -> IRValue:
    """Return weight ``index`` of each word less its zero point (or the middle of the range), as floats."""
    type_ = vector_type(lanes, "float")
    shift = ", ".join([f"i32 {bits * index}"] * lanes)
    moved = emitter.assign(packed.type, f"lshr {packed.typed}, <{shift}>") if index else packed
    middle = 0.0 if zero is not None else float(2 ** (bits - 1))
    if bits == 4 and lanes == 16:  # a table of 16 floats: the instruction looks at the low four bits alone
        table = _floats([value - middle for value in range(16)])
        real = emitter.call(type_, "llvm.x86.avx512.permvar.sf.512", IRValue(type_, table), moved)
    else:
        mask = ", ".join([f"i32 {2**bits - 1}"] * lanes)
        low = emitter.assign(packed.type, f"and {moved.typed}, <{mask}>")
        real = emitter.assign(type_, f"sitofp {low.typed} to {type_}")
        if middle:
            real = emitter.binary("fsub", real, IRValue(type_, _floats([middle] * lanes)))
    return real if zero is None else emitter.binary("fsub", real, zero)


def _floats(values: list[float]) -> str:
    return f"<{', '.join(f'float {value:.1f}' for value in values)}>"
