"""Quantized operators of com.microsoft that few models have: by byte, by block, channels last."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.operands import lowest
from random_graphs.families.quantized import scale, zero_point
from random_graphs.families.quantized_operators import quantized_value, weights_for
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Value

MICROSOFT = "com.microsoft"


@family()
def joined(g: GraphWriter) -> Value:
    value = quantized_value(g)
    parts = [value, scale(g), zero_point(g, value.dtype)] * g.choice((1, 2, 3))
    given = [scale(g), zero_point(g, value.dtype), *parts]
    return g.node("QLinearConcat", given, domain=MICROSOFT, axis=g.random.randrange(value.rank))


@family()
def chosen(g: GraphWriter) -> Value:
    value = quantized_value(g)
    mask = g.constant(g.numbers_of(et.BOOL, value.shapes[0][-1:] if len(set(value.shapes)) == 1 else (1,)))
    other = g.constant(np.asarray([3]), value.dtype)
    sides = [item for each in (value, other) for item in (each, scale(g), zero_point(g, value.dtype))]
    target = [scale(g), zero_point(g, value.dtype)]
    return g.node("QLinearWhere", [mask, *sides, *target], domain=MICROSOFT)


@family()
def averaged(g: GraphWriter) -> Value:
    value = quantized_value(g, 3, 4)
    kernel = [min(2, min(shape[2 + i] for shape in value.shapes)) for i in range(value.rank - 2)]
    given = [value, scale(g), zero_point(g, value.dtype), scale(g), zero_point(g, value.dtype)]
    return g.node("QLinearAveragePool", given, domain=MICROSOFT, kernel_shape=kernel, strides=[1] * len(kernel))


@family()
def product_to_floats(g: GraphWriter) -> Value:
    value = quantized_value(g)
    columns = g.choice((1, 5, 16, 17, 33))
    weights = weights_for(g, value.dtype, value.size(-1), columns)
    points = [zero_point(g, value.dtype), zero_point(g, weights.dtype)] if g.chance(0.6) else [None, None]
    bias = g.weights(et.F32, columns) if g.chance(0.5) else None
    given = [value, weights, scale(g), scale(g), *points, bias]
    return g.node("MatMulIntegerToFloat", given, domain=MICROSOFT)


@family()
def integers_only(g: GraphWriter) -> Value:
    if g.chance(0.4):
        value = g.pick(et.I16, least=2, filled=True)
        weights = g.constant(g.numbers.integers(-9, 9, (value.size(-1), g.choice((1, 8, 17)))), et.I16)
        return g.node("MatMulInteger16", [value, weights], domain=MICROSOFT)
    value = quantized_value(g)
    if g.chance(0.5):
        axes = sorted(g.random.sample(range(value.rank), g.random.randint(1, value.rank)))
        return g.node("ReduceSumInteger", [value], domain=MICROSOFT, axes=axes, keepdims=g.choice((0, 1)))
    other = g.constant(g.numbers.integers(0, 99, (1,)), value.dtype)
    return g.node("MulInteger", [value, zero_point(g, value.dtype), other], domain=MICROSOFT)


@family()
def rows_of_blocks(g: GraphWriter) -> Value:
    rows, blocks, size = g.choice((3, 7)), g.choice((1, 2)), 16
    data = g.constant(g.numbers.integers(0, 16, (rows, blocks * size)), et.U4)
    indices = g.constant(g.numbers.integers(0, rows, (2, 3)).astype(np.int64))
    scales = g.weights(et.F32, rows, blocks, low=lowest(g, 0.1, 1), high=1)
    points = g.constant(g.numbers.integers(0, 16, (rows, blocks)), et.U4) if g.chance(0.5) else None
    return g.node("GatherBlockQuantized", [data, indices, scales, points], domain=MICROSOFT, block_size=size)


@family()
def normal_floats(g: GraphWriter) -> Value:
    """Weights of four bits by a code book."""
    value = g.pick(et.F32, least=2, filled=True, where=lambda v: all(s[-1] % 2 == 0 for s in v.shapes))
    depth, columns, block = value.size(-1), g.choice((1, 8, 17)), 16
    packed = g.constant(g.numbers.integers(0, 256, (columns * depth + 1) // 2), et.U8)
    scales = g.weights(et.F32, (columns * depth + block - 1) // block, low=0.1, high=1)
    given = {"K": depth, "N": columns, "block_size": block, "quant_type": g.choice((0, 1))}
    return g.node("MatMulBnb4", [value, packed, scales], domain=MICROSOFT, **given)


@family()
def channels_last(g: GraphWriter) -> Value:
    if g.chance(0.4):
        value = g.pick(et.U8, et.I8, rank=4, filled=True)
        kernel = [min(2, min(shape[i] for shape in value.shapes)) for i in (1, 2)]
        return g.node("NhwcMaxPool", [value], domain=MICROSOFT, kernel_shape=kernel, strides=g.choice(([1, 1], [2, 1])))
    value = g.pick(et.F32, rank=4, filled=True)
    kernel = [min(g.choice((1, 3)), min(shape[i] for shape in value.shapes)) for i in (1, 2)]
    weights = g.weights(et.F32, g.choice((1, 8, 17)), *kernel, value.size(3), low=-0.3, high=0.3)
    return g.node("NhwcConv", [value, weights], domain=MICROSOFT, kernel_shape=kernel)
