"""Convolutions whose taps lie far apart, of images with a border: each tap a pointwise convolution of what it reads.

A tap twelve pixels from the next reads the border for a third of the rows and of the columns of a 33x33 image. Here it
is multiplied with the pixels that are in the image alone, and added to the sums of those results that read them. A tap
that reads the border only is left out, and no border is made. One tap reads a pixel for every result: half of its
channels come first and give all sums their first value, the other half last, with the epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ort_core.cpu.codegen.convolutions.convolution_plan import Convolution
from ort_core.cpu.codegen.images.channels_last import Epilogue, OperandKind
from ort_core.cpu.lowering.images.layout_steps import pixel_pitch
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.operand_kinds import epilogue_of
from ort_core.cpu.lowering.pending import PendingAnchor
from ort_core.cpu.lowering.rules.convolutions.convolution_steps import ConvolvedImages, emit_convolution
from ort_core.cpu.lowering.rules.convolutions.input_parts import LINE_CHANNELS, bare, sums_of, with_sums
from ort_core.cpu.lowering.rules.images.images import Pads, has_known_pads
from ort_core.cpu.lowering.views import View
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, KnownDim, maximum
from ort_core.plugin.loops import element

F32 = DataType.FLOAT
LEAST_CHANNELS = 32  # of the input: each tap reads and writes its sums once more
MOST_KEPT = 0.93  # of all products: else registers keep the sums, and take as long
MANY_CHANNELS = 512  # of open images: the weights of all taps are far for so many, those of a tap are near
LEAST_PRODUCTS = 1 << 23  # of an image: each tap then takes 10 us or more, and threads wait for each other behind it


@frozen
class Span:
    """Results along an axis for which a tap reads the image: ``count`` from ``first`` on, from pixel ``start`` on."""

    first: int
    count: KnownDim
    start: int


@frozen
class Tap:
    """A tap of the window, by its row and column, with the results for which it reads the image."""

    place: tuple[int, int]
    rows: Span
    columns: Span

    def has_whole_rows(self, images: ConvolvedImages) -> bool:
        """Return whether it reads rows as a whole for whole rows of results, so that all of them are one."""
        return self.columns.count == images.x.shape[3] == images.y.shape[3]


@frozen
class Taps:
    """What is multiplied: the tap that reads a pixel for every result, and the others that read any."""

    whole: Tap
    others: tuple[Tap, ...]


def window_taps(spec: Convolution, x: View, y: View, pads: Pads) -> Taps | None:
    """Return the taps that are multiplied one by one, ``None`` where the convolution is better done as a whole.

    Args:
        spec: the convolution as a whole.
        x: its images, of rank 4.
        y: its results, of rank 4.
        pads: the border, which is not in memory yet.
    """
    if type(spec) is not Convolution or spec.groups > 1 or spec.is_scaled or spec.kernel == (1, 1):
        return None
    if not has_known_pads(pads) or not any(pads):
        return None
    rows, columns = (
        _spans(spec.kernel[i], spec.dilations[i], spec.strides[i], pads[i], x.shape[2 + i], y.shape[2 + i])
        for i in range(2)
    )
    found = [Tap((i, j), down, across) for i, down in rows for j, across in columns]
    _, _, height, width = y.shape
    whole = next((tap for tap in found if (tap.rows.count, tap.columns.count) == (height, width)), None)
    if whole is None or not _pays(spec, found, height * width):
        return None
    return Taps(whole, tuple(tap for tap in found if tap is not whole))


def _spans(
    taps: int, dilation: int, stride: int, before: int, read: KnownDim, made: KnownDim
) -> list[tuple[int, Span]]:
    """Return the taps along an axis that read any of ``read`` pixels for the ``made`` results, by their numbers.

    Of an open size those are known of which as many results are made as there are pixels, one for each.
    """
    found = []
    for tap in range(taps):
        origin = tap * dilation - before
        first = max(0, -(origin // stride))
        if isinstance(read, int) and isinstance(made, int):
            count: KnownDim = max(0, min(made, (read - 1 - origin) // stride + 1) - first)
        elif read == made and stride == 1:
            count = maximum(read - abs(origin), 0)
        else:
            return []
        if count != 0:
            found.append((tap, Span(first, count, first * stride + origin)))
    return found


def _pays(spec: Convolution, found: Sequence[Tap], pixels: KnownDim) -> bool:
    """Return whether taps by themselves take less time; ``pixels`` are those of an image of results."""
    if len(found) == 1:
        return True
    if max(spec.dilations) == 1 or spec.in_channels < LEAST_CHANNELS:
        return False
    kept: KnownDim = 0
    for tap in found:
        kept = kept + tap.rows.count * tap.columns.count
    if not isinstance(kept, int) or not isinstance(pixels, int):
        return spec.in_channels >= MANY_CHANNELS
    taps = spec.kernel[0] * spec.kernel[1]
    is_long = pixels * taps * spec.in_channels * spec.out_channels >= LEAST_PRODUCTS
    return is_long and kept <= MOST_KEPT * pixels * taps


def emit_taps(
    lowering: Lowering, pending: PendingAnchor, spec: Convolution, weights: np.ndarray, images: ConvolvedImages,
    taps: Taps,
) -> None:  # fmt: skip
    """Write the steps of each tap; the arguments are those of ``emit_convolution``, for images without a border."""
    weights = weights.reshape(*weights.shape[:2], *spec.kernel)
    if not taps.others:
        _emit(lowering, pending, spec, weights, images, taps.whole, (0, spec.in_channels))
        return
    half = spec.in_channels // 2 // LINE_CHANNELS * LINE_CHANNELS
    sums = sums_of(pending.shape)
    where = replace(images, y=sums, y_row=sums.strides[2], y_image=sums.strides[0])
    _emit(lowering, bare(pending), spec, weights, where, taps.whole, (0, half))
    for tap in taps.others:
        _emit(lowering, pending, spec, weights, where, tap, (0, spec.in_channels), is_added=True)
    _emit(lowering, with_sums(pending, sums), spec, weights, images, taps.whole, (half, spec.in_channels))


def _emit(
    lowering: Lowering, pending: PendingAnchor, spec: Convolution, weights: np.ndarray, images: ConvolvedImages,
    tap: Tap, channels: tuple[int, int], *, is_added: bool = False,
) -> None:  # fmt: skip
    """Write the step of a tap and some channels of the input; what ``is_added`` changes the results where they lie."""
    first, end = channels
    x, y = _part(images.x, tap, spec.strides), _part(images.y, tap)
    x = View(x.buffer, (x.shape[0], end - first, *x.shape[2:]), x.strides, x.offset + first)
    if is_added:
        total = element(0, F32) + element(1, F32)
        pending = replace(pending, expression=total, inputs=(y,))
        epilogue: Epilogue | None = Epilogue(total, (OperandKind.TENSOR,))
    else:
        epilogue = epilogue_of(pending.expression, pending.inputs, pending.shape)
    rows, columns = tap.rows.count, tap.columns.count
    is_one_row = spec.strides == (1, 1) and tap.has_whole_rows(images)
    if is_one_row and _follow_each_other(images.x) and _follow_each_other(images.y):
        rows, columns = 1, rows * columns
    made = replace(
        spec, in_channels=end - first, kernel=(1, 1), dilations=(1, 1), epilogue=epilogue, x_pixel=pixel_pitch(x),
        y_pixel=pixel_pitch(y), expected_width=columns if isinstance(columns, int) else None,
    )  # fmt: skip
    i, j = tap.place
    emit_convolution(
        lowering, pending, made, weights[:, first:end, i : i + 1, j : j + 1],
        replace(images, x=x, y=y, sizes=(images.sizes[0], rows, columns)),
    )  # fmt: skip


def _follow_each_other(images: View) -> bool:
    """Return whether rows do, without gaps but those between pixels."""
    return images.strides[2] == images.strides[3] * images.shape[3]


def _part(view: View, tap: Tap, strides: tuple[int, int] | None = None) -> View:
    """Return the results that a tap is part of, or, with the strides of the window, the pixels that it reads."""
    rows, columns = tap.rows, tap.columns
    top, left = (rows.first, columns.first) if strides is None else (rows.start, columns.start)
    down, across = strides or (1, 1)
    shape = (*view.shape[:2], (rows.count - 1) * down + 1, (columns.count - 1) * across + 1)
    offset = view.offset + (view.strides[2] * top + view.strides[3] * left)
    return View(view.buffer, shape, view.strides, offset, view.order)
