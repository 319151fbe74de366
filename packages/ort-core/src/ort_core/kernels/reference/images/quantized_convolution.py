"""ConvInteger and QLinearConv: convolution of quantized images in float64.

float64 holds every sum of 8-bit products exactly, and has the fast matrix product that integers lack.
"""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.windows import slide
from ort_core.kernels.reference.images.convolution import convolve
from ort_core.kernels.reference.products.quantized_matmul import requantize, wrap_int32


@kernel("ConvInteger", since=10)
def conv_integer(
    x: np.ndarray,
    w: np.ndarray,
    x_zero_point: np.ndarray | None = None,
    w_zero_point: np.ndarray | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: tuple[int, ...] = (),
    group: int = 1,
    kernel_shape: tuple[int, ...] = (),
    pads: tuple[int, ...] = (),
    strides: tuple[int, ...] = (),
) -> np.ndarray:
    """Return the convolution of x - x_zero_point with w - w_zero_point as int32."""
    _check_shapes(x, w, group)
    image, weights = _centered(x, x_zero_point), _centered_weights(w, w_zero_point)
    windows = slide(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    return wrap_int32(convolve(image, weights, windows, group))


@kernel("QLinearConv", since=10)
@np.errstate(all="ignore")
def q_linear_conv(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero_point: np.ndarray,
    w: np.ndarray,
    w_scale: np.ndarray,
    w_zero_point: np.ndarray,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: tuple[int, ...] = (),
    group: int = 1,
    kernel_shape: tuple[int, ...] = (),
    pads: tuple[int, ...] = (),
    strides: tuple[int, ...] = (),
) -> np.ndarray:
    """Return the convolution of quantized images, quantized to the type of ``y_zero_point``.

    ``bias`` is int32 with scale x_scale * w_scale; ``w_scale`` has one element or one for each output channel.
    """
    _check_shapes(x, w, group)
    _check_parameters(w.shape[0], x_scale, w_scale, y_scale, y_zero_point, bias)
    image, weights = _centered(x, x_zero_point), _centered_weights(w, w_zero_point)
    windows = slide(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    exact = convolve(image, weights, windows, group)
    per_channel = (-1,) + (1,) * (x.ndim - 2)
    if bias is not None:
        exact += bias.reshape(per_channel)
    ratio = x_scale.reshape(()) * w_scale.reshape(per_channel) / y_scale.reshape(())
    return requantize(exact, ratio, y_zero_point.reshape(()))


def _check_shapes(x: np.ndarray, w: np.ndarray, group: int) -> None:
    if x.ndim < 3 or w.ndim != x.ndim:
        raise InvalidArgument(
            f"X {x.shape} and W {w.shape} must have one rank, of at least 3: [N, C, ...], [M, C, ...]"
        )
    if group < 1 or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        raise InvalidArgument(
            f"Input channels C is not equal to kernel channels * group: X {x.shape}, W {w.shape}, group {group}"
        )


def _check_parameters(
    channels: int,
    x_scale: np.ndarray,
    w_scale: np.ndarray,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray,
    bias: np.ndarray | None,
) -> None:
    for name, parameter in (("x_scale", x_scale), ("y_scale", y_scale), ("y_zero_point", y_zero_point)):
        if parameter.size != 1:
            raise InvalidArgument(f"{name} must be a scalar or 1D tensor of size 1; it has shape {parameter.shape}")
    if w_scale.size not in (1, channels) or (bias is not None and bias.shape != (channels,)):
        raise InvalidArgument(
            f"w_scale {w_scale.shape} and B {None if bias is None else bias.shape} must have one element for each of "
            f"{channels} output channels, or w_scale one in all"
        )


def _centered(x: np.ndarray, zero_point: np.ndarray | None) -> np.ndarray:
    if zero_point is None:
        return x.astype(np.float64)
    if zero_point.size != 1:
        raise InvalidArgument(f"x_zero_point must be a scalar or 1D tensor of size 1; it has shape {zero_point.shape}")
    return x.astype(np.float64) - zero_point.reshape(())


def _centered_weights(w: np.ndarray, zero_point: np.ndarray | None) -> np.ndarray:
    if zero_point is None:
        return w.astype(np.float64)
    if zero_point.size not in (1, w.shape[0]):
        raise InvalidArgument(
            f"w_zero_point has shape {zero_point.shape}; expected one element or one for each of {w.shape[0]} channels"
        )
    return w.astype(np.float64) - zero_point.reshape((-1,) + (1,) * (w.ndim - 1))
