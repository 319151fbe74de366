"""Activation functions by name, as the fused operators of com.microsoft name them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ort_core import errors
from ort_core.kernels.reference.gauss_error import erf

Activation = Callable[[np.ndarray], np.ndarray]
_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-x)) without overflow."""
    decay = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + decay), decay / (1 + decay))


def silu(x: np.ndarray) -> np.ndarray:
    """Return x * sigmoid(x), which tends to 0 at minus infinity."""
    return times_weight(x, sigmoid(x))


def times_weight(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return x * weight for a weight in [0, 1], with 0 where the weight is 0 even if x is infinite."""
    with np.errstate(invalid="ignore"):
        return np.where((weight == 0) & ~np.isnan(x), np.copysign(np.zeros_like(x), x), x * weight)


def softplus(x: np.ndarray) -> np.ndarray:
    """Return log(1 + exp(x)) without overflow."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def gelu(x: np.ndarray) -> np.ndarray:
    """Return x * Phi(x) with the normal distribution function Phi, through erf."""
    half = x.dtype.type(0.5)
    return times_weight(x, half * (1 + erf(x * x.dtype.type(math.sqrt(0.5)))))


def fast_gelu(x: np.ndarray) -> np.ndarray:
    """Return the tanh form of gelu."""
    cast = x.dtype.type
    with np.errstate(over="ignore"):
        inner = x * (cast(0.044715 * _SQRT_2_OVER_PI) * x * x + cast(_SQRT_2_OVER_PI))
    return times_weight(x, cast(0.5) * (1 + np.tanh(inner)))


def quick_gelu(x: np.ndarray, alpha: float) -> np.ndarray:
    """Return x * sigmoid(alpha * x)."""
    return times_weight(x, sigmoid(x * x.dtype.type(alpha)))


def find_activation(name: str, alpha: float | None = None, beta: float | None = None) -> Activation:
    """Return the activation that an attribute names.

    ``alpha`` and ``beta`` are its parameters in onnxruntime's order; ``None`` stands for the ONNX default.

    Raises:
        InvalidArgument: no fused operator knows the name.
    """
    table: dict[str, tuple[float, float, Callable[[np.ndarray, float, float], np.ndarray]]] = {
        "Relu": (0, 0, lambda x, a, b: np.maximum(x, 0)),
        "LeakyRelu": (0.01, 0, lambda x, a, b: np.where(x >= 0, x, x * x.dtype.type(a))),
        "Tanh": (0, 0, lambda x, a, b: np.tanh(x)),
        "Sigmoid": (0, 0, lambda x, a, b: sigmoid(x)),
        "Clip": (-math.inf, math.inf, lambda x, a, b: np.clip(x, x.dtype.type(a), x.dtype.type(b))),
        "HardSigmoid": (0.2, 0.5, lambda x, a, b: np.clip(x * x.dtype.type(a) + x.dtype.type(b), 0, 1)),
        "HardSwish": (1 / 6, 0.5, lambda x, a, b: x * np.clip(x * x.dtype.type(a) + x.dtype.type(b), 0, 1)),
        "Elu": (1.0, 0, lambda x, a, b: np.where(x >= 0, x, x.dtype.type(a) * np.expm1(np.minimum(x, 0)))),
        "Selu": (1.67326319, 1.05070102, lambda x, a, b: np.where(x > 0, b * x, b * a * np.expm1(np.minimum(x, 0)))),
        "Softplus": (0, 0, lambda x, a, b: softplus(x)),
        "Softsign": (0, 0, lambda x, a, b: x / (1 + np.abs(x))),
        "Affine": (1.0, 0, lambda x, a, b: x.dtype.type(a) * x + x.dtype.type(b)),
        "ScaledTanh": (1.0, 1.0, lambda x, a, b: x.dtype.type(a) * np.tanh(x.dtype.type(b) * x)),
        "ThresholdedRelu": (1.0, 0, lambda x, a, b: np.where(x > a, x, 0)),
        "Gelu": (0, 0, lambda x, a, b: gelu(x)),
        "FastGelu": (0, 0, lambda x, a, b: fast_gelu(x)),
        "Identity": (0, 0, lambda x, a, b: x),
    }
    by_lower = {key.lower(): value for key, value in table.items()}
    if name.lower() not in by_lower:
        raise errors.InvalidArgument(f"unknown fused activation {name!r}; known: {', '.join(sorted(table))}")
    default_alpha, default_beta, function = by_lower[name.lower()]
    chosen_alpha = default_alpha if alpha is None else alpha
    chosen_beta = default_beta if beta is None else beta
    return lambda x: function(x, chosen_alpha, chosen_beta).astype(x.dtype, copy=False)
