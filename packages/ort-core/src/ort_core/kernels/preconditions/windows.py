"""Convolutions and pooling: ranks, what windows must fit in, sizes of biases and of quantization parameters."""

from __future__ import annotations

from ort_core.errors import InvalidArgument
from ort_core.ir.dims import KnownDim
from ort_core.kernels.preconditions.conditions import Conditions, Sizes
from ort_core.ops.windows import SAME, node_windows


def convolution(c: Conditions) -> None:
    """X [N, C, ...], W [M, C/group, kernel...], B [M]."""
    _convolution(c, 0, 1, 2)


def integer_convolution(c: Conditions) -> None:
    """X, W, zero points of X (one) and of W (one, or one per output channel)."""
    _convolution(c, 0, 1, None)
    c.scalar(2, "x_zero_point")
    _per_channel(c, 3, "w_zero_point", c.shape(1))


def quantized_convolution(c: Conditions) -> None:
    """X, scale, zero point; W, scale, zero point; scale and zero point of Y; B."""
    _convolution(c, 0, 3, 8)
    for index, name in ((1, "x_scale"), (2, "x_zero_point"), (6, "y_scale"), (7, "y_zero_point")):
        c.scalar(index, name)
    _per_channel(c, 4, "w_scale", c.shape(3))
    _per_channel(c, 5, "w_zero_point", c.shape(3))


def convolution_channels_last(c: Conditions) -> None:
    """NhwcConv: X [N, ..., C], W [M, kernel..., C/group], B [M]."""
    _windowed(c, (0, 1, 2), last=True, filters_last=True)


def fused_convolution_channels_last(c: Conditions) -> None:
    """NhwcFusedConv: X [N, ..., C], W [M, C/group, kernel...], B [M]."""
    _windowed(c, (0, 1, 2), last=True, filters_last=False)


def _convolution(c: Conditions, data: int, filters: int, bias: int | None) -> None:
    last = c.node.int_attribute("channels_last", 0) == 1
    _windowed(c, (data, filters, bias), last=last, filters_last=last)


def _windowed(c: Conditions, places: tuple[int, int, int | None], *, last: bool, filters_last: bool) -> None:
    data, filters, bias = places
    x, w = c.at_least(data, "X", 3), c.at_least(filters, "W", 3)
    if x is None or w is None:
        return
    c.require(len(x) == len(w), f"X has {len(x)} dimensions and W {len(w)}: they must have as many")
    kernel = w[1:-1] if filters_last else w[2:]
    _kernel_shape(c, kernel)
    if bias is not None:
        _bias(c, bias, w[0])
    for size in kernel:
        c.positive(size, f"kernel size must be positive, got {list(map(str, w))}")
    _fit(c, x[1:-1] if last else x[2:], kernel, is_pooling=False)


def _bias(c: Conditions, index: int, channels: KnownDim) -> None:
    shape = c.shape(index)
    if shape is not None:
        text = f"bias must be a 1D tensor of size output_channels ({channels}), got {list(map(str, shape))}"
        c.require(len(shape) == 1, text)
        c.equal(shape[0], channels, text)


def _kernel_shape(c: Conditions, found: Sizes) -> None:
    stated = c.node.ints_attribute("kernel_shape")
    if not stated:
        return
    text = f"kernel_shape {list(stated)} is not compatible with W, whose windows are {list(map(str, found))}"
    c.require(len(stated) == len(found), text)
    for left, right in zip(stated, found, strict=True):
        c.equal(left, right, text)


def _fit(c: Conditions, sizes: Sizes, kernel: Sizes, *, is_pooling: bool) -> None:
    """Require windows to fit into their padded axes, where all of that is known.

    Pooling by windows that find no place gives an empty result, unless they are larger by two strides: onnxruntime
    refuses those alone, whose number its division makes negative.
    """
    try:
        axes = node_windows(c.node, sizes, kernel)
    except InvalidArgument as error:
        c.require(False, str(error))
        return
    for number, axis in enumerate(axes):
        size, reach, before, after = axis.size, axis.reach, axis.before, axis.after
        if c.node.string_attribute("auto_pad", "NOTSET") in SAME or size is None or not isinstance(reach, int):
            continue
        assert before is not None, "only automatic padding follows from sizes"
        assert after is not None, "as above"
        padded = size + before + after
        text = (
            f"a window of {reach} (kernel {axis.kernel}, dilation {axis.dilation}) does not fit into axis {number} of "
            f"padded size {padded}; check kernel_shape, pads, strides and dilations"
        )
        if isinstance(padded, int):
            c.require(padded - reach > -2 * axis.stride if is_pooling else padded >= reach, text)
        elif not is_pooling:
            c.positive(padded - (reach - 1), text)


def _per_channel(c: Conditions, index: int, name: str, filters: Sizes | None) -> None:
    shape = c.rank(index, name, 0, 1)
    if shape and filters is not None and shape[0] != 1:
        c.equal(shape[0], filters[0], f"input '{name}' must have one element, or one for each output channel")


def transposed_convolution(c: Conditions) -> None:
    """X [N, C, ...], W [C, M/group, kernel...], B [M]."""
    x, w = c.at_least(0, "X", 3), c.at_least(1, "W", 3)
    if x is None or w is None:
        return
    c.require(len(x) == len(w), f"X has {len(x)} dimensions and W {len(w)}: they must have as many")
    c.equal(
        x[1], w[0],
        f"filter number not equal to input channel number. filter_number: {w[0]} num_input_channels: {x[1]}",
    )  # fmt: skip
    _kernel_shape(c, w[2:])
    for size in w[2:]:
        c.positive(size, f"kernel size must be positive, got {list(map(str, w[2:]))}")
    _stated_pads(c, len(w) - 2)
    padding = c.node.ints_attribute("output_padding") or ()
    steps = [c.node.ints_attribute(name) or (1,) * len(padding) for name in ("strides", "dilations")]
    for axis, (extra, stride, dilation) in enumerate(zip(padding, *steps)):
        c.require(
            extra < max(stride, dilation),
            f"output_padding[{axis}] ({extra}) must be less than max(stride, dilation) ({max(stride, dilation)})",
        )


def _stated_pads(c: Conditions, axes: int) -> None:
    pads = c.node.ints_attribute("pads")  # stated beside an output_shape, they are not used
    c.require(
        pads is None or (len(pads) == 2 * axes and min(pads, default=0) >= 0),
        f"pads {list(pads or ())} must be {2 * axes} numbers of at least 0",
    )


def transposed_convolution_of_given_pads(c: Conditions) -> None:
    """ConvTransposeWithDynamicPads: as ConvTranspose, the paddings of both sides of each axis an input."""
    transposed_convolution(c)
    w = c.shape(1)
    if w is not None:
        c.sized(2, "Pads", 2 * (len(w) - 2))


def deformable_convolution(c: Conditions) -> None:
    """Beyond what a convolution requires: B [M] is a vector."""
    w = c.shape(1)
    if w:
        c.positive(w[0], "W must give at least one channel")
        _bias(c, 3, w[0])


def pooling(c: Conditions) -> None:
    """X [N, C, ...] of which only N may be 0, and windows that fit."""
    _pooling(c, 2)


def pooling_channels_last(c: Conditions) -> None:
    """X [N, ..., C] of which only N may be 0, and windows that fit."""
    _pooling(c, 1)


def quantized_pooling(c: Conditions) -> None:
    """X, scale and zero point of X and of Y: scalars."""
    _pooling(c, 1 if c.node.int_attribute("channels_last", 0) else 2)
    for index, name in ((1, "x_scale"), (2, "x_zero_point"), (3, "y_scale"), (4, "y_zero_point")):
        c.scalar(index, name)


def _pooling(c: Conditions, first: int) -> None:
    x = c.at_least(0, "X", 3)
    if x is None:
        return
    for size in x[1:]:
        c.positive(size, f"invalid input shape {list(map(str, x))}: only N can be zero")
    kernel = c.node.ints_attribute("kernel_shape") or ()
    spatial = x[first : first + len(x) - 2]
    c.require(
        not kernel or len(kernel) == len(spatial),
        f"kernel_shape {list(kernel)} does not fit the input spatial rank {len(spatial)}",
    )
    if kernel:
        _fit(c, spatial, kernel, is_pooling=True)


def columns_to_image(c: Conditions) -> None:
    """Columns [N, C * prod(block), L], image_shape [axes], block_shape [axes]."""
    c.rank(0, "input", 3)
    image, block = c.rank(1, "image_shape", 1), c.rank(2, "block_shape", 1)
    if image is not None and block is not None:
        c.equal(image[0], block[0], f"image_shape has {image[0]} elements and block_shape {block[0]}, not as many")


def masked_pooling(c: Conditions) -> None:
    """MaxpoolWithMask: a mask of at least one image."""
    pooling(c)
    for size in (c.shape(1) or ())[:2]:
        c.positive(size, "the mask must hold at least one image")
