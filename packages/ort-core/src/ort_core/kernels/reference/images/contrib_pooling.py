"""Pooling on 8-bit tensors, with channels last, and with a mask."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.rounding_to_integers import quantize_shifted
from ort_core.kernels.reference.images.pooling import average_pool, fold, lowest, pool_windows

Ints = tuple[int, ...]


@kernel("NhwcMaxPool", domain="com.microsoft")
def nhwc_max_pool(
    x: np.ndarray,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints = (),
    pads: Ints = (),
    strides: Ints = (),
) -> np.ndarray:
    """MaxPool of 8-bit values on (N, spatial..., C); padding never wins."""
    image = np.moveaxis(x, -1, 1)
    windows = pool_windows(image, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return np.moveaxis(fold(image, windows, np.maximum, lowest(x.dtype)), 1, -1)


@kernel("MaxpoolWithMask", domain="com.microsoft")
def max_pool_with_mask(
    x: np.ndarray,
    mask: np.ndarray,
    *,
    auto_pad: str = "NOTSET",
    kernel_shape: Ints = (),
    pads: Ints = (),
    storage_order: int = 0,
    strides: Ints = (),
) -> np.ndarray:
    """MaxPool over the positions where the mask is not 0; a window without any gives the lowest float."""
    if len(kernel_shape) > 3:
        raise errors.InvalidArgument(f"Only 1D, 2D, and 3D pooling are supported; kernel_shape is {kernel_shape}")
    if mask.ndim != x.ndim:
        raise errors.InvalidArgument(
            f"Mask and input must have the same number of dimensions; found {mask.ndim} and {x.ndim}"
        )
    for axis in range(2, x.ndim):
        if mask.shape[axis] != x.shape[axis]:
            raise errors.InvalidArgument(
                f"Mask and input spatial dimensions mismatch at dimension {axis}: {mask.shape[axis]}, {x.shape[axis]}"
            )
    # The mask holds one image after the other and is read again from its start when it has fewer than the input.
    images = mask.reshape(-1, *mask.shape[2:])
    chosen = images[np.arange(x.shape[0] * x.shape[1]) % images.shape[0]].reshape(x.shape)
    masked = float(np.finfo(np.float32).min)
    windows = pool_windows(x, kernel_shape, strides, (), pads, auto_pad, 0)
    return fold(np.where(chosen != 0, x, masked).astype(x.dtype), windows, np.maximum, masked)


@kernel("QLinearAveragePool", domain="com.microsoft")
def qlinear_average_pool(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero_point: np.ndarray | None,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray | None = None,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    pads: Ints = (),
    strides: Ints = (),
) -> np.ndarray:
    """Quantized mean over windows; padding has the value zero and counts only with ``count_include_pad``."""
    image = np.moveaxis(x, -1, 1) if channels_last else x
    zero = np.float32(0) if x_zero_point is None else x_zero_point.reshape(()).astype(np.float32)
    mean = average_pool(
        (image.astype(np.float32) - zero) * x_scale.reshape(()),
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    result = quantize_shifted(mean, y_scale, y_zero_point, x.dtype)
    return np.moveaxis(result, 1, -1) if channels_last else result
