"""Integer matrix products with float scales: the quantizer's Gemm and MatMul forms, static and dynamic."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.rounding_to_integers import dequantize, quantize, quantize_by_range
from ort_core.kernels.reference.arrays.saturating_integers import KeepDims


def integer_product(a: np.ndarray, b: np.ndarray, a_zero: np.ndarray | None, b_zero: np.ndarray | None) -> np.ndarray:
    """Return (A - a_zero) @ (B - b_zero) exactly, as float64.

    8-bit operands give sums below 2**53 for any length that fits memory, and float64 products run in BLAS.
    Zero points are scalars or one per column of B.
    """
    left = a.astype(np.float64) if a_zero is None else a.astype(np.float64) - a_zero.astype(np.float64)
    right = b.astype(np.float64) if b_zero is None else b.astype(np.float64) - b_zero.astype(np.float64)
    return np.matmul(left, right)


def _per_column(parameter: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Bring a scale or zero point of B to a shape that broadcasts over its columns."""
    if parameter.ndim <= 1 or parameter.ndim == b.ndim:
        return parameter
    return parameter[..., None, :]


@kernel("MatMulIntegerToFloat", domain="com.microsoft")
def matmul_integer_to_float(
    a: np.ndarray,
    b: np.ndarray,
    a_scale: np.ndarray,
    b_scale: np.ndarray,
    a_zero_point: np.ndarray | None = None,
    b_zero_point: np.ndarray | None = None,
    bias: np.ndarray | None = None,
) -> np.ndarray:
    """Y = (A - a_zero) @ (B - b_zero) * a_scale * b_scale + bias, in float."""
    if bias is not None and bias.size != b.shape[-1]:
        raise errors.InvalidArgument(
            f"MatMulIntegerToFloat: bias tensor's element count must equal B's last dimension; "
            f"found {bias.size} and {b.shape[-1]}"
        )
    b_zero = None if b_zero_point is None else _per_column(b_zero_point, b)
    total = integer_product(a, b, a_zero_point, b_zero)
    scaled = total * (a_scale.astype(np.float64) * _per_column(b_scale, b))
    return (scaled if bias is None else scaled + bias.reshape(-1)).astype(a_scale.dtype)


@kernel("DynamicQuantizeMatMul", domain="com.microsoft")
def dynamic_quantize_matmul(
    a: np.ndarray,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero_point: np.ndarray | None = None,
    bias: np.ndarray | None = None,
) -> np.ndarray:
    """Quantize A to uint8 over its own range, multiply with the quantized B, return float."""
    levels, scale, zero = quantize_by_range(a)
    return matmul_integer_to_float(levels, b, scale, b_scale, zero, b_zero_point, bias)


@kernel("QGemm", domain="com.microsoft")
def quantized_gemm(
    a: np.ndarray,
    a_scale: np.ndarray,
    a_zero_point: np.ndarray,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero_point: np.ndarray | None = None,
    c: np.ndarray | None = None,
    y_scale: np.ndarray | None = None,
    y_zero_point: np.ndarray | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> np.ndarray:
    """Y = alpha * a_scale * b_scale * (op(A - a_zero) @ op(B - b_zero) + C) / y_scale; levels with y_zero_point."""
    total = integer_product(a.T if transA else a, b.T if transB else b, a_zero_point, b_zero_point)
    if c is not None:
        total = total + c
    value = (total * (np.float64(np.float32(alpha)) * a_scale * b_scale)).astype(np.float32)
    scale = np.ones((), np.float32) if y_scale is None else y_scale
    return value / scale if y_zero_point is None else quantize(value, scale, y_zero_point, y_zero_point.dtype)


@kernel("MulInteger", domain="com.microsoft")
def mul_integer(
    a: np.ndarray, a_zero_point: np.ndarray | None, b: np.ndarray, b_zero_point: np.ndarray | None = None
) -> np.ndarray:
    """C = (A - a_zero) * (B - b_zero), in int32."""
    left = a.astype(np.int32) - (np.int32(0) if a_zero_point is None else a_zero_point.astype(np.int32))
    right = b.astype(np.int32) - (np.int32(0) if b_zero_point is None else b_zero_point.astype(np.int32))
    return left * right


@kernel("ReduceSumInteger", domain="com.microsoft")
def reduce_sum_integer(data: np.ndarray, *, axes: tuple[int, ...], keepdims: int) -> np.ndarray:
    """Sum 8-bit integers over axes, in 32 bits."""
    wide = np.uint32 if data.dtype == np.uint8 else np.int32
    keep: KeepDims = bool(keepdims)
    named = tuple({axis % data.ndim for axis in axes}) if data.ndim else ()  # an axis counts once
    return np.asarray(data.sum(axis=named or None, dtype=wide, keepdims=keep))


@kernel("QuantizeLinear", domain="com.microsoft")
def quantize_linear(
    x: np.ndarray, y_scale: np.ndarray, y_zero_point: np.ndarray | None = None, *, axis: int | None = None
) -> np.ndarray:
    """Y = saturate(round(X / scale) + zero point), along ``axis`` when scale is a vector; uint8 without zero point."""
    dtype = np.dtype(np.uint8) if y_zero_point is None else y_zero_point.dtype
    return quantize(x, _along(y_scale, x, axis), None if y_zero_point is None else _along(y_zero_point, x, axis), dtype)


@kernel("DequantizeLinear", domain="com.microsoft")
def dequantize_linear(
    x: np.ndarray, x_scale: np.ndarray, x_zero_point: np.ndarray | None = None, *, axis: int | None = None
) -> np.ndarray:
    """Y = (X - zero point) * scale, along ``axis`` when scale is a vector."""
    zero = None if x_zero_point is None else _along(x_zero_point, x, axis)
    return dequantize(x, _along(x_scale, x, axis), zero)


def _along(parameter: np.ndarray, x: np.ndarray, axis: int | None) -> np.ndarray:
    if parameter.size == 1:
        return parameter.reshape(())
    position = 1 if axis is None else axis % x.ndim
    if parameter.ndim != 1 or parameter.shape[0] != x.shape[position]:
        raise errors.InvalidArgument(
            f"a scale or zero point of shape {parameter.shape} does not fit axis {position} of shape {x.shape}: "
            f"expected one element, or {x.shape[position]} in one dimension"
        )
    return parameter.reshape((-1,) + (1,) * (x.ndim - position - 1))
