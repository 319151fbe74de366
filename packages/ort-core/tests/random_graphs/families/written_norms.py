"""Normalizations written out in single nodes, whole and nearly: axes that lose one or stand in another order.

Fusions know these chains. Here means run over axes that differ between mean and variance, exponents are 2, 3 or a
half, epsilons have axes or are added behind the root, and weights lie along any axes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.biases import added_shape
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value


def reduced(g: GraphWriter, op_type: str, value: Value, axes: Sequence[int], keepdims: int = 1) -> Value:
    """Add a reduction, with its axes as its opset has them."""
    if g.opset < 11:
        axes = [axis % value.rank for axis in axes]
    if g.opset >= (13 if op_type == "ReduceSum" else 18):
        return g.node(op_type, [value, g.constant(np.asarray(axes, np.int64))], keepdims=keepdims)
    return g.node(op_type, [value], axes=list(axes), keepdims=keepdims)


def some_axes(g: GraphWriter, rank: int) -> list[int]:
    """Return the last axis mostly, the last two, or any; counted from either end and in any order."""
    axes = g.choice(([rank - 1], [rank - 1], [rank - 2, rank - 1], list(range(1, rank)), [1], [0]))
    axes = list(dict.fromkeys(axis % rank for axis in axes)) or [rank - 1]
    if g.chance(0.2):
        axes.reverse()
    return [axis - rank if g.chance(0.5) else axis for axis in axes]


def nearly(g: GraphWriter, axes: Sequence[int], rank: int) -> list[int]:
    """Return the same axes mostly, else one less, one more, or others."""
    if g.chance(0.7):
        return list(axes)
    found = {axis % rank for axis in axes}
    if len(found) > 1 and g.chance(0.6):
        found.remove(g.choice(sorted(found)))
    else:
        found.add(g.random.randrange(rank))
    return sorted(found)


def _squared(g: GraphWriter, value: Value) -> Value:
    if g.chance(0.6):
        exponent = g.choice((2.0, 2.0, 2.0, 2.0, 4.0, 3.0))
        return g.node("Pow", [value, g.constant(np.full(g.choice(((), (), (1,), (1, 1))), exponent), value.dtype)])
    return g.node("Mul", [value, value])


def _rooted(g: GraphWriter, value: Value) -> Value:
    epsilon = g.constant(np.full(g.choice(((), (), (1,), (1, 1))), g.choice((1e-5, 1e-3, 1e-12))), value.dtype)
    if g.chance(0.15):
        return g.node("Add", [g.node("Sqrt", [g.node("Abs", [value])]), epsilon])
    inside = g.node("Abs", [value]) if g.chance(0.1) else value
    inside = g.node("Add", [inside, epsilon] if g.chance(0.7) else [epsilon, inside])
    if g.chance(0.2):
        return g.node("Pow", [inside, g.constant(0.5, value.dtype)])
    return g.node("Sqrt", [inside])


def _divided(g: GraphWriter, value: Value, root: Value) -> Value:
    if g.chance(0.6):
        return g.node("Div", [value, root])
    over = g.node("Reciprocal", [root]) if g.chance(0.5) else g.node("Div", [g.constant(1.0, value.dtype), root])
    return g.node("Mul", [value, over] if g.chance(0.5) else [over, value])


def _weighted(g: GraphWriter, value: Value) -> Value:
    for op_type in g.choice((("Mul", "Add"), ("Mul", "Add"), ("Mul",), ("Add",), ("Add", "Mul"))):
        sizes = [shape for shape in (value.shapes[0],) if len(set(value.shapes)) == 1]
        last = value.shapes[0][-1] if len({shape[-1] for shape in value.shapes}) == 1 else 1
        shape = (last,) if g.chance(0.6) or not sizes else added_shape(g, sizes[0])
        other = g.weights(value.dtype, *shape)
        value = g.node(op_type, [value, other] if g.chance(0.7) else [other, value])
    return value


@family(4)
def written_layer_norm(g: GraphWriter) -> Value:
    """A mean taken away, divided by the root of a mean of squares."""
    value = g.pick(et.F32, et.F32, et.F16, et.F64, least=2, most=4, filled=True)
    if g.chance(0.3):
        value = g.node("Add", [value, g.pick(value.dtype, where=lambda v: v.shapes == value.shapes)])
    axes = some_axes(g, value.rank)
    centered = g.node("Sub", [value, reduced(g, "ReduceMean", value, axes)])
    other = g.node("Sub", [value, reduced(g, "ReduceMean", value, nearly(g, axes, value.rank))])
    squares = _squared(g, g.choice((centered, centered, other)))
    mean = reduced(g, g.choice(("ReduceMean",) * 6 + ("ReduceSum",)), squares, nearly(g, axes, value.rank))
    return _weighted(g, _divided(g, centered, _rooted(g, mean)))


@family(3)
def written_root_mean_square(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F32, et.F16, et.F64, least=2, most=4, filled=True)
    if g.chance(0.3):
        value = g.node("Add", [value, g.pick(value.dtype, where=lambda v: v.shapes == value.shapes)])
    axes = some_axes(g, value.rank)
    if g.chance(0.3):  # by a vector's length
        name = g.choice(("ReduceL2", "ReduceL2", "ReduceL1", "ReduceSumSquare"))
        length = reduced(g, name, value, axes)
        if g.chance(0.6):
            limits = [g.constant(np.asarray(1e-12, value.dtype.numpy)), None]
            length = g.node("Clip", [length, *limits]) if g.opset >= 11 else length
            length = g.node("Expand", [length, g.node("Shape", [value])]) if g.chance(0.5) else length
        return _divided(g, value, length)
    mean = reduced(g, "ReduceMean", _squared(g, value), axes)
    return _weighted(g, _divided(g, value, _rooted(g, mean)))


@family(2)
def written_group_norm(g: GraphWriter) -> Value:
    """Groups of channels by InstanceNormalization between two reshapes, with weights along the channels or not."""
    value = g.pick(et.F32, rank=4, filled=True)
    batch, channels, height, width = value.sizes(0, 1, 2, 3)
    groups = g.choice([d for d in (1, 2, 4, channels) if channels % d == 0])
    shape = g.choice(([0, groups, -1], [batch, groups, -1], [batch * groups, 1, -1]))
    parts = g.node("Reshape", [value, g.constant(shape)])
    count = shape[1]
    ones = g.constant(np.ones(count), et.F32) if g.chance(0.7) else g.weights(et.F32, count)
    zeros = g.constant(np.zeros(count), et.F32) if g.chance(0.7) else g.weights(et.F32, count)
    normal = g.node("InstanceNormalization", [parts, ones, zeros], epsilon=g.choice((1e-5, 1e-3)))
    back = g.constant([batch, channels, height, width]) if g.chance(0.5) else g.node("Shape", [value])
    normal = g.node("Reshape", [normal, back])
    for op_type in g.choice((("Mul", "Add"), ("Mul", "Add"), ("Mul",), ())):
        form = g.choice(((channels, 1, 1), (1, channels, 1, 1), (1, 1, 1), (height, width)))
        normal = g.node(op_type, [normal, g.weights(et.F32, *form)])
    if g.chance(0.4):
        normal = g.node("Mul", [normal, g.node("Sigmoid", [normal])])
    return normal


@family(2)
def written_softmax(g: GraphWriter) -> Value:
    """Exponentials over their sum, with a maximum taken away or not, over axes that may differ."""
    value = g.pick(et.F32, et.F32, et.F64, et.F16, least=2, most=4, filled=True)
    axes = some_axes(g, value.rank)
    if g.chance(0.8):
        value = g.node("Sub", [value, reduced(g, "ReduceMax", value, nearly(g, axes, value.rank))])
    powers = g.node("Exp", [value])
    total = reduced(g, "ReduceSum", powers, nearly(g, axes, value.rank))
    if g.chance(0.3):
        return g.node("Sub", [value, g.node("Log", [total])])
    found = _divided(g, powers, total)
    if found.shapes != value.shapes:
        raise Refused("sums of more axes than there are")
    return found
