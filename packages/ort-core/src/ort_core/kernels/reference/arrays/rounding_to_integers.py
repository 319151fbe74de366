"""Linear quantization: scale, round half to even, shift, saturate; and the way back."""

from __future__ import annotations

import numpy as np

from ort_core.kernels.reference.arrays.widening import narrow, widen

_BOUNDS = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}


def bounds(dtype: np.dtype) -> tuple[int, int]:
    """Return the least and the greatest value of an integer dtype, ml_dtypes included."""
    if dtype.name in _BOUNDS:
        return _BOUNDS[dtype.name]
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def quantize(x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, dtype: np.dtype) -> np.ndarray:
    """Return saturate(round(x / scale) + zero) in ``dtype``; scale and zero broadcast."""
    low, high = bounds(dtype)
    offset = np.float32(0) if zero is None else zero.astype(np.float32)
    levels = np.rint(widen(x) / widen(scale)) + offset
    return np.clip(np.nan_to_num(levels, nan=0.0, posinf=high, neginf=low), low, high).astype(np.int64).astype(dtype)


def dequantize(x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None) -> np.ndarray:
    """Return (x - zero) * scale in the type of scale."""
    shifted = x.astype(np.int32) if zero is None else x.astype(np.int32) - zero.astype(np.int32)
    return narrow(shifted.astype(np.float32) * widen(scale), scale.dtype)


def quantize_by_range(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (levels, scale, zero) of an affine uint8 quantization over the range of ``x``, which includes 0."""
    low = np.minimum(x.min(initial=0), 0).astype(np.float32)
    high = np.maximum(x.max(initial=0), 0).astype(np.float32)
    scale = np.float32((high - low) / np.float32(255))
    if scale == 0:
        scale = np.float32(1)
    zero = np.clip(np.rint(-low / scale), 0, 255).astype(np.uint8)
    return quantize(x, np.asarray(scale), zero, np.dtype(np.uint8)), np.asarray(scale), np.asarray(zero)


def quantize_shifted(value: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, dtype: np.dtype) -> np.ndarray:
    """As ``quantize`` by one scale, with the zero point added before the rounding, as some of onnxruntime's do."""
    offset = np.float32(0 if zero is None else zero.reshape(()))
    low, high = bounds(dtype)
    levels = np.rint(value.astype(np.float32, copy=False) / scale.reshape(()) + offset)
    return np.clip(np.nan_to_num(levels, nan=0.0, posinf=high, neginf=low), low, high).astype(np.int64).astype(dtype)
