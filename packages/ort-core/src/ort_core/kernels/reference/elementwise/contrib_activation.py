"""Gelu in its variants, and the activations that take a bias or a scale with them."""

from __future__ import annotations

import numpy as np

from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.gates import fast_gelu, gelu, quick_gelu, sigmoid
from ort_core.kernels.reference.arrays.widening import narrow, widen


@kernel("Gelu", domain="com.microsoft")
def gelu_exact(x: np.ndarray) -> np.ndarray:
    """Y = X * Phi(X), Phi through erf."""
    return narrow(gelu(widen(x)), x.dtype)


@kernel("BiasGelu", domain="com.microsoft")
def bias_gelu(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """C = Gelu(A + B), B along the last axis."""
    return narrow(gelu(widen(a) + widen(b)), a.dtype)


@kernel("FastGelu", domain="com.microsoft")
def fast_gelu_biased(x: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """Y = tanh form of Gelu(X + bias)."""
    shifted = widen(x) if bias is None else widen(x) + widen(bias)
    return narrow(fast_gelu(shifted), x.dtype)


@kernel("QuickGelu", domain="com.microsoft")
def quick_gelu_scaled(x: np.ndarray, *, alpha: float = 1.7020000219345093) -> np.ndarray:
    """Y = X * Sigmoid(alpha * X)."""
    return narrow(quick_gelu(widen(x), alpha), x.dtype)


@kernel("ScaledSiLU", domain="com.microsoft")
def scaled_silu(x: np.ndarray, scale: np.ndarray | None = None, *, alpha: float = 1.0) -> np.ndarray:
    """Z = scale * X; Y = Z * Sigmoid(Z), each step rounded to the type of X."""
    factor = np.float32(alpha) if scale is None else widen(scale).reshape(())
    scaled = narrow(factor * widen(x), x.dtype)
    gate = narrow(sigmoid(widen(scaled)), x.dtype)
    return narrow(widen(scaled) * widen(gate), x.dtype)


@kernel("BiasSplitGelu", domain="com.microsoft")
def bias_split_gelu(x: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Y = left * Gelu(right) of the two halves of X + bias."""
    left, right = np.split(widen(x) + widen(bias), 2, axis=-1)
    return narrow(left * gelu(right), x.dtype)


@kernel("BiasAdd", domain="com.microsoft")
def bias_add(x: np.ndarray, bias: np.ndarray, skip: np.ndarray) -> np.ndarray:
    """Y = X + bias + skip."""
    return narrow(widen(x) + widen(bias) + widen(skip), x.dtype)


@kernel("BiasSoftmax", domain="com.microsoft")
def bias_softmax(data: np.ndarray, bias: np.ndarray, *, is_inner_broadcast: int, axis: int = 1) -> np.ndarray:
    """Y = Softmax(data + bias) over axes ``axis`` and later; bias is repeated inside or outside of its own rank."""
    first = axis % data.ndim
    rows, columns = int(np.prod(data.shape[:first])), int(np.prod(data.shape[first:]))
    flat = widen(data).reshape(rows, columns)
    table = widen(bias).reshape(-1, columns)
    repeats = rows // max(table.shape[0], 1)
    table = np.repeat(table, repeats, axis=0) if is_inner_broadcast else np.tile(table, (repeats, 1))
    scores = flat + table
    weights = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
    return narrow((weights / weights.sum(axis=1, keepdims=True)).reshape(data.shape), data.dtype)
