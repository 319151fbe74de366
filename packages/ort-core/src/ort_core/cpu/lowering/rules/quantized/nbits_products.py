"""MatMulNBits: products with constant weights of 4 or 8 bits in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.products.expression_epilogue import ExpressionEpilogue
from ort_core.cpu.codegen.products.matrix_product import ARGUMENTS as PRODUCT_ARGUMENTS
from ort_core.cpu.codegen.products.matrix_product import scratch_nbytes
from ort_core.cpu.codegen.quantized.byte_rows import ROW_DIMS, ByteRows, byte_rows_kernel
from ort_core.cpu.codegen.quantized.integer_convolution_plan import ARGUMENTS, has_byte_tiles
from ort_core.cpu.codegen.quantized.nbits_byte_tile import multiplies_bytes
from ort_core.cpu.codegen.quantized.nbits_product import (
    NBitsKernel,
    most_rows_of_tiles,
    nbits_functions,
    panel_multiple,
)
from ort_core.cpu.codegen.quantized.nbits_tile import NBitsProduct, pack_nbits
from ort_core.cpu.lowering.images.layout_steps import text_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor, structure_of
from ort_core.cpu.lowering.products.product_arguments import ProductMemory, product_words, rows_of
from ort_core.cpu.lowering.products.product_panels import tile_table_buffer
from ort_core.cpu.lowering.products.quantized import F32
from ort_core.cpu.lowering.rules.quantized.integer_anchors import PixelOperands
from ort_core.cpu.lowering.steps import Argument, NotLowered, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import (
    Buffer,
    Place,
    View,
    broadcast_strides,
    collapse,
    count_of,
    dense_strides,
)
from ort_core.plugin.ir import DataType, KnownDim, Node
from ort_core.plugin.loops import Scalar, element
from ort_core.plugin.memory import release_pages

MAX_INPUTS = 4  # of an epilogue over many rows
PRODUCT = element(0, F32)  # one for all: expressions are equal to themselves alone
BFLOAT16_LEVEL = 3  # onnxruntime's accuracy levels: 1 float32, 2 float16, 3 bfloat16, 4 int8 on the left
PARTS = {
    2: 2,
    4: 1,
}  # bytes of a number of the left side, by level: two are finer than float16 beside a block's largest


@dataclass(frozen=True, slots=True, eq=False)
class NBitsWeights:
    """Words of weights ``[columns][blocks][words]``; scales and zero points (or ``None``) ``[columns][blocks]``."""

    words: np.ndarray
    scales: np.ndarray
    zero_points: np.ndarray | None
    depth: int
    bits: int
    block: int
    takes_bfloat16: bool = False  # the node's accuracy level allows to round the left side to it
    byte_parts: int = 0  # and, if not 0, to as many signed bytes with a scale for each block


@dataclass(frozen=True, slots=True, eq=False)
class NBitsAnchor:
    """The product of a matrix with dense rows and packed weights."""

    x: View
    weights: NBitsWeights
    rank: int
    operator: str = "MatMulNBits"

    @property
    def result_types(self) -> frozenset[DataType]:
        """Products are float32."""
        return frozenset({F32})

    def can_fuse(self, shape: Sequence[KnownDim], inputs: Sequence[View]) -> bool:
        """Return whether each operand is one float32 number, one for each column or row, or a matrix of the shape."""
        floats = len(inputs) <= MAX_INPUTS and all(view.dtype is F32 for view in inputs)
        return floats and self._operands.can_read(shape, inputs)

    @property
    def _operands(self) -> PixelOperands:
        return PixelOperands(self.rank - 1)

    def store(self, lowering: Lowering, pending: PendingAnchor, target: View) -> None:
        """Write the step: a table for few rows, and one for many behind it where those are other code."""
        kinds = self._operands.kinds(pending)
        known, machine = self.weights, lowering.target
        in_bytes = known.byte_parts > 0 and multiplies_bytes(known.bits, machine)
        in_tiles = in_bytes and has_byte_tiles(machine)
        left = _as_bytes(lowering, self.x, known) if in_bytes else self.x
        x_nbytes = 1 if in_bytes else 4
        own = [*left.strides[:-1]]
        sizes, strides = self._operands.pixels(pending, target, own, pending.shape[:-1])
        pitch = strides[0][2] * x_nbytes
        spec = NBitsProduct(
            known.depth, known.words.shape[0], pending.expression, kinds, bits=known.bits, block=known.block,
            has_zero_points=known.zero_points is not None, x_pixel=pitch if isinstance(pitch, int) else None,
            parts=known.byte_parts if in_bytes else 1,
        )  # fmt: skip
        multiple = 1 if in_bytes else panel_multiple(machine)
        stream = pack_nbits(
            spec, known.words, known.scales, known.zero_points, machine, multiple, lowering.weights.placed
        )
        packed = lowering.constant_view(stream, DataType.INT32)
        release_pages(known.words)
        x, y = strides[0], strides[1]
        words: list[Argument] = [
            pointer(left), pointer(packed), pointer(target), *sizes, x[1] * x_nbytes, x[0] * x_nbytes, y[1], y[0],
            pitch, y[2],
        ]  # fmt: skip
        assert len(words) == ARGUMENTS.epilogue
        words.extend(self._operands.words(pending, kinds, strides[2:]))
        dense = _dense(pending)
        kernel = NBitsKernel(
            spec, _epilogue(pending, dense), len(words) + 1, known.takes_bfloat16 or lowering.uses_bfloat16, in_bytes,
            in_tiles,
        )  # fmt: skip
        writes = [target.buffer]
        if not in_bytes:
            memory = ProductMemory(
                lowering.scratch(DataType.UINT8, scratch_nbytes(machine)), scratch_nbytes(machine),
                tile_table_buffer(machine, in_bfloat16=kernel.in_pairs),
            )  # fmt: skip
            rows = rows_of(self.x, target, pending.inputs, pending.shape)
            words.append(count_of(pending.shape[:-1]))
            words.extend(product_words(self.x, packed, target, pending.inputs, rows, memory))
            writes.append(memory.scratch)
        flops = count_of(pending.shape) * (2 * known.depth)
        reads = [left.buffer, packed.buffer, *(view.buffer for view in pending.inputs)]
        text = lowering.kernel(
            (
                replace(spec, expression=PRODUCT),
                structure_of(spec.expression),
                kernel.in_pairs,
                in_bytes,
                in_tiles,
                kernel.many,
                dense,
            ),
            lambda: text_kernel(
                "nbits", lambda name: module_text(nbits_functions(name, kernel, machine)), is_vectorized=True
            ),
        )
        lowering.emit(text, words, reads, writes, flops // 16 + 1, pending.operators, flops)


def _as_bytes(lowering: Lowering, x: View, weights: NBitsWeights) -> View:
    """Return rows as bytes, written once for all products that read them in the same blocks."""
    has_zeros = weights.zero_points is not None
    spec = ByteRows(weights.depth, weights.block, weights.bits, has_zeros, weights.byte_parts)
    key = (x.buffer, x.offset, x.shape, x.strides, spec)
    found: View = lowering.remembered(key, lambda: _byte_rows(lowering, x, spec))
    return found


def _byte_rows(lowering: Lowering, x: View, spec: ByteRows) -> View:
    """Write the step that rounds rows to bytes; tiles read what stands behind the last row, too."""
    sizes, strides = collapse(x.shape[:-1], [x.strides[:-1]])
    missing = ROW_DIMS - len(sizes)
    rows = count_of(x.shape[:-1])
    shape = (*x.shape[:-1], spec.pitch)
    most = most_rows_of_tiles(lowering.target, spec.parts)
    count = (rows + most - 1) * spec.pitch
    target = View(Buffer(DataType.INT8, count, Place.ARENA), shape, dense_strides(shape))
    words: list[Argument] = [
        pointer(x), pointer(target), rows, most, *[1] * missing, *sizes, *[0] * missing, *strides[0],
    ]  # fmt: skip
    machine = lowering.target
    kernel = lowering.kernel(
        spec,
        lambda: text_kernel(
            "byte_rows", lambda name: module_text([byte_rows_kernel(name, spec, machine)]), is_vectorized=True
        ),
    )
    work = rows * spec.depth
    lowering.emit(kernel, words, [x.buffer], [target.buffer], work, ("Quantize",))
    return target


def _dense(pending: PendingAnchor) -> tuple[bool, ...]:
    """Return which operands lie along the columns."""
    strides = [broadcast_strides(view, pending.shape) for view in pending.inputs]
    return tuple(each is not None and each[-1] == 1 for each in strides)


def _epilogue(pending: PendingAnchor, dense: tuple[bool, ...]) -> ExpressionEpilogue | None:
    """Return the expression as products of many rows compute it."""
    if pending.expression.operation == "input":
        return None
    return ExpressionEpilogue(pending.expression, dense, PRODUCT_ARGUMENTS.count)


def matmul_nbits(lowering: Lowering, node: Node) -> None:
    """MatMulNBits of float32 rows with a constant right side."""
    value = node.input(0)
    if value is None or tensor_type(value)[0] is not F32 or node.input(4) is not None:
        raise NotLowered("only rows of float32 with the columns of K in order are generated")
    weights = _weights(lowering, node)
    _, shape = tensor_type(node.output)
    x = lowering.view(value)
    lowering.require_equal(x.shape[-1], weights.depth)
    if len(x.shape) < 2:
        raise NotLowered("a single vector is not generated")
    sizes, _ = collapse(x.shape[:-1], [x.strides[:-1]])
    if x.strides[-1] != 1 or len(sizes) > 3:
        x = lowering.copied(x)
    anchor = NBitsAnchor(x, weights, len(shape))
    result: Scalar = element(0, F32)
    inputs: tuple[View, ...] = ()
    if node.input(5) is not None:
        inputs = (lowering.contiguous(node.input(5)),)
        if not anchor.can_fuse(shape, inputs):
            raise NotLowered("the bias does not lie along the columns")
        result = result + element(1, F32)
    lowering.set(node.output, PendingAnchor(anchor, result, inputs, shape, (node,)))


def _weights(lowering: Lowering, node: Node) -> NBitsWeights:
    bits, block = node.int_attribute("bits", 4), node.int_attribute("block_size", 32)
    depth, columns = node.int_attribute("K", 0), node.int_attribute("N", 0)
    packed, scales = lowering.constant_of(node.input(1)), lowering.constant_of(node.input(2))
    if bits not in (4, 8) or block % 8:
        raise NotLowered(f"weights of {bits} bits in blocks of {block} are not generated")
    if packed is None or scales is None or packed.dtype != np.uint8:
        raise NotLowered("the weights or their scales are not constant")
    blocks = -(-depth // block)
    if packed.size != columns * blocks * block * bits // 8 or scales.size != columns * blocks:
        raise NotLowered(f"weights of shape {packed.shape} with scales of shape {scales.shape} do not fit K and N")
    # Bytes hold their first weight in their low bits, and a block is whole words: no weight changes its place.
    words = np.ascontiguousarray(packed).reshape(columns, blocks, -1).view("<u4")
    zeros: np.ndarray | None = None
    if node.input(3) is not None:
        zeros = lowering.constant_of(node.input(3))
        if zeros is None:
            raise NotLowered("the zero points are not constant")
        expected = columns * (-(-blocks * bits // 8) if zeros.dtype == np.uint8 else blocks)
        if zeros.size != expected:
            raise NotLowered(f"{zeros.size} zero points where {expected} are expected")
        if zeros.dtype == np.uint8:
            zeros = _unpacked(zeros.reshape(columns, -1), bits)[:, :blocks]
        zeros = zeros.reshape(columns, blocks).astype(np.float32)
    real = scales.reshape(columns, blocks).astype(np.float32)
    level = node.int_attribute("accuracy_level", 0)
    return NBitsWeights(words, real, zeros, depth, bits, block, level >= BFLOAT16_LEVEL, PARTS.get(min(level, 4), 0))


def _unpacked(rows: np.ndarray, bits: int) -> np.ndarray:
    if bits == 8:
        return rows
    return np.stack([rows & 15, rows >> 4], axis=-1).reshape(rows.shape[0], -1)
