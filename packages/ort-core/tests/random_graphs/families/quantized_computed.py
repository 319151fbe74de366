"""Products of two computed sides of bytes, as quantized attention has them, and convolutions channel by channel."""

from __future__ import annotations

from random_graphs import element_types as et
from random_graphs.element_types import ElementType
from random_graphs.families.images import window
from random_graphs.families.quantized import scale, zero_point
from random_graphs.families.quantized_operators import quantized_value
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value


def turned(g: GraphWriter, value: Value) -> Value:
    """Return matrices transposed."""
    rank = value.rank
    return g.node("Transpose", [value], perm=[*range(rank - 2), rank - 1, rank - 2])


def other_bytes(g: GraphWriter, value: Value) -> Value:
    """Return bytes of the shape of others, also of the other type."""
    kind = g.random.random()
    if kind < 0.4:
        return value
    real = g.node("DequantizeLinear", [value, scale(g), zero_point(g, value.dtype)])
    dtype = g.choice((et.U8, et.I8)) if value.dtype is et.U8 else et.I8
    return g.node("QuantizeLinear", [real, scale(g), zero_point(g, dtype)])


def sides(g: GraphWriter) -> tuple[Value, Value]:
    """Return two values of which the second is the other's transposed shape, or the first is."""
    value = quantized_value(g, 2)
    left, right = value, turned(g, other_bytes(g, value))
    return (left, right) if g.chance(0.5) or left.dtype is not right.dtype else (right, left)


@family(2)
def computed_integer_product(g: GraphWriter) -> Value:
    left, right = sides(g)
    points = [zero_point(g, each.dtype) if g.chance(0.7) else None for each in (left, right)]
    product = g.node("MatMulInteger", [left, right, *points])
    if g.chance(0.5):
        return product
    return g.node("Mul", [g.node("Cast", [product], to=et.F32.onnx), scale(g)])


@family(2)
def computed_dynamic_product(g: GraphWriter) -> Value:
    """What dynamic quantization writes of attention: both sides on grids of their own ranges."""
    value = g.pick(et.F32, least=2, filled=True)
    left, left_scale, left_point = g.node("DynamicQuantizeLinear", [value], 3)
    other = g.node("Mul", [turned(g, value), g.constant(g.numbers.uniform(-2, 2), et.F32)])
    right, right_scale, right_point = g.node("DynamicQuantizeLinear", [other], 3)
    product = g.node("MatMulInteger", [left, right, left_point, right_point])
    return g.node("Mul", [g.node("Cast", [product], to=et.F32.onnx), g.node("Mul", [left_scale, right_scale])])


@family(2)
def computed_linear_product(g: GraphWriter) -> Value:
    """QLinearMatMul, or MatMul between DequantizeLinear and QuantizeLinear."""
    left, right = sides(g)
    grids = [[scale(g), zero_point(g, each.dtype)] for each in (left, right)]
    target = [scale(g, low=0.05, high=0.5), zero_point(g, left.dtype)]
    if g.chance(0.5):
        return g.node("QLinearMatMul", [left, *grids[0], right, *grids[1], *target])
    real = [g.node("DequantizeLinear", [each, *grid]) for each, grid in zip((left, right), grids, strict=True)]
    product = g.node("MatMul", real)
    return g.node("QuantizeLinear", [product, *target]) if g.chance(0.7) else product


def wide_weights(g: GraphWriter, dtype: ElementType, *shape: int) -> tuple[Value, Value]:
    """Return weights of all bytes and a zero point, around which they may leave eight bits."""
    chosen = g.choice((et.U8, et.I8)) if dtype is et.U8 else et.I8
    low, high = (0, 256) if chosen is et.U8 else (-128, 128)
    return g.constant(g.numbers.integers(low, high, shape), chosen), zero_point(g, chosen)


@family(2)
def integer_convolution_by_channels(g: GraphWriter) -> Value:
    value = quantized_value(g, 3, 4)
    channels = value.size(1)
    if not channels:
        raise Refused("no channels")
    kernel, given = window(g, value)
    weights, point = wide_weights(g, value.dtype, channels, 1, *kernel)
    if g.chance(0.4):
        return g.node("ConvInteger", [value, weights, zero_point(g, value.dtype), point], group=channels, **given)
    bias = g.constant(g.numbers.integers(-500, 500, channels), et.I32) if g.chance(0.5) else None
    operands = [value, scale(g), zero_point(g, value.dtype), weights, scale(g), point]
    target = [scale(g, low=0.05, high=0.5), zero_point(g, value.dtype)]
    return g.node("QLinearConv", [*operands, *target, bias], group=channels, **given)
