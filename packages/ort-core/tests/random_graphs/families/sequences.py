"""Sequences and optionals: made, changed, and read again, so that graphs go on with tensors."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.operands import fixed
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value


@family(2)
def sequence(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.I64, et.F64, et.BOOL)
    parts = [value, *(g.pick(value.dtype, rank=value.rank) for _ in range(g.choice((0, 1, 2))))]
    made = g.node("SequenceConstruct", parts)
    if g.chance(0.4):
        made = g.node("SequenceInsert", [made, value, g.constant(np.asarray(g.choice((0, -1, 1)), np.int64))])
        parts.append(value)
    if g.chance(0.3) and len(parts) > 1:
        made = g.node("SequenceErase", [made, g.constant(np.asarray(0, np.int64))])
        parts.pop()
    if g.chance(0.3):
        return g.node("SequenceLength", [made])
    return g.node("SequenceAt", [made, g.constant(np.asarray(g.random.randrange(len(parts)), np.int64))])


@family()
def split_and_join(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.I64, least=1, filled=True)
    axis = g.axis(value)
    keep = g.choice((0, 1))
    if g.chance(0.5):
        size = g.constant(np.asarray(1, np.int64)) if keep and g.chance(0.3) else None
        parts = g.node("SplitToSequence", [value, size], axis=axis, keepdims=keep)
        if g.chance(0.2):
            return g.node("SequenceLength", [parts])
        if g.chance(0.4):
            return g.node("SequenceAt", [parts, g.constant(np.asarray(g.choice((0, -1)), np.int64))])
        return g.node("ConcatFromSequence", [parts], axis=0, new_axis=0 if keep else 1)
    size = min(shape[axis] for shape in value.shapes)
    parts = g.node("SplitToSequence", [value, g.constant(np.asarray(g.random.randint(1, size), np.int64))], axis=axis)
    return g.node("ConcatFromSequence", [parts], axis=axis)


@family()
def optional(g: GraphWriter) -> Value:
    if g.opset < 18:
        raise Refused("tensors are taken as optionals later")
    value = g.pick(et.F32, et.I64)
    made = g.node("Optional", [value])
    return g.node("OptionalHasElement" if g.chance(0.3) else "OptionalGetElement", [made])


@family()
def stack_of_rows(g: GraphWriter) -> Value:
    value = g.pick(et.F32, least=2, filled=True)
    made = g.node("SequenceConstruct", [value, value])
    stacked = g.node("ConcatFromSequence", [made], axis=0, new_axis=1)
    return g.node(
        "Squeeze", [g.node("Slice", [stacked, *(g.constant(fixed([n])) for n in (0, 1, 0))]), g.constant(fixed([0]))]
    )
