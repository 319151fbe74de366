"""Convolution: every form is one matrix product per group over the columns that sliding windows read.

    Y[n, m, o] = B[m] + sum over c, k of W[m, c, k] * X[n, c, o * stride + k * dilation - pad]

Pointwise kernels multiply the input itself, depthwise ones accumulate shifted products; the transposed form multiplies
first and adds the columns back to where they came from.
"""

from __future__ import annotations

import math

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.axes import check_size
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.arrays.windows import Windows, col2im, im2col, slide
from ort_core.ops.windows import SAME, known_sizes, transposed_axes

# Columns are made for as many images at a time as fit here: far more falls out of the last-level cache, far less
# makes the Python loop over images visible.
_COLUMN_BYTES = 32 << 20
_LARGEST = 2**63 - 1  # of int64, in which ONNX counts sizes


@kernel("Conv")
def conv(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: tuple[int, ...] = (),
    group: int = 1,
    kernel_shape: tuple[int, ...] = (),
    pads: tuple[int, ...] = (),
    strides: tuple[int, ...] = (),
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Convolve [N, C, *spatial] with [M, C / group, *kernel]."""
    _check_conv(x, w, b, group, kernel_shape)
    windows = slide(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    check_size((x.shape[0], w.shape[0], *windows.counts), x.dtype, "Conv", ctx)
    y = convolve(widen(x), widen(w), windows, group)
    return narrow(_add_bias(y, b), x.dtype)


def convolve(x: np.ndarray, w: np.ndarray, windows: Windows, group: int) -> np.ndarray:
    """Convolve float32 or float64 arrays (integers work too, exactly) over given windows, without bias."""
    batch, channels = x.shape[:2]
    filters = w.shape[0]
    if w.shape[1] == 1 and group == channels and group > 1 and not windows.is_pointwise():
        return _depthwise(x, w, windows)
    rows, positions = math.prod(w.shape[1:]), math.prod(windows.counts)
    weights = w.reshape(group, filters // group, rows)
    out = np.empty((batch, filters, *windows.counts), np.result_type(x, w))
    flat = out.reshape(batch, group, filters // group, positions)
    if windows.is_pointwise():
        steps = tuple(slice(None, None, s) for s in windows.strides)
        picked = x[(slice(None), slice(None), *steps)]
        np.matmul(weights, picked.reshape(batch, group, channels // group, positions), out=flat)
        return out
    per_image = max(1, rows * group * positions * x.dtype.itemsize)
    images = max(1, _COLUMN_BYTES // per_image)
    for start in range(0, batch, images):
        part = slice(start, start + images)
        columns = im2col(x[part], windows)
        np.matmul(weights, columns.reshape(columns.shape[0], group, rows, positions), out=flat[part])
    return out


def _depthwise(x: np.ndarray, w: np.ndarray, windows: Windows) -> np.ndarray:
    """Convolve each channel with its own filters: accumulate one shifted product per kernel offset."""
    batch, channels = x.shape[:2]
    multiplier = w.shape[0] // channels
    weights = w.reshape(channels, multiplier, *windows.kernel)
    out = np.zeros((batch, channels, multiplier, *windows.counts), np.result_type(x, w))
    ones = (1,) * len(windows.kernel)
    for offset, window, position in windows.offsets():
        at: tuple[int | slice, ...] = (slice(None), slice(None), *offset)
        factor = weights[at].reshape(channels, multiplier, *ones)
        shifted = x[(slice(None), slice(None), *position)][:, :, None]
        out[(slice(None), slice(None), slice(None), *window)] += factor * shifted
    return out.reshape(batch, w.shape[0], *windows.counts)


def _add_bias(y: np.ndarray, b: np.ndarray | None) -> np.ndarray:
    """Add one value per channel, in place: ``y`` was made by the caller."""
    if b is not None:
        y += widen(b).reshape(-1, *(1,) * (y.ndim - 2))
    return y


def _check_conv(x: np.ndarray, w: np.ndarray, b: np.ndarray | None, group: int, kernel_shape: tuple[int, ...]) -> None:
    if x.ndim < 2:
        raise InvalidArgument(f"X must have at least 2 dimensions [N, C, ...]. X: {_braced(x.shape)}")
    if x.ndim != w.ndim:
        raise InvalidArgument(f"X num_dims does not match W num_dims. X: {_braced(x.shape)} W: {_braced(w.shape)}")
    if x.shape[1] != w.shape[1] * group:
        raise InvalidArgument(
            f"Input channels C is not equal to kernel channels * group. C: {x.shape[1]} "
            f"kernel channels: {w.shape[1]} group: {group}"
        )
    if w.shape[0] % group:
        raise InvalidArgument(f"Output channels M is not divisible by group. M: {w.shape[0]} group: {group}")
    _check_filters(w, b, w.shape[0], kernel_shape)


def _check_filters(w: np.ndarray, b: np.ndarray | None, output_channels: int, kernel_shape: tuple[int, ...]) -> None:
    if kernel_shape and tuple(kernel_shape) != w.shape[2:]:
        raise InvalidArgument(
            f"kernel_shape is not compatible with W shape. kernel_shape: {_braced(kernel_shape)} W: {_braced(w.shape)}"
        )
    if b is not None and b.shape != (output_channels,):
        raise InvalidArgument(
            f"bias must be a 1D tensor of size output_channels. bias: {_braced(b.shape)} "
            f"output_channels: {output_channels}"
        )


def _braced(shape: tuple[int, ...]) -> str:
    return "{" + ",".join(str(d) for d in shape) + "}"


@kernel("ConvTranspose")
def conv_transpose(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: tuple[int, ...] = (),
    group: int = 1,
    kernel_shape: tuple[int, ...] = (),
    output_padding: tuple[int, ...] = (),
    output_shape: tuple[int, ...] = (),
    pads: tuple[int, ...] = (),
    strides: tuple[int, ...] = (),
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Scatter [N, C, *spatial] through [C, M / group, *kernel]: the gradient of ``Conv`` with respect to its input."""
    _check_transpose(x, w, b, group, kernel_shape)
    windows = _transposed_windows(
        x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad, output_padding, output_shape
    )
    batch, channels = x.shape[:2]
    per_group = w.shape[1]
    check_size((batch, group * per_group, *windows.spatial), x.dtype, "ConvTranspose", ctx)
    weights = widen(w).reshape(group, channels // group, math.prod(w.shape[1:])).swapaxes(1, 2)
    positions = math.prod(x.shape[2:])
    columns = np.matmul(weights, widen(x).reshape(batch, group, channels // group, positions))
    y = col2im(columns.reshape(batch, group * per_group, *w.shape[2:], *x.shape[2:]), windows)
    return narrow(_add_bias(y, b), x.dtype)


def _check_transpose(
    x: np.ndarray, w: np.ndarray, b: np.ndarray | None, group: int, kernel_shape: tuple[int, ...]
) -> None:
    if min(x.ndim, w.ndim) < 3:
        raise InvalidArgument(f"X and W must have at least 3 dimensions. X: {_braced(x.shape)} W: {_braced(w.shape)}")
    if x.ndim != w.ndim:
        raise InvalidArgument(f"X num_dims does not match W num_dims. X: {_braced(x.shape)} W: {_braced(w.shape)}")
    if x.shape[1] != w.shape[0]:
        raise InvalidArgument(
            f"filter number not equal to input channel number. filter_number: {w.shape[0]} "
            f"num_input_channels: {x.shape[1]}"
        )
    if group <= 0 or x.shape[1] % group:
        raise InvalidArgument(
            f"Input channels is not divisible by group. num_input_channels: {x.shape[1]} group: {group}"
        )
    _check_filters(w, b, w.shape[1] * group, kernel_shape)


def _transposed_windows(
    spatial: tuple[int, ...],
    kernel_shape: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...],
    auto_pad: str,
    output_padding: tuple[int, ...],
    output_shape: tuple[int, ...],
) -> Windows:
    """Return the windows over the *output* of which the input holds one value each."""
    axes = transposed_axes(spatial, kernel_shape, strides, dilations, pads, auto_pad, output_padding, output_shape)
    natural, sizes = known_sizes(axis.whole for axis in axes), known_sizes(axis.result for axis in axes)
    strides, dilations = tuple(axis.stride for axis in axes), tuple(axis.dilation for axis in axes)
    if output_shape or auto_pad in SAME:
        _check_output_shape(spatial, natural, sizes, strides)
    if min(sizes, default=1) < 0:
        raise InvalidArgument(f"ConvTranspose would make the spatial shape {sizes}; pads {pads} cut away too much")
    if max(natural, default=0) > _LARGEST:
        raise InvalidArgument(
            f"Integer overflow: strides {strides} and dilations {dilations} make a size of {max(natural)}"
        )
    begin, end = known_sizes(axis.before for axis in axes), known_sizes(axis.after for axis in axes)
    return Windows(sizes, tuple(kernel_shape), strides, dilations, begin, end, tuple(spatial))


def _check_output_shape(
    spatial: tuple[int, ...], natural: tuple[int, ...], sizes: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    """Refuse an output so large that a convolution over it would have more windows than the input has elements."""
    for size, whole, asked, stride in zip(spatial, natural, sizes, strides, strict=True):
        if asked - whole >= stride and size > 0:
            raise InvalidArgument(
                f"output_shape {sizes} is inconsistent with input spatial dimensions {spatial}: strides, kernel and "
                f"dilations make {natural}, and an output may exceed that by less than the stride"
            )


@kernel("Col2Im", since=18)
def col2im_kernel(
    data: np.ndarray,
    image_shape: np.ndarray,
    block_shape: np.ndarray,
    *,
    dilations: tuple[int, ...] = (),
    pads: tuple[int, ...] = (),
    strides: tuple[int, ...] = (),
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Add the columns [N, C * prod(block), L] back into images [N, C, *image_shape]."""
    image, block = tuple(int(d) for d in image_shape), tuple(int(d) for d in block_shape)
    windows = slide(image, block, strides, dilations, pads)
    batch, taps = data.shape[0], math.prod(block)
    if 0 in windows.counts and 0 not in image:
        raise InvalidArgument(f"Padded image extent is smaller than the dilated kernel: image {image}, block {block}")
    if data.ndim != 3 or taps <= 0 or data.shape[1] <= 0 or data.shape[1] % taps:
        raise InvalidArgument(
            f"Col2Im input has shape {data.shape}; its second dimension must be a positive multiple of "
            f"prod(block_shape), {taps}"
        )
    channels = data.shape[1] // taps
    expected = (batch, channels * taps, math.prod(windows.counts))
    if data.shape != expected:
        raise InvalidArgument(
            f"Col2Im got input shape {data.shape}; image {image}, block {block} and the attributes make {expected}"
        )
    check_size((batch, channels, *image), data.dtype, "Col2Im", ctx)
    columns = data.reshape(batch, channels, *block, *windows.counts)
    if data.dtype.kind not in "fV":
        return col2im(columns, windows)
    return narrow(col2im(widen(columns), windows), data.dtype)


@kernel("CausalConvWithState", since=27)
def causal_conv_with_state(
    data: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    past_state: np.ndarray | None = None,
    *,
    activation: str = "none",
) -> tuple[np.ndarray, np.ndarray]:
    """Convolve each channel over current and past positions; the last ``k - 1`` inputs become the next state."""
    if activation not in ("none", "silu", "swish"):
        raise InvalidArgument(f"CausalConvWithState: activation is {activation!r}, expected none, silu or swish")
    carried = weight.shape[-1] - 1
    if past_state is None:
        past_state = np.zeros((*data.shape[:2], carried), data.dtype)
    whole = np.concatenate([past_state, data], axis=2)
    windows = slide(whole.shape[2:], weight.shape[2:])
    y = _add_bias(convolve(widen(whole), widen(weight), windows, data.shape[1]), bias)
    if activation != "none":
        with np.errstate(over="ignore"):
            y = y / (1 + np.exp(-y))
    return narrow(y, data.dtype), whole[:, :, whole.shape[2] - carried :]
