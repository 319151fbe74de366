"""Weights quantized in blocks along one axis: unpacked, shifted and scaled by operators of ai.onnx."""

from __future__ import annotations

import numpy as np

from ort_core.ir.constants import Constant
from ort_core.ir.dims import Dim
from ort_core.ir.types import DataType
from ort_core.ir.values import Value
from ort_core.ops.bodies.activations import Results
from ort_core.ops.bodies.writer import BodyWriter, NoBody

FP4_VALUES = (
    0, 5.208333e-03, 0.6666667, 1, 0.3333333, 0.5, 0.1666667, 0.25,
    0, -5.208333e-03, -0.6666667, -1, -0.3333333, -0.5, -0.1666667, -0.25,
)  # fmt: skip
"""What bitsandbytes' 4-bit floats stand for."""
NF4_VALUES = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""What bitsandbytes' normal floats stand for."""


def _parts(w: BodyWriter, packed: Value, bits: int) -> list[Value]:
    """Return the codes of a byte, those of the low bits first, each as floats of the bytes' shape.

    What a code and those below it make, less what those below it make, is the code times a power of two: differences
    and quotients that floats hold. No byte is shifted or divided: not every engine cuts off what is left over.
    """
    limits = range(bits, 8, bits)
    below = [w.cast(w.op("Mod", packed, w.constant(1 << limit, DataType.UINT8)), DataType.FLOAT) for limit in limits]
    sums = [*below, w.cast(packed, DataType.FLOAT)]
    codes = [sums[0]]
    for limit, low, high in zip(limits, sums, sums[1:], strict=False):
        codes.append(w.op("Mul", w.op("Sub", high, low), w.constant(0.5**limit, DataType.FLOAT)))
    return codes


def _unpacked(w: BodyWriter, packed: Value, bits: int, *shape: int | Value, high_first: bool = False) -> Value:
    """Return the codes of bytes as floats in a shape; the last axis of the bytes holds 8 / bits codes each."""
    if bits == 8:
        return w.cast(w.reshape(packed, *shape), DataType.FLOAT)
    if bits not in (2, 4):
        raise NoBody(f"codes of {bits} bits have no body")
    codes = _parts(w, packed, bits)
    if high_first:
        codes.reverse()
    return w.reshape(w.joined(*(w.unsqueeze(code, -1) for code in codes), axis=-1), *shape)


def constant_codes(w: BodyWriter, index: int, bits: int, rows: int, width: int) -> Value:
    """Return the first ``width`` codes of each row of an input of bytes, as floats of (rows, width).

    Those of a constant are one, too, of a byte each: engines that multiply by narrow weights know them so.
    """
    held = w.constant_input(index)
    if held is None:
        packed = w.reshape(w.input(index), rows, -1)
        return w.slice(_unpacked(w, packed, bits, rows, -1), 1, 0, width)
    return w.cast(w.op("Constant", value=_spread(held, bits, rows, width)), DataType.FLOAT)


def _spread(held: Constant, bits: int, rows: int, width: int) -> Constant:
    """Return the codes of constant bytes, spread when they are read."""

    def read() -> np.ndarray:
        packed = held.array().reshape(rows, -1, 1)
        codes = (packed >> np.arange(0, 8, bits, dtype=np.uint8)) & np.uint8((1 << bits) - 1)
        return np.ascontiguousarray(codes.reshape(rows, -1)[:, :width])

    return Constant(DataType.UINT8, (rows, width), read)


def _zero_points(w: BodyWriter, index: int, bits: int, rows: int, blocks: int) -> Value:
    """Return float32 (rows, blocks) zero points: packed like the weights, one float per block, or the middle code."""
    if not w.has(index):
        return w.constant(float(1 << (bits - 1)), DataType.FLOAT)
    if w.dtype(index) is not DataType.UINT8:
        return w.reshape(w.wide(index), rows, blocks)
    return constant_codes(w, index, bits, rows, blocks)


def matmul_n_bits(w: BodyWriter) -> Results:
    """Y = A @ dequantized(B).T + bias."""
    rows, width, block, bits = (w.int_of(name) for name in ("N", "K", "block_size", "bits"))
    if w.int_of("weight_prepacked"):
        raise NoBody("weights that were packed for one engine have no body")
    blocks = -(-width // block)
    if w.has(4):
        weights = _by_groups(w, rows, width, bits, blocks)
    else:
        codes = w.reshape(constant_codes(w, 1, bits, rows, blocks * block), rows, blocks, block)
        middle = _zero_points(w, 3, bits, rows, blocks)
        shifted = w.op("Sub", codes, w.unsqueeze(middle, 2) if w.has(3) else middle)
        scaled = w.op("Mul", shifted, w.reshape(w.wide(2), rows, blocks, 1))
        weights = w.reshape(scaled, rows, blocks * block)
        if blocks * block != width:
            weights = w.slice(weights, 1, 0, width)
    product = w.op("MatMul", w.wide(0), w.transpose(weights, 1, 0))
    return [w.narrow(w.sum(product, w.find_wide(5)))]


def _by_groups(w: BodyWriter, rows: int, width: int, bits: int, blocks: int) -> Value:
    """Return (rows, width) weights, the block of each column given by an input."""
    codes = constant_codes(w, 1, bits, rows, width)
    groups = w.slice(w.input(4), 0, 0, width)
    middle = _zero_points(w, 3, bits, rows, blocks)
    if w.has(3):
        middle = w.op("Gather", middle, groups, axis=1)
    scales = w.op("Gather", w.reshape(w.wide(2), rows, blocks), groups, axis=1)
    return w.op("Mul", w.op("Sub", codes, middle), scales)


def matmul_bnb4(w: BodyWriter) -> Results:
    """Y = A @ W.T (A @ W without transB), W (N, K) of 4-bit codes, high half first, scaled by block over all of W."""
    rows, width, block = (w.int_of(name) for name in ("N", "K", "block_size"))
    count = rows * width
    blocks = -(-count // block)
    flat = w.reshape(w.input(1), -1)
    codes = w.slice(_unpacked(w, flat, 4, -1, high_first=True), 0, 0, count)
    table = w.constant(NF4_VALUES if w.int_of("quant_type") == 1 else FP4_VALUES, DataType.FLOAT)
    values = w.op("Gather", table, w.cast(codes, DataType.INT32), axis=0)
    scales = w.unsqueeze(w.slice(w.reshape(w.wide(2), -1), 0, 0, blocks), 1)
    repeated = w.reshape(w.op("Expand", scales, w.ints(blocks, block)), -1)
    weights = w.reshape(w.op("Mul", values, w.slice(repeated, 0, 0, count)), rows, width)
    turned = w.transpose(weights, 1, 0) if w.int_of("transB", 1) else weights
    return [w.narrow(w.op("MatMul", w.wide(0), turned))]


def gather_block_quantized(w: BodyWriter) -> Results:
    """Gather rows of bytes that hold codes along the last axis, and dequantize them; other rows are zeros."""
    rank, bits, block = w.rank(0), w.int_of("bits", 4), w.int_of("block_size", 128)
    if w.dtype(0) is not DataType.UINT8:
        raise NoBody(f"Gather of ai.onnx takes no {w.dtype(0).text}")
    if w.int_of("gather_axis") % rank or w.int_of("quantize_axis", 1) % rank != rank - 1 or rank < 2:
        raise NoBody("codes that are gathered along another axis than the first, or lie along another than the last")
    shape = w.shape(0)
    length, width = known_size(shape, 0), known_size(shape, -1) * (8 // bits)
    inside, rows = _rows(w, length)
    taken = [w.op("Gather", w.input(index), rows, axis=0) for index in (0, 2)]
    after = rank + w.rank(1) - 1
    head = [0] * (after - 1)
    codes = _unpacked(w, taken[0], bits, *head, width)
    if width % block:
        raise NoBody("a row that ends inside of a block")
    blocks = w.reshape(codes, *head, -1, block)
    if w.has(3):
        packed = w.op("Gather", w.input(3), rows, axis=0)
        zeros = w.slice(_unpacked(w, packed, bits, *head, -1), after - 1, 0, width // block)
        shifted = w.op("Sub", blocks, w.unsqueeze(zeros, -1))
    else:
        shifted = w.op("Sub", blocks, w.constant(float(1 << (bits - 1)), DataType.FLOAT))
    scales = taken[1] if w.dtype(2) is DataType.FLOAT else w.cast(taken[1], DataType.FLOAT)
    values = w.reshape(w.op("Mul", shifted, w.unsqueeze(scales, -1)), *head, width)
    kept = w.unsqueeze(inside, *range(w.rank(1), after))
    return [w.narrow(w.op("Where", kept, values, w.constant(0, DataType.FLOAT)), 2)]


def _rows(w: BodyWriter, length: int) -> tuple[Value, Value]:
    """Return which indices lie in an axis, and indices that do."""
    indices, dtype = w.input(1), w.dtype(1)
    end, none = w.constant(length, dtype), w.constant(0, dtype)
    wanted = w.op("Where", w.op("Less", indices, none), w.op("Add", indices, end), indices)
    inside = w.op("And", w.op("GreaterOrEqual", wanted, none), w.op("Less", wanted, end))
    last = w.constant(length - 1, dtype)
    return inside, w.op("Min", w.op("Max", wanted, none), last)  # engines that know no Clip of integers have both


def known_size(shape: tuple[Dim, ...] | None, axis: int) -> int:
    """Return a size that must be a number."""
    size = shape[axis] if shape else None
    if not isinstance(size, int):
        raise NoBody("the sizes of its data are not known")
    return size
