"""Chains that fusions know, cut in two by the border of a body: what an If, a Loop or a Scan captures is half of one.

The first nodes stand outside, the rest within, or the other way round; what the chain has made so far may be read on
both sides, and be an output. Or a value goes through what is no tensor on its way: a sequence, an optional, a text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.control_flow import nested
from random_graphs.family import family
from random_graphs.triples import exact
from random_graphs.writer import GraphWriter, Refused, Value

Made = list[Value]
Step = Callable[[GraphWriter, Made], Value]


def _number(g: GraphWriter, like: Value, number: float) -> Value:
    return g.constant(number, like.dtype)


def _row(g: GraphWriter, like: Value) -> Value:
    return g.weights(like.dtype, like.size(-1)) if g.outer is None else g.constant(
        g.numbers_of(like.dtype, (like.size(-1),))
    )  # fmt: skip


def _product(g: GraphWriter, made: Made) -> Value:
    depth = made[-1].size(-1)
    weights = g.constant(g.numbers_of(made[0].dtype, (depth, g.choice((1, 8, 17))), -0.5, 0.5))
    return g.node("MatMul", [made[-1], weights])


def _mean(g: GraphWriter, value: Value) -> Value:
    if g.opset >= 18:
        return g.node("ReduceMean", [value, g.constant([-1])], keepdims=1)
    return g.node("ReduceMean", [value], axes=[value.rank - 1], keepdims=1)


def _quantize(g: GraphWriter, made: Made) -> Value:
    return g.node("QuantizeLinear", [made[-1], g.constant(0.05, et.F32), g.constant(128, et.U8)])


def _dequantize(g: GraphWriter, made: Made) -> Value:
    return g.node("DequantizeLinear", [made[-1], g.constant(0.05, et.F32), g.constant(128, et.U8)])


CHAINS: Sequence[Sequence[Step]] = (
    (lambda g, m: g.node("Sigmoid", [m[0]]), lambda g, m: g.node("Mul", [m[0], m[1]])),
    (
        lambda g, m: g.node("Div", [m[0], _number(g, m[0], 1.4142135)]),
        lambda g, m: g.node("Erf", [m[-1]]),
        lambda g, m: g.node("Add", [m[-1], _number(g, m[0], 1.0)]),
        lambda g, m: g.node("Mul", [m[0], m[-1]]),
        lambda g, m: g.node("Mul", [m[-1], _number(g, m[0], 0.5)]),
    ),
    (
        lambda g, m: _mean(g, m[0]),
        lambda g, m: g.node("Sub", [m[0], m[1]]),
        lambda g, m: g.node("Mul", [m[2], m[2]]),
        lambda g, m: _mean(g, m[3]),
        lambda g, m: g.node("Sqrt", [g.node("Add", [m[4], _number(g, m[0], 1e-3)])]),
        lambda g, m: g.node("Div", [m[2], m[5]]),
        lambda g, m: g.node("Mul", [m[6], _row(g, m[6])]),
    ),
    (_product, lambda g, m: g.node("Add", [m[-1], _row(g, m[-1])]), lambda g, m: g.node("Relu", [m[-1]])),
    (_quantize, _dequantize, _product, _quantize, _dequantize),
    (_quantize, _dequantize, lambda g, m: g.node("Relu", [m[-1]]), _quantize, _dequantize),
    (
        lambda g, m: g.node("Add", [m[0], _row(g, m[0])]), lambda g, m: g.node("Tanh", [m[-1]]),
        lambda g, m: g.node("Mul", [m[-1], m[1]]), lambda g, m: g.node("Add", [m[-1], m[0]]),
    ),
    (
        lambda g, m: g.node("Transpose", [m[0]], perm=[*range(m[0].rank - 2), m[0].rank - 1, m[0].rank - 2]),
        lambda g, m: g.node("MatMul", [m[0], m[1]]), lambda g, m: g.node("Mul", [m[-1], _number(g, m[0], 0.25)]),
        lambda g, m: g.node("Softmax", [m[-1]], axis=-1), lambda g, m: g.node("MatMul", [m[-1], m[0]]),
    ),
    (
        lambda g, m: g.node("Shape", [m[0]]), lambda g, m: g.node("Reshape", [m[0], g.constant([-1])]),
        lambda g, m: g.node("Relu", [m[-1]]), lambda g, m: g.node("Reshape", [m[-1], m[1]]),
    ),
    (
        lambda g, m: g.node("Shape", [m[0]]), lambda g, m: g.node("Cast", [m[-1]], to=et.F32.onnx),
        lambda g, m: g.node("Mul", [m[-1], g.constant(2.0, et.F32)]),
        lambda g, m: g.node("Cast", [m[-1]], to=et.I64.onnx), lambda g, m: g.node("ConstantOfShape", [m[-1]]),
    ),
)  # fmt: skip


def _grow(g: GraphWriter, steps: Sequence[Step], made: Made) -> Made:
    """Return what there was, and what the steps add to it."""
    made = list(made)
    for step in steps:
        made.append(step(g, made))
    return made


@family(3)
def chain_into_a_branch(g: GraphWriter) -> list[Value]:
    """The end of a chain stands in both branches of an If, of which one ends otherwise."""
    chain, value = g.choice(CHAINS), g.pick(et.F32, least=2, most=3, filled=True)
    cut = g.random.randint(1, len(chain) - 1)
    made = _grow(g, chain[:cut], [value])
    found = []
    for _ in range(2):
        branch = nested(g)
        end = _grow(branch, chain[cut:], made)[-1]
        if end.dtype.is_float and g.chance(0.5):
            end = branch.node(g.choice(("Relu", "Neg", "Tanh")), [end])
        found.append((branch, end))
    (first, left), (second, right) = found
    if left.rank != right.rank or left.dtype is not right.dtype:
        raise Refused("branches of two types")
    largest = g.node("ReduceMax", [value], keepdims=0)
    condition = g.node("Greater", [largest, g.constant(np.float32(g.choice((1e9, -1e9, 0.3))))])
    result = g.node(
        "If", [condition], then_branch=first.as_body("yes", [left]), else_branch=second.as_body("no", [right])
    )
    return [result, _grow(g, chain[cut:], made)[-1]] if g.chance(0.4) else [result]


@family(2)
def chain_into_turns(g: GraphWriter) -> list[Value]:
    """The end of a chain stands in a Loop, which stacks it; its beginning is captured, and read outside as well."""
    chain, value = g.choice(CHAINS), g.pick(et.F32, least=2, most=3, filled=True)
    cut = g.random.randint(1, len(chain) - 1)
    made = _grow(g, chain[:cut], [value])
    body = nested(g)
    turn = body.formal([exact(np.asarray(0, np.int64))] * g.assignments)
    going = body.formal([exact(np.asarray(True))] * g.assignments)
    carried = body.formal(value.samples)
    end = _grow(body, chain[cut:], made)[-1]
    again = body.node("Identity", [going])
    grown = body.node("Add", [carried, body.node("Cast", [turn], to=et.F32.onnx)])
    kept = body.node("Tanh", [grown])
    graph = body.as_body("turn", [again, kept, body.node("Identity", [end])])
    count = g.constant(np.asarray(g.choice((1, 2, 3)), np.int64))
    found = g.node("Loop", [count, g.constant(np.asarray(True)), value], 2, body=graph)
    return [*found, _grow(g, chain[cut:], made)[-1]] if g.chance(0.4) else list(found)


@family(2)
def chain_over_rows(g: GraphWriter) -> list[Value]:
    """A Scan over rows reads what a chain outside has made of something else."""
    chain, value = g.choice(CHAINS[:4]), g.pick(et.F32, rank=2, filled=True)
    cut = g.random.randint(1, len(chain) - 1)
    made = _grow(g, chain[:cut], [value])
    body = nested(g)
    start = g.node("ReduceMax", [value], keepdims=0)
    state = body.formal(start.samples)
    row = body.formal([exact(np.asarray(each.native()[0])) for each in value.samples])
    end = _grow(body, chain[cut:], made)[-1]
    total = body.node("ReduceMax", [end], keepdims=0)
    following = body.node("Tanh", [body.node("Add", [state, total])])
    outputs = [following, body.node("Mul", [row, following])]
    graph = body.as_body("row", outputs)
    return list(g.node("Scan", [start, value], 2, body=graph, num_scan_inputs=1))


def _by_a_detour(g: GraphWriter, value: Value) -> Value:
    """Return a value that was in a sequence, in an optional, in parts, or written as texts."""
    kind = g.choice(("sequence", "optional", "parts", "sequence" if value.dtype.is_float else "text", "both"))
    if kind == "text":
        return g.node("Cast", [g.node("Cast", [value], to=et.TEXT.onnx)], to=value.dtype.onnx)
    if kind == "optional":
        return g.node("OptionalGetElement", [g.node("Optional", [value])])
    if kind == "parts":
        axis = g.random.randrange(value.rank)
        return g.node("ConcatFromSequence", [g.node("SplitToSequence", [value], axis=axis)], axis=axis)
    listed = g.node("SequenceConstruct", [value, value] if g.chance(0.4) else [value])
    if kind == "both":
        listed = g.node("OptionalGetElement", [g.node("Optional", [listed])])
    return g.node("SequenceAt", [listed, g.constant(np.asarray(g.choice((0, -1)), np.int64))])


@family(2)
def chain_with_a_detour(g: GraphWriter) -> list[Value]:
    """A chain of which one value, or several, go through what is no tensor."""
    chain = g.choice(CHAINS)
    made: Made = [g.pick(et.F32, least=2, most=3, filled=True)]
    turned = g.random.randrange(len(chain))
    for place, step in enumerate(chain):
        made.append(step(g, made))
        if place == turned or g.chance(0.15):
            made[-1] = _by_a_detour(g, made[-1])
    return made[1:]
