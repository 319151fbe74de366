"""Choices between values, and changes of their type."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.operands import broadcasts
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value

CAST_TARGETS = (
    *[et.F32] * 6,
    et.F64,
    et.F16,
    et.BF16,
    et.I64,
    et.I32,
    et.BOOL,
    et.U8,
    et.I8,
    et.I16,
    et.U16,
    et.U32,
    et.U64,
)


@family(3)
def where(g: GraphWriter) -> Value:
    condition = g.pick(et.BOOL)
    value = g.pick(where=lambda v: broadcasts(v, condition) and v.dtype not in et.NARROW)
    other = g.constant(g.numbers_of(value.dtype, ())) if g.chance(0.5) else value
    return g.node("Where", [condition, *((value, other) if g.chance(0.5) else (other, value))])


@family(5)
def cast(g: GraphWriter) -> Value:
    value = g.pick(where=lambda v: v.dtype not in et.NARROW and v.dtype is not et.TEXT)
    target = g.choice(CAST_TARGETS)
    if value.dtype.is_float and not target.is_float and target is not et.BOOL:
        low = 0 if target in et.UNSIGNED else -100
        value = g.node("Clip", [value, g.constant(low, value.dtype), g.constant(100, value.dtype)])
    if value.dtype.numpy.kind == "i" and target in et.UNSIGNED:
        value = g.node("Abs", [value])
    return g.node("Cast", [value], to=target.onnx)


@family()
def narrow_cast(g: GraphWriter) -> Value:
    """There and back through four bits or float8."""
    if g.opset < 21:
        raise Refused("no types of four bits yet")
    target = g.choice((et.I4, et.U4, et.F8E4, et.F8E5))
    value = g.pick(et.F32, et.F32, et.F16)
    low = 0 if target is et.U4 else -7
    value = g.node("Clip", [value, g.constant(low, value.dtype), g.constant(7, value.dtype)])
    return g.node("Cast", [g.node("Cast", [value], to=target.onnx)], to=et.F32.onnx)


@family()
def cast_like(g: GraphWriter) -> Value:
    if g.opset < 15:
        raise Refused("a newer operator")
    value = g.pick(et.I32, et.I64, et.BOOL, et.F32)
    return g.node("CastLike", [value, g.constant(np.zeros(1), g.choice((et.F32, et.F64, et.F16)))])


@family()
def not_a_number(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F64, et.F16)
    if g.chance(0.5):
        return g.node("IsNaN", [value])
    return g.node("IsInf", [value], detect_negative=g.choice((0, 1)), detect_positive=g.choice((0, 1)))
