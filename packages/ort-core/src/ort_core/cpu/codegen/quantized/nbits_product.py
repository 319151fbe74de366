"""Products with weights of 4 or 8 bits in blocks, for any number of rows.

Where the model allows it, rows are multiplied as bytes, in vectors (``nbits_byte_tile``) or in registers of tiles
(``nbits_matrix_tile``): any number of them, so that a row gives the same numbers beside others as alone. Else a few
rows read the stream of weights once and unpack them in registers (``nbits_tile``), which is bound by memory for one
row. Many rows unpack a panel at a time, to float32 or to pairs of bfloat16, and run the tiles of ordinary products over
it, in registers of tiles where the target has them for pairs: that is bound by arithmetic, and unpacking a weight is
shared by up to 280 rows. One kernel has both and looks at the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ort_core.cpu.codegen.convolutions.convolution import prefetch
from ort_core.cpu.codegen.llvm_ir.bfloat16_lanes import joined_words, rounded_bits
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS
from ort_core.cpu.codegen.products import bfloat16_tiles
from ort_core.cpu.codegen.products.bfloat16_product import PairDriver, TileDriver, rounds_both, tiled_scratch
from ort_core.cpu.codegen.products.bfloat16_tiles import PAIR, has_tile_products
from ort_core.cpu.codegen.products.expression_epilogue import ExpressionEpilogue
from ort_core.cpu.codegen.products.matrix_product import (
    Blocking,
    ProductDriver,
    Scratch,
    finish_function,
    scratch_nbytes,
)
from ort_core.cpu.codegen.products.microkernel import TileShape, tile_shape
from ort_core.cpu.codegen.products.unpacked_product import UnpackedDriver
from ort_core.cpu.codegen.quantized.integer_convolution import integer_convolution_kernel
from ort_core.cpu.codegen.quantized.integer_convolution_plan import has_byte_tiles
from ort_core.cpu.codegen.quantized.nbits_byte_tile import NBitsByteDriver, NBitsByteTile, byte_tiling
from ort_core.cpu.codegen.quantized.nbits_matrix_tile import NBitsMatrixTile, NBitsTileDriver, matrix_tiling
from ort_core.cpu.codegen.quantized.nbits_tile import NBitsProduct, NBitsTile, unpacked_weight

FEW_ROWS = 16  # above, unpacking to memory is faster
PREFETCHED_NBYTES = 1 << 10  # how far ahead in the stream of weights
_BYTES = 4  # of a float
_TILE_BLOCKING = Blocking(depth=768, tiles=5)  # words of K: a panel of them lies beside a block of A in the scratch


@dataclass(frozen=True, slots=True)
class NBitsKernel:
    """A product of few bits in both forms.

    Attributes:
        spec: the product, with the epilogue as the form for few rows knows it.
        epilogue: the same as the form for many rows knows it.
        many: where the argument table for many rows starts in the step's; before it stands how many rows there are.
        in_pairs: whether many rows multiply in bfloat16, where the target has such products.
        in_bytes: whether rows are bytes (``byte_rows``), any number of them; there is no form for many rows then.
        in_tiles: whether bytes are multiplied in registers of tiles.
    """

    spec: NBitsProduct
    epilogue: ExpressionEpilogue | None
    many: int
    in_pairs: bool = False
    in_bytes: bool = False
    in_tiles: bool = False

    def uses_pairs(self, target: Target) -> bool:
        """Return whether the code for a target multiplies pairs of bfloat16."""
        return self.in_pairs and rounds_both(target)


def nbits_functions(name: str, kernel: NBitsKernel, target: Target) -> list[Emitter]:
    """Return the functions of a product; the last one is the kernel."""
    spec, shape, blocking = kernel.spec, tile_shape(target), Blocking()
    if kernel.in_tiles:
        return NBitsTileDriver(name, spec, target, NBitsMatrixTile, matrix_tiling(spec.parts)).functions()
    if kernel.in_bytes:
        return NBitsByteDriver(name, spec, target, NBitsByteTile, byte_tiling(target, spec.parts)).functions()
    few = integer_convolution_kernel(f"{name}_few", spec, target, NBitsTile, spec.tiling_for(target))
    many, has_epilogue = f"{name}_many", kernel.epilogue is not None
    in_pairs = kernel.uses_pairs(target)
    driver: ProductDriver
    if in_pairs and has_tile_products(target):
        shape = bfloat16_tiles.SHAPE
        driver = _TileDriver(many, shape, _TILE_BLOCKING, packed=False, has_epilogue=has_epilogue)
        assert driver.scratch.count * _BYTES <= scratch_nbytes(target)
    elif in_pairs:
        driver = _PairDriver(many, shape, blocking, packed=False, has_epilogue=has_epilogue)
    else:
        driver = _FloatDriver(many, shape, blocking, has_epilogue=has_epilogue)
    finish = finish_function(f"{many}_finish", shape, kernel.epilogue)
    unpack = _unpack_panel(f"{many}_unpack", spec, shape, in_pairs=in_pairs)
    return [*few, finish, unpack, driver.emit(), _chooser(name, kernel.many)]


def most_rows_of_tiles(target: Target, parts: int = 1) -> int:
    """Return how many rows the largest tile reads, of bytes in so many parts."""
    tiling = matrix_tiling(parts) if has_byte_tiles(target) else byte_tiling(target, parts)
    return tiling.widths[0]


def panel_multiple(target: Target) -> int:
    """Return by how many panels the stream of weights grows: a panel of the tiles has several of its."""
    vectors = tile_shape(target).vectors
    return math.lcm(vectors, bfloat16_tiles.SHAPE.vectors) if has_tile_products(target) else vectors


def _chooser(name: str, many: int) -> Emitter:
    """Return the kernel that hands its share to one of the two forms."""
    emitter = Emitter(name, KERNEL_PARAMETERS)
    args, *share = (emitter.parameter(name) for _, name in KERNEL_PARAMETERS)
    rows = emitter.argument(args, many - 1)
    with emitter.either(emitter.compare("sgt", rows, FEW_ROWS)) as branch:
        emitter.call_void(f"{name}_many", emitter.element(args, many, "i64"), *share)
        with branch.otherwise():
            emitter.call_void(f"{name}_few", args, *share)
    return emitter


class _FloatDriver(UnpackedDriver):
    """Unpacks to float32."""

    def _unpack(self, panel: IRValue, depth: IRValue, count: IRValue, to: IRValue) -> None:
        self.emitter.call_void(f"{self.name}_unpack", self.b, panel, depth, count, to)


class _PairDriver(PairDriver):
    """Unpacks to pairs of bfloat16; K counts pairs."""

    def _panel(
        self, panel: IRValue, left: IRValue, depth: IRValue, count: IRValue, tiles: IRValue
    ) -> tuple[IRValue, IRValue]:
        e = self.emitter
        to = e.element(self.mine, self.scratch.panel)
        e.call_void(f"{self.name}_unpack", self.b, panel, e.mul(depth, PAIR), e.mul(count, PAIR), to)
        return to, integer(self.shape.columns)


class _TileDriver(TileDriver):
    """Unpacks to pairs of bfloat16 for registers of tiles; K counts pairs, filled up with zeros to whole tiles."""

    _panel = _PairDriver._panel

    def _begin(self) -> None:
        super()._begin()
        own, words = tiled_scratch(self.shape, self.blocking), self.blocking.depth * self.shape.columns
        self.scratch = Scratch(own.sums, own.strips, own.strips + words, own.strip, own.count + words)


def _unpack_panel(name: str, spec: NBitsProduct, shape: TileShape, *, in_pairs: bool) -> Emitter:
    """Return the function that writes rows ``first`` to ``first + count`` of a panel, whole words of weights.

    Rows behind those of the stream, to which tiles fill K up, are zeros.
    """
    parameters = [("ptr noalias readonly", "from"), ("i64", "panel"), ("i64", "first"), ("i64", "count")]
    emitter = Emitter(name, [*parameters, ("ptr noalias", "to")], linkage="internal")
    lanes, per_word = shape.lanes, spec.per_word
    block_words = spec.block // per_word
    start = emitter.udiv(emitter.parameter("first"), per_word)
    wanted = emitter.udiv(emitter.add(emitter.parameter("count"), per_word - 1), per_word)
    words = emitter.minimum(wanted, emitter.sub(integer(spec.blocks * block_words), start))
    step = per_word // (PAIR if in_pairs else 1) * shape.columns
    with emitter.loop(emitter.mul(words, step), emitter.mul(wanted, step), lanes, unroll=False, hint="none") as at:
        nothing = IRValue(vector_type(lanes, "i32"), "zeroinitializer")
        emitter.store(nothing, emitter.element(emitter.parameter("to"), at), 4)
    for vector in range(shape.vectors):
        number = emitter.add(emitter.mul(emitter.parameter("panel"), shape.vectors), vector)
        stream = emitter.element(emitter.parameter("from"), emitter.mul(number, spec.panel_words * lanes), "i32")
        with emitter.loop(0, words, unroll=False, hint="word") as word:
            at = emitter.add(start, word)
            block = emitter.element(stream, emitter.mul(emitter.udiv(at, block_words), spec.block_words * lanes), "i32")
            inside = emitter.add(emitter.urem(at, block_words), spec.head)
            place = emitter.element(block, emitter.mul(inside, lanes), "i32")
            prefetch(emitter, emitter.element(place, PREFETCHED_NBYTES, "i8"), 3)
            weights = _weights(emitter, spec, lanes, block, place)
            row = emitter.mul(word, step)
            out = emitter.element(emitter.parameter("to"), emitter.add(row, vector * lanes))
            stored = weights
            if in_pairs:
                halves = [rounded_bits(emitter, weight, lanes) for weight in weights]
                pairs = zip(halves[::2], halves[1::2], strict=True)
                stored = [joined_words(emitter, low, high, lanes) for low, high in pairs]
            for index, value in enumerate(stored):
                emitter.store(value, emitter.element(out, index * shape.columns), 4)
    return emitter


def _weights(emitter: Emitter, spec: NBitsProduct, lanes: int, block: IRValue, place: IRValue) -> list[IRValue]:
    """Return the real weights of a word of each column."""
    floats = vector_type(lanes, "float")
    scale = emitter.load(floats, block, 4)
    zero = emitter.load(floats, emitter.element(block, lanes, "i32"), 4) if spec.has_zero_points else None
    packed = emitter.load(vector_type(lanes, "i32"), place, 4)
    unpacked = (unpacked_weight(emitter, spec.bits, lanes, packed, index, zero) for index in range(spec.per_word))
    return [emitter.binary("fmul", weight, scale) for weight in unpacked]
