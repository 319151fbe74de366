"""If, Loop and Scan, whose bodies are random graphs themselves and read values around them."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.family import family
from random_graphs.growing import grow
from random_graphs.triples import Triple, exact
from random_graphs.writer import GraphWriter, Refused, Value

DEPTH = 2


def nested(g: GraphWriter) -> GraphWriter:
    """Return a writer of a body, unless bodies stand too deep already.

    Raises:
        Refused: they do.
    """
    depth, outer = 0, g.outer
    while outer is not None:
        depth, outer = depth + 1, outer.outer
    if depth >= DEPTH:
        raise Refused("bodies are nested enough")
    return g.body()


@family(2)
def if_(g: GraphWriter) -> Value:
    """Both branches give a value of one type and rank; their shapes may differ."""
    condition = _condition(g)
    first, second = nested(g), nested(g)
    grow(first, g.choice((1, 2, 3, 4)))
    left = _made(first)
    grow(second, g.choice((1, 2, 3)))
    fitting = [v for v in second.values if v.dtype is left.dtype and v.rank == left.rank]
    right = fitting[-1] if fitting else second.node("Identity", [g.pick(left.dtype, rank=left.rank)])
    if right.dtype is not left.dtype:  # a graph of halves has no other floats to pick
        raise Refused("no value of that type")
    return g.node(
        "If", [condition], then_branch=first.as_body("yes", [left]), else_branch=second.as_body("no", [right])
    )


def _made(g: GraphWriter) -> Value:
    if not g.values:
        raise Refused("an empty body")
    return g.values[-1]


def _condition(g: GraphWriter) -> Value:
    single = [v for v in g.visible() if v.dtype is et.BOOL and all(s == () for s in v.shapes)]
    if single and g.chance(0.6):
        return g.choice(single)
    if g.chance(0.3):
        return g.constant(np.asarray(g.chance(0.5)))
    value = g.pick(et.F32)
    total = g.node("ReduceMax", [value], keepdims=0)
    return g.node("Greater", [total, g.constant(np.float32(g.choice((0, 1e9, -1e9, 0.5))))])


@family(2)
def loop(g: GraphWriter) -> list[Value]:
    """A carried value keeps its shape and type; another one stays as it is; what a turn makes may be stacked."""
    start = g.pick(et.F32, et.F32, et.I64, et.F64)
    others = [g.pick(et.F32, et.I64)] if g.chance(0.3) else []
    body = nested(g)
    body.formal([exact(np.asarray(0, np.int64))] * g.assignments)
    going = body.formal([exact(np.asarray(True))] * g.assignments)
    carried = body.formal(start.samples)
    unchanged = [body.formal(each.samples) for each in others]
    grow(body, g.choice((1, 2, 4)))
    kept = _kept(body, carried)
    stacked = (
        [v for v in body.values if v.name not in {i.name for i in body.inputs} and v is not kept][-1:]
        if g.chance(0.5)
        else []
    )
    again = body.node("Identity", [going])
    turns = _turns(g, least=1 if stacked else 0)
    same = [body.node("Identity", [each]) for each in unchanged]
    graph = body.as_body("turn", [again, kept, *same, *stacked])
    return g.node(
        "Loop",
        [turns, g.constant(np.asarray(True)) if g.chance(0.7) else None, start, *others],
        [True] * (1 + len(same) + len(stacked)),
        body=graph,
    )


def _turns(g: GraphWriter, least: int) -> Value:
    """Return a number of turns: fixed, or another in each run, none and below none among them."""
    if g.outer is None and not least and g.chance(0.3) and len(g.inputs) < 4:
        turns = g.input(et.I64, 0)
        return g.node("Min", [turns, g.constant(np.asarray(6, np.int64))])
    if g.chance(0.3):
        shape = g.node("Shape", [g.pick(least=1)])
        size = g.node("Gather", [shape, g.constant(np.asarray(0, np.int64))])
        turns = g.node("Min", [size, g.constant(np.asarray(5, np.int64))])
        if min(int(each.truth) for each in turns.samples) < least:
            raise Refused("no turn")
        return turns
    counts = (1, 2, 3, 5, 5, 18)  # of three and more the rounds may be one native call, whose stacks grow behind 16
    return g.constant(np.asarray(g.choice(counts if least else (0, *counts)), np.int64))


def _kept(body: GraphWriter, carried: Value) -> Value:
    """Return a value of the carried one's shape and type, made from it."""
    fitting = [v for v in body.values if v.dtype is carried.dtype and v.shapes == carried.shapes and v is not carried]
    made = [v for v in fitting if v.name not in {i.name for i in body.inputs}]
    other = body.choice(made) if made else carried
    op_type = body.choice(("Add", "Sub", "Max", "Min"))
    mixed = body.node(op_type, [carried, other])
    return body.node("Tanh", [mixed]) if carried.dtype.is_float else mixed


@family()
def scan(g: GraphWriter) -> list[Value]:
    """A state, and one or two operands read row by row, from either end."""
    operand = g.pick(et.F32, et.F32, et.F64, least=1, filled=True)
    start = g.node("ReduceMax", [operand], keepdims=0) if operand.rank == 1 else _first_row(g, operand)
    body = nested(g)
    state = body.formal(start.samples)
    row = body.formal([_row(sample) for sample in operand.samples])
    mixed = body.node(g.choice(("Add", "Mul", "Max")), [state, row])
    following = body.node("Tanh", [mixed])
    grow(body, g.choice((0, 1, 2)))
    outputs = [following, body.node("Identity", [body.values[-1]])]
    graph = body.as_body("row", outputs)
    return g.node(
        "Scan", [start, operand], 2, body=graph, num_scan_inputs=1, scan_input_directions=[g.choice((0, 1))],
        scan_output_directions=[g.choice((0, 1))],
    )  # fmt: skip


def _first_row(g: GraphWriter, operand: Value) -> Value:
    return g.node("Gather", [operand, g.constant(np.asarray(0, np.int64))], axis=0)


def _row(sample: Triple) -> Triple:
    return exact(np.asarray(sample.native()[0]))
