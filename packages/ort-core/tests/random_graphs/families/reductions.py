"""Reductions, cumulative sums, places of the largest, softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.elementwise import guarded
from random_graphs.families.operands import fixed
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value

MOST_FACTORS = 64
MANY = 131  # elements of a TopK, more than are inserted one by one
REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSumExp", "SumSquare", "LogSum", "Sum", "Mean", "Max")


def reduced(g: GraphWriter, op_type: str, value: Value, axes: list[int] | None, **attributes: Any) -> Value:
    """Add a reduction over axes, which are an attribute or an input by the opset."""
    by_input = g.opset >= 18 or (op_type == "ReduceSum" and g.opset >= 13)
    if axes is None:
        return g.node(op_type, [value], **attributes)
    if by_input:
        return g.node(op_type, [value, g.constant(fixed(axes))], **attributes)
    return g.node(op_type, [value], axes=axes, **attributes)


@family(6)
def reduction(g: GraphWriter) -> Value:
    op_type = f"Reduce{g.choice(REDUCTIONS)}"
    is_of_bools = op_type in ("ReduceMax", "ReduceMin") and g.opset >= 20 and g.chance(0.15)
    value = g.pick(et.BOOL) if is_of_bools else g.pick(*et.FLOATS, et.I64, et.I32, filled=g.chance(0.8))
    if op_type == "ReduceProd" and any(int(np.prod(shape)) > MOST_FACTORS for shape in value.shapes):
        raise Refused("a product of many numbers leaves the type's range, or not, by its order")
    if op_type == "ReduceLogSum":
        value = guarded(g, value, "positive")
    if value.dtype in (et.I32, et.I64) and "Log" in op_type:
        raise Refused("logarithms of integers")
    keep = g.choice((0, 1, None))
    kind = g.random.random()
    if kind < 0.75 and value.rank:
        axes = g.random.sample(range(value.rank), g.random.randint(1, value.rank))
        return reduced(g, op_type, value, [a if g.chance(0.6) else a - value.rank for a in axes], keepdims=keep)
    if kind < 0.85 and g.opset >= 18:
        return reduced(g, op_type, value, [], keepdims=keep, noop_with_empty_axes=g.choice((0, 1)))
    return reduced(g, op_type, value, None, keepdims=keep)


@family(2)
def place_of_extreme(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F16, et.F64, et.I32, et.I64, et.U8, et.I8, least=1)
    return g.node(
        g.choice(("ArgMax", "ArgMin")), [value], axis=g.axis(value), keepdims=g.choice((0, 1)),
        select_last_index=g.choice((0, 1)),
    )  # fmt: skip


@family()
def cumulative(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F64, et.I32, et.I64, least=1)
    op_type = "CumProd" if g.opset >= 26 and g.chance(0.3) else "CumSum"
    axis = g.constant(np.asarray(g.axis(value), g.choice((np.int64, np.int32))))
    return g.node(op_type, [value, axis], exclusive=g.choice((0, 1)), reverse=g.choice((0, 1)))


@family()
def top_k(g: GraphWriter) -> list[Value]:
    value = g.pick(et.F32, et.F64, et.I32, et.I64, least=1, filled=True)
    axis = g.axis(value)
    k = g.random.randint(0, min(shape[axis] for shape in value.shapes))
    is_data = g.opset >= 10 and g.outer is None and g.chance(0.3)
    operands = [value, g.given(fixed([k])) if is_data else g.constant(fixed([k]))]
    return g.node("TopK", operands, 2, axis=axis, largest=g.choice((0, 1)), sorted=1)


@family()
def many_of_the_best(g: GraphWriter) -> list[Value]:
    """TopK of more elements than are inserted one by one; k may be the length of the rows itself."""
    value = g.pick(et.F32, et.F64, et.I32, et.I64, rank=2, filled=True)
    repeats = -(-MANY // min(shape[1] for shape in value.shapes))
    rows = g.node("Tile", [value, g.constant(fixed([1, repeats]))])
    is_size = g.opset >= 15 and g.chance(0.5)
    k = g.node("Shape", [rows], start=1) if is_size else g.constant(fixed([MANY]))
    return g.node("TopK", [rows, k], 2, axis=-1, largest=g.choice((0, 1)), sorted=1)


@family(4)
def softmax(g: GraphWriter) -> Value:
    op_type = g.choice(("Softmax", "Softmax", "Softmax", "LogSoftmax", "Hardmax"))
    value = g.pick(*et.FLOATS, least=1)
    return g.node(op_type, [value], axis=g.axis(value) if g.chance(0.5) else -1)


@family()
def lp_normalization(g: GraphWriter) -> Value:
    value = guarded(g, g.pick(et.F32, et.F64, least=1), "positive")
    return g.node("LpNormalization", [value], axis=g.axis(value), p=g.choice((1, 2)))
