"""Convolutions with an activation, an addend, channels last, 8-bit values, or paddings that come as an input."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.named_activations import find_activation
from ort_core.kernels.reference.arrays.rounding_to_integers import quantize
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.arrays.windows import slide
from ort_core.kernels.reference.images.convolution import conv_transpose, convolve

Ints = tuple[int, ...]


def _convolve(
    x: np.ndarray, w: np.ndarray, *, group: int, strides: Ints, dilations: Ints, pads: Ints, auto_pad: str
) -> np.ndarray:
    """Return the convolution of (N, C, spatial...) with (M, C / group, kernel...), without a bias."""
    if x.ndim < 3 or w.ndim != x.ndim:
        raise errors.InvalidArgument(f"X and W must have one rank of at least 3; found {x.ndim} and {w.ndim}")
    if x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        raise errors.InvalidArgument(f"X of {x.shape} does not fit W of {w.shape} in {group} groups")
    return convolve(x, w, slide(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad), group)


def _activated(value: np.ndarray, activation: str | None, parameters: tuple[float, ...]) -> np.ndarray:
    if not activation:
        return value
    alpha, beta = (*parameters, None, None)[:2]
    return find_activation(activation, alpha, beta)(value)


def _channels(b: np.ndarray, rank: int) -> np.ndarray:
    return b.reshape((-1,) + (1,) * (rank - 2))


@kernel("FusedConv", domain="com.microsoft")
def fused_conv(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    z: np.ndarray | None = None,
    *,
    activation: str | None = None,
    activation_params: tuple[float, ...] = (),
    auto_pad: str = "NOTSET",
    dilations: Ints = (),
    group: int = 1,
    kernel_shape: Ints = (),
    pads: Ints = (),
    strides: Ints = (),
) -> np.ndarray:
    """Y = activation(Conv(X, W) + B + Z)."""
    result = _convolve(
        widen(x), widen(w), group=group, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad
    )
    if b is not None:
        result = result + _channels(widen(b), x.ndim)
    if z is not None:
        result = result + widen(z)
    return narrow(_activated(result, activation, activation_params), x.dtype)


@kernel("NhwcFusedConv", domain="com.microsoft")
def nhwc_fused_conv(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    z: np.ndarray | None = None,
    *,
    activation: str | None = None,
    activation_params: tuple[float, ...] = (),
    auto_pad: str = "NOTSET",
    dilations: Ints = (),
    group: int = 1,
    kernel_shape: Ints = (),
    pads: Ints = (),
    strides: Ints = (),
) -> np.ndarray:
    """FusedConv on (N, spatial..., C); the weights stay (M, C / group, kernel...)."""
    result = fused_conv(
        np.moveaxis(x, -1, 1),
        w,
        b,
        None if z is None else np.moveaxis(z, -1, 1),
        activation=activation,
        activation_params=activation_params,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        pads=pads,
        strides=strides,
    )
    return np.moveaxis(result, 1, -1)


@kernel("NhwcConv", domain="com.microsoft")
def nhwc_conv(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = (),
    group: int = 1,
    kernel_shape: Ints = (),
    pads: Ints = (),
    strides: Ints = (),
) -> np.ndarray:
    """Conv on (N, spatial..., C) with weights (M, kernel..., C / group)."""
    return nhwc_fused_conv(
        x,
        np.moveaxis(w, -1, 1),
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        pads=pads,
        strides=strides,
    )


@kernel("QLinearConv", domain="com.microsoft")
def qlinear_conv(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero_point: np.ndarray,
    w: np.ndarray,
    w_scale: np.ndarray,
    w_zero_point: np.ndarray,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray,
    b: np.ndarray | None = None,
    *,
    auto_pad: str = "NOTSET",
    channels_last: int = 0,
    dilations: Ints = (),
    group: int = 1,
    kernel_shape: Ints = (),
    pads: Ints = (),
    strides: Ints = (),
) -> np.ndarray:
    """Quantized convolution; W's scale and zero point are scalars or one per output channel; padding is X's zero."""
    image = np.moveaxis(x, -1, 1) if channels_last else x
    # float64 holds sums of 8-bit products exactly and runs in BLAS, which integers do not.
    shifted = image.astype(np.float64) - float(x_zero_point.reshape(()))
    zero = w_zero_point.astype(np.float64).reshape((-1,) + (1,) * (w.ndim - 1))
    total = _convolve(
        shifted,
        w.astype(np.float64) - zero,
        group=group,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
    )
    if b is not None:
        total = total + _channels(b, x.ndim)
    scale = x_scale.reshape(()).astype(np.float64) * _channels(w_scale.astype(np.float64), x.ndim)
    result = quantize(
        (total * scale).astype(np.float32), y_scale.reshape(()), y_zero_point.reshape(()), y_zero_point.dtype
    )
    return np.moveaxis(result, 1, -1) if channels_last else result


@kernel("ConvTransposeWithDynamicPads", domain="com.microsoft")
def conv_transpose_with_dynamic_pads(
    x: np.ndarray,
    w: np.ndarray,
    pads: np.ndarray | None = None,
    b: np.ndarray | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = (),
    group: int = 1,
    kernel_shape: Ints = (),
    output_padding: Ints = (),
    strides: Ints = (),
) -> np.ndarray:
    """ConvTranspose whose paddings are an input: each input value adds a scaled kernel to the output."""
    if w.ndim < 3:
        raise errors.InvalidArgument(f"Weight tensor must have at least 3 dimensions; found shape {w.shape}")
    given = () if pads is None else tuple(int(p) for p in pads)
    if min(given, default=0) < 0:
        raise errors.InvalidArgument(f"Pads must be numbers of at least 0; found {given}")
    return conv_transpose(
        x,
        w,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        output_padding=output_padding,
        pads=given,
        strides=strides,
    )
