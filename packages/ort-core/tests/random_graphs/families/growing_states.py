"""Loops that carry what they make longer: tensors by Concat, and lists of tensors, read in many ways or not at all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.control_flow import nested
from random_graphs.families.operands import fixed
from random_graphs.family import family
from random_graphs.triples import exact
from random_graphs.writer import GraphWriter, Value

_UNARY = {True: ("Tanh", "Sigmoid", "Sin", "Neg"), False: ("Neg", "Abs", "Identity")}
_TURNS = (0, 1, 2, 3, 5, 9, 18)


@family(4)
def grown_tensor(g: GraphWriter) -> list[Value]:
    """Each turn appends parts on one or both sides, along any axis, and may read the end, the size or all of it."""
    start = g.pick(et.F32, et.F32, et.I64, et.F64, et.F16, least=1, filled=True)
    axis = g.axis(start)
    first = _first(g, start, axis)
    body, going, number = _opened(g)
    carried, grown = body.formal(start.samples), body.formal(first.samples)
    changed = _changed(body, carried, number)
    parts = [_part(body, changed, axis) for _ in range(g.choice((1, 1, 2)))]
    place = g.choice((0, 0, 0, len(parts), g.random.randint(0, len(parts))))
    longer = body.node("Concat", [*parts[:place], grown, *parts[place:]], axis=axis)
    if g.chance(0.2):
        longer = body.node("Concat", [longer, parts[0]], axis=axis)
    read = grown if g.chance(0.5) else longer
    seen = g.choice(_READS)(body, read, axis) if g.chance(0.7) else None
    following = changed if seen is None else _mixed(body, changed, seen)
    graph = body.as_body("turn", [_goes_on(body, going, number), following, longer])
    return g.node("Loop", [_turns(g), None, start, first], 2, body=graph)


@family(2)
def list_of_turns(g: GraphWriter) -> Value:
    """Each turn adds a tensor to a list, which is stacked, joined, counted, or asked for an element behind the loop."""
    start = g.pick(et.F32, et.F32, et.I64, least=1, filled=True)
    empty = g.node("SequenceEmpty", [], dtype=start.dtype.onnx)
    body, going, number = _opened(g)
    carried, grown = body.formal(start.samples), body.formal(empty.samples)
    changed = _changed(body, carried, number)
    longer = body.node("SequenceInsert", [grown, _part(body, changed, 0)])
    graph = body.as_body("turn", [_goes_on(body, going, number), changed, longer])
    _, made = g.node("Loop", [_turns(g), None, start, empty], 2, body=graph)
    kind = g.choice(("stack", "stack", "join", "count", "element"))
    if kind == "count":
        return g.node("SequenceLength", [made])
    if kind == "element":
        return g.node("SequenceAt", [made, g.constant(np.asarray(g.choice((0, -1)), np.int64))])
    is_new = kind == "stack"
    return g.node("ConcatFromSequence", [made], axis=g.random.randrange(start.rank + is_new), new_axis=int(is_new))


@family(2)
def rows_one_by_one(g: GraphWriter) -> Value:
    """Each turn reads the row with its number, and appends what it makes of it, to a tensor or to a list."""
    data = g.pick(et.F32, et.F32, et.I64, et.F64, least=1, filled=True)
    axis = g.axis(data)
    turns = g.node("Gather", [g.node("Shape", [data]), g.constant(np.asarray(axis, np.int64))])
    if g.chance(0.3):
        turns = g.node("Min", [turns, g.constant(np.asarray(g.choice((1, 2, 40)), np.int64))])
    is_list = g.chance(0.4)
    none = [g.constant(fixed([n])) for n in (0, 0, axis)]
    empty = g.node("SequenceEmpty", [], dtype=data.dtype.onnx) if is_list else g.node("Slice", [data, *none])
    body, going, number = _opened(g)
    grown = body.formal(empty.samples)
    first, last = number, body.node("Add", [number, body.constant(np.asarray(1, np.int64))])
    ends = [body.node("Unsqueeze", [each, body.constant(fixed([0]))]) for each in (first, last)]
    row = body.node("Slice", [data, *ends, body.constant(fixed([axis]))])
    made = body.node(body.choice(_UNARY[data.dtype.is_float]), [row])
    longer = body.node("SequenceInsert", [grown, made]) if is_list else body.node("Concat", [grown, made], axis=axis)
    graph = body.as_body("turn", [body.node("Identity", [going]), longer])
    made = g.node("Loop", [turns, None, empty], 1, body=graph)
    return g.node("ConcatFromSequence", [made], axis=axis) if is_list else made


def _opened(g: GraphWriter) -> tuple[GraphWriter, Value, Value]:
    """Return a body with the formal inputs that every turn is given."""
    body = nested(g)
    number = body.formal([exact(np.asarray(0, np.int64))] * g.assignments)
    return body, body.formal([exact(np.asarray(True))] * g.assignments), number


def _first(g: GraphWriter, start: Value, axis: int) -> Value:
    """Return what turns make longer: nothing, the value itself, or its first rows."""
    kind = g.choice(("nothing", "nothing", "all", "first"))
    if kind == "all":
        return g.node("Identity", [start])
    end = 0 if kind == "nothing" else 1
    return g.node("Slice", [start, *(g.constant(fixed([n])) for n in (0, end, axis))])


def _changed(body: GraphWriter, carried: Value, number: Value) -> Value:
    """Return a value of the carried one's shape, another one each turn."""
    cast = body.node("Cast", [number], to=carried.dtype.onnx)
    mixed = body.node(body.choice(("Add", "Sub", "Mul")), [carried, cast])
    return body.node(body.choice(_UNARY[carried.dtype.is_float]), [mixed])


def _part(body: GraphWriter, changed: Value, axis: int) -> Value:
    """Return the value, one row of it, or what another operator makes of it."""
    kind = body.choice(("same", "row", "other"))
    if kind == "row":
        return body.node("Slice", [changed, *(body.constant(fixed([n])) for n in (0, 1, axis))])
    return changed if kind == "same" else body.node("Neg", [changed])


def _last_row(body: GraphWriter, value: Value, axis: int) -> Value:
    return body.node("Gather", [value, body.constant(fixed([-1]))], axis=axis)


def _last_rows(body: GraphWriter, value: Value, axis: int) -> Value:
    rows = body.choice((1, 2, 3))
    return body.node("Slice", [value, *(body.constant(fixed([n])) for n in (-rows, 2**63 - 1, axis))])


def _size(body: GraphWriter, value: Value, axis: int) -> Value:
    sizes = body.node("Shape", [value])
    found = body.node("Gather", [sizes, body.constant(np.asarray(axis, np.int64))])
    return body.node("Cast", [found], to=value.dtype.onnx)


def _whole(body: GraphWriter, value: Value, axis: int) -> Value:
    return body.node("Neg", [value])


_READS: tuple[Callable[[GraphWriter, Value, int], Value], ...] = (_last_row, _last_rows, _size, _size, _whole)


def _mixed(body: GraphWriter, changed: Value, seen: Value) -> Value:
    """Return the changed value with a number in it that comes from what was read."""
    total = body.node("ReduceSum", [seen], keepdims=0) if seen.rank else seen
    return body.node(
        body.choice(("Add", "Sub")), [changed, body.node("Tanh", [total]) if total.dtype.is_float else total]
    )


def _goes_on(body: GraphWriter, going: Value, number: Value) -> Value:
    """Return whether another turn follows: always, or until a number of them."""
    if body.opset < 9 or body.chance(0.6):
        return body.node("Identity", [going])
    return body.node("Less", [number, body.constant(np.asarray(body.choice((0, 1, 3, 7)), np.int64))])


def _turns(g: GraphWriter) -> Value:
    if g.outer is None and g.chance(0.3) and len(g.inputs) < 4:
        return g.node("Min", [g.input(et.I64, 0), g.constant(np.asarray(6, np.int64))])
    return g.constant(np.asarray(g.choice(_TURNS), np.int64))
