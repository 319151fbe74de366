"""Elementwise mathematics of one input: y = f(x), one table row per operator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ort_core.kernels.kernel import KernelFunction, kernel
from ort_core.kernels.reference.arrays.error_function import erf as error_function
from ort_core.kernels.reference.arrays.widening import is_float, narrow, widen

ArrayFunction = Callable[[np.ndarray], np.ndarray]


def _elementwise(op_type: str, function: ArrayFunction, since: int = 1) -> KernelFunction:
    @kernel(op_type, since=since)
    @np.errstate(all="ignore")
    def run(x: np.ndarray, *, consumed_inputs: tuple[int, ...] = ()) -> np.ndarray:
        return narrow(function(widen(x)), x.dtype)

    return run


def _floats_only(function: ArrayFunction) -> ArrayFunction:
    """Return ``function`` for floats and the identity for integers, which have no fraction."""
    return lambda x: function(x) if is_float(x.dtype) else x


def _reciprocal(x: np.ndarray) -> np.ndarray:
    return np.divide(x.dtype.type(1), x)


absolute = _elementwise("Abs", np.abs)
negative = _elementwise("Neg", np.negative)
sign = _elementwise("Sign", np.sign, since=9)
floor = _elementwise("Floor", _floats_only(np.floor))
ceil = _elementwise("Ceil", _floats_only(np.ceil))
round_half_even = _elementwise("Round", _floats_only(np.rint), since=11)
reciprocal = _elementwise("Reciprocal", _reciprocal)
sqrt = _elementwise("Sqrt", np.sqrt)
exp = _elementwise("Exp", np.exp)
log = _elementwise("Log", np.log)
erf = _elementwise("Erf", error_function, since=9)
sin = _elementwise("Sin", np.sin, since=7)
cos = _elementwise("Cos", np.cos, since=7)
tan = _elementwise("Tan", np.tan, since=7)
asin = _elementwise("Asin", np.arcsin, since=7)
acos = _elementwise("Acos", np.arccos, since=7)
atan = _elementwise("Atan", np.arctan, since=7)
sinh = _elementwise("Sinh", np.sinh, since=9)
cosh = _elementwise("Cosh", np.cosh, since=9)
tanh = _elementwise("Tanh", np.tanh)
asinh = _elementwise("Asinh", np.arcsinh, since=9)
acosh = _elementwise("Acosh", np.arccosh, since=9)
atanh = _elementwise("Atanh", np.arctanh, since=9)
bitwise_not = _elementwise("BitwiseNot", np.invert, since=18)


@kernel("Not")
@np.errstate(all="ignore")
def logical_not(x: np.ndarray) -> np.ndarray:
    """Return the negation of booleans."""
    return np.asarray(np.logical_not(x))


@kernel("IsNaN", since=9)
@np.errstate(all="ignore")
def is_nan(x: np.ndarray) -> np.ndarray:
    """Return where ``x`` is not a number."""
    return np.asarray(np.isnan(widen(x)))


@kernel("IsInf", since=10)
@np.errstate(all="ignore")
def is_inf(x: np.ndarray, *, detect_negative: int = 1, detect_positive: int = 1) -> np.ndarray:
    """Return where ``x`` is an infinity of a sign that is asked for."""
    wide = widen(x)
    found = np.zeros(x.shape, np.bool_)
    if detect_positive:
        found |= np.isposinf(wide)
    if detect_negative:
        found |= np.isneginf(wide)
    return found
