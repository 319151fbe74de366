"""Resize by any factors, nearest, linear and cubic: one weighted sum of a few pixels along each axis.

Which inputs an output mixes, and with what weights, is written into tables: at load, or in each run where a size is
open (``computed_tables``). Lines, images and volumes lie channels-last; an axis is all that is before it, itself, and
all that is behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.cpu.codegen.images.resampling import MAX_TAPS, resampling_kernel
from ort_core.cpu.lowering.images.layout_steps import kernel_text
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.rules.images.resampling_tables import ResizeForm, computed_tables
from ort_core.cpu.lowering.steps import Argument, NotLowered, pointer
from ort_core.cpu.lowering.value_types import axis_place, tensor_type
from ort_core.cpu.lowering.views import View, channels_last, count_of, moved_nbytes
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, KnownDim, Node, minimum
from ort_core.plugin.ops import (
    ResizedAxis,
    ResizeFilter,
    goes_by_scale,
    nearest_inputs,
    scaled_size,
    source_coordinates,
)

F32 = DataType.FLOAT
CENTERS = ("asymmetric", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners")
_STEPS = 64  # between weights 0 and 1 of which sums over two axes of bytes are exact in 24 bits
FIRST_WITH_MODES = 11  # before, coordinates were always x / scale


@frozen
class Resampling:
    """How one axis is resized: its sizes, and outputs per input as the model says it, or none: then by the sizes."""

    size: KnownDim
    made: KnownDim
    scale: float | None

    @property
    def is_unchanged(self) -> bool:
        """Whether the axis stays as it is."""
        return self.scale in (1, None) and self.size == self.made

    def known(self) -> ResizedAxis | None:
        """Return the axis with sizes that are numbers."""
        if not isinstance(self.size, int) or not isinstance(self.made, int):
            return None
        return ResizedAxis(self.size, self.made, self.made / self.size if self.scale is None else self.scale)


def emit_resampled(lowering: Lowering, node: Node, x: View, axes: Sequence[Resampling]) -> View:
    """Write the steps that resize what lies channels-last, one for each axis of space: the last axis first.

    A result of the input's sizes is the input, whatever the scales were before they were cut, and with antialiasing so
    is each axis; but for regions that are cut out.
    """
    _form(lowering, node)  # some are not generated, whatever the sizes
    if all(axis.size == axis.made for axis in axes):
        return x
    for axis in range(len(axes) - 1, -1, -1):
        if not axes[axis].is_unchanged and not (_antialiases(node) and axes[axis].size == axes[axis].made):
            x = _emit_axis(lowering, node, x, axis + 2, axes[axis])
    return x


def mixes_bytes_exactly(lowering: Lowering, node: Node, axes: Sequence[Resampling]) -> bool:
    """Return whether no sum of bytes over all axes of space is rounded in float32, in whatever order it is made.

    Nearest mixes nothing. Weights are multiples of 1/64 for factors such as 2, 4 and 1/2: 8 bits and 6 of each axis.
    """
    form = _form(lowering, node)
    if form.mode == "nearest":
        return True
    known = [axis.known() for axis in axes if not axis.is_unchanged]
    tables = [None if axis is None else _tables(form, axis, antialias=False)[1] * _STEPS for axis in known]
    return len(tables) <= 2 and all(table is not None and bool((table == np.floor(table)).all()) for table in tables)


def planned_axes(
    lowering: Lowering, node: Node, x: View, scales: np.ndarray | None, sizes: Sequence[KnownDim] | None
) -> tuple[Resampling, ...]:
    """Return how the axes of space are resized.

    Raises:
        NotLowered: the sizes are data of a run, or other axes are resized.
    """
    if node.string_attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise NotLowered("Resize that keeps the aspect ratio is not generated")
    rank = len(x.shape)
    named = [axis_place(axis, rank) for axis in node.ints_attribute("axes") or range(rank)]
    found = {axis: Resampling(size, size, None) for axis, size in enumerate(x.shape)}
    if scales is not None and scales.size == len(named):
        made = tensor_type(node.output)[1]
        for axis, scale in zip(named, scales.reshape(-1).tolist(), strict=True):
            found[axis] = Resampling(x.shape[axis], _scaled(x.shape[axis], scale, made[axis]), scale)
    elif sizes is not None and len(sizes) == len(named):
        for axis, size in zip(named, sizes, strict=True):
            found[axis] = Resampling(x.shape[axis], size, None)
    else:
        raise NotLowered("the scales are not constant, nor do the sizes follow from sizes of inputs")
    for axis, each in found.items():
        if axis < 2 and each.scale not in (1, None):
            raise NotLowered("Resize of channels beside images is not generated")
        if axis < 2:
            lowering.require_equal(each.size, each.made)
        if each.scale is not None and not each.scale > 0:
            raise NotLowered("Resize by a scale that is not positive is not generated")
        for size in (each.size, each.made) if axis >= 2 else ():
            lowering.require_equal(minimum(size, 1), 1)
    return tuple(found[axis] for axis in range(2, rank))


def _scaled(size: KnownDim, scale: float, declared: KnownDim) -> KnownDim:
    return scaled_size(size, scale) if isinstance(size, int) else declared


def _tables_of(lowering: Lowering, node: Node, axis: Resampling) -> tuple[View, View]:
    """Return the inputs of each output and their weights, both of shape (outputs, taps)."""
    known = axis.known()
    if known is None:
        if _antialiases(node):
            raise NotLowered("Resize with antialias to sizes that only a run knows is not generated")
        return computed_tables(lowering, axis, _form(lowering, node), (node,))
    places, weights = _tables(_form(lowering, node), known, antialias=_antialiases(node))
    if places.shape[1] > MAX_TAPS:
        raise NotLowered(f"Resize that mixes {places.shape[1]} pixels of an axis is not generated")
    return (
        lowering.constant_view(np.ascontiguousarray(places), DataType.INT64),
        lowering.constant_view(np.ascontiguousarray(weights), F32),
    )


def _form(lowering: Lowering, node: Node) -> ResizeForm:
    """Return what the attributes of a Resize or Upsample say.

    Raises:
        NotLowered: that is not generated.
    """
    mode, opset = node.string_attribute("mode", "nearest"), lowering.opset_of(node)
    is_old = node.op_type == "Upsample" or opset < FIRST_WITH_MODES
    centers = "asymmetric" if is_old else node.string_attribute("coordinate_transformation_mode", "half_pixel")
    if centers not in CENTERS:
        raise NotLowered(f"Resize with {centers} coordinates is not generated")
    rounding = "simple" if is_old else node.string_attribute("nearest_mode", "round_prefer_floor")
    excludes = bool(node.int_attribute("exclude_outside", 0)) and mode != "nearest"
    mode = "linear" if mode == "bilinear" else mode
    if mode not in ("nearest", "linear", "cubic") or (excludes and mode == "linear"):
        raise NotLowered(f"Resize by {mode}{' that excludes what lies outside' * excludes} is not generated")
    a = node.float_attribute("cubic_coeff_a", -0.75)
    return ResizeForm(mode, centers, rounding, a, excludes, opset)


def _antialiases(node: Node) -> bool:
    return node.int_attribute("antialias", 0) != 0 and node.string_attribute("mode", "nearest") != "nearest"


def _tables(form: ResizeForm, axis: ResizedAxis, *, antialias: bool) -> tuple[np.ndarray, np.ndarray]:
    x = source_coordinates(axis, form.centers, by_scale=goes_by_scale(form.mode, axis.scale, form.opset))
    if form.mode == "nearest":
        places = nearest_inputs(x, axis, form.rounding)[:, None]
        return places, np.ones(places.shape, np.float32)
    mixing = ResizeFilter(form.mode == "cubic", form.cubic, antialias, form.excludes_outside)
    places, weights = mixing.mixed_inputs(x, axis)
    return places, weights.astype(np.float32)


def _emit_axis(lowering: Lowering, node: Node, x: View, place: int, axis: Resampling) -> View:
    """Write the step that resizes one axis of what lies channels-last; returns where its result lies."""
    places, weights = _tables_of(lowering, node, axis)
    taps = places.shape[1]
    assert isinstance(taps, int)
    assert taps <= MAX_TAPS
    shape = (*x.shape[:place], axis.made, *x.shape[place + 1 :])
    y = lowering.new_view(F32, shape, channels_last(len(shape)))
    kernel = kernel_text("resample", str(taps), lambda name: resampling_kernel(name, taps))
    outer, length = count_of([shape[0], *shape[2:place]]), count_of(shape[place + 1 :]) * shape[1]
    words: list[Argument] = [
        pointer(x), pointer(y), pointer(places), pointer(weights), outer, axis.size, axis.made, length,
    ]  # fmt: skip
    flops = count_of(y.shape) * (2 * taps)
    reads = [x.buffer, places.buffer, weights.buffer]
    lowering.emit(kernel, words, reads, [y.buffer], count_of(y.shape) * taps, (node,), flops, moved_nbytes([x, y]))
    return y
