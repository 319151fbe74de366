"""Elementwise operators on 8-bit tensors: dequantize, compute in float, quantize."""

from __future__ import annotations

import math

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.gates import sigmoid
from ort_core.kernels.reference.arrays.means import mean as mean_of
from ort_core.kernels.reference.arrays.rounding_to_integers import dequantize, quantize, quantize_shifted
from ort_core.kernels.reference.arrays.saturating_integers import KeepDims

Optional = np.ndarray | None


def _scalar(parameter: Optional) -> Optional:
    return None if parameter is None else parameter.reshape(())


def _in(x: np.ndarray, scale: np.ndarray, zero: Optional) -> np.ndarray:
    return dequantize(x, scale.reshape(()), _scalar(zero))


def _out(value: np.ndarray, scale: np.ndarray, zero: Optional, dtype: np.dtype) -> np.ndarray:
    return quantize(value.astype(np.float32, copy=False), scale.reshape(()), _scalar(zero), dtype)


@kernel("QLinearAdd", domain="com.microsoft")
def qlinear_add(
    a: np.ndarray,
    a_scale: np.ndarray,
    a_zero_point: Optional,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero_point: Optional,
    c_scale: np.ndarray,
    c_zero_point: Optional = None,
) -> np.ndarray:
    """C = quantized(A + B)."""
    return quantize_shifted(
        _in(a, a_scale, a_zero_point) + _in(b, b_scale, b_zero_point), c_scale, c_zero_point, a.dtype
    )


@kernel("QLinearMul", domain="com.microsoft")
def qlinear_mul(
    a: np.ndarray,
    a_scale: np.ndarray,
    a_zero_point: Optional,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero_point: Optional,
    c_scale: np.ndarray,
    c_zero_point: Optional = None,
) -> np.ndarray:
    """C = quantized(A * B)."""
    return quantize_shifted(
        _in(a, a_scale, a_zero_point) * _in(b, b_scale, b_zero_point), c_scale, c_zero_point, a.dtype
    )


@kernel("QLinearLeakyRelu", domain="com.microsoft")
def qlinear_leaky_relu(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero_point: Optional,
    y_scale: np.ndarray,
    y_zero_point: Optional = None,
    *,
    alpha: float = 0.009999999776482582,
) -> np.ndarray:
    """Y = quantized(X where X >= 0, else alpha * X)."""
    value = _in(x, x_scale, x_zero_point)
    return _out(np.where(value >= 0, value, value * np.float32(alpha)), y_scale, y_zero_point, x.dtype)


@kernel("QLinearSigmoid", domain="com.microsoft")
def qlinear_sigmoid(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero_point: Optional,
    y_scale: np.ndarray,
    y_zero_point: Optional = None,
) -> np.ndarray:
    """Y = quantized(Sigmoid(X))."""
    return _out(sigmoid(_in(x, x_scale, x_zero_point)), y_scale, y_zero_point, x.dtype)


@kernel("QLinearSoftmax", domain="com.microsoft")
def qlinear_softmax(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero_point: Optional,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray,
    *,
    opset: int,
    axis: int = -1,
) -> np.ndarray:
    """Y = quantized(Softmax(X)) along ``axis``, or before opset 13 over ``axis`` and all later axes.

    As onnxruntime counts: in whole steps of 1 / y_scale, a half rounds up.
    """
    first = axis % max(x.ndim, 1)
    axes = (first,) if opset >= 13 else tuple(range(first, x.ndim))
    value = _in(x, x_scale, x_zero_point)
    weights = np.exp(value - value.max(axis=axes, keepdims=True, initial=-np.inf))
    steps = np.floor(1 / np.float32(y_scale.reshape(())))
    chances = weights.astype(np.float64) / weights.sum(axis=axes, keepdims=True, dtype=np.float64)
    zero = 0 if y_zero_point is None else int(y_zero_point.reshape(()))
    limits = np.iinfo(x.dtype)
    return (np.floor(chances * steps + 0.5) + zero).clip(limits.min, limits.max).astype(x.dtype)


@kernel("QLinearWhere", domain="com.microsoft")
def qlinear_where(
    condition: np.ndarray,
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero_point: np.ndarray,
    y: np.ndarray,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray,
    z_scale: np.ndarray,
    z_zero_point: np.ndarray,
) -> np.ndarray:
    """Z = quantized(X where condition, else Y)."""
    chosen = np.where(condition, _in(x, x_scale, x_zero_point), _in(y, y_scale, y_zero_point))
    return _out(chosen, z_scale, z_zero_point, x.dtype)


@kernel("QLinearConcat", domain="com.microsoft")
def qlinear_concat(y_scale: np.ndarray, y_zero_point: np.ndarray, *inputs: np.ndarray, axis: int) -> np.ndarray:
    """Concatenate (tensor, scale, zero point) triples after bringing each to the output's scale and zero point."""
    if not inputs or len(inputs) % 3:
        raise errors.InvalidArgument(f"inputs must come as (tensor, scale, zero point) triples; found {len(inputs)}")
    parts = []
    for tensor, scale, zero in zip(inputs[0::3], inputs[1::3], inputs[2::3], strict=True):
        _check_triple(tensor, scale, zero, y_scale, y_zero_point)
        same = scale == y_scale and zero == y_zero_point
        parts.append(tensor if same else _out(_in(tensor, scale, zero), y_scale, y_zero_point, tensor.dtype))
    return np.concatenate(parts, axis=axis)


def _check_triple(
    tensor: np.ndarray, scale: np.ndarray, zero: np.ndarray, y_scale: np.ndarray, y_zero: np.ndarray
) -> None:
    if scale.dtype != np.float32 or y_scale.dtype != np.float32:
        raise errors.InvalidArgument(f"scales must be float; found {scale.dtype} and {y_scale.dtype}")
    if not tensor.dtype == zero.dtype == y_zero.dtype:
        raise errors.InvalidArgument(
            f"tensors and zero points must have one 8-bit type; found {tensor.dtype}, {zero.dtype}, {y_zero.dtype}"
        )
    if scale.size != 1 or zero.size != 1:
        raise errors.InvalidArgument("scale and zero point must be scalars")


@kernel("QLinearReduceMean", domain="com.microsoft")
def qlinear_reduce_mean(
    data: np.ndarray,
    data_scale: np.ndarray,
    data_zero_point: Optional,
    reduced_scale: np.ndarray,
    reduced_zero_point: Optional = None,
    *,
    axes: tuple[int, ...],
    keepdims: int,
) -> np.ndarray:
    """Quantized mean over axes."""
    keep: KeepDims = bool(keepdims)
    named = tuple({axis % data.ndim for axis in axes}) if data.ndim else ()  # an axis counts once, however often named
    mean = mean_of(_in(data, data_scale, data_zero_point), named or None, keepdims=keep)
    return _out(np.asarray(mean), reduced_scale, reduced_zero_point, data.dtype)


@kernel("QLinearGlobalAveragePool", domain="com.microsoft")
def qlinear_global_average_pool(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero_point: Optional,
    y_scale: np.ndarray,
    y_zero_point: Optional = None,
    *,
    channels_last: int = 0,
) -> np.ndarray:
    """Quantized mean over all spatial axes, which stay with length 1."""
    axes = tuple(range(1, x.ndim - 1)) if channels_last else tuple(range(2, x.ndim))
    count = math.prod(x.shape[axis] for axis in axes)
    total = x.astype(np.int64).sum(axis=axes, keepdims=True)
    zero = 0 if x_zero_point is None else int(x_zero_point.reshape(()))
    mean = (total - zero * count) * (np.float64(x_scale.reshape(())) / count)
    return _out(mean.astype(np.float32), y_scale, y_zero_point, x.dtype)
