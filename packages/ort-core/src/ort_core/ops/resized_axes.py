"""Resize along each axis: how many outputs there are, where each stands in the input, and which input is nearest to it.

Coordinates of all but float64 data are computed in float32, in the order in which ONNX writes its formulas: an output
that stands exactly between two inputs, as 4.5 / 0.3 - 0.5, falls to one side by a rounding error, and onnxruntime and
PyTorch make that same error. Kernels, compiled code and providers all ask here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.frozen import frozen

TIE = 1e-6
"""How far from the middle of two inputs an output may stand and yet be taken to stand there, as in onnxruntime."""

SHRINKS_BY_SCALE = 19  # the opset of the cases that shrink with aligned corners


@frozen
class ResizedAxis:
    """The sizes that one axis is resized between.

    Attributes:
        size: of the input.
        made: of the output.
        scale: outputs per input, as the node gives it or as the sizes tell.
        start: where the region of interest begins, in [0, 1] inside the input.
        end: where it ends.
    """

    size: int
    made: int
    scale: float
    start: float = 0.0
    end: float = 1.0


def scaled_size(size: int, scale: float) -> int:
    """Return how many outputs a scale makes of an axis: the product in float32, cut to an integer, as in onnxruntime.

    Raises:
        InvalidArgument: the product is not a number.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        product = float(np.float32(scale) * np.float32(size))
    if not math.isfinite(product):
        raise InvalidArgument(f"Resize cannot make {size} times {scale} outputs")
    return math.floor(product)


def aspect_factor(policy: str, factors: Sequence[float]) -> float | None:
    """Return the factor that all axes with given sizes share, ``None`` where each has its own.

    Args:
        policy: ``keep_aspect_ratio_policy``.
        factors: outputs per input that the given sizes ask for.

    Raises:
        InvalidArgument: the policy is not known.
    """
    if policy not in ("stretch", "not_larger", "not_smaller"):
        raise InvalidArgument(f"keep_aspect_ratio_policy {policy!r} is not known to Resize")
    return None if policy == "stretch" else (min if policy == "not_larger" else max)(factors)


def aspect_size(size: int, factor: float) -> int:
    """Return how many outputs the shared factor makes of an axis: the nearest integer."""
    return math.floor(factor * size + 0.5)


def plan_resized_axes(
    shape: Sequence[int],
    named: Sequence[int],
    scales: Sequence[float] | None,
    sizes: Sequence[float] | None,
    policy: str = "stretch",
) -> list[ResizedAxis]:
    """Return every axis of the input with its output size and scale.

    Args:
        shape: of the input.
        named: the axes that ``scales`` or ``sizes`` speak of, from the front.
        scales: one for each of them; ``None`` where sizes are given.
        sizes: one for each of them; ``None`` where scales are given.
        policy: ``keep_aspect_ratio_policy``, which counts for sizes alone.

    Raises:
        InvalidArgument: there are not as many as axes, they are out of range, or the policy is not known.
    """
    plan = [ResizedAxis(size, size, 1.0) for size in shape]
    if (scales is None) == (sizes is None):
        raise InvalidArgument("Resize needs either scales or sizes, and not both")
    if scales is not None:
        _check_scales(scales, len(named))
        for axis, scale in zip(named, scales, strict=True):
            plan[axis] = ResizedAxis(shape[axis], scaled_size(shape[axis], scale), scale)
        return plan
    assert sizes is not None
    if len(sizes) != len(named):
        raise InvalidArgument(
            f"Number of elements in sizes should be equal to number of axes. Found {len(sizes)} for {len(named)} axes"
        )
    if min(sizes) < 0:
        raise InvalidArgument(f"sizes {tuple(sizes)} must not be negative")
    factors = [size / max(shape[axis], 1) for axis, size in zip(named, sizes, strict=True)]
    common = aspect_factor(policy, factors)
    for axis, size, factor in zip(named, sizes, factors, strict=True):
        made = int(size) if common is None else aspect_size(shape[axis], common)
        plan[axis] = ResizedAxis(shape[axis], made, factor if common is None else common)
    return plan


def changed_axes(plan: Sequence[ResizedAxis], *, antialias: bool = False) -> list[int]:
    """Return the axes that a resizing without a region of interest computes, from the front.

    A result of the input's sizes is the input, whatever the scales were before they were cut. Beside an axis that
    changes, one of the same size and another scale is computed as well, but not where shrinking is smoothed.
    """
    if all(axis.made == axis.size for axis in plan):
        return []
    return [n for n, axis in enumerate(plan) if axis.made != axis.size or (axis.scale != 1 and not antialias)]


def _check_scales(scales: Sequence[float], count: int) -> None:
    if len(scales) != count:
        raise InvalidArgument(
            f"Number of elements in scales should be equal to number of axes. Found {len(scales)} for {count} axes"
        )
    if not all(math.isfinite(scale) for scale in scales):
        raise InvalidArgument(f"Scale value must be finite. Found {tuple(scales)}")
    if min(scales, default=1) <= 0:
        raise InvalidArgument(f"Scale value should be greater than 0. Found {tuple(scales)}")


def goes_by_scale(mode: str, scale: float, opset: int) -> bool:
    """Return whether aligned corners are those of the size that a scale asks for, before it is cut to an integer.

    ONNX's text, onnxruntime and PyTorch know only the size that the result has. ONNX's cases of linear and cubic
    filters that shrink, from opset 19 on, expect the uncut one; there, and only there, it is taken.
    """
    return opset >= SHRINKS_BY_SCALE and mode != "nearest" and scale < 1


def source_coordinates(
    axis: ResizedAxis, transformation: str, *, by_scale: bool = False, dtype: type[np.floating] = np.float32
) -> np.ndarray:
    """Return the position in the input that each output stands for, ``[made]`` of ``dtype``.

    Raises:
        InvalidArgument: the coordinate transformation mode is not known.
    """
    f = dtype
    x, scale, half = np.arange(axis.made, dtype=f), f(axis.scale), f(0.5)
    if transformation == "asymmetric":
        return np.asarray(x / scale)
    if transformation == "half_pixel" or (transformation == "pytorch_half_pixel" and axis.made > 1):
        return np.asarray((x + half) / scale - half)
    if transformation == "pytorch_half_pixel":
        return np.zeros_like(x)
    if transformation == "tf_half_pixel_for_nn":
        return np.asarray((x + half) / scale)
    if transformation == "align_corners":
        length = scale * f(axis.size) if by_scale else f(axis.made)
        return np.asarray(x * f(axis.size - 1) / (length - f(1))) if length != 1 else np.zeros_like(x)
    if transformation == "half_pixel_symmetric":
        offset = f(axis.size) / f(2) * (f(1) - f(axis.made) / (scale * f(axis.size)))
        return np.asarray((np.float64(offset) + (x.astype(np.float64) + 0.5) / np.float64(scale) - 0.5).astype(f))
    if transformation == "tf_crop_and_resize":
        return _crop(axis, x)
    raise InvalidArgument(f"coordinate_transformation_mode {transformation!r} is not known to Resize")


def _crop(axis: ResizedAxis, x: np.ndarray) -> np.ndarray:
    f = x.dtype.type
    last, start, end = f(axis.size - 1), f(axis.start), f(axis.end)
    if axis.made == 1:
        return np.full_like(x, 0.5 * float(start + end) * float(last))
    return np.asarray(start * last + x * (end - start) * last / f(axis.made - 1))


def nearest_inputs(x: np.ndarray, axis: ResizedAxis, rounding: str) -> np.ndarray:
    """Return the index of the one input that each output at coordinates ``x`` copies, int64.

    ``simple`` is what the operators did before they had the attribute ``nearest_mode``.

    Raises:
        InvalidArgument: the rounding is not known.
    """
    x = x.astype(np.float64)  # so that adding a half does not round
    if rounding == "simple":
        rounded = np.ceil(x) if axis.scale < 1 else np.trunc(x)
    elif rounding == "round_prefer_floor":
        rounded = np.ceil(x - (0.5 + TIE))
    elif rounding == "round_prefer_ceil":
        rounded = np.floor(x + (0.5 + TIE))
    elif rounding in ("floor", "ceil"):
        rounded = np.floor(x) if rounding == "floor" else np.ceil(x)
    else:
        raise InvalidArgument(f"nearest_mode {rounding!r} is not known to Resize")
    return np.asarray(np.clip(rounded, 0, axis.size - 1).astype(np.int64))
