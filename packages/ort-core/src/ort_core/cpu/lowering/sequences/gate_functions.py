"""Sigmoid and tanh of recurrent gates: one rational function, exact to a few 2**-24 of 1 instead of to a few ulp.

A gate's result multiplies states of size 1, so its absolute error is what counts; the functions of ``plugin.loops``
cost three times as much to keep the relative one. ``tanh(x) = x P(x**2) / Q(x**2)`` up to 8, where it is 1 - 2**-22;
P and Q of degree 4 are a minimax fit of the relative error made for this project (6e-9 before rounding). From there on
it is 1: a gate that is closed lets nothing of a large state through, and makes NaN of an infinite one.
``sigmoid(x) = (1 + tanh(x / 2)) / 2``.
"""

from __future__ import annotations

from ort_core.plugin.loops import Scalar, binary, fma, select

MAX_ERROR = 2.0**-21  # absolute, of both, for all float32
_LIMIT = 8.0
_P = (1.523039591374994e-08, 2.189464683370248e-05, 0.003571597126281902, 0.1344449722902339, 0.9999999935702978)
_Q = (8.522437892886402e-07, 0.0003411290535310182, 0.026164439537131875, 0.4677782454856303, 1.0)


def gate_tanh(x: Scalar) -> Scalar:
    """Hyperbolic tangent; NaN stays."""
    is_above, is_below = binary("ge", x, _LIMIT), binary("le", x, -_LIMIT)
    x = select(is_above, _LIMIT, select(is_below, -_LIMIT, x))  # no infinite squares
    z = x * x
    return select(is_above, 1.0, select(is_below, -1.0, x * _horner(z, _P) / _horner(z, _Q)))


def gate_sigmoid(x: Scalar) -> Scalar:
    """``1 / (1 + e**-x)``; NaN stays."""
    return fma(gate_tanh(x * 0.5), 0.5, 0.5)


def _horner(z: Scalar, coefficients: tuple[float, ...]) -> Scalar:
    value: Scalar = fma(z, coefficients[0], coefficients[1])
    for coefficient in coefficients[2:]:
        value = fma(value, z, coefficient)
    return value
