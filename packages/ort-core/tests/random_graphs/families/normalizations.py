"""Normalizations, whole and as exporters write them."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.images import image
from random_graphs.families.reductions import reduced
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value


@family(3)
def layer(g: GraphWriter) -> Value:
    if g.opset < 17:
        raise Refused("a newer operator")
    value = g.pick(et.F32, et.F32, et.F16, et.BF16, et.F64, least=1)
    axis = g.random.randrange(value.rank) if g.chance(0.3) else value.rank - 1
    shape = value.sizes(*range(axis, value.rank))
    if int(np.prod(shape)) < 2:
        raise Refused("nothing to spread")
    parts = [g.weights(value.dtype, *shape), g.weights(value.dtype, *shape) if g.chance(0.7) else None]
    axis = axis - value.rank if g.chance(0.6) else axis
    return g.node("LayerNormalization", [value, *parts], axis=axis, epsilon=g.choice((1e-1, 1e-3)))


@family(2)
def root_mean_square(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F32, et.F16, least=1)
    axis = g.random.randrange(value.rank) if g.chance(0.2) else value.rank - 1
    weights = g.weights(value.dtype, *value.sizes(*range(axis, value.rank)))
    op_type = "RMSNormalization" if g.opset >= 23 and g.chance(0.5) else "SimplifiedLayerNormalization"
    return g.node(op_type, [value, weights], axis=axis - value.rank, epsilon=g.choice((1e-1, 1e-3)))


@family(2)
def skip_layer(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F32, et.F16, rank=3)
    size = value.size(2)
    other = g.pick(value.dtype, where=lambda v: v.shapes == value.shapes)
    if g.chance(0.5):
        operands = [value, other, g.weights(value.dtype, size)]
        return g.node("SkipSimplifiedLayerNormalization", operands, domain="com.microsoft", epsilon=1e-2)
    operands = [value, other, g.weights(value.dtype, size), g.weights(value.dtype, size)]
    if g.chance(0.4):
        operands.append(g.weights(value.dtype, size))
    outputs = [True, False, False, True] if g.chance(0.3) else 1
    return g.node("SkipLayerNormalization", operands, outputs, domain="com.microsoft", epsilon=1e-2)


@family(2)
def composed_layer(g: GraphWriter) -> Value:
    """Mean, difference, variance, root: what a pass fuses."""
    value = g.pick(et.F32, et.F32, et.F16, et.F64, least=1)
    size = value.size(-1)

    def number(x: float) -> Value:
        return g.constant(x, value.dtype)

    centered = g.node("Sub", [value, reduced(g, "ReduceMean", value, [-1])])
    variance = reduced(g, "ReduceMean", g.node("Pow", [centered, number(2)]), [-1])
    spread = g.node("Sqrt", [g.node("Add", [variance, number(1e-2)])])
    scaled = g.node("Mul", [g.node("Div", [centered, spread]), g.weights(value.dtype, size)])
    return g.node("Add", [scaled, g.weights(value.dtype, size)])


@family(2)
def instance(g: GraphWriter) -> Value:
    value = image(g, et.F32, et.F32, et.F16, et.F64)
    parts = [g.weights(value.dtype, value.size(1)) for _ in range(2)]
    return g.node("InstanceNormalization", [value, *parts], epsilon=g.choice((1e-1, 1e-2)))


@family()
def group(g: GraphWriter) -> Value:
    if g.opset < 21:
        raise Refused("scales of channels are newer")
    value = image(g, et.F32, et.F32, et.F16)
    count = value.size(1)
    groups = g.choice([n for n in range(1, count + 1) if count % n == 0])
    parts = [g.weights(value.dtype, count) for _ in range(2)]
    return g.node("GroupNormalization", [value, *parts], num_groups=groups, epsilon=1e-2)


@family()
def local_response(g: GraphWriter) -> Value:
    value = image(g, et.F32, et.F32, et.F16, least=4, most=4)
    return g.node("LRN", [value], size=g.choice((1, 3, 5)), alpha=0.1, beta=0.75, bias=1.0)


@family()
def mean_variance(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F32, et.F64, least=4, most=4)
    return g.node("MeanVarianceNormalization", [value], axes=g.choice((None, [0, 2, 3], [2, 3])))
