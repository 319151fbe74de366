"""Quantization by scales of either sign, and by zero points at the ends of their types.

A scale below zero turns the order of numbers round: what is largest has the least level, and no level is a lower limit
of a Relu any more. Along an axis, scales of both signs stand side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from random_graphs import element_types as et
from random_graphs.element_types import ElementType
from random_graphs.families.images import image, window
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value

MICROSOFT = "com.microsoft"
ENDS = {et.U8: (0, 255), et.I8: (-128, 127), et.U16: (0, 65535), et.I16: (-32768, 32767)}
Grid = list[Value | None]


def signed_scale(g: GraphWriter, *shape: int, low: float = 0.01, high: float = 0.06) -> Value:
    """Return a scale of either sign, or several with mixed signs."""
    signs = g.numbers.choice((-1.0, 1.0), shape) if g.chance(0.7) else np.ones(shape)
    return g.constant(g.numbers.uniform(low, high, shape) * signs, et.F32)


def end_point(g: GraphWriter, dtype: ElementType, *shape: int) -> Value:
    """Return a zero point at an end of its type, beside one, or in the middle; several differ from one another."""
    low, high = ENDS[dtype]
    return g.constant(g.numbers.choice((low, low + 1, (low + high) // 2, 0, high - 1, high), shape), dtype)


def grid(g: GraphWriter, dtype: ElementType, *shape: int, low: float = 0.01, high: float = 0.06) -> Grid:
    """Return a scale and a zero point; that of uint8 is left out now and then."""
    point = None if dtype is et.U8 and g.chance(0.1) else end_point(g, dtype, *shape)
    return [signed_scale(g, *shape, low=low, high=high), point]


def signed(g: GraphWriter, value: Value, dtype: ElementType, parts: Sequence[Value | None] | None = None) -> Value:
    """Quantize and dequantize by a grid of either sign."""
    parts = grid(g, dtype) if parts is None else parts
    return g.node("DequantizeLinear", [g.node("QuantizeLinear", [value, *parts]), *parts])


def signed_weights(g: GraphWriter, axis: int, *shape: int) -> Value:
    """Return dequantized weights: one scale, or one of each sign along an axis."""
    dtype = g.choice((et.I8, et.I8, et.U8))
    low, high = ENDS[dtype]
    integers = g.constant(g.numbers.integers(low, high + 1, shape), dtype)
    if g.chance(0.6):
        count = shape[axis]
        points = end_point(g, dtype, count) if g.chance(0.3) else g.constant(np.zeros(count), dtype)
        return g.node(
            "DequantizeLinear", [integers, signed_scale(g, count, low=0.002, high=0.01), points], axis=axis
        )  # fmt: skip
    return g.node("DequantizeLinear", [integers, *grid(g, dtype, low=0.002, high=0.01)])


def any_bias(g: GraphWriter, count: int) -> Value | None:
    """Return a bias: none, of floats, or of 32 bits with a scale that no product has."""
    kind = g.choice(("none", "floats", "one scale", "scales"))
    if kind == "none":
        return None
    if kind == "floats":
        return g.weights(et.F32, count)
    integers = g.constant(g.numbers.integers(-5000, 5000, count), et.I32)
    shape = (count,) if kind == "scales" else ()
    return g.node("DequantizeLinear", [integers, signed_scale(g, *shape, low=1e-4, high=3e-4)], axis=0)


def ended(g: GraphWriter, result: Value, dtype: ElementType) -> Value:
    """Add what bounds a result, or bends it, and a grid of either sign."""
    kind = g.choice(("", "", "Relu", "Clip", "LeakyRelu", "Neg", "Relu of a number"))
    if kind == "Clip":
        low, high = sorted(float(each) for each in g.numbers.uniform(-3, 3, 2))
        result = g.node("Clip", [result, g.constant(np.float32(low)), g.constant(np.float32(high))])
    elif kind == "Relu of a number":
        result = g.node("Max", [result, g.constant(np.zeros((), np.float32))])
    elif kind:
        result = g.node(kind, [result])
    return signed(g, result, dtype) if g.chance(0.85) else result


@family(2)
def signed_quantization(g: GraphWriter) -> Value:
    """By tensor or along an axis; dequantized by the same grid, or by another one."""
    value = g.pick(et.F32, least=1)
    dtype = g.choice((et.U8, et.I8, et.U8, et.I8, *((et.U16, et.I16) if g.opset >= 21 else ())))
    axis, shape = None, ()
    if value.rank >= 2 and g.opset >= 13 and g.chance(0.5):
        axis = g.random.randrange(value.rank)
        shape = (value.size(axis),)
    parts = grid(g, dtype, *shape)
    value = g.node("Relu", [value]) if g.chance(0.3) else value
    quantized = g.node("QuantizeLinear", [value, *parts], axis=axis)
    back = parts if g.chance(0.7) else grid(g, dtype, *shape)
    found = g.node("DequantizeLinear", [quantized, *back], axis=axis)
    return g.node("QuantizeLinear", [found, *parts], axis=axis) if g.chance(0.3) else found


@family(3)
def signed_convolution(g: GraphWriter) -> Value:
    value = image(g, et.F32, most=4)
    channels, dtype = value.size(1), g.choice((et.U8, et.I8))
    operand = signed(g, value, dtype)
    kernel, given = window(g, value)
    groups = g.choice([d for d in (1, 1, channels) if channels % d == 0])
    count = groups * g.choice((1, 4, 16, 17) if groups == 1 else (1, 2))
    weights = signed_weights(g, 0, count, channels // groups, *kernel)
    made = g.node("Conv", [operand, weights, any_bias(g, count)], group=groups, **given)
    return ended(g, made, dtype)


@family(3)
def signed_product(g: GraphWriter) -> Value:
    """MatMul or Gemm between grids of either sign, with a bias by column, by row, or one number."""
    value = g.pick(et.F32, least=2)
    dtype, depth, columns = g.choice((et.U8, et.I8)), value.size(-1), g.choice((1, 8, 16, 17))
    operand = signed(g, value, dtype)
    if value.rank > 2 or g.chance(0.4):
        made = g.node("MatMul", [operand, signed_weights(g, 1, depth, columns)])
        bias = any_bias(g, columns)
        return ended(g, made if bias is None else g.node("Add", [made, bias]), dtype)
    turned = g.choice((0, 1))
    weights = signed_weights(g, 1 - turned, *((columns, depth) if turned else (depth, columns)))
    bias = any_bias(g, columns) if g.chance(0.6) else None
    if bias is None and g.opset >= 7:
        rows = value.size(0)
        bias = g.weights(et.F32, *g.choice(((), (1,), (rows, 1), (1, columns), (1, 1), (rows, columns))))
    given = {"alpha": g.choice((1.0, 1.0, 0.5)), "beta": g.choice((1.0, 1.0, 0.0, -2.0))}
    return ended(g, g.node("Gemm", [operand, weights, bias], transB=turned, **given), dtype)


_UNARY = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Abs", "Neg", "Exp", "Sqrt", "HardSigmoid", "Erf", "Softmax", "Elu")
_PAIRS = ("Add", "Mul", "Sub", "Max", "Min", "Div", "PRelu")


@family(3)
def signed_elementwise(g: GraphWriter) -> Value:
    """Operators of one and two operands between grids of either sign."""
    value, dtype = g.pick(et.F32, least=1), g.choice((et.U8, et.I8))
    operand = signed(g, value, dtype)
    if g.chance(0.5):
        op_type = g.choice(_UNARY)
        operand = g.node("Abs", [operand]) if op_type == "Sqrt" else operand
        given = {"axis": -1} if op_type == "Softmax" and g.opset >= 13 else {}
        return ended(g, g.node(op_type, [operand], **given), dtype)
    if g.chance(0.5):
        other = signed(g, g.pick(et.F32, where=lambda v: v.shapes == value.shapes), dtype)
    else:
        count = value.size(-1)
        other = g.weights(et.F32, *g.choice(((), (1,), (count,))), low=0.5, high=2)
        other = signed(g, other, dtype) if g.chance(0.6) else other
    op_type = g.choice(_PAIRS)
    pair = [operand, other] if op_type == "PRelu" or g.chance(0.7) else [other, operand]
    return ended(g, g.node(op_type, pair), dtype)


@family(3)
def signed_moves(g: GraphWriter) -> Value:
    """Operators that choose and move levels, some of which ask for their order: a maximum is another one then."""
    value, dtype = image(g, et.F32, least=3, most=4), g.choice((et.U8, et.I8))
    parts = grid(g, dtype)
    operand = signed(g, value, dtype, parts)
    kind = g.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "reduce", "choose", "move", "pad"))
    if kind in ("MaxPool", "AveragePool"):
        kernel, given = window(g, value, pool=True)
        if kind == "AveragePool":
            given |= {"count_include_pad": g.choice((0, 1))}
        if g.opset < (19 if kind == "AveragePool" else 10):
            given.pop("dilations", None)
        if g.opset >= 19 and g.chance(0.3):
            given["ceil_mode"] = 1
        made = g.node(kind, [operand], kernel_shape=kernel, **given)
    elif kind == "reduce":
        made = _reduced(g, operand)
    elif kind == "choose":
        if g.chance(0.5):
            return g.node(g.choice(("ArgMax", "ArgMin")), [operand], axis=1, keepdims=g.choice((0, 1)))
        count = min(shape[-1] for shape in value.shapes)
        return g.node("TopK", [operand, g.constant([min(count, 2)])], 2, axis=-1)[0]
    elif kind == "move":
        made = g.node("Transpose", [operand], perm=g.random.sample(range(value.rank), value.rank))
    elif kind == "pad":
        pads = g.constant([0, 0, *[1] * (value.rank - 2)] * 2)
        number = g.constant(np.float32(g.choice((0, 0.3, -1.0)))) if g.chance(0.5) else None
        made = g.node("Pad", [operand, pads, number], mode="constant")
    else:
        made = g.node(kind, [operand])
    return signed(g, made, dtype, parts if g.chance(0.6) else None)


def _reduced(g: GraphWriter, value: Value) -> Value:
    name, keepdims = g.choice(("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum")), g.choice((0, 1))
    axes = g.choice(([value.rank - 1], [1], list(range(2, value.rank))))
    since = 13 if name == "ReduceSum" else 18
    if g.opset >= since:
        return g.node(name, [value, g.constant(axes)], keepdims=keepdims)
    return g.node(name, [value], axes=axes, keepdims=keepdims)


@family(2)
def signed_parts(g: GraphWriter) -> Value:
    """Parts with grids of their own, joined; or the pieces of one, each with another grid."""
    value, dtype = g.pick(et.F32, least=1), g.choice((et.U8, et.I8))
    parts = grid(g, dtype)
    if g.chance(0.6):
        pieces = [signed(g, value, dtype, parts if g.chance(0.5) else None) for _ in range(g.choice((2, 3)))]
        made = g.node("Concat", pieces, axis=g.random.randrange(value.rank))
        return signed(g, made, dtype, parts if g.chance(0.5) else None)
    operand, axis = signed(g, value, dtype, parts), g.random.randrange(value.rank)
    if value.size(axis) % 2 or not value.size(axis):
        raise Refused("halves of an odd number")
    half = value.size(axis) // 2
    pieces = g.node("Split", [operand, g.constant([half, half])], 2, axis=axis)
    pieces = [signed(g, each, dtype, parts if g.chance(0.6) else None) for each in pieces]
    return g.node("Concat", pieces, axis=axis)


def _levels(g: GraphWriter, least: int = 1, most: int = 4) -> Value:
    if g.chance(0.3):
        return g.pick(et.U8, et.I8, least=least, most=most, filled=True)
    value = g.pick(et.F32, least=least, most=most, filled=True)
    return g.node("QuantizeLinear", [value, *grid(g, g.choice((et.U8, et.I8)))])


def _full(g: GraphWriter, dtype: ElementType, *shape: int) -> Value:
    low, high = ENDS[dtype]
    return g.constant(g.numbers.integers(low, high + 1, shape), dtype)


def _full_grid(g: GraphWriter, dtype: ElementType, *shape: int, **limits: Any) -> list[Value]:
    return [signed_scale(g, *shape, **limits), end_point(g, dtype, *shape)]


@family(3)
def signed_integers(g: GraphWriter) -> Value:
    """The operators on levels themselves, by grids of either sign."""
    kind = g.choice((_product, _convolution, _gemm, _pair, _one, _pooled, _joined, _to_floats))
    return kind(g)


def _product(g: GraphWriter) -> Value:
    value = _levels(g, 2)
    kind, columns = g.choice((et.U8, et.I8)) if value.dtype is et.U8 else et.I8, g.choice((1, 8, 17))
    weights, shape = _full(g, kind, value.size(-1), columns), (columns,) if g.chance(0.4) else ()
    points = g.constant(np.zeros(shape), kind) if shape else end_point(g, kind)
    target = _full_grid(g, value.dtype, low=0.05, high=0.5)
    own = _full_grid(g, value.dtype)
    return g.node("QLinearMatMul", [value, *own, weights, signed_scale(g, *shape), points, *target])


def _convolution(g: GraphWriter) -> Value:
    value = _levels(g, 3)
    channels = value.size(1)
    kernel, given = window(g, value)
    groups = g.choice((1, channels))
    count, kind = groups * g.choice((1, 8) if groups == 1 else (1,)), g.choice((et.U8, et.I8))
    kind = kind if value.dtype is et.U8 else et.I8
    weights = _full(g, kind, count, channels // groups, *kernel)
    shape = (count,) if g.chance(0.5) else ()
    points = g.constant(np.zeros(shape), kind) if shape else end_point(g, kind)
    bias = g.constant(g.numbers.integers(-500, 500, count), et.I32) if g.chance(0.5) else None
    parts = [value, *_full_grid(g, value.dtype), weights, signed_scale(g, *shape), points]
    target = _full_grid(g, value.dtype, low=0.05, high=0.5)
    return g.node("QLinearConv", [*parts, *target, bias], group=groups, **given)


def _gemm(g: GraphWriter) -> Value:
    value = _levels(g, 2, 2)
    kind, columns = g.choice((et.U8, et.I8)) if value.dtype is et.U8 else et.I8, g.choice((1, 8, 17))
    weights, shape = _full(g, kind, value.size(1), columns), (columns,) if g.chance(0.4) else ()
    points = g.constant(np.zeros(shape), kind) if shape else end_point(g, kind)
    bias = g.constant(g.numbers.integers(-500, 500, columns), et.I32) if g.chance(0.5) else None
    target = _full_grid(g, value.dtype, low=0.05, high=0.5) if g.chance(0.7) else []
    own = _full_grid(g, value.dtype)
    operands = [value, *own, weights, signed_scale(g, *shape), points, bias, *target]
    return g.node("QGemm", operands, domain=MICROSOFT, alpha=g.choice((1.0, -0.5)))


def _pair(g: GraphWriter) -> Value:
    value = _levels(g)
    other = g.pick(value.dtype, where=lambda v: v.shapes == value.shapes)
    grids = [_full_grid(g, value.dtype) for _ in range(3)]
    op_type = g.choice(("QLinearAdd", "QLinearMul", "QLinearWhere"))
    if op_type == "QLinearWhere":
        mask = g.constant(g.numbers_of(et.BOOL, (1,)))
        return g.node(op_type, [mask, value, *grids[0], other, *grids[1], *grids[2]], domain=MICROSOFT)
    return g.node(op_type, [value, *grids[0], other, *grids[1], *grids[2]], domain=MICROSOFT)


def _one(g: GraphWriter) -> Value:
    value = _levels(g)
    operands = [value, *_full_grid(g, value.dtype), *_full_grid(g, value.dtype)]
    op_type = g.choice(("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"))
    given: dict[str, Any] = {"alpha": 0.2} if op_type == "QLinearLeakyRelu" else {}
    if op_type == "QLinearSoftmax":
        given = {"axis": -1, "opset": g.opset}
    return g.node(op_type, operands, domain=MICROSOFT, **given)


def _pooled(g: GraphWriter) -> Value:
    value = _levels(g, 3)
    operands = [value, *_full_grid(g, value.dtype), *_full_grid(g, value.dtype)]
    if g.chance(0.4):
        return g.node("QLinearGlobalAveragePool", operands, domain=MICROSOFT, channels_last=g.choice((0, 1)))
    kernel, given = window(g, value, pool=True)
    given.pop("dilations", None)
    given |= {"count_include_pad": g.choice((0, 1)), "ceil_mode": g.choice((0, 0, 1))}
    return g.node("QLinearAveragePool", operands, domain=MICROSOFT, kernel_shape=kernel, **given)


def _joined(g: GraphWriter) -> Value:
    value = _levels(g)
    parts = [part for _ in range(g.choice((1, 2, 3))) for part in (value, *_full_grid(g, value.dtype))]
    axis = g.random.randrange(value.rank)
    return g.node("QLinearConcat", [*_full_grid(g, value.dtype), *parts], domain=MICROSOFT, axis=axis)


def _to_floats(g: GraphWriter) -> Value:
    value, columns = _levels(g, 2), g.choice((1, 8, 17))
    kind = g.choice((et.U8, et.I8)) if value.dtype is et.U8 else et.I8
    weights, shape = _full(g, kind, value.size(-1), columns), (columns,) if g.chance(0.4) else ()
    points = [end_point(g, value.dtype), end_point(g, kind, *shape)]
    bias = g.weights(et.F32, columns) if g.chance(0.5) else None
    scales = [signed_scale(g), signed_scale(g, *shape)]
    return g.node("MatMulIntegerToFloat", [value, weights, *scales, *points, bias], domain=MICROSOFT)
