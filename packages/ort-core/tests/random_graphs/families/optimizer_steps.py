"""Steps of optimizers, ai.onnx.preview.training: values, gradients and states of one or several tensors at once."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.family import family
from random_graphs.writer import TRAINING, GraphWriter, Refused, Value


def _groups(g: GraphWriter, states: int) -> list[Value]:
    """Return rate, step, values, gradients and ``states`` kinds of states that are not negative."""
    if g.half is not None:
        raise Refused("the operators know no half types")
    first = g.pick(et.F32, et.F64, filled=True)
    values = [first, *([g.pick(first.dtype, rank=first.rank, filled=True)] if g.chance(0.4) else [])]
    gradients = [g.node("Mul", [value, g.constant(np.asarray(0.5), first.dtype)]) for value in values]
    kept = [g.node("Abs", [value]) for _ in range(states) for value in values]
    rate = g.constant(np.asarray(g.choice((0.01, 0.5))), first.dtype)
    return [rate, g.constant(np.asarray(g.choice((0, 1, 7)), np.int64)), *values, *gradients, *kept]


@family()
def adagrad(g: GraphWriter) -> list[Value]:
    operands = _groups(g, 1)
    return g.node(
        "Adagrad", operands, (len(operands) - 2) // 3 * 2, domain=TRAINING, decay_factor=g.choice((None, 0.1)),
        epsilon=0.01, norm_coefficient=g.choice((None, 0.25)),
    )  # fmt: skip


@family()
def adam(g: GraphWriter) -> list[Value]:
    operands = _groups(g, 2)
    return g.node(
        "Adam", operands, (len(operands) - 2) // 4 * 3, domain=TRAINING, alpha=g.choice((None, 0.5)),
        beta=g.choice((None, 0.75)), epsilon=0.01, norm_coefficient=g.choice((None, 0.25)),
        norm_coefficient_post=g.choice((None, 0.1)),
    )  # fmt: skip


@family()
def momentum(g: GraphWriter) -> list[Value]:
    operands = _groups(g, 1)
    return g.node(
        "Momentum", operands, (len(operands) - 2) // 3 * 2, domain=TRAINING, alpha=g.choice((0.5, 0.9)), beta=0.25,
        mode=g.choice(("standard", "nesterov")), norm_coefficient=g.choice((0.0, 0.25)),
    )  # fmt: skip
