"""What is added to a product: by column, by row, one number, a whole matrix, a part of more axes; and constants shared.

Fusions take an Add for a bias where its constant lies along the right axis. Here it does and does not, its numbers are
fed or constant, and one constant may be the weights of a product and what is added to another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.images import batch_norm, image
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value


def added_shape(g: GraphWriter, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return a shape that broadcasts to sizes: any axes of it, ones elsewhere, fewer axes or as many."""
    shape = [size if g.chance(0.5) else 1 for size in sizes]
    while shape and shape[0] == 1 and g.chance(0.5):
        shape.pop(0)
    return tuple(shape)


def _behind(g: GraphWriter, value: Value) -> Value:
    kind = g.choice(("", "", "Relu", "Sigmoid", "LeakyRelu", "Softmax"))
    return g.node(kind, [value]) if kind and (kind != "Softmax" or g.opset >= 13) else value


@family(3)
def gemm_with_any_bias(g: GraphWriter) -> Value:
    """Gemm with a C of any shape, and what other nodes add, take away and multiply behind it."""
    value = g.pick(et.F32, et.F32, et.F64, et.F16, rank=2)
    turns, columns = {name: g.choice((0, 1)) for name in ("transA", "transB")}, g.choice((1, 3, 8, 17))
    rows, depth = value.sizes(*((1, 0) if turns["transA"] else (0, 1)))
    weights = g.weights(value.dtype, *((columns, depth) if turns["transB"] else (depth, columns)))
    addend = g.weights(value.dtype, *added_shape(g, (rows, columns))) if g.chance(0.8) or g.opset < 11 else None
    factors = {"alpha": g.choice((1.0, 1.0, 0.5, -1.0)), "beta": g.choice((1.0, 1.0, 0.0, 2.0))}
    made = g.node("Gemm", [value, weights, addend], **turns, **factors)
    if g.chance(0.5):
        other = g.weights(value.dtype, *added_shape(g, (rows, columns)))
        pair = [made, other] if g.chance(0.7) else [other, made]
        made = g.node(g.choice(("Add", "Sub", "Mul")), pair)
    return _behind(g, made)


@family(3)
def product_with_any_bias(g: GraphWriter) -> Value:
    """MatMul of any rank, and two nodes that add or multiply along any axes of it."""
    value = g.pick(et.F32, et.F32, et.F64, et.F16, least=2, most=4)
    sizes = [*value.sizes(*range(value.rank))[:-1], g.choice((1, 3, 8, 17))]
    made = g.node("MatMul", [value, g.weights(value.dtype, value.size(-1), sizes[-1])])
    for _ in range(g.choice((1, 2, 2))):
        other = g.weights(value.dtype, *added_shape(g, sizes))
        pair = [made, other] if g.chance(0.7) else [other, made]
        made = g.node(g.choice(("Add", "Add", "Mul", "Sub")), pair)
    return _behind(g, made)


@family(3)
def convolution_with_any_bias(g: GraphWriter) -> Value:
    """Conv, and nodes that add or multiply along any axes of its result, around a normalization or none."""
    value = image(g, et.F32, et.F32, et.F16, et.F64)
    channels, count, kernel = value.size(1), g.choice((1, 2, 8, 17)), g.choice((1, 1, 3))
    spatial = value.rank - 2
    weights = g.weights(value.dtype, count, channels, *[kernel] * spatial, low=-0.3, high=0.3)
    bias = g.weights(value.dtype, count) if g.chance(0.5) else None
    made = g.node("Conv", [value, weights, bias], pads=[kernel // 2] * 2 * spatial)
    for _ in range(g.choice((1, 2, 3))):
        if g.chance(0.25):
            made = batch_norm(g, made)
            continue
        sizes = [1, count, *made.sizes(*range(2, made.rank))]
        other = g.weights(value.dtype, *added_shape(g, sizes))
        pair = [made, other] if g.chance(0.7) else [other, made]
        made = g.node(g.choice(("Add", "Add", "Mul", "Sub", "Div" if pair[1] is other else "Mul")), pair)
    return _behind(g, made)


@family(3)
def constants_in_several_places(g: GraphWriter) -> list[Value]:
    """One square of weights: multiplied with, transposed, added, normalized by; the same numbers under two names."""
    value = g.pick(et.F32, rank=2)
    size = value.size(1)
    if not 0 < size <= 33:
        raise Refused("too large a square")
    array = g.numbers_of(et.F32, (size, size), -0.5, 0.5)
    square = g.constant(array)
    twin = g.constant(array) if g.chance(0.5) else square
    row = g.constant(array[0]) if g.chance(0.5) else g.node("Gather", [square, g.constant(0)], axis=0)
    made = [value]
    for _ in range(g.choice((2, 3, 4))):
        last, weights = g.choice(made[-2:]), g.choice((square, twin))
        kind = g.choice(("MatMul", "Gemm", "turned", "Add", "Mul", "row", "square of squares"))
        if kind == "MatMul":
            made.append(g.node(kind, [last, weights]))
        elif kind == "Gemm":
            given = {"transB": g.choice((0, 1)), "alpha": g.choice((1.0, 0.5))}
            made.append(g.node(kind, [last, weights, g.choice((row, row, None) if g.opset >= 11 else (row,))], **given))
        elif kind == "turned":
            made.append(g.node("MatMul", [last, g.node("Transpose", [weights], perm=[1, 0])]))
        elif kind == "square of squares":
            both = g.node("MatMul", [square, twin])
            made.append(g.node("MatMul", [last, both]))
        elif kind == "row" or last.shapes != square.shapes:
            made.append(g.node(g.choice(("Add", "Mul")), [last, row]))
        else:
            made.append(g.node(kind, [last, weights]))
    return made[1:]


@family(2)
def convolutions_of_one_constant(g: GraphWriter) -> Value:
    """Two convolutions with the same weights, biases and moments, of which one is normalized, scaled or shifted."""
    value = image(g, et.F32, least=4, most=4)
    channels = value.size(1)
    weights = g.weights(et.F32, channels, channels, 1, 1, low=-0.5, high=0.5)
    bias = g.weights(et.F32, channels) if g.chance(0.6) else None
    first = g.node("Conv", [value, weights, bias])
    second = g.node("Conv", [g.choice((value, first)), weights, bias])
    if g.chance(0.6):
        moments = [bias or g.weights(et.F32, channels), g.weights(et.F32, channels)]
        variance = g.constant(g.numbers_of(et.F32, (channels,), 0.3, 2))
        second = g.node("BatchNormalization", [second, *moments, bias or moments[0], variance])
    elif bias is not None:
        shaped = g.node("Reshape", [bias, g.constant([1, channels, 1, 1])])
        second = g.node(g.choice(("Add", "Mul")), [second, shaped])
    return g.node("Add", [first, second])


@family(2)
def scales_in_two_roles(g: GraphWriter) -> list[Value]:
    """The scale of a quantization multiplies floats as well; weights are dequantized once, and read by several."""
    value = g.pick(et.F32, rank=2, filled=True)
    depth, columns = value.size(1), g.choice((1, 8, 17))
    scale = g.constant(np.float32(g.choice((0.02, -0.03))))
    point = g.constant(g.choice((0, 3, 127)), et.I8)
    scaled = g.node("Mul", [value, scale])
    levels = g.constant(g.numbers.integers(-128, 128, (depth, columns)), et.I8)
    weights = g.node("DequantizeLinear", [levels, scale, point])
    operand = g.choice((value, scaled))
    parts = [g.constant(np.float32(0.05)), g.constant(g.choice((0, 128, 255)), et.U8)]
    rounded = g.node("DequantizeLinear", [g.node("QuantizeLinear", [operand, *parts]), *parts])
    made = [g.node("MatMul", [rounded, weights])]
    made.append(g.node("Add", [weights, scale]) if g.chance(0.5) else g.node("MatMul", [value, weights]))
    if g.chance(0.5):
        made.append(g.node("Gemm", [rounded, weights, g.weights(et.F32, columns)], beta=g.choice((1.0, 0.5))))
    return made
