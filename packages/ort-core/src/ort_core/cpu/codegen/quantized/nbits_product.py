"""Products with weights of 4 or 8 bits in blocks, for any number of rows.

A few rows read the stream of weights once and unpack them in registers: that is bound by memory for one row. Where the
model allows it, they are multiplied as bytes (``nbits_byte_tile``), else as float32 (``nbits_tile``). Many rows unpack
a panel at a time, to float32 or to pairs of bfloat16, and run the tiles of ordinary products over it: that is bound by
arithmetic, and unpacking a weight is shared by up to 280 rows. One kernel has both and looks at the rows. Registers of
tiles (``nbits_matrix_tile``) multiply any number of rows as bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ort_core.cpu.codegen.convolutions.convolution import prefetch
from ort_core.cpu.codegen.llvm_ir.bfloat16_lanes import joined_words, rounded_bits
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS
from ort_core.cpu.codegen.products.bfloat16_product import PairDriver, has_pair_products
from ort_core.cpu.codegen.products.bfloat16_tiles import PAIR
from ort_core.cpu.codegen.products.expression_epilogue import ExpressionEpilogue
from ort_core.cpu.codegen.products.matrix_product import Blocking, ProductDriver, finish_function
from ort_core.cpu.codegen.products.microkernel import TileShape, tile_shape
from ort_core.cpu.codegen.products.unpacked_product import UnpackedDriver
from ort_core.cpu.codegen.quantized.integer_convolution import integer_convolution_kernel
from ort_core.cpu.codegen.quantized.nbits_byte_tile import NBitsByteTile, byte_tiling
from ort_core.cpu.codegen.quantized.nbits_matrix_tile import TILING, NBitsMatrixTile, NBitsTileDriver
from ort_core.cpu.codegen.quantized.nbits_tile import NBitsProduct, NBitsTile, unpacked_weight

FEW_ROWS = 16  # above, unpacking to memory is faster
PREFETCHED_NBYTES = 1 << 10  # how far ahead in the stream of weights


@dataclass(frozen=True, slots=True)
class NBitsKernel:
    """A product of few bits in both forms.

    Attributes:
        spec: the product, with the epilogue as the form for few rows knows it.
        epilogue: the same as the form for many rows knows it.
        many: where the argument table for many rows starts in the step's; before it stands how many rows there are.
        in_pairs: whether many rows multiply in bfloat16, where the target has such products.
        in_bytes: whether few rows are bytes (``byte_rows``).
        in_tiles: whether any number of them is, multiplied in registers of tiles; there is no form for many rows then.
    """

    spec: NBitsProduct
    epilogue: ExpressionEpilogue | None
    many: int
    in_pairs: bool = False
    in_bytes: bool = False
    in_tiles: bool = False

    def uses_pairs(self, target: Target) -> bool:
        """Return whether the code for a target multiplies pairs of bfloat16."""
        return self.in_pairs and has_pair_products(target)


def nbits_functions(name: str, kernel: NBitsKernel, target: Target) -> list[Emitter]:
    """Return the functions of a product; the last one is the kernel."""
    spec, shape, blocking = kernel.spec, tile_shape(target), Blocking()
    if kernel.in_tiles:
        return NBitsTileDriver(name, spec, target, NBitsMatrixTile, TILING).functions()
    tile = NBitsByteTile if kernel.in_bytes else NBitsTile
    cut = byte_tiling(target) if kernel.in_bytes else spec.tiling_for(target)
    few = integer_convolution_kernel(f"{name}_few", spec, target, tile, cut)
    many = f"{name}_many"
    finish = finish_function(f"{many}_finish", shape, kernel.epilogue)
    in_pairs = kernel.uses_pairs(target)
    unpack = _unpack_panel(f"{many}_unpack", spec, shape, in_pairs=in_pairs)
    driver: ProductDriver
    if in_pairs:
        driver = _PairDriver(many, shape, blocking, packed=False, has_epilogue=kernel.epilogue is not None)
    else:
        driver = _FloatDriver(many, shape, blocking, has_epilogue=kernel.epilogue is not None)
    return [*few, finish, unpack, driver.emit(), _chooser(name, kernel.many)]


def panel_multiple(target: Target) -> int:
    """Return by how many panels the stream of weights grows: a panel of the tiles has several of its."""
    return tile_shape(target).vectors


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


def _unpack_panel(name: str, spec: NBitsProduct, shape: TileShape, *, in_pairs: bool) -> Emitter:
    """Return the function that writes rows ``first`` to ``first + count`` of a panel, whole words of weights."""
    parameters = [("ptr noalias readonly", "from"), ("i64", "panel"), ("i64", "first"), ("i64", "count")]
    emitter = Emitter(name, [*parameters, ("ptr noalias", "to")], linkage="internal")
    lanes, per_word = shape.lanes, spec.per_word
    block_words = spec.block // per_word
    start = emitter.udiv(emitter.parameter("first"), per_word)
    words = emitter.udiv(emitter.add(emitter.parameter("count"), per_word - 1), per_word)
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
            row = emitter.mul(word, per_word // (PAIR if in_pairs else 1) * shape.columns)
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
