"""Products and arithmetic over quantised tensors: shapes of scales and zero points."""

from __future__ import annotations

from ort_core.kernels.preconditions.conditions import Conditions


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


def _rows(c: Conditions, index: int, name: str, a: tuple[object, ...] | None) -> None:
    shape = c.shape(index)
    if shape is not None and a is not None and len(shape) > 1:
        c.require(len(shape) == len(a), f"input '{name}' must be a scalar, a vector, or have the rank of A")
        c.equal(shape[-1], 1, f"input '{name}' must have one column")


def _columns(c: Conditions, index: int, name: str, b: tuple[object, ...] | None) -> None:
    """One element, one per column, or with B's rank: [..., 1, N]."""
    shape = c.shape(index)
    if shape is None or b is None or len(shape) == 0:
        return
    if len(shape) == 1:
        if shape[0] != 1 and b:
            c.equal(shape[0], b[-1], f"input '{name}' must have one element, or one for each column of B")  # type: ignore[arg-type]  # a size
        return
    c.require(len(shape) == len(b), f"input '{name}' must be a scalar, a vector, or have the rank of B")
    c.equal(shape[-2], 1, f"input '{name}' must have size 1 in its last dimension but one")


def quantized_binary(c: Conditions) -> None:
    """A, scale, zero point; B, scale, zero point; scale and zero point of C: scalars."""
    names = ("A_scale", "A_zero_point", "B_scale", "B_zero_point", "C_scale", "C_zero_point")
    for index, name in zip((1, 2, 4, 5, 6, 7), names, strict=True):
        c.scalar(index, name)


def quantized_unary(c: Conditions) -> None:
    """X, scale, zero point, scale and zero point of Y: scalars."""
    for index, name in enumerate(("X_scale", "X_zero_point", "Y_scale", "Y_zero_point"), start=1):
        c.scalar(index, name)


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
    c.rank(2, "scales", 1, 2)
    c.rank(3, "zero_points", 1, 2)
    c.sized(5, "bias", n)


def gathered_blocks(c: Conditions) -> None:
    """GatherBlockQuantized: scales have the shape of the data but for the quantised axis."""
    data, scales = c.shape(0), c.shape(2)
    if data is None or scales is None:
        return
    axis, rank = c.node.int_attribute("quantize_axis", 1), len(data)
    c.require(-rank <= axis < rank, f"quantize_axis {axis} is not in the valid range [{-rank}, {rank - 1}]")
    c.require(len(scales) == rank, f"data has {rank} dimensions and scales {len(scales)}: they must have as many")
    for index, (left, right) in enumerate(zip(data, scales, strict=True)):
        if index != axis % rank:
            c.equal(left, right, f"data and scales do not match in dimension {index}")


def quantized_attention(c: Conditions) -> None:
    """QAttention: bias [columns of the weights], scale and zero point of the input scalars."""
    weights = c.rank(1, "weights", 2)
    if weights is not None:
        c.sized(2, "bias", weights[1])
    c.scalar(3, "input_scale")
    c.scalar(6, "input_zero_point")
