"""Sequences and optionals that If chooses and Loop carries, so that bodies give what is no tensor."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.control_flow import nested
from random_graphs.family import family
from random_graphs.triples import exact
from random_graphs.writer import GraphWriter, Refused, Value


@family(2)
def chosen_sequence(g: GraphWriter) -> Value:
    """If gives one of two sequences, of which one element is read, or all are joined."""
    value = g.pick(et.F32, et.I64, least=1, filled=True)
    condition = g.constant(np.asarray(g.chance(0.5)))
    if g.chance(0.5):
        total = g.node("ReduceMax", [g.pick(et.F32)], keepdims=0)
        condition = g.node("Greater", [total, g.constant(np.float32(g.choice((1e9, -1e9))))])
    first, second = nested(g), nested(g)
    changed = first.node("Neg", [value])
    branches = [
        first.as_body("yes", [first.node("SequenceConstruct", [changed, value])]),
        second.as_body("no", [second.node("SequenceConstruct", [value, value, value])]),
    ]
    made = g.node("If", [condition], then_branch=branches[0], else_branch=branches[1])
    if g.chance(0.5):
        return g.node("ConcatFromSequence", [made], axis=0)
    return g.node("SequenceAt", [made, g.constant(np.asarray(g.choice((0, 1, -1)), np.int64))])


@family(2)
def grown_sequence(g: GraphWriter) -> Value:
    """Loop carries a sequence that each turn makes longer, and a tensor that each turn changes."""
    start = g.pick(et.F32, et.I64, least=1, filled=True)
    opened = g.node("SequenceConstruct", [start]) if g.chance(0.6) else None
    if opened is None:
        opened = g.node("SequenceEmpty", [], dtype=start.dtype.onnx)
    body = nested(g)
    body.formal([exact(np.asarray(0, np.int64))] * g.assignments)
    going = body.formal([exact(np.asarray(True))] * g.assignments)
    grown, carried = body.formal(opened.samples), body.formal(start.samples)
    changed = body.node("Neg", [carried])
    place = body.constant(np.asarray(0, np.int64)) if g.chance(0.4) else None
    longer = body.node("SequenceInsert", [grown, changed, place])
    graph = body.as_body("turn", [body.node("Identity", [going]), longer, changed])
    turns = g.constant(np.asarray(g.choice((1, 2, 4)), np.int64))
    made, _ = g.node("Loop", [turns, None, opened, start], 2, body=graph)
    if g.chance(0.5):
        return g.node("ConcatFromSequence", [made], axis=0)
    return g.node("SequenceAt", [made, g.constant(np.asarray(-1, np.int64))])


@family()
def chosen_optional(g: GraphWriter) -> Value:
    """If gives an optional that has a tensor or has none; it is asked for, and read where it has one."""
    if g.opset < 18:
        raise Refused("optionals are read later")
    value = g.pick(et.F32, et.I64)
    is_there = g.chance(0.6)
    first, second = nested(g), nested(g)
    branches = [
        first.as_body("yes", [first.node("Optional", [first.node("Identity", [value])])]),
        second.as_body("no", [second.node("Optional", [second.node("Abs", [value])])]),
    ]
    made = g.node("If", [g.constant(np.asarray(is_there))], then_branch=branches[0], else_branch=branches[1])
    if g.chance(0.3):
        return g.node("OptionalHasElement", [made])
    return g.node("OptionalGetElement", [made])
