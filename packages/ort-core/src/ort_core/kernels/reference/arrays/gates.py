"""Activation functions on float32 and float64 arrays; the dtype is kept, and no finite argument overflows.

Those that are ``x`` times a weight give no number for minus infinity, as their definitions do: an infinity times zero.
"""

from __future__ import annotations

import math

import numpy as np

from ort_core.kernels.reference.arrays.error_function import erf

_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-x)) without overflow."""
    decay = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, decay) / (1 + decay)


def silu(x: np.ndarray) -> np.ndarray:
    """Return x * sigmoid(x)."""
    return weighted(x, sigmoid(x))


def weighted(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return x * weight, without a warning for an infinity times zero."""
    with np.errstate(invalid="ignore"):
        return x * weight


def softplus(x: np.ndarray) -> np.ndarray:
    """Return log(1 + exp(x)) without overflow."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def gelu(x: np.ndarray) -> np.ndarray:
    """Return x * Phi(x) with the normal distribution function Phi, through erf."""
    half = x.dtype.type(0.5)
    return weighted(x, half * (1 + erf(x * x.dtype.type(math.sqrt(0.5))).astype(x.dtype, copy=False)))


def fast_gelu(x: np.ndarray) -> np.ndarray:
    """Return the tanh form of gelu."""
    cast = x.dtype.type
    with np.errstate(over="ignore"):
        inner = x * (cast(0.044715 * _SQRT_2_OVER_PI) * x * x + cast(_SQRT_2_OVER_PI))
    return weighted(x, cast(0.5) * (1 + np.tanh(inner)))


def quick_gelu(x: np.ndarray, alpha: float) -> np.ndarray:
    """Return x * sigmoid(alpha * x)."""
    return weighted(x, sigmoid(x * x.dtype.type(alpha)))
