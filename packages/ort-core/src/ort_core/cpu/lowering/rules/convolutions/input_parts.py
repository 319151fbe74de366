"""Convolutions over so many channels that a panel of their weights leaves the second-level cache.

Every tile of pixels reads a whole panel. One of 2048 channels and a window of 3x3 takes 4.7 MB: from beyond the second
level that took three times as long as the sums of all parts do. So the channels of the input are cut into parts, a
convolution each, which adds its sums to those of the parts before it; the last one has the epilogue.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ort_core.cpu.codegen.convolutions.convolution_plan import Convolution, PairConvolution, panels, register_tile
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.operand_kinds import epilogue_of
from ort_core.cpu.lowering.pending import PendingAnchor
from ort_core.cpu.lowering.rules.convolutions.convolution_steps import (
    MAX_OPERANDS,
    ConvolvedImages,
    bordered,
    emit_convolution,
)
from ort_core.cpu.lowering.rules.images.images import Pads
from ort_core.cpu.lowering.views import Buffer, Place, View, channels_last, count_of, ordered_strides
from ort_core.plugin.ir import DataType, KnownDim
from ort_core.plugin.loops import element, substitute

F32 = DataType.FLOAT
FAR_NBYTES = 1 << 20  # larger panels are cut: half a second-level cache of 2 MB, which the images share
NEAR_NBYTES = 1 << 19  # into such of at most this: the next panel is fetched meanwhile
LINE_CHANNELS = 16  # a part begins at a line of the cache


def input_parts(spec: Convolution, sizes: tuple[KnownDim, KnownDim, KnownDim], pads: Pads, target: Target) -> int:
    """Return into how many parts the input's channels are cut; 1 where panels fit or are read once.

    Args:
        spec: the convolution as a whole.
        sizes: images, rows and pixels of a row that are computed.
        pads: the border, which is not in memory yet.
        target: what it runs on.
    """
    if isinstance(spec, PairConvolution) or spec.groups > 1 or spec.planes or spec.is_scaled:
        return 1
    count = count_of(sizes)
    if isinstance(count, int) and count <= register_tile(target, spec)[1]:
        return 1
    lines, rest = divmod(spec.in_channels, LINE_CHANNELS)
    if rest or _panel_nbytes(spec, 1, pads, target) <= FAR_NBYTES:
        return 1
    fitting = (n for n in range(2, lines + 1) if lines % n == 0 and _panel_nbytes(spec, n, pads, target) <= NEAR_NBYTES)
    return next(fitting, 1)


def _part(spec: Convolution, parts: int, pads: Pads) -> Convolution:
    """Return the convolution of a part: a border's copy lies without gaps, else pixels are as far apart as before."""
    return replace(spec, in_channels=spec.in_channels // parts, x_pixel=None if any(pads) else spec.input_pitch)


def _panel_nbytes(spec: Convolution, parts: int, pads: Pads, target: Target) -> int:
    part = _part(spec, parts, pads)
    return 4 * part.depth * panels(part, target).channels


def can_add_parts(pending: PendingAnchor) -> bool:
    """Return whether an epilogue has room for the sums of other parts."""
    return len(pending.shape) == 4 and len(pending.inputs) < MAX_OPERANDS


def emit_in_parts(
    lowering: Lowering, pending: PendingAnchor, spec: Convolution, weights: np.ndarray, images: ConvolvedImages,
    pads: Pads, parts: int,
) -> None:  # fmt: skip
    """Write the steps of each part of the input's channels.

    The arguments are those of ``emit_convolution``, for images that have no border yet, and the border.
    """
    part = _part(spec, parts, pads)
    channels = part.in_channels
    sums: View | None = None
    for number in range(parts):
        is_last = number == parts - 1
        x, first = images.x, number * channels
        seen = View(x.buffer, (x.shape[0], channels, *x.shape[2:]), x.strides, x.offset + first)
        added = with_sums(pending if is_last else bare(pending), sums)
        y = images.y if is_last else sums_of(pending.shape)
        epilogue = epilogue_of(added.expression, added.inputs, added.shape)
        made = replace(part, epilogue=epilogue, y_pixel=spec.y_pixel if is_last else None)
        seen, made = bordered(lowering, seen, made, pads)
        where = images if is_last else replace(images, y_row=y.strides[2], y_image=y.strides[0])
        taken = weights[:, first : first + channels]
        emit_convolution(lowering, added, made, taken, replace(where, x=seen, x_image=seen.strides[0], y=y))
        sums = y


def bare(pending: PendingAnchor) -> PendingAnchor:
    """Return the sums alone."""
    return replace(pending, expression=element(0, F32), inputs=())


def with_sums(pending: PendingAnchor, sums: View | None) -> PendingAnchor:
    """Return an epilogue to which the result is added to sums, read as one more input."""
    if sums is None:
        return pending
    total = element(0, F32) + element(len(pending.inputs) + 1, F32)
    return replace(pending, expression=substitute(pending.expression, {0: total}), inputs=(*pending.inputs, sums))


def sums_of(shape: tuple[KnownDim, ...]) -> View:
    """Return memory for the sums of some parts."""
    order = channels_last(len(shape))
    return View(Buffer(F32, count_of(shape), Place.ARENA), shape, ordered_strides(shape, order), order=order)
