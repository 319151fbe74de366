"""Elementwise operators of float64 by CUDA's own functions, which are right within 2 ulp.

``ort_core.loops`` has polynomials for float32; a GPU of the data center computes float64 at half the rate of float32,
and CUDA's functions of it are as fast as any.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import RowFunctions, Scalar, binary, cast, exp, exp_of_negative, log, select, unary

DoubleMeaning = Callable[[Sequence[Scalar], Mapping[str, object]], Scalar | Rejection]


def exponential(x: Scalar) -> Scalar:
    """``e**x`` of float32 or float64."""
    return unary("exp", x) if x.dtype is DataType.DOUBLE else exp(x)


def falling_exponential(x: Scalar) -> Scalar:
    """``e**x`` of float32 or float64 that are not above 0."""
    return unary("exp", x) if x.dtype is DataType.DOUBLE else exp_of_negative(x)


def logarithm(x: Scalar) -> Scalar:
    """The natural logarithm of float32 or float64."""
    return unary("log", x) if x.dtype is DataType.DOUBLE else log(x)


ROW_FUNCTIONS = RowFunctions(exponential, logarithm, falling_exponential)


def _number(attributes: Mapping[str, object], name: str, default: float) -> float:
    value = attributes.get(name)
    return float(value) if isinstance(value, (int, float)) else float(np.float32(default))  # attributes are float32


def _called(function: str) -> DoubleMeaning:
    return lambda inputs, attributes: unary(function, inputs[0])


def _sigmoid(x: Scalar) -> Scalar:
    return 1.0 / (unary("exp", -x) + 1.0)


def _softplus(x: Scalar) -> Scalar:
    return binary("max", x, 0.0) + unary("log", unary("exp", -unary("abs", x)) + 1.0)


def _grown(x: Scalar, alpha: float) -> Scalar:
    return (unary("exp", x) - 1.0) * alpha


def _elu(inputs: Sequence[Scalar], attributes: Mapping[str, object]) -> Scalar:
    return select(inputs[0] < 0.0, _grown(inputs[0], _number(attributes, "alpha", 1.0)), inputs[0])


def _selu(inputs: Sequence[Scalar], attributes: Mapping[str, object]) -> Scalar:
    alpha = _number(attributes, "alpha", 1.67326319217681884765625)
    gamma = _number(attributes, "gamma", 1.05070102214813232421875)
    return select(inputs[0] > 0.0, inputs[0], _grown(inputs[0], alpha)) * gamma


def _celu(inputs: Sequence[Scalar], attributes: Mapping[str, object]) -> Scalar:
    alpha = _number(attributes, "alpha", 1.0)
    return binary("max", inputs[0], 0.0) + binary("min", _grown(inputs[0] / alpha, alpha), 0.0)


def _gelu(inputs: Sequence[Scalar], attributes: Mapping[str, object]) -> Scalar:
    (x,) = inputs
    if attributes.get("approximate", "none") == "tanh":
        return x * 0.5 * (unary("tanh", (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1.0)
    return x * 0.5 * (unary("erf", x * math.sqrt(0.5)) + 1.0)


def _swish(inputs: Sequence[Scalar], attributes: Mapping[str, object]) -> Scalar:
    return inputs[0] * _sigmoid(inputs[0] * _number(attributes, "alpha", 1.0))


def _power(inputs: Sequence[Scalar], attributes: Mapping[str, object]) -> Scalar:
    return binary("pow", inputs[0], cast(inputs[1], DataType.DOUBLE))


DOUBLE_MEANINGS: Mapping[str, DoubleMeaning] = {
    **{name.title(): _called(name) for name in (
        "exp", "log", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh",
        "atanh")},
    "Sigmoid": lambda inputs, attributes: _sigmoid(inputs[0]),
    "Softplus": lambda inputs, attributes: _softplus(inputs[0]),
    "Mish": lambda inputs, attributes: inputs[0] * unary("tanh", _softplus(inputs[0])),
    "Elu": _elu, "Selu": _selu, "Celu": _celu, "Gelu": _gelu, "Swish": _swish, "Pow": _power,
}  # fmt: skip
"""By operator: what it computes of float64 elements."""
