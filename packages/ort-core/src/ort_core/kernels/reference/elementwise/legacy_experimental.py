"""Operators that ONNX dropped before opset 7 and onnxruntime still runs in the default domain."""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.normalization.reductions import normalize_axes


@kernel("Affine")
@np.errstate(all="ignore")
def affine(x: np.ndarray, *, alpha: float = 1.0, beta: float = 0.0) -> np.ndarray:
    """Return alpha x + beta."""
    wide = widen(x)
    return narrow(wide.dtype.type(alpha) * wide + wide.dtype.type(beta), x.dtype)


@kernel("Scale")
@np.errstate(all="ignore")
def scale_values(x: np.ndarray, *, scale: float = 1.0) -> np.ndarray:
    """Return scale x."""
    return affine(x, alpha=scale)


@kernel("ParametricSoftplus")
@np.errstate(all="ignore")
def parametric_softplus(x: np.ndarray, *, alpha: float = 1.0, beta: float = 1.0) -> np.ndarray:
    """Return alpha log(1 + exp(beta x))."""
    wide = widen(x)
    real = wide.dtype.type
    return narrow(real(alpha) * np.logaddexp(real(0), real(beta) * wide), x.dtype)


@kernel("ScaledTanh")
@np.errstate(all="ignore")
def scaled_tanh(x: np.ndarray, *, alpha: float = 1.0, beta: float = 1.0) -> np.ndarray:
    """Return alpha tanh(beta x)."""
    wide = widen(x)
    return narrow(wide.dtype.type(alpha) * np.tanh(wide.dtype.type(beta) * wide), x.dtype)


@kernel("ImageScaler")
@np.errstate(all="ignore")
def image_scaler(x: np.ndarray, *, bias: tuple[float, ...] = (), scale: float = 1.0) -> np.ndarray:
    """Return scale x + bias, with one bias for each channel of [N, C, H, W]."""
    if x.ndim != 4 or len(bias) != x.shape[1]:
        raise InvalidArgument(
            f"ImageScaler: input of shape {x.shape} needs 4 dimensions and one bias for each channel; got {len(bias)}"
        )
    wide = widen(x)
    offset = np.array(bias, wide.dtype).reshape(1, -1, 1, 1)
    return narrow(wide.dtype.type(scale) * wide + offset, x.dtype)


@kernel("Crop")
@np.errstate(all="ignore")
def crop(x: np.ndarray, *, border: tuple[int, ...], scale: tuple[int, ...] = ()) -> np.ndarray:
    """Return the middle of [N, C, H, W]: ``border`` is left, top, right, bottom; ``scale`` fixes height and width."""
    if x.ndim != 4:
        raise InvalidArgument(f"Input is expected to have four dimensions corresponding to [N,C,H,W], got {x.ndim}")
    if len(border) != 4:
        raise InvalidArgument(f"Attribute border needs to be specified with four border elements, got {len(border)}")
    left, top, right, bottom = border
    height, width = x.shape[2:]
    if scale and len(scale) != 2:
        raise InvalidArgument(f"Attribute scale needs to be specified with two elements, got {len(scale)}")
    lower, end = (top + scale[0], left + scale[1]) if scale else (height - bottom, width - right)
    if min(left, top) < 0 or not (top <= lower <= height and left <= end <= width):
        raise InvalidArgument(
            f"Input's height and width ({height}, {width}) need to hold rows {top} to {lower} and columns {left} "
            f"to {end}"
        )
    return x[:, :, top:lower, left:end]


@kernel("DynamicSlice")
@np.errstate(all="ignore")
def dynamic_slice(x: np.ndarray, starts: np.ndarray, ends: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
    """Return ``x[start:end]`` along each of ``axes`` (default: the first ones)."""
    if starts.ndim != 1 or starts.shape != ends.shape or (axes is not None and axes.shape != starts.shape):
        raise InvalidArgument("DynamicSlice: starts, ends and axes must be vectors of one length")
    chosen = normalize_axes("DynamicSlice", range(starts.size) if axes is None else axes.tolist(), x.ndim)
    window = [slice(None)] * x.ndim
    for axis, start, end in zip(chosen, starts.tolist(), ends.tolist(), strict=True):
        window[axis] = slice(start, end)
    return x[tuple(window)]
