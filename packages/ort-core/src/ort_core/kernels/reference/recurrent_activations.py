"""The activation functions that recurrent layers name, with their parameters taken from the node in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ort_core.errors import InvalidArgument

Activation = Callable[[np.ndarray], np.ndarray]
_Formula = Callable[[np.ndarray, np.floating, np.floating], np.ndarray]


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return ``1 / (1 + exp(-x))`` without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


# name: (formula over x, alpha and beta; default alpha, default beta); None: the function has no such parameter.
_FORMULAS: dict[str, tuple[_Formula, float | None, float | None]] = {
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "elu": (lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))), 1.0, None),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), 0.2, 0.5),
    "leakyrelu": (lambda x, a, b: np.where(x >= 0, x, a * x), 0.01, None),
    "relu": (lambda x, a, b: np.maximum(x, 0), None, None),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), 1.0, 1.0),
    "sigmoid": (lambda x, a, b: sigmoid(x), None, None),
    "softplus": (lambda x, a, b: _softplus(x), None, None),
    "softsign": (lambda x, a, b: x / (1 + np.abs(x)), None, None),
    "tanh": (lambda x, a, b: np.tanh(x), None, None),
    "thresholdedrelu": (lambda x, a, b: np.where(x > a, x, 0), 1.0, None),
}


def build_activations(
    names: Sequence[str],
    alphas: Sequence[float],
    betas: Sequence[float],
    per_direction: int,
    directions: int,
    defaults: tuple[str, ...],
) -> list[tuple[Activation, ...]]:
    """Return the functions of each direction.

    Parameters are consumed in order by the functions that have them; what the node leaves out takes its default.

    Raises:
        InvalidArgument: an unknown name, or too few functions.
    """
    names = list(names) or list(defaults) * directions
    if len(names) < per_direction * directions:
        raise InvalidArgument(
            f"activations names {len(names)} functions {tuple(names)}, expected {per_direction * directions}"
        )
    given_alpha, given_beta = iter(alphas), iter(betas)
    functions = []
    for name in names[: per_direction * directions]:
        if name.lower() not in _FORMULAS:
            raise InvalidArgument(f"activation {name!r} is not known; expected one of {sorted(_FORMULAS)}")
        formula, alpha, beta = _FORMULAS[name.lower()]
        alpha = alpha if alpha is None else next(given_alpha, alpha)
        beta = beta if beta is None else next(given_beta, beta)
        functions.append(_bind(formula, alpha or 0.0, beta or 0.0))
    return [tuple(functions[d * per_direction : (d + 1) * per_direction]) for d in range(directions)]


def _bind(formula: _Formula, alpha: float, beta: float) -> Activation:
    return lambda x: formula(x, x.dtype.type(alpha), x.dtype.type(beta)).astype(x.dtype, copy=False)
