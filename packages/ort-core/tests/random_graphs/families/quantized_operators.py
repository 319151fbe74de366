"""Operators on quantized numbers: integers in and out, dynamic quantization, com.microsoft's own."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.element_types import ElementType
from random_graphs.families.images import window
from random_graphs.families.operands import lowest
from random_graphs.families.quantized import scale, zero_point
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value

MICROSOFT = "com.microsoft"


def quantized_value(g: GraphWriter, least: int = 1, most: int = 5) -> Value:
    """Return bytes: some of the graph, or a float that is quantized now."""
    if g.chance(0.4):
        return g.pick(et.U8, et.I8, least=least, most=most, filled=True)
    value = g.pick(et.F32, least=least, most=most, filled=True)
    return g.node("QuantizeLinear", [value, scale(g), zero_point(g, g.choice((et.U8, et.I8)))])


def weights_for(g: GraphWriter, dtype: ElementType, *shape: int) -> Value:
    """Return weights of a type that the operators combine with ``dtype``."""
    chosen = g.choice((et.U8, et.I8)) if dtype is et.U8 else et.I8
    low = -127 if chosen is et.I8 else 0
    return g.constant(g.numbers.integers(low, 128, shape), chosen)


@family(2)
def integer_product(g: GraphWriter) -> Value:
    value = quantized_value(g)
    weights = weights_for(g, value.dtype, value.size(-1), g.choice((1, 5, 8, 16, 17, 33)))
    if g.chance(0.4):
        return g.node("MatMulInteger", [value, weights])
    points = zero_point(g, weights.dtype, *((weights.shapes[0][1],) if g.chance(0.3) else ()))
    return g.node("MatMulInteger", [value, weights, zero_point(g, value.dtype), points])


@family(2)
def linear_product(g: GraphWriter) -> Value:
    value = quantized_value(g, 2)
    columns = g.choice((1, 5, 16, 17, 33))
    weights = weights_for(g, value.dtype, value.size(-1), columns)
    scales = scale(g, et.F32, *((columns,) if g.chance(0.3) else ()))
    points = g.constant(np.zeros(scales.shapes[0]), weights.dtype)
    target = [scale(g, low=0.05, high=0.5), zero_point(g, value.dtype)]
    return g.node("QLinearMatMul", [value, scale(g), zero_point(g, value.dtype), weights, scales, points, *target])


@family(2)
def integer_convolution(g: GraphWriter) -> Value:
    value = quantized_value(g, 3, 4)
    channels = value.size(1)
    if not channels:
        raise Refused("no channels")
    kernel, given = window(g, value)
    count = g.choice((1, 4, 8, 16, 17, 33))
    weights = weights_for(g, value.dtype, count, channels, *kernel)
    if g.chance(0.5):
        point = zero_point(g, value.dtype) if g.chance(0.6) else None
        return g.node("ConvInteger", [value, weights, point], **given)
    scales = scale(g, et.F32, *((count,) if g.chance(0.5) else ()))
    bias = g.constant(g.numbers.integers(-500, 500, count), et.I32) if g.chance(0.5) else None
    operands = [
        value,
        scale(g),
        zero_point(g, value.dtype),
        weights,
        scales,
        g.constant(np.zeros(scales.shapes[0]), weights.dtype),
    ]
    return g.node("QLinearConv", [*operands, scale(g, low=0.05, high=0.5), zero_point(g, value.dtype), bias], **given)


@family(2)
def dynamic_quantization(g: GraphWriter) -> Value | list[Value]:
    """What dynamic quantization writes: bytes of an operand, an integer product, its scale behind."""
    value = g.pick(et.F32, least=2, filled=True)
    quantized, factor, point = g.node("DynamicQuantizeLinear", [value], 3)
    if g.chance(0.2):
        return [quantized, factor, point]
    columns = g.choice((1, 8, 16, 17, 33))
    weights = weights_for(g, et.U8, value.size(-1), columns)
    product = g.node("MatMulInteger", [quantized, weights, point, zero_point(g, weights.dtype)])
    whole = g.node("Mul", [factor, scale(g, et.F32, *((columns,) if g.chance(0.5) else ()))])
    result = g.node("Mul", [g.node("Cast", [product], to=et.F32.onnx), whole])
    return g.node("Add", [result, g.weights(et.F32, columns)]) if g.chance(0.5) else result


@family()
def dynamic_quantized_product(g: GraphWriter) -> Value:
    value = g.pick(et.F32, least=2, filled=True)
    columns = g.choice((1, 8, 16, 17, 33))
    weights = weights_for(g, et.U8, value.size(-1), columns)
    bias = g.weights(et.F32, columns) if g.chance(0.5) else None
    operands = [value, weights, scale(g), zero_point(g, weights.dtype), bias]
    return g.node("DynamicQuantizeMatMul", operands, domain=MICROSOFT)


@family()
def quantized_arithmetic(g: GraphWriter) -> Value:
    value = quantized_value(g)
    other = g.pick(value.dtype, where=lambda v: v.shapes == value.shapes)
    quantizations = [[scale(g), zero_point(g, value.dtype)] for _ in range(3)]
    operands = [value, *quantizations[0], other, *quantizations[1], *quantizations[2]]
    return g.node(g.choice(("QLinearAdd", "QLinearMul")), operands, domain=MICROSOFT)


@family()
def quantized_unary(g: GraphWriter) -> Value:
    value = quantized_value(g)
    operands = [value, scale(g), zero_point(g, value.dtype), scale(g), zero_point(g, value.dtype)]
    op_type = g.choice(("QLinearSigmoid", "QLinearLeakyRelu"))
    return g.node(op_type, operands, domain=MICROSOFT, alpha=0.2 if op_type == "QLinearLeakyRelu" else None)


@family()
def quantized_global_pooling(g: GraphWriter) -> Value:
    value = quantized_value(g, 3, 4)
    operands = [value, scale(g), zero_point(g, value.dtype), scale(g), zero_point(g, value.dtype)]
    return g.node("QLinearGlobalAveragePool", operands, domain=MICROSOFT, channels_last=g.choice((0, 1)))


@family()
def quantized_softmax(g: GraphWriter) -> Value:
    value = quantized_value(g, 2)
    target = [g.constant(1 / 256, et.F32), g.constant(0 if value.dtype is et.U8 else -128, value.dtype)]
    operands = [value, scale(g), zero_point(g, value.dtype), *target]
    return g.node("QLinearSoftmax", operands, domain=MICROSOFT, axis=-1, opset=g.opset)


@family()
def quantized_gemm_operator(g: GraphWriter) -> Value:
    value = quantized_value(g, 2, 2)
    columns = g.choice((1, 8, 16, 17, 33))
    weights = weights_for(g, value.dtype, value.size(1), columns)
    bias = g.constant(g.numbers.integers(-500, 500, columns), et.I32) if g.chance(0.5) else None
    operands = [value, scale(g), zero_point(g, value.dtype), weights, scale(g), zero_point(g, weights.dtype), bias]
    target = [scale(g, low=0.05, high=0.5), zero_point(g, value.dtype)] if g.chance(0.7) else []
    return g.node("QGemm", [*operands, *target], domain=MICROSOFT, alpha=g.choice((1.0, 0.5)))


@family(2)
def block_quantized_product(g: GraphWriter) -> Value:
    """Weights of two, four or eight bits with a scale for each block."""
    value = g.pick(et.F32, et.F32, et.F16, least=2)
    depth, columns, block = value.size(-1), g.choice((1, 8, 16, 17, 32)), g.choice((16, 32))
    if not depth:
        raise Refused("no depth")
    bits = g.choice((4, 4, 4, 8))
    blocks = -(-depth // block)
    weights = g.constant(g.numbers.integers(0, 256, (columns, blocks, block * bits // 8)), et.U8)
    scales = g.numbers.uniform(lowest(g, 0.01, 0.05), 0.05, columns * blocks)
    operands = [value, weights, g.constant(scales, value.dtype)]
    if g.chance(0.5):
        packed = columns * -(-blocks * bits // 8)
        operands.append(g.constant(g.numbers.integers(0, 256, packed), et.U8))
    level = g.choice((0, 1, 2, 4))  # 4: rows may be rounded to bytes, 2: to two a number; language models ask for it
    more = {"K": depth, "N": columns, "bits": bits, "block_size": block, "accuracy_level": level}
    return g.node("MatMulNBits", operands, domain=MICROSOFT, **more)
