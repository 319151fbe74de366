"""Recurrent networks."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@family(3)
def recurrent(g: GraphWriter) -> list[Value]:
    value = g.pick(et.F32, et.F32, et.F32, et.F64, et.F16, rank=3, filled=True)
    op_type = g.choice(tuple(GATES))
    hidden, size, gates = g.choice((1, 3, 4, 8, 16, 17)), value.size(2), GATES[op_type]
    direction = g.choice(("forward", "reverse", "bidirectional"))
    count = 2 if direction == "bidirectional" else 1
    dtype = value.dtype
    operands: list[Value | None] = [
        value,
        g.weights(dtype, count, gates * hidden, size, low=-0.5, high=0.5),
        g.weights(dtype, count, gates * hidden, hidden, low=-0.5, high=0.5),
        g.weights(dtype, count, 2 * gates * hidden) if g.chance(0.7) else None,
        _lengths(g, value) if g.chance(0.3) else None,
    ]
    if g.chance(0.5):
        batch = value.size(1)
        operands.append(g.weights(dtype, count, batch, hidden))
        if op_type == "LSTM":
            operands.append(g.weights(dtype, count, batch, hidden))
            operands.append(g.weights(dtype, count, 3 * hidden) if g.chance(0.3) else None)
    outputs = [g.chance(0.7) for _ in range(3 if op_type == "LSTM" else 2)]
    while outputs and not outputs[-1]:
        outputs.pop()
    return g.node(
        op_type, operands, outputs or [True], hidden_size=hidden, direction=direction,
        linear_before_reset=g.choice((0, 1)) if op_type == "GRU" else None, clip=0.5 if g.chance(0.15) else None,
        activations=_activations(g, op_type, count),
    )  # fmt: skip


def _lengths(g: GraphWriter, value: Value) -> Value:
    longest = min(shape[0] for shape in value.shapes)
    return g.constant(g.numbers.integers(1, longest + 1, value.size(1)).astype(np.int32))


def _activations(g: GraphWriter, op_type: str, count: int) -> list[str] | None:
    if g.chance(0.85):
        return None
    squashing = ("Tanh", "Sigmoid", "Relu", "HardSigmoid", "Softsign")
    one = {
        "LSTM": ["Sigmoid", g.choice(squashing), "Tanh"],
        "GRU": ["Sigmoid", g.choice(squashing)],
        "RNN": [g.choice(squashing)],
    }[op_type]
    if "HardSigmoid" in one:
        raise Refused("parameters of activations are given for all or none")
    return one * count
