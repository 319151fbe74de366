"""Quantization written as DequantizeLinear, operator, QuantizeLinear."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.element_types import ElementType
from random_graphs.families.images import image, window
from random_graphs.families.operands import lowest
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value

WEIGHT_BOUNDS = {et.I8: (-128, 128), et.U8: (0, 256), et.I4: (-8, 8), et.U4: (0, 16), et.I16: (-300, 300)}


def scale(g: GraphWriter, dtype: ElementType = et.F32, *shape: int, low: float = 0.01, high: float = 0.06) -> Value:
    """Return a scale, or several."""
    return g.constant(g.numbers.uniform(low, high, shape), dtype)


def zero_point(g: GraphWriter, dtype: ElementType, *shape: int) -> Value:
    """Return a zero point: none, small, in the middle."""
    middle = {et.U8: 128, et.U16: 32768}.get(dtype, 3)
    return g.constant(np.full(shape, g.choice((0, 3, middle))), dtype)


def fake_quantized(g: GraphWriter, value: Value, dtype: ElementType) -> Value:
    """Quantize and dequantize with one scale."""
    parts = [scale(g, value.dtype), zero_point(g, dtype) if dtype is not et.U8 or g.chance(0.85) else None]
    return g.node("DequantizeLinear", [g.node("QuantizeLinear", [value, *parts]), *parts])


@family(4)
def quantize(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F32, et.F32, et.F16)
    dtypes = (et.U8, et.I8, et.U8, et.I8, *((et.U16, et.I16, et.I4, et.U4) if g.opset >= 21 else ()))
    dtype = g.choice(dtypes)
    if value.dtype is et.F16 and g.opset < 19:
        raise Refused("scales of half precision are newer")
    axis, shape = None, ()
    if value.rank >= 2 and g.chance(0.3):
        axis = g.random.randrange(value.rank)
        shape = (value.size(axis),)
    low = 0.2 if dtype in (et.I4, et.U4) else 0.01
    parts = [scale(g, value.dtype, *shape, low=low, high=low * 6), zero_point(g, dtype, *shape)]
    precision = g.choice((None, None, 1, 10)) if g.opset >= 23 and value.dtype is et.F16 else None
    quantized = g.node("QuantizeLinear", [value, *parts], axis=axis, precision=precision)
    if dtype in et.NARROW or g.chance(0.8):
        return g.node("DequantizeLinear", [quantized, *parts], axis=axis)
    return quantized


@family(2)
def dequantized_constant(g: GraphWriter) -> Value:
    """Weights in bytes or four bits, with scales by tensor, axis or block."""
    dtype = g.choice((et.I8, et.U8, et.I16, et.I4, et.U4) if g.opset >= 21 else (et.I8, et.U8))
    rows, columns = g.choice((2, 16, 17)), g.choice((16, 32))
    weights = _weights(g, dtype, rows, columns)
    kind = g.choice(("tensor", "axis", "block") if g.opset >= 21 else ("tensor", "axis"))
    if kind == "tensor":
        return g.node("DequantizeLinear", [weights, scale(g), zero_point(g, dtype)])
    if kind == "axis":
        return g.node("DequantizeLinear", [weights, scale(g, et.F32, rows), zero_point(g, dtype, rows)], axis=0)
    shape = (rows, columns // 16)
    return g.node(
        "DequantizeLinear",
        [weights, scale(g, et.F32, *shape, low=lowest(g, 0.01, 0.06)), zero_point(g, dtype, *shape)],
        axis=1,
        block_size=16,
    )


def _weights(g: GraphWriter, dtype: ElementType, *shape: int) -> Value:
    low, high = WEIGHT_BOUNDS[dtype]
    return g.constant(g.numbers.integers(low, high, shape), dtype)


def _dequantized_weights(g: GraphWriter, count_axis: int, *shape: int) -> Value:
    dtype = g.choice((et.I8, et.I8, et.U8, *((et.I4,) if g.opset >= 21 else ())))
    weights = _weights(g, dtype, *shape)
    if g.chance(0.4):
        count = shape[count_axis]
        scales = scale(g, et.F32, count, low=0.002, high=0.02)
        return g.node("DequantizeLinear", [weights, scales, g.constant(np.zeros(count), dtype)], axis=count_axis)
    return g.node("DequantizeLinear", [weights, scale(g, low=0.002, high=0.02), zero_point(g, dtype)])


@family(4)
def quantized_convolution(g: GraphWriter) -> Value:
    value = image(g, et.F32, most=4)
    channels = value.size(1)
    operand = fake_quantized(g, value, g.choice((et.U8, et.I8)))
    kernel, given = window(g, value)
    groups = g.choice([d for d in (1, 1, channels) if channels % d == 0])
    count = groups * g.choice((1, 2, 4, 8, 16, 17, 33) if groups == 1 else (1, 2))
    weights = _dequantized_weights(g, 0, count, channels // groups, *kernel)
    bias = g.weights(et.F32, count) if g.chance(0.5) else None
    return finished(g, g.node("Conv", [operand, weights, bias], group=groups, **given))


def finished(g: GraphWriter, result: Value) -> Value:
    """Add an activation and the quantization of a result."""
    if g.chance(0.4):
        result = g.node(g.choice(("Relu", "Relu", "Sigmoid", "LeakyRelu")), [result])
    return fake_quantized(g, result, g.choice((et.U8, et.I8))) if g.chance(0.8) else result


@family(4)
def quantized_product(g: GraphWriter) -> Value:
    value = g.pick(et.F32, least=2)
    depth, columns = value.size(-1), g.choice((1, 3, 8, 16, 17, 32, 33))
    operand = fake_quantized(g, value, g.choice((et.U8, et.I8)))
    result = g.node("MatMul", [operand, _dequantized_weights(g, 1, depth, columns)])
    if g.chance(0.5):
        result = g.node("Add", [result, g.weights(et.F32, columns)])
    return finished(g, result)


@family(2)
def quantized_gemm(g: GraphWriter) -> Value:
    value = g.pick(et.F32, rank=2)
    depth, columns = value.size(1), g.choice((1, 8, 16, 17, 33))
    operand = fake_quantized(g, value, g.choice((et.U8, et.I8)))
    weights = _dequantized_weights(g, 0, columns, depth)
    bias = g.weights(et.F32, columns) if g.chance(0.6) else None
    return finished(g, g.node("Gemm", [operand, weights, bias], transB=1))


QUANTIZED_UNARY = (
    "Relu",
    "Sigmoid",
    "Tanh",
    "LeakyRelu",
    "HardSwish",
    "Softmax",
    "Abs",
    "Neg",
    "Identity",
    "Exp",
    "Sqrt",
)


@family(3)
def quantized_elementwise(g: GraphWriter) -> Value:
    """Any operator between the two, and operators of two operands."""
    value = g.pick(et.F32, least=1)
    dtype = g.choice((et.U8, et.I8))
    operand = fake_quantized(g, value, dtype)
    kind = g.choice(("unary", "binary", "move"))
    if kind == "unary":
        op_type = g.choice(QUANTIZED_UNARY)
        operand = g.node("Abs", [operand]) if op_type == "Sqrt" else operand
        if op_type == "HardSwish" and g.opset < 14:
            raise Refused("a newer operator")
        if op_type == "Softmax" and g.opset < 13 and value.rank < 2:
            raise Refused("its axis is 1 by default")
        return finished(g, g.node(op_type, [operand]))
    if kind == "binary":
        other = g.pick(et.F32, where=lambda v: v.shapes == value.shapes)
        return finished(g, g.node(g.choice(("Add", "Mul", "Sub", "Max")), [operand, fake_quantized(g, other, dtype)]))
    order = g.random.sample(range(value.rank), value.rank)
    return fake_quantized(g, g.node("Transpose", [operand], perm=order), dtype)


@family()
def quantized_pooling(g: GraphWriter) -> Value:
    value = image(g, et.F32, least=4, most=4)
    operand = fake_quantized(g, value, g.choice((et.U8, et.I8)))
    op_type = g.choice(("MaxPool", "AveragePool", "GlobalAveragePool"))
    if op_type == "GlobalAveragePool":
        return finished(g, g.node(op_type, [operand]))
    kernel, given = window(g, value, pool=True)
    given.pop("dilations", None)
    return finished(g, g.node(op_type, [operand], kernel_shape=kernel, **given))


@family()
def quantized_concat(g: GraphWriter) -> Value:
    value = g.pick(et.F32, least=1)
    dtype = g.choice((et.U8, et.I8))
    parts = [fake_quantized(g, value, dtype) for _ in range(g.choice((2, 3)))]
    return fake_quantized(g, g.node("Concat", parts, axis=g.axis(value)), dtype)
