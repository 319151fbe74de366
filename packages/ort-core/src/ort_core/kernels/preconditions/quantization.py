"""Products and arithmetic over quantized tensors: shapes of scales and zero points."""

from __future__ import annotations

import math

from ort_core.ir.dims import ceil_div
from ort_core.kernels.preconditions.conditions import Conditions, Sizes


def integer_product(c: Conditions) -> None:
    """A's zero point is a scalar (or one per row, as the schema allows), B's a scalar or one per column."""
    a, b = c.shape(0), c.shape(1)
    _rows(c, 2, "a_zero_point", a)
    _columns(c, 3, "b_zero_point", b)


def quantized_product(c: Conditions) -> None:
    """A, scale, zero point; B, scale, zero point; scale and zero point of Y."""
    for index, name in ((1, "a_scale"), (2, "a_zero_point"), (6, "y_scale"), (7, "y_zero_point")):
        c.scalar(index, name)
    for index, name in ((4, "b_scale"), (5, "b_zero_point")):
        _columns(c, index, name, c.shape(3))


def _rows(c: Conditions, index: int, name: str, a: Sizes | None) -> None:
    shape = c.shape(index)
    if shape is None or a is None or not shape:
        return
    if len(shape) == 1:
        if shape[0] != 1 and len(a) > 1:
            c.equal(shape[0], a[-2], f"input '{name}' must have one element, or one for each row of A")
        return
    text = f"input '{name}' must be a scalar, a vector, or have A's dimensions with one column"
    c.require(len(shape) == len(a) > 2, text)
    for found, wanted in zip(shape, (*a[:-1], 1), strict=True):
        c.equal(found, wanted, text)


def _columns(c: Conditions, index: int, name: str, b: Sizes | None) -> None:
    """One element, one per column, or with B's rank: [..., 1, N]."""
    shape = c.shape(index)
    if shape is None or b is None or len(shape) == 0:
        return
    if len(shape) == 1:
        if shape[0] != 1 and b:
            c.equal(shape[0], b[-1], f"input '{name}' must have one element, or one for each column of B")
        return
    text = f"input '{name}' must be a scalar, a vector, or have B's dimensions with one row"
    c.require(len(shape) == len(b), text)
    for found, wanted in zip(shape, (*b[:-2], 1, b[-1]), strict=True):
        c.equal(found, wanted, text)


def quantized_binary(c: Conditions) -> None:
    """A, scale, zero point; B, scale, zero point; scale and zero point of C: scalars."""
    names = ("A_scale", "A_zero_point", "B_scale", "B_zero_point", "C_scale", "C_zero_point")
    for index, name in zip((1, 2, 4, 5, 6, 7), names, strict=True):
        c.scalar(index, name)


def quantized_unary(c: Conditions) -> None:
    """X, scale, zero point, scale and zero point of Y: scalars."""
    for index, name in enumerate(("X_scale", "X_zero_point", "Y_scale", "Y_zero_point"), start=1):
        c.scalar(index, name)


def integer_binary(c: Conditions) -> None:
    """MulInteger: zero points that are scalars."""
    c.scalar(1, "A_zero_point")
    c.scalar(3, "B_zero_point")


def quantized_mean(c: Conditions) -> None:
    """QLinearReduceMean: scales and zero points that are scalars."""
    for index, name in enumerate(("data_scale", "data_zero_point", "reduced_scale", "reduced_zero_point"), start=1):
        c.scalar(index, name)


def linear(c: Conditions) -> None:
    """QuantizeLinear and DequantizeLinear of ONNX: one zero point beside one scale, else one for each."""
    scale = c.shape(1)
    if scale is None:
        return
    if len(scale) > 1 or (scale and scale[0] != 1):
        c.same_shape(1, 2, "scale and zero point")
    else:
        c.scalar(2, "zero_point")


def contrib_linear(c: Conditions) -> None:
    """QuantizeLinear and DequantizeLinear of com.microsoft: per tensor scalars, or vectors along the axis."""
    x, scale = c.shape(0), c.rank(1, "scale", 0, 1)
    if x is None or scale is None:
        return
    if not scale or scale[0] == 1:
        c.scalar(2, "zero_point")
        return
    axis = c.node.int_attribute("axis", 1)
    c.require(-len(x) <= axis < len(x), f"axis {axis} is not in the valid range [{-len(x)}, {len(x) - 1}]")
    c.sized(1, "scale", x[axis])
    c.sized(2, "zero_point", x[axis])


def n_bits_product(c: Conditions) -> None:
    """MatMulNBits: B [N, blocks, bytes of a block], scales [N * blocks] or [N, blocks], zero points likewise."""
    n, block = c.node.int_attribute("N", 0), c.node.int_attribute("block_size", 32)
    c.require(block >= 16 and not block & (block - 1), f"block_size must be a power of two >= 16, got {block}")
    c.rank(1, "B", 3)
    scales, rows = c.rank(2, "scales", 1, 2), ceil_div(c.node.int_attribute("K", 0), block)
    if scales is not None and isinstance(rows, int):
        c.sized(2, "scales", *((n, rows) if len(scales) == 2 else (n * rows,)))
    points = c.rank(3, "zero_points", 1, 2)
    if points is not None and c.holds_bytes(3):
        bits, k = c.node.int_attribute("bits", 4), c.node.int_attribute("K", 0)
        width = ceil_div(ceil_div(k, block) * bits, 8)
        c.sized(3, "zero_points", *((n, width) if len(points) == 2 else (n * width,)))
    elif points is not None:
        blocks = ceil_div(c.node.int_attribute("K", 0), block)
        c.sized(3, "zero_points", *((n, blocks) if len(points) == 2 else (n * blocks,)))
    c.sized(5, "bias", n)


def product_to_float(c: Conditions) -> None:
    """MatMulIntegerToFloat: A, B, scales and zero points of both, a bias with an element for each column of B."""
    _bias_of_columns(c, 6)


def dynamic_product(c: Conditions) -> None:
    """DynamicQuantizeMatMul: A, B, scale and zero point of B, a bias with an element for each column of B."""
    _bias_of_columns(c, 4)


def _bias_of_columns(c: Conditions, place: int) -> None:
    b, bias = c.shape(1), c.shape(place)
    if b and bias is not None:
        text = f"bias tensor's element count must equal B's last dimension, {b[-1]}"
        c.equal(math.prod(bias), b[-1], text)


def gated_n_bits(c: Conditions) -> None:
    """MatMulNBitsMlp: weights and biases of N rows."""
    _normalized(c)
    for place, name in ((3, "gate"), (6, "up")):
        _weights_of_blocks(c, place, name, c.node.int_attribute("N", 0))


def attended_n_bits(c: Conditions) -> None:
    """MatMulNBitsQkv: weights and biases of Nq rows for queries, of Nkv for keys and values."""
    _normalized(c)
    for place, name, rows in ((3, "q", "Nq"), (6, "k", "Nkv"), (9, "v", "Nkv")):
        _weights_of_blocks(c, place, name, c.node.int_attribute(rows, 0))


def _normalized(c: Conditions) -> None:
    """A skip is added to what is normalized, and norm_scale [K] says that it is."""
    c.require(c.has(2) or not c.has(1), "norm_scale must be there where skip is")
    c.sized(2, "norm_scale", c.node.int_attribute("K", 0))


def _weights_of_blocks(c: Conditions, place: int, name: str, rows: int) -> None:
    """Weights [rows, blocks, bytes of a block], scales [rows, blocks] or in one vector, a bias [rows]."""
    block, bits = max(c.node.int_attribute("block_size", 32), 1), c.node.int_attribute("bits", 4)
    blocks = ceil_div(c.node.int_attribute("K", 0), block)
    c.sized(place, f"{name}_B", rows, blocks, ceil_div(block * bits, 8))
    scales = c.rank(place + 1, f"{name}_scales", 1, 2)
    if scales is not None:
        c.sized(place + 1, f"{name}_scales", *((rows, blocks) if len(scales) == 2 else (rows * blocks,)))
    c.sized(place + 2, f"{name}_bias", rows)


def gathered_blocks(c: Conditions) -> None:
    """GatherBlockQuantized: scales and zero points have one element for each block of the quantized axis."""
    data, scales = c.at_least(0, "data", 1), c.shape(2)
    if data is None or scales is None:
        return
    rank, block = len(data), c.node.int_attribute("block_size", 128)
    axis = c.node.int_attribute("quantize_axis", 1)
    c.require(-rank <= axis < rank, f"quantize_axis {axis} is not in the valid range [{-rank}, {rank - 1}]")
    if not c.holds_bytes(0):
        c.require(c.node.int_attribute("bits", 4) == 4, "bits must be 4 for int4 and uint4 data")
    c.require(len(scales) == rank, f"data has {rank} dimensions and scales {len(scales)}: they must have as many")
    packed = 8 // c.node.int_attribute("bits", 4) if c.holds_bytes(0) else 1
    for index, (left, right) in enumerate(zip(data, scales, strict=True)):
        if index != axis % rank:
            c.equal(left, right, f"data and scales do not match in dimension {index}")
        elif block > 0:
            c.equal(ceil_div(left * packed, block), right, f"data and scales do not match in dimension {index}")
    per_byte = packed if c.holds_bytes(3) else 1
    c.sized(3, "zero_points", *scales[:-1], ceil_div(scales[-1], per_byte))


def quantized_attention(c: Conditions) -> None:
    """QAttention: bias [columns of the weights], scale and zero point of the input scalars."""
    weights = c.rank(1, "weights", 2)
    if weights is not None:
        c.sized(2, "bias", weights[1])
        x = c.rank(0, "input", 3)
        if x is not None:
            c.equal(weights[0], x[2], "weights must have as many rows as the input's last dimension")
    c.at_least(5, "mask_index", 1)
    for index, name in ((3, "input_scale"), (6, "input_zero_point")):
        c.scalar(index, name)
    for index, name in ((4, "weight_scale"), (7, "weight_zero_point")):
        shape = c.shape(index)
        text = f"'{name}' must be a scalar or a 1D tensor of size 3 * hidden_size, got {shape}"
        c.require(shape is None or len(shape) < 2, text)


def quantized_softmax(c: Conditions) -> None:
    """X of one dimension or more with an axis that it has, and scalars."""
    x = c.at_least(0, "X", 1)
    if x is not None:
        axis, rank = c.node.int_attribute("axis", -1), len(x)
        c.require(-rank <= axis < rank, f"'axis' must be in [{-rank} , {rank - 1}]. Its actual value is: {axis}")
    quantized_unary(c)


def quantized_concatenation(c: Conditions) -> None:
    """QLinearConcat: scale and zero point of Y, then X, scale and zero point each: X alike but for the axis."""
    c.scalar(0, "Y_scale")
    c.scalar(1, "Y_zero_point")
    shapes = [c.at_least(index, "X", 1) for index in range(2, len(c.shapes), 3)]
    known = [shape for shape in shapes if shape is not None]
    if not known:
        return
    first, axis = known[0], c.node.int_attribute("axis", 0)
    c.require(-len(first) <= axis < len(first), f"'axis' must be an axis of {len(first)}, got {axis}")
    for shape in known[1:]:
        c.require(len(shape) == len(first), f"all X must have as many dimensions, got {len(first)} and {len(shape)}")
        for place, (size, other) in enumerate(zip(first, shape, strict=True)):
            if place != axis % len(first):
                c.equal(size, other, f"all X must have the same sizes beside axis {axis}, got {first} and {shape}")


def quantized_choice(c: Conditions) -> None:
    """QLinearWhere: condition; X and Y, each with scale and zero point; scale and zero point of Z: scalars."""
    names = ("X_scale", "X_zero_point", "Y_scale", "Y_zero_point", "Z_scale", "Z_zero_point")
    for index, name in zip((2, 3, 5, 6, 7, 8), names, strict=True):
        c.scalar(index, name)


def quantized_gemm(c: Conditions) -> None:
    """QGemm: matrices A and B, a scale of B and its zero point of one shape, C that broadcasts to the result."""
    a, b = c.rank(0, "A", 2), c.rank(3, "B", 2)
    c.scalar(1, "a_scale")
    c.scalar(2, "a_zero_point")
    c.rank(4, "b_scale", 0, 1)
    c.same_shape(4, 5, "b_scale and b_zero_point")
    if a is None or b is None:
        return
    depth, rows = a if c.node.int_attribute("transA", 0) else a[::-1]
    columns, inner = b if c.node.int_attribute("transB", 0) else b[::-1]
    c.equal(depth, inner, "A must have as many columns as B has rows")
    addend = c.rank(6, "C", 0, 1, 2)
    for size, wanted in zip((addend or ())[::-1], (columns, rows), strict=False):
        if size != 1:
            c.equal(size, wanted, "C must broadcast to the product of A and B")
