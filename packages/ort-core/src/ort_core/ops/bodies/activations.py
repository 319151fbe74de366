"""Gelu in its variants, activations with a bias or a scale, and activations that an attribute names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ort_core.ir.types import DataType
from ort_core.ir.values import Value
from ort_core.ops.bodies.writer import BodyWriter, NoBody

Results = list[Value | None]


def erf_gelu(w: BodyWriter, x: Value, dtype: DataType) -> Value:
    """Return x * Phi(x), Phi through erf."""
    inner = w.op("Erf", w.op("Mul", x, w.constant(math.sqrt(0.5), dtype)))
    half = w.op("Mul", x, w.constant(0.5, dtype))
    return w.op("Mul", half, w.op("Add", inner, w.constant(1, dtype)))


def tanh_gelu(w: BodyWriter, x: Value, dtype: DataType) -> Value:
    """Return the tanh form of Gelu: x / 2 * (1 + tanh(x * (a * x * x + b)))."""
    square = w.op("Mul", x, x)
    slope = w.op("Add", w.op("Mul", square, w.constant(0.044715 * math.sqrt(2 / math.pi), dtype)),
                 w.constant(math.sqrt(2 / math.pi), dtype))  # fmt: skip
    inner = w.op("Tanh", w.op("Mul", x, slope))
    return w.op("Mul", w.op("Mul", x, w.constant(0.5, dtype)), w.op("Add", inner, w.constant(1, dtype)))


def silu(w: BodyWriter, x: Value) -> Value:
    """Return x * Sigmoid(x)."""
    return w.op("Mul", x, w.op("Sigmoid", x))


def gelu(w: BodyWriter) -> Results:
    """Y = Gelu(X)."""
    return [w.narrow(erf_gelu(w, w.wide(0), w.computing()))]


def bias_gelu(w: BodyWriter) -> Results:
    """C = Gelu(A + B)."""
    return [w.narrow(erf_gelu(w, w.op("Add", w.wide(0), w.wide(1)), w.computing()))]


def fast_gelu(w: BodyWriter) -> Results:
    """Y = tanh form of Gelu(X + bias)."""
    return [w.narrow(tanh_gelu(w, w.sum(w.wide(0), w.find_wide(1)), w.computing()))]


def quick_gelu(w: BodyWriter) -> Results:
    """Y = X * Sigmoid(alpha * X)."""
    x, alpha = w.wide(0), w.constant(w.float_of("alpha"), w.computing())
    return [w.narrow(w.op("Mul", x, w.op("Sigmoid", w.op("Mul", x, alpha))))]


def scaled_silu(w: BodyWriter) -> Results:
    """Z = scale * X; Y = Z * Sigmoid(Z), each step rounded to the type of X."""
    factor = w.constant(w.float_of("alpha"), w.computing())
    if w.has(1):
        factor = w.op("Reshape", w.wide(1), w.ints(1))
    scaled = w.narrow(w.op("Mul", w.wide(0), factor))
    return [silu(w, scaled)]


def bias_split_gelu(w: BodyWriter) -> Results:
    """Y = left * Gelu(right) of the two halves of X + bias."""
    total = w.op("Add", w.wide(0), w.wide(1))
    last = w.rank(0) - 1
    half = w.op("Div", w.size(w.input(0), last), w.ints(2))
    left, right = w.slice(total, last, 0, half), w.slice(total, last, half)
    return [w.narrow(w.op("Mul", left, erf_gelu(w, right, w.computing())))]


def bias_add(w: BodyWriter) -> Results:
    """Y = X + bias + skip."""
    return [w.narrow(w.sum(w.wide(0), w.wide(1), w.wide(2)))]


def bias_softmax(w: BodyWriter) -> Results:
    """Y = Softmax(data + bias) over ``axis`` and all later axes; bias is repeated inside or outside of its own rank."""
    data = w.input(0)
    first = w.int_of("axis", 1) % max(w.rank(0), 1)
    flat = w.op("Flatten", w.wide(0), axis=first)
    columns = w.size(flat, 1)
    table = w.reshape(w.wide(1), -1, columns)
    rows = w.size(table, 0)
    if w.int_of("is_inner_broadcast"):
        scores = w.op("Add", w.reshape(flat, rows, -1, columns), w.unsqueeze(table, 1))
    else:
        scores = w.op("Add", w.reshape(flat, -1, rows, columns), w.unsqueeze(table, 0))
    weights = w.op("Softmax", scores, axis=-1)
    return [w.narrow(w.op("Reshape", weights, w.op("Shape", data)))]


class _Named(NamedTuple):
    """An operator that an activation's name stands for, and which attributes alpha and beta are."""

    op_type: str
    alpha: str = ""
    beta: str = ""


_NAMED = {
    "elu": _Named("Elu", "alpha"),
    "hardsigmoid": _Named("HardSigmoid", "alpha", "beta"),
    "leakyrelu": _Named("LeakyRelu", "alpha"),
    "relu": _Named("Relu"),
    "sigmoid": _Named("Sigmoid"),
    "softplus": _Named("Softplus"),
    "softsign": _Named("Softsign"),
    "tanh": _Named("Tanh"),
    "thresholdedrelu": _Named("ThresholdedRelu", "alpha"),
}


def _clip(w: BodyWriter, x: Value, dtype: DataType, alpha: float | None, beta: float | None) -> Value:
    low = w.constant(-math.inf if alpha is None else alpha, dtype)
    return w.op("Clip", x, low, w.constant(math.inf if beta is None else beta, dtype))


def _affine(w: BodyWriter, x: Value, dtype: DataType, alpha: float | None, beta: float | None) -> Value:
    scaled = w.op("Mul", x, w.constant(1.0 if alpha is None else alpha, dtype))
    return w.op("Add", scaled, w.constant(0.0 if beta is None else beta, dtype))


def _scaled_tanh(w: BodyWriter, x: Value, dtype: DataType, alpha: float | None, beta: float | None) -> Value:
    inner = w.op("Tanh", w.op("Mul", x, w.constant(1.0 if beta is None else beta, dtype)))
    return w.op("Mul", inner, w.constant(1.0 if alpha is None else alpha, dtype))


def _hard_swish(w: BodyWriter, x: Value, dtype: DataType, alpha: float | None, beta: float | None) -> Value:
    gate = w.op("HardSigmoid", x, alpha=1 / 6 if alpha is None else alpha, beta=0.5 if beta is None else beta)
    return w.op("Mul", x, gate)


_WRITTEN: dict[str, Callable[[BodyWriter, Value, DataType, float | None, float | None], Value]] = {
    "affine": _affine,
    "clip": _clip,
    "fastgelu": lambda w, x, dtype, alpha, beta: tanh_gelu(w, x, dtype),
    "gelu": lambda w, x, dtype, alpha, beta: erf_gelu(w, x, dtype),
    "hardswish": _hard_swish,
    "identity": lambda w, x, dtype, alpha, beta: x,
    "scaledtanh": _scaled_tanh,
}


def activated(
    w: BodyWriter, x: Value, dtype: DataType, name: str, alpha: float | None = None, beta: float | None = None
) -> Value:
    """Return x through the activation of a name in any case; without a name x itself."""
    if not name:
        return x
    named = _NAMED.get(name.lower())
    if named is None:
        written = _WRITTEN.get(name.lower())
        if written is None:
            raise NoBody(f"the activation {name!r} has no body")
        return written(w, x, dtype, alpha, beta)
    given = {attribute: value for attribute, value in ((named.alpha, alpha), (named.beta, beta)) if attribute}
    return w.op(named.op_type, x, **given)
