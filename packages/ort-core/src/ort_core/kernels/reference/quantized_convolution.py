"""ConvInteger and QLinearConv: convolution of quantised images by patches (im2col) and matrix products.

Patches are strided views of the padded image; products are summed in float64, which holds every sum of 8-bit
products exactly, and uses the fast matrix product that integers lack.
"""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.quantized_matmul import requantise, wrap_int32

Padding = list[tuple[int, int]]


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
    image, weights = _centred(x, x_zero_point), _centred_weights(w, w_zero_point)
    return wrap_int32(_convolve(image, weights, auto_pad, dilations, group, pads, strides))


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
    """Return the convolution of quantised images, quantised to the type of ``y_zero_point``.

    ``bias`` is int32 with scale x_scale * w_scale; ``w_scale`` has one element or one for each output channel.
    """
    _check_shapes(x, w, group)
    _check_parameters(w.shape[0], x_scale, w_scale, y_scale, y_zero_point, bias)
    image, weights = _centred(x, x_zero_point), _centred_weights(w, w_zero_point)
    exact = _convolve(image, weights, auto_pad, dilations, group, pads, strides)
    per_channel = (-1,) + (1,) * (x.ndim - 2)
    if bias is not None:
        exact += bias.reshape(per_channel)
    ratio = x_scale.reshape(()) * w_scale.reshape(per_channel) / y_scale.reshape(())
    return requantise(exact, ratio, y_zero_point.reshape(()))


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


def _centred(x: np.ndarray, zero_point: np.ndarray | None) -> np.ndarray:
    if zero_point is None:
        return x.astype(np.float64)
    if zero_point.size != 1:
        raise InvalidArgument(f"x_zero_point must be a scalar or 1D tensor of size 1; it has shape {zero_point.shape}")
    return x.astype(np.float64) - zero_point.reshape(())


def _centred_weights(w: np.ndarray, zero_point: np.ndarray | None) -> np.ndarray:
    if zero_point is None:
        return w.astype(np.float64)
    if zero_point.size not in (1, w.shape[0]):
        raise InvalidArgument(
            f"w_zero_point has shape {zero_point.shape}; expected one element or one for each of {w.shape[0]} channels"
        )
    return w.astype(np.float64) - zero_point.reshape((-1,) + (1,) * (w.ndim - 1))


def _convolve(
    image: np.ndarray,
    weights: np.ndarray,
    auto_pad: str,
    dilations: tuple[int, ...],
    group: int,
    pads: tuple[int, ...],
    strides: tuple[int, ...],
) -> np.ndarray:
    """Return the convolution of [N, C, ...] with [M, C / group, ...] as float64 [N, M, ...]."""
    spatial = image.ndim - 2
    dilations, strides = _steps("dilations", dilations, spatial), _steps("strides", strides, spatial)
    extents = [(k - 1) * d + 1 for k, d in zip(weights.shape[2:], dilations, strict=True)]
    padding = _padding(auto_pad, image.shape[2:], extents, pads, strides)
    padded = np.pad(image, [(0, 0), (0, 0), *padding])
    patches = _patches(padded, extents, dilations, strides)
    return _grouped_product(patches, weights, group)


def _steps(name: str, steps: tuple[int, ...], rank: int) -> tuple[int, ...]:
    chosen = steps or (1,) * rank
    if len(chosen) != rank or min(chosen) < 1:
        raise InvalidArgument(f"attribute {name} is {steps}; expected {rank} positive numbers, one for each axis")
    return chosen


def _padding(
    auto_pad: str, size: tuple[int, ...], extents: list[int], pads: tuple[int, ...], strides: tuple[int, ...]
) -> Padding:
    """Return the zeros to put before and after each spatial axis."""
    rank = len(size)
    if auto_pad == "VALID":
        return [(0, 0)] * rank
    if auto_pad in ("NOTSET", ""):
        pads = pads or (0,) * (2 * rank)
        if len(pads) != 2 * rank or min(pads) < 0:
            raise InvalidArgument(f"attribute pads is {pads}; expected {2 * rank} numbers of at least 0")
        return [(pads[axis], pads[axis + rank]) for axis in range(rank)]
    totals = [
        max((-(-length // stride) - 1) * stride + extent - length, 0)
        for length, stride, extent in zip(size, strides, extents, strict=True)
    ]
    if auto_pad == "SAME_UPPER":
        return [(total // 2, total - total // 2) for total in totals]
    if auto_pad == "SAME_LOWER":
        return [(total - total // 2, total // 2) for total in totals]
    raise InvalidArgument(f"attribute auto_pad is {auto_pad!r}; expected NOTSET, VALID, SAME_UPPER or SAME_LOWER")


def _patches(
    padded: np.ndarray, extents: list[int], dilations: tuple[int, ...], strides: tuple[int, ...]
) -> np.ndarray:
    """Return a view [N, C, *output, *kernel] of all windows."""
    spatial = tuple(range(2, padded.ndim))
    if any(extent > length for extent, length in zip(extents, padded.shape[2:], strict=True)):
        raise InvalidArgument(f"a kernel that spans {extents} does not fit the padded image of size {padded.shape[2:]}")
    windows = np.lib.stride_tricks.sliding_window_view(padded, tuple(extents), axis=spatial)
    steps = tuple(slice(None, None, step) for step in (*strides, *dilations))
    return windows[(slice(None), slice(None), *steps)]


def _grouped_product(patches: np.ndarray, weights: np.ndarray, group: int) -> np.ndarray:
    spatial = weights.ndim - 2
    count, channels = patches.shape[:2]
    output = patches.shape[2 : 2 + spatial]
    split = patches.reshape(count, group, channels // group, *patches.shape[2:])
    # [N, group, *output, C / group, *kernel]: the last axes become one long row per output element
    moved = np.moveaxis(split, 2, 2 + spatial)
    length = int(np.prod(weights.shape[1:]))
    rows = moved.reshape(count, group, int(np.prod(output)), length)
    columns = weights.reshape(group, weights.shape[0] // group, length).swapaxes(1, 2)
    product = np.matmul(rows, columns)  # [N, group, positions, M / group]
    return product.swapaxes(2, 3).reshape(count, weights.shape[0], *output)
