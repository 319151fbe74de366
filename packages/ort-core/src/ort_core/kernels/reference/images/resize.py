"""Resize and Upsample: every axis by itself, because both nearest picks and filters are separable.

The first versions are the last one with fixed attributes: asymmetric coordinates, and a nearest that truncates where it
grows and rounds up where it shrinks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.frozen import frozen
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.axes import check_size
from ort_core.kernels.reference.arrays.interpolation import mix, mix_integers
from ort_core.kernels.reference.arrays.widening import narrow, to_real
from ort_core.ops.resize_filters import ResizeFilter
from ort_core.ops.resized_axes import (
    SHRINKS_BY_SCALE,
    ResizedAxis,
    changed_axes,
    goes_by_scale,
    nearest_inputs,
    plan_resized_axes,
    source_coordinates,
)


@frozen
class _Method:
    """How to resize: the attributes that do not depend on sizes."""

    mode: str = "nearest"
    transformation: str = "half_pixel"
    nearest_mode: str = "round_prefer_floor"
    cubic_coefficient: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False
    extrapolation_value: float = 0.0
    opset: int = SHRINKS_BY_SCALE


@kernel("Resize", since=11)
def resize(
    x: np.ndarray,
    roi: np.ndarray | None = None,
    scales: np.ndarray | None = None,
    sizes: np.ndarray | None = None,
    *,
    antialias: int = 0,
    axes: tuple[int, ...] = (),
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Resize to ``scales`` times the input, or to ``sizes``; ``axes`` names what those and ``roi`` speak of.

    A result of the input's sizes is the input, whatever the scales were before they were cut.
    """
    named = _named_axes(axes, x.ndim)
    resized = plan_resized_axes(x.shape, named, _given(scales), _given(sizes), keep_aspect_ratio_policy)
    if coordinate_transformation_mode == "tf_crop_and_resize":
        resized = _with_regions(resized, named, roi)
    method = _Method(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        bool(antialias),
        bool(exclude_outside),
        extrapolation_value,
        SHRINKS_BY_SCALE if ctx is None else ctx.opset,
    )
    return _resize(x, resized, method, ctx)


@kernel("Resize", since=10, until=10)
@kernel("Upsample", since=9)
def resize_10(
    x: np.ndarray,
    scales: np.ndarray,
    *,
    mode: str = "nearest",
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Resize to ``scales`` times the input, by asymmetric coordinates."""
    return _simple(x, scales.tolist(), mode, ctx)


@kernel("Upsample", since=7, until=8)
def upsample_7(
    x: np.ndarray,
    *,
    mode: str = "nearest",
    scales: tuple[float, ...],
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Resize to ``scales`` times the input, by asymmetric coordinates."""
    return _simple(x, scales, mode, ctx)


@kernel("Upsample", since=1, until=6)
def upsample_1(
    x: np.ndarray,
    *,
    height_scale: float,
    mode: str = "nearest",
    width_scale: float,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Resize the last two of four axes."""
    if x.ndim != 4:
        raise InvalidArgument(f"Upsample before version 7 takes [N, C, H, W], found shape {x.shape}")
    return _simple(x, (1.0, 1.0, height_scale, width_scale), mode, ctx)


def _simple(x: np.ndarray, scales: Sequence[float], mode: str, ctx: KernelContext | None) -> np.ndarray:
    if mode not in ("nearest", "linear", "bilinear"):
        raise InvalidArgument(f"mode {mode!r} is not known to this version, expected nearest or linear")
    resized = plan_resized_axes(x.shape, tuple(range(x.ndim)), list(scales), None, "stretch")
    method = _Method("nearest" if mode == "nearest" else "linear", "asymmetric", "simple")
    return _resize(x, resized, method, ctx)


def _given(values: np.ndarray | None) -> list[float] | None:
    """Return an input's values; an empty tensor stands for an absent input."""
    if values is not None and values.ndim != 1:
        raise InvalidArgument(f"Resize: scales and sizes must have one dimension, found shape {list(values.shape)}")
    return None if values is None or values.size == 0 else values.tolist()


def _named_axes(axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    if not axes:
        return tuple(range(rank))
    named: list[int] = []
    for axis in axes:
        if not -rank <= axis < rank:
            raise InvalidArgument(f"axes attribute has {axis}, which is outside of the input's rank {rank}")
        if axis % rank in named:
            raise InvalidArgument(f"axes attribute contains duplicate axis {axis % rank}")
        named.append(axis % rank)
    return tuple(named)


def _with_regions(plan: list[ResizedAxis], named: tuple[int, ...], roi: np.ndarray | None) -> list[ResizedAxis]:
    """Add the region of interest: all starts, then all ends, of the named axes; without one it is everything."""
    if roi is None or roi.size == 0:
        return plan
    region = to_real(roi).tolist()
    if len(region) != 2 * len(named):
        raise InvalidArgument(
            f"roi input length is {len(region)}, expected {2 * len(named)}: a start and an end for each resized axis"
        )
    for index, axis in enumerate(named):
        old = plan[axis]
        plan[axis] = ResizedAxis(old.size, old.made, old.scale, region[index], region[len(named) + index])
    return plan


def _resize(x: np.ndarray, plan: list[ResizedAxis], method: _Method, ctx: KernelContext | None) -> np.ndarray:
    """Resize axis by axis; outputs whose coordinates leave the input take the extrapolation value where one counts."""
    check_size([axis.made for axis in plan], x.dtype, "Resize", ctx)
    if 0 in x.shape or any(axis.made == 0 for axis in plan):
        if any(axis.size == 0 and axis.made for axis in plan):
            raise InvalidArgument(f"Resize cannot make {tuple(a.made for a in plan)} out of the empty shape {x.shape}")
        return np.zeros([axis.made for axis in plan], x.dtype)
    if method.mode not in ("nearest", "linear", "cubic"):
        raise InvalidArgument(f"mode {method.mode!r} is not known to Resize, expected nearest, linear or cubic")
    crops = method.transformation == "tf_crop_and_resize"
    if not crops and all(axis.made == axis.size for axis in plan):
        return x
    places = [_places(axis, method, x.dtype) for axis in plan]
    if method.mode == "linear" and not method.antialias and _mixes_at_once(x, plan):
        out = _mixed_at_once(x, plan, places)
    else:
        out = _mixed_by_axes(x, plan, places, method, crops=crops)
    if crops:
        out = _extrapolate(out, plan, places, method.extrapolation_value)
    return narrow(_cut(out, x.dtype), x.dtype) if out.dtype != x.dtype else out


def _places(axis: ResizedAxis, method: _Method, dtype: np.dtype) -> np.ndarray:
    by_scale = goes_by_scale(method.mode, axis.scale, method.opset)
    real = np.float64 if dtype == np.float64 else np.float32
    return source_coordinates(axis, method.transformation, by_scale=by_scale, dtype=real)


def _mixes_at_once(x: np.ndarray, plan: list[ResizedAxis]) -> bool:
    """Return whether integers are resized over nothing but the two or three axes behind batch and channels."""
    spatial = _spatial(x.ndim)
    is_kept = all(axis.made == axis.size and axis.scale == 1 for axis in plan[: x.ndim - spatial])
    return x.dtype.kind in "iu" and x.dtype.itemsize <= 4 and spatial > 0 and is_kept


def _spatial(rank: int) -> int:
    return {2: 2, 3: 3, 4: 2, 5: 3}.get(rank, 0)


def _mixed_at_once(x: np.ndarray, plan: list[ResizedAxis], places: list[np.ndarray]) -> np.ndarray:
    spatial = plan[-_spatial(x.ndim) :]
    at = [
        np.arange(axis.made, dtype=np.float32) if axis.scale == 1 else place
        for axis, place in zip(spatial, places[-len(spatial) :], strict=True)
    ]
    return mix_integers(x, [axis.size for axis in spatial], at)


def _mixed_by_axes(
    x: np.ndarray, plan: list[ResizedAxis], places: list[np.ndarray], method: _Method, *, crops: bool
) -> np.ndarray:
    picked = ResizeFilter(method.mode == "cubic", method.cubic_coefficient, method.antialias, method.exclude_outside)
    out = x if method.mode == "nearest" else to_real(x)
    changed = {n for n, axis in enumerate(plan) if crops and (axis.start, axis.end) != (0, 1)}
    changed.update(changed_axes(plan, antialias=method.antialias))
    for index in sorted(changed, reverse=True):  # the last axis first: integers are rounded after each
        axis, at = plan[index], places[index]
        if method.mode == "nearest":
            out = out.take(nearest_inputs(at, axis, method.nearest_mode), axis=index)
        else:
            out = mix(out, index, *picked.mixed_inputs(at, axis))
            if method.antialias:
                out = _rounded(out, x.dtype)
    return out


def _extrapolate(out: np.ndarray, plan: list[ResizedAxis], places: list[np.ndarray], value: float) -> np.ndarray:
    outside = np.zeros(out.shape, bool)
    for index, (axis, at) in enumerate(zip(plan, places, strict=True)):
        shape = [1] * out.ndim
        shape[index] = axis.made
        outside |= ((at < 0) | (at > axis.size - 1)).reshape(shape)
    return np.where(outside, np.asarray(value).astype(out.dtype), out) if outside.any() else out


def _cut(out: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Cut off fractions where the result is an integer, within its range."""
    if dtype.kind not in "iu":
        return out
    return np.clip(np.trunc(out), np.iinfo(dtype).min, np.iinfo(dtype).max)


def _rounded(out: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Round where the result is an integer: antialiasing of images is defined in such passes.

    A half goes up in bytes, as Pillow has it, and away from zero in wider integers, as in onnxruntime.
    """
    if dtype.kind not in "iu":
        return out
    half = np.float32(0.5)
    return _cut(np.floor(out + half) if dtype.itemsize == 1 else out + np.copysign(half, out), dtype)
