"""Resize by any factors, nearest, linear and cubic: one weighted sum of a few pixels along each axis.

Which inputs an output mixes, and with what weights, is written into tables at load: the sizes must be known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ort_core.cpu.codegen.images.resampling import MAX_TAPS, resampling_kernel
from ort_core.cpu.lowering.images.layout_steps import kernel_text
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.steps import Argument, NotLowered, pointer
from ort_core.cpu.lowering.views import View, channels_last, count_of, moved_nbytes
from ort_core.plugin.ir import DataType, KnownDim, Node

F32 = DataType.FLOAT
FIRST_WITH_MODES = 11  # before, coordinates were always x / scale
FRACTIONAL_CORNERS = 19  # since then align_corners goes by the size that the scale asks for, before it is cut


@dataclass(frozen=True, slots=True)
class Resampling:
    """How one axis is resized: its sizes, and outputs per input as the model says it."""

    size: int
    made: int
    scale: float

    @property
    def is_nothing(self) -> bool:
        """Whether the axis stays as it is."""
        return self.scale == 1 and self.size == self.made


def coordinates(axis: Resampling, mode: str, *, fractional: bool) -> np.ndarray:
    """Return where in the input each output stands, in float64.

    Raises:
        NotLowered: the mode is not generated.
    """
    x, scale = np.arange(axis.made, dtype=np.float64), axis.scale
    if mode == "pytorch_half_pixel":
        mode = "half_pixel" if axis.made > 1 else "first"
    if mode == "first":
        return np.zeros_like(x)
    if mode == "asymmetric":
        return x / scale
    if mode == "half_pixel":
        return (x + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return axis.size / 2 * (1 - axis.made / (scale * axis.size)) + (x + 0.5) / scale - 0.5
    if mode == "align_corners":
        length = scale * axis.size if fractional else axis.made
        return x * (axis.size - 1) / (length - 1) if length != 1 else np.zeros_like(x)
    raise NotLowered(f"Resize with {mode} coordinates is not generated")


def nearest_places(x: np.ndarray, axis: Resampling, rounding: str) -> np.ndarray:
    """Return the input that each output copies."""
    if rounding == "simple":
        rounding = "ceil" if axis.scale < 1 else "floor"
    shift = {"round_prefer_floor": -0.5, "round_prefer_ceil": 0.5}.get(rounding, 0.0)
    rounded = np.floor(x + shift) if rounding in ("floor", "round_prefer_ceil") else np.ceil(x + shift)
    return np.clip(rounded, 0, axis.size - 1).astype(np.int64)[:, None]


def linear_taps(x: np.ndarray, axis: Resampling) -> tuple[np.ndarray, np.ndarray]:
    """Return the two inputs around each output, and their weights."""
    x = np.clip(x, 0, axis.size - 1)
    first = np.floor(x)
    share = (x - first)[:, None]
    places = first.astype(np.int64)[:, None] + np.arange(2)
    return np.minimum(places, axis.size - 1), np.concatenate([1 - share, share], axis=1)


def cubic_taps(x: np.ndarray, axis: Resampling, a: float, *, exclude_outside: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the four inputs around each output, and their weights by Keys' cubic with coefficient ``a``."""
    first = np.floor(x)
    places = first.astype(np.int64)[:, None] + np.arange(-1, 3)
    d = np.abs(places - x[:, None])
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    weights = np.where(d <= 1, near, np.where(d < 2, far, 0.0))
    if exclude_outside:
        weights = np.where((places < 0) | (places >= axis.size), 0.0, weights)
        weights /= weights.sum(axis=1, keepdims=True)
    return np.clip(places, 0, axis.size - 1), weights


def emit_resampled(lowering: Lowering, node: Node, x: View, axes: tuple[Resampling, Resampling]) -> View:
    """Write the steps that resize channels-last images: columns first, then rows."""
    tables = [None if axis.is_nothing else _tables(lowering, node, axis) for axis in axes]
    if tables[1] is not None:
        target = _new_images(lowering, x, x.shape[2], axes[1].made)
        _emit_axis(lowering, node, (x, target), axes[1], tables[1], (x.shape[0] * x.shape[2], x.shape[1]))
        x = target
    if tables[0] is not None:
        target = _new_images(lowering, x, axes[0].made, x.shape[3])
        _emit_axis(lowering, node, (x, target), axes[0], tables[0], (x.shape[0], x.shape[3] * x.shape[1]))
        x = target
    return x


def planned_axes(
    lowering: Lowering, node: Node, x: View, scales: np.ndarray | None, sizes: np.ndarray | None
) -> tuple[Resampling, Resampling]:
    """Return how height and width are resized.

    Raises:
        NotLowered: a size is not known, or other axes are resized.
    """
    if node.string_attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise NotLowered("Resize that keeps the aspect ratio is not generated")
    given = scales if scales is not None and scales.size else sizes
    named = [axis % 4 for axis in node.ints_attribute("axes") or range(4)]
    if given is None or given.size != len(named):
        raise NotLowered("the scales are not constant")
    found = {2: 1.0, 3: 1.0}
    made: dict[int, int] = {}
    for axis, number in zip(named, given.reshape(-1).tolist(), strict=True):
        size = x.shape[axis]
        if given is scales:
            found[axis] = number
            made[axis] = math.floor(np.float32(number) * np.float32(size)) if isinstance(size, int) else -1
        elif isinstance(size, int) and size > 0:
            found[axis], made[axis] = number / size, int(number)
        else:
            lowering.require_equal(size, int(number))
    if any(found.get(axis, 1.0) != 1 for axis in (0, 1)):
        raise NotLowered("Resize of channels beside images is not generated")
    return (_axis(x.shape[2], made.get(2), found[2]), _axis(x.shape[3], made.get(3), found[3]))


def _axis(size: KnownDim, made: int | None, scale: float) -> Resampling:
    made = made if made is not None else size if isinstance(size, int) else -1
    if not isinstance(size, int) or size <= 0 or made <= 0 or not scale > 0:
        raise NotLowered("Resize of images of unknown size, or of none, is not generated")
    return Resampling(size, made, scale)


def _tables(lowering: Lowering, node: Node, axis: Resampling) -> tuple[np.ndarray, np.ndarray]:
    mode, opset = node.string_attribute("mode", "nearest"), lowering.opset_of(node)
    is_old = node.op_type == "Upsample" or opset < FIRST_WITH_MODES
    transformation = "asymmetric" if is_old else node.string_attribute("coordinate_transformation_mode", "half_pixel")
    x = coordinates(axis, transformation, fractional=opset >= FRACTIONAL_CORNERS)
    if mode == "nearest":
        rounding = "simple" if is_old else node.string_attribute("nearest_mode", "round_prefer_floor")
        places = nearest_places(x, axis, rounding)
        return places, np.ones(places.shape, np.float32)
    if node.int_attribute("antialias", 0):
        raise NotLowered("Resize with antialias is not generated")
    excludes = bool(node.int_attribute("exclude_outside", 0))
    if mode == "cubic":
        a = node.float_attribute("cubic_coeff_a", -0.75)
        places, weights = cubic_taps(x, axis, a, exclude_outside=excludes)
    elif mode in ("linear", "bilinear") and not excludes:
        places, weights = linear_taps(x, axis)
    else:
        raise NotLowered(f"Resize by {mode}{' that excludes what lies outside' * excludes} is not generated")
    return places, weights.astype(np.float32)


def _new_images(lowering: Lowering, x: View, height: KnownDim, width: KnownDim) -> View:
    return lowering.new_view(F32, (x.shape[0], x.shape[1], height, width), channels_last(4))


def _emit_axis(
    lowering: Lowering, node: Node, views: tuple[View, View], axis: Resampling, tables: tuple[np.ndarray, np.ndarray],
    around: tuple[KnownDim, KnownDim],
) -> None:  # fmt: skip
    (x, y), (outer, length), taps = views, around, tables[0].shape[1]
    assert taps <= MAX_TAPS
    kernel = kernel_text("resample", str(taps), lambda name: resampling_kernel(name, taps))
    places = lowering.constant_view(np.ascontiguousarray(tables[0]), DataType.INT64)
    weights = lowering.constant_view(np.ascontiguousarray(tables[1]), F32)
    words: list[Argument] = [
        pointer(x), pointer(y), pointer(places), pointer(weights), outer, axis.size, axis.made, length,
    ]  # fmt: skip
    flops = count_of(y.shape) * (2 * taps)
    reads = [x.buffer, places.buffer, weights.buffer]
    lowering.emit(kernel, words, reads, [y.buffer], count_of(y.shape) * taps, (node,), flops, moved_nbytes([x, y]))
