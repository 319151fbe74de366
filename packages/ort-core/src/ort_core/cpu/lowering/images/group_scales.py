"""Normalization of groups of channels of channels-last images, which stay so: two small steps and an expression.

The first step reads the images once and leaves sums, the second makes a mean and a factor of each channel of each image
from them. What is left is elementwise and takes in what follows, such as SiLU.
"""

from __future__ import annotations

from ort_core.cpu.codegen.images.group_moments import moments_kernel, padded_channels, part_pixels, scales_kernel
from ort_core.cpu.lowering.images.layout_steps import is_channels_last, kernel_text, lies_among_channels, pixel_pitch
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingElementwise
from ort_core.cpu.lowering.steps import Argument, NotLowered, Operators, pointer
from ort_core.cpu.lowering.views import View, channels_last, count_of, moved_nbytes
from ort_core.plugin.ir import DataType, KnownDim, ceil_div
from ort_core.plugin.loops import element

F32, F64 = DataType.FLOAT, DataType.DOUBLE


def takes_groups(view: View) -> bool:
    """Return whether images lie so that their groups are normalized as they lie."""
    return view.dtype is F32 and (is_channels_last(view) or lies_among_channels(view))


def normalized_groups(
    lowering: Lowering,
    images: View,
    groups: int,
    scale: View | None,
    bias: View | None,
    epsilon: float,
    operators: Operators,
) -> PendingElementwise:
    """Return ``(x - mean) / sqrt(variance + epsilon) * scale + bias`` over groups of channels.

    Args:
        lowering: receives the steps.
        images: for which ``takes_groups`` holds.
        groups: how many the channels divide into.
        scale: one number a channel, or a group; contiguous.
        bias: likewise.
        epsilon: added to the variance.
        operators: what is computed, for reports.

    Raises:
        NotLowered: the channels do not divide into groups, or scale or bias have another size.
    """
    batch, channels = images.shape[:2]
    assert isinstance(channels, int)
    if groups < 1 or channels % groups or not channels:
        raise NotLowered(f"{channels} channels do not divide into {groups} groups")
    images = View(images.buffer, images.shape, images.strides, images.offset, channels_last(len(images.shape)))
    ones = tuple(1 for _ in images.shape[2:])
    if scale is not None:
        scale = _by_channel(lowering, scale, groups, channels)
    mean, factor = _scales(lowering, images, groups, scale, epsilon, operators)
    inputs = [images, mean.reshaped((batch, channels, *ones)), factor.reshaped((batch, channels, *ones))]
    y = (element(0, F32) - element(1, F32)) * element(2, F32)
    if bias is not None:
        inputs.append(_by_channel(lowering, bias, groups, channels).reshaped((channels, *ones)))
        y = y + element(3, F32)
    return PendingElementwise(y, tuple(inputs), images.shape, operators)


def _scales(
    lowering: Lowering, images: View, groups: int, scale: View | None, epsilon: float, operators: Operators
) -> tuple[View, View]:
    """Write the steps that make each channel's mean and factor, two views of ``(images, channels)``."""
    machine, (batch, channels) = lowering.target, images.shape[:2]
    assert isinstance(channels, int)
    pixels, elements = count_of(images.shape[2:]), count_of(images.shape)
    length = part_pixels(channels, pixels)
    parts: KnownDim = ceil_div(pixels, length)
    moments = lowering.new_view(F64, (batch, parts, 2, padded_channels(channels, machine)))
    mean, factor = (lowering.new_view(F32, (batch, channels)) for _ in range(2))
    pitch = pixel_pitch(images) if len(images.shape) == 4 else None
    kernel = kernel_text(
        "moments", f"{channels} {pitch}", lambda name: moments_kernel(name, channels, machine, pitch=pitch),
        is_vectorized=True,
    )  # fmt: skip
    arguments: list[Argument] = [pointer(images), pointer(moments), batch, pixels, length, parts, images.strides[0]]
    lowering.emit(
        kernel, arguments, [images.buffer], [moments.buffer], elements * 2, operators, elements * 3,
        moved_nbytes([images]),
    )  # fmt: skip
    kernel = kernel_text(
        "scales", f"{channels} {groups} {epsilon!r} {scale is not None}",
        lambda name: scales_kernel(name, channels, groups, epsilon, machine, is_scaled=scale is not None),
        is_vectorized=True,
    )  # fmt: skip
    given: Argument = 0 if scale is None else pointer(scale)
    reads = [moments.buffer, *([] if scale is None else [scale.buffer])]
    sums = count_of(moments.shape)
    lowering.emit(
        kernel, [pointer(moments), pointer(mean), pointer(factor), given, batch, pixels, parts], reads,
        [mean.buffer, factor.buffer], sums, operators, sums, moved_nbytes([moments, mean, factor]),
    )  # fmt: skip
    return mean, factor


def _by_channel(lowering: Lowering, view: View, groups: int, channels: int) -> View:
    """Return one number a channel, contiguous, of numbers of channels or of groups."""
    size = count_of(view.shape)
    if view.dtype is not F32 or size not in (channels, groups):
        raise NotLowered(f"it has {size} numbers for {channels} channels in {groups} groups")
    if size == channels:
        return view.reshaped((channels,))
    repeated = View(view.buffer, (groups, channels // groups), (1, 0), view.offset)
    return lowering.copied(repeated).reshaped((channels,))
