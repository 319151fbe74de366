"""Activation functions by name and parameters, as fused operators and recurrent layers name them in attributes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.reference.arrays.gates import fast_gelu, gelu, sigmoid, softplus

Activation = Callable[[np.ndarray], np.ndarray]


class Formula(NamedTuple):
    """A function of x, alpha and beta, and the parameters' defaults; ``None``: it has no such parameter."""

    function: Callable[[np.ndarray, np.floating, np.floating], np.ndarray]
    alpha: float | None = None
    beta: float | None = None


_FORMULAS = {
    "Affine": Formula(lambda x, a, b: a * x + b, 1.0, 0.0),
    "Clip": Formula(lambda x, a, b: np.clip(x, a, b), -math.inf, math.inf),
    "Elu": Formula(lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))), 1.0),
    "FastGelu": Formula(lambda x, a, b: fast_gelu(x)),
    "Gelu": Formula(lambda x, a, b: gelu(x)),
    "HardSigmoid": Formula(lambda x, a, b: np.clip(a * x + b, 0, 1), 0.2, 0.5),
    "HardSwish": Formula(lambda x, a, b: x * np.clip(a * x + b, 0, 1), 1 / 6, 0.5),
    "Identity": Formula(lambda x, a, b: x),
    "LeakyRelu": Formula(lambda x, a, b: np.where(x >= 0, x, a * x), 0.01),
    "Relu": Formula(lambda x, a, b: np.maximum(x, 0)),
    "ScaledTanh": Formula(lambda x, a, b: a * np.tanh(b * x), 1.0, 1.0),
    "Selu": Formula(lambda x, a, b: np.where(x > 0, b * x, b * a * np.expm1(np.minimum(x, 0))), 1.67326319, 1.05070102),
    "Sigmoid": Formula(lambda x, a, b: sigmoid(x)),
    "Softplus": Formula(lambda x, a, b: softplus(x)),
    "Softsign": Formula(lambda x, a, b: x / (1 + np.abs(x))),
    "Tanh": Formula(lambda x, a, b: np.tanh(x)),
    "ThresholdedRelu": Formula(lambda x, a, b: np.where(x > a, x, 0), 1.0),
}
_BY_LOWER = {name.lower(): formula for name, formula in _FORMULAS.items()}


def find_formula(name: str) -> Formula:
    """Return the formula of a name in any case.

    Raises:
        InvalidArgument: no activation has that name.
    """
    if name.lower() not in _BY_LOWER:
        raise InvalidArgument(f"unknown activation {name!r}; known: {', '.join(_FORMULAS)}")
    return _BY_LOWER[name.lower()]


def find_activation(name: str, alpha: float | None = None, beta: float | None = None) -> Activation:
    """Return the activation that an attribute names; parameters that are ``None`` take their defaults.

    Raises:
        InvalidArgument: no activation has that name.
    """
    function, default_alpha, default_beta = find_formula(name)
    chosen_alpha = (default_alpha or 0.0) if alpha is None else alpha
    chosen_beta = (default_beta or 0.0) if beta is None else beta
    return lambda x: function(x, x.dtype.type(chosen_alpha), x.dtype.type(chosen_beta)).astype(x.dtype, copy=False)
