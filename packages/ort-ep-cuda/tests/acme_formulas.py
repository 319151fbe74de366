"""Operators of a made-up user, written as formulas, and graphs of them whose programs are kept as goldens."""

from __future__ import annotations

import ort_core as ort
from ort_core.plugin.loops import Scalar, exp, minimum, row_max, row_mean, row_sum, select, unary


@ort.elementwise_op("com.acme", "Mish")
def mish(x: Scalar) -> Scalar:
    e = exp(minimum(x, 20.0))
    n = e * (e + 2.0)
    return x * (n / (n + 2.0))


@ort.elementwise_op("com.acme", "Gated")
def gated(x: Scalar, gate: Scalar | None = None, bias: Scalar | None = None, *, slope: float = 0.5) -> Scalar:
    open_by = x if gate is None else gate
    total = select(open_by > 0.0, x, x * slope)
    return total if bias is None else total + bias


@ort.row_op("com.acme", "ScaledSoftmax")
def scaled_softmax(x: Scalar, *, scale: float = 1.0) -> Scalar:
    e = exp((x - row_max(x)) * scale)
    return e * (1.0 / row_sum(e))


@ort.row_op("com.acme", "CenteredNorm")
def centered_norm(x: Scalar, weight: Scalar) -> tuple[Scalar, Scalar]:
    mean = row_mean(x)
    centered = x - mean
    return centered * (1.0 / unary("sqrt", row_mean(centered * centered) + 1e-5)) * weight, mean


@ort.row_op("com.acme", "Weighed")
def weighed(x: Scalar, weight: Scalar) -> Scalar:
    return x * row_sum(weight)


OPERATORS = (mish, gated, scaled_softmax, centered_norm, weighed)

GRAPHS = {
    "formula_between_built_in_operators": (
        "g (float[N,7] x, float[7] b) => (float[N,7] y) { a = Add(x, b) m = com.acme.Mish(a) y = Neg(m) }",
        [(5, 7), (7,)],
    ),
    "row_formulas_of_two_outputs": (
        "g (float[N,40] x, float[40] w) => (float[N,40] y, float[N,1] m)"
        " { a = Neg(x) y, m = com.acme.CenteredNorm(a, w) }",
        [(3, 40), (40,)],
    ),
}
"""By the name of the golden: the graph, and the shapes of its inputs."""
