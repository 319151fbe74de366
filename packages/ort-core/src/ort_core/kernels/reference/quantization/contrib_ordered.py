"""8-bit operators that name a memory order of their matrices; the orders that leave memory as it is."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.ir.types import DataType
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.gates import gelu
from ort_core.kernels.reference.arrays.rounding_to_integers import dequantize, quantize
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.normalization.contrib_normalization import layer_norm


def _same_order(order_in: int, order_out: int) -> None:
    if order_in != order_out:
        raise errors.NotImplemented(
            f"from memory order {order_in} to {order_out}: only operators that keep the order are supported"
        )


def _to_int8(value: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return quantize(value.astype(np.float32), scale.reshape(()), None, np.dtype(np.int8))


@kernel("QuantizeWithOrder", domain="com.microsoft")
def quantize_with_order(x: np.ndarray, scale_input: np.ndarray, *, order_input: int, order_output: int) -> np.ndarray:
    """Y = saturate(round(X / scale)) in int8."""
    _same_order(order_input, order_output)
    return _to_int8(widen(x), scale_input)


@kernel("DequantizeWithOrder", domain="com.microsoft")
def dequantize_with_order(
    x: np.ndarray, scale_input: np.ndarray, *, order_input: int, order_output: int, to: int
) -> np.ndarray:
    """Y = X * scale in the type ``to``."""
    _same_order(order_input, order_output)
    return narrow(dequantize(x, widen(scale_input).reshape(()), None), DataType(to).numpy)


@kernel("QOrderedGelu", domain="com.microsoft")
def qordered_gelu(
    x: np.ndarray, scale_x: np.ndarray, scale_y: np.ndarray, *, order_X: int | None = None, order_Y: int | None = None
) -> np.ndarray:
    """Y = quantized(Gelu(X))."""
    if order_X is not None and order_Y is not None:
        _same_order(order_X, order_Y)
    return _to_int8(gelu(dequantize(x, widen(scale_x).reshape(()), None)), scale_y)


@kernel("QOrderedLayerNormalization", domain="com.microsoft")
def qordered_layer_normalization(
    x: np.ndarray,
    scale_x: np.ndarray,
    scale: np.ndarray,
    b: np.ndarray | None,
    scale_y: np.ndarray,
    *,
    axis: int = -1,
    epsilon: float = 9.999999747378752e-06,
    order_X: int = 1,
    order_Y: int = 1,
) -> np.ndarray:
    """Y = quantized(LayerNorm(X) * scale + B) over the last axis of row-major matrices."""
    _same_order(order_X, order_Y)
    if order_X != 1 or axis % x.ndim != x.ndim - 1:
        raise errors.NotImplemented(f"memory order {order_X} and axis {axis}: only row-major and the last axis")
    value = dequantize(x, widen(scale_x).reshape(()), None)
    result, _, _ = layer_norm(value, widen(scale), None if b is None else widen(b), epsilon)
    return _to_int8(result, scale_y)


@kernel("GemmFloat8", domain="com.microsoft")
def gemm_float8(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray | None = None,
    scale_a: np.ndarray | None = None,
    scale_b: np.ndarray | None = None,
    scale_y: np.ndarray | None = None,
    *,
    activation: str | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    dtype: int = 1,
    transA: int = 0,
    transB: int = 0,
) -> np.ndarray:
    """Y = scale_y * activation(alpha * scale_a * scale_b * op(A) @ op(B) + beta * C), in the type ``dtype``."""
    left, right = widen(a.T if transA else a), widen(b.T if transB else b)
    total = np.float32(alpha) * np.matmul(left, right)
    for factor in (scale_a, scale_b):
        if factor is not None:
            total = total * widen(factor).reshape(())
    if c is not None and beta:
        total = total + np.float32(beta) * widen(c)
    if activation not in (None, "", "NONE", "RELU", "GELU"):
        raise errors.InvalidArgument(f"activation {activation!r}: expected RELU, GELU or NONE")
    if activation == "RELU":
        total = np.maximum(total, 0)
    elif activation == "GELU":
        total = gelu(total)
    if scale_y is not None:
        total = total * widen(scale_y).reshape(())
    return narrow(total, DataType(dtype).numpy)
