"""Pooling of regions of interest: each region is cut into a fixed grid of bins, and each bin becomes one value."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.axes import check_size
from ort_core.kernels.reference.arrays.widening import narrow, widen


@kernel("MaxRoiPool")
def max_roi_pool(
    x: np.ndarray,
    rois: np.ndarray,
    *,
    pooled_shape: tuple[int, ...],
    spatial_scale: float = 1.0,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Return the maximum of each bin; a region is [batch index, x1, y1, x2, y2], rounded, both ends included."""
    if rois.ndim != 2 or rois.shape[1] != 5:
        raise InvalidArgument(f"MaxRoiPool: rois have shape {rois.shape}, expected [number, 5]")
    check_size((rois.shape[0], x.shape[1], *pooled_shape), x.dtype, "MaxRoiPool", ctx)
    out = np.zeros((rois.shape[0], x.shape[1], *pooled_shape), x.dtype)
    for number, roi in enumerate(widen(rois)):
        batch = int(roi[0])
        if not 0 <= batch < x.shape[0]:
            raise InvalidArgument(f"MaxRoiPool: roi {number} is of image {batch}, but there are {x.shape[0]} images")
        left, top, right, bottom = (math.floor(float(v * np.float32(spatial_scale)) + 0.5) for v in roi[1:])
        rows = _bins(top, bottom, pooled_shape[0], x.shape[2])
        columns = _bins(left, right, pooled_shape[1], x.shape[3])
        for row, (row_start, row_end) in enumerate(rows):
            if row_start >= row_end:
                continue
            strip = x[batch, :, row_start:row_end].max(axis=1)
            for column, (start, end) in enumerate(columns):
                if start < end:
                    out[number, :, row, column] = strip[:, start:end].max(axis=1)
    return out


def _bins(start: int, end: int, count: int, size: int) -> list[tuple[int, int]]:
    """Cut ``start..end`` (both included) into overlapping whole-element bins, clipped to the image."""
    width = max(end - start + 1, 1) / count
    edges = [(start + math.floor(i * width), start + math.ceil((i + 1) * width)) for i in range(count)]
    return [(min(max(low, 0), size), min(max(high, 0), size)) for low, high in edges]


@kernel("RoiAlign", since=16)
def roi_align(
    x: np.ndarray,
    rois: np.ndarray,
    batch_indices: np.ndarray,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Sample each bin at a grid of interpolated points and average them (or take the largest weighted corner)."""
    _check_align(x, rois, batch_indices, mode, coordinate_transformation_mode)
    check_size((rois.shape[0], x.shape[1], output_height, output_width), x.dtype, "RoiAlign", ctx)
    image = widen(x)
    half = coordinate_transformation_mode == "half_pixel"
    scaled = widen(rois).astype(image.dtype) * image.dtype.type(spatial_scale) - image.dtype.type(0.5 if half else 0)
    out = np.zeros((rois.shape[0], x.shape[1], output_height, output_width), image.dtype)
    for number, (left, top, right, bottom) in enumerate(scaled):
        rows = _sample(top, bottom, output_height, x.shape[2], sampling_ratio, half, ctx)
        columns = _sample(left, right, output_width, x.shape[3], sampling_ratio, half, ctx)
        if rows.grid > 0 and columns.grid > 0 and image.shape[2] and image.shape[3]:
            pool = _average_bins if mode == "avg" else _largest_corners
            out[number] = pool(image[batch_indices[number]], rows, columns)
    return narrow(out, x.dtype)


@kernel("RoiAlign", since=10, until=15)
def roi_align_10(
    x: np.ndarray,
    rois: np.ndarray,
    batch_indices: np.ndarray,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Sample without the half-pixel shift, as ``RoiAlign`` did at first."""
    return roi_align(
        x,
        rois,
        batch_indices,
        coordinate_transformation_mode="output_half_pixel",
        mode=mode,
        output_height=output_height,
        output_width=output_width,
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
        ctx=ctx,
    )


class _Samples(NamedTuple):
    """Where the sample points of one axis fall: two neighbors, their weights (0 outside), and points per bin."""

    low: np.ndarray
    high: np.ndarray
    low_weight: np.ndarray
    high_weight: np.ndarray
    bins: int
    grid: int


_STEPS_OF_SAMPLES = 10  # arrays of this size that a sample takes at once: points, neighbors, shares


def _sample(
    start: np.floating,
    end: np.floating,
    bins: int,
    size: int,
    sampling_ratio: int,
    half: bool,
    ctx: KernelContext | None,
) -> _Samples:
    dtype = start.dtype
    length = end - start if half else np.maximum(end - start, dtype.type(1))
    width = length / dtype.type(bins)
    grid = sampling_ratio if sampling_ratio > 0 else math.ceil(width) if np.isfinite(width) else 0
    grid = max(grid, 0)
    check_size((bins, grid, _STEPS_OF_SAMPLES), dtype, "RoiAlign", ctx)
    steps = (np.arange(grid, dtype=dtype) + dtype.type(0.5)) * width / dtype.type(max(grid, 1))
    points = (start + np.arange(bins, dtype=dtype)[:, None] * width + steps).reshape(-1)
    inside = (points >= -1) & (points <= size)
    points = np.where(inside, np.maximum(points, 0), 0)
    low = np.minimum(points.astype(np.int64), size - 1)
    points = np.where(low >= size - 1, low, points).astype(dtype)
    fraction = points - low.astype(dtype)
    return _Samples(
        low, np.minimum(low + 1, size - 1), np.where(inside, 1 - fraction, 0), np.where(inside, fraction, 0), bins, grid
    )


def _average_bins(image: np.ndarray, rows: _Samples, columns: _Samples) -> np.ndarray:
    """Average the sample points: interpolation is separable, so it is a matrix product on either side.

    A product would multiply every pixel; where some are not finite, only those that a point reads may count.
    """
    if not np.isfinite(image).all():
        return _averaged(_averaged(image, rows, 1), columns, 2)
    return np.asarray(
        _matrix(rows, image.shape[1], image.dtype) @ image @ _matrix(columns, image.shape[2], image.dtype).T
    )


@np.errstate(invalid="ignore")
def _averaged(image: np.ndarray, samples: _Samples, axis: int) -> np.ndarray:
    """Average along one axis, bin by bin, what the points read there."""
    shape = [1, 1, 1]
    shape[axis] = samples.grid
    means = []
    for first in range(0, samples.bins * samples.grid, samples.grid):
        part = slice(first, first + samples.grid)
        low, high = (image.take(places[part], axis=axis) for places in (samples.low, samples.high))
        weights = [each[part].reshape(shape).astype(image.dtype) for each in (samples.low_weight, samples.high_weight)]
        means.append((low * weights[0] + high * weights[1]).mean(axis=axis, keepdims=True))
    return np.concatenate(means, axis=axis)


def _matrix(samples: _Samples, size: int, dtype: np.dtype) -> np.ndarray:
    matrix = np.zeros((samples.bins, size), dtype)
    bins = np.repeat(np.arange(samples.bins), samples.grid)
    np.add.at(matrix, (bins, samples.low), samples.low_weight)
    np.add.at(matrix, (bins, samples.high), samples.high_weight)
    return matrix / dtype.type(samples.grid)


def _largest_corners(image: np.ndarray, rows: _Samples, columns: _Samples) -> np.ndarray:
    """Return per bin the largest weighted corner, not the largest interpolated value: so the operator is defined."""
    largest = None
    for row, row_weight in ((rows.low, rows.low_weight), (rows.high, rows.high_weight)):
        for column, column_weight in ((columns.low, columns.low_weight), (columns.high, columns.high_weight)):
            values = image[:, row[:, None], column] * (row_weight[:, None] * column_weight)
            largest = values if largest is None else np.maximum(largest, values)
    assert largest is not None
    grid = largest.reshape(image.shape[0], rows.bins, rows.grid, columns.bins, columns.grid)
    return np.asarray(grid.max(axis=(2, 4)))


def _check_align(x: np.ndarray, rois: np.ndarray, batch_indices: np.ndarray, mode: str, transformation: str) -> None:
    if x.ndim != 4:
        raise InvalidArgument(f"RoiAlign: X has shape {x.shape}, expected [N, C, H, W]")
    if mode not in ("avg", "max"):
        raise InvalidArgument(f"Invalid mode of value {mode} specified. It should be either avg or max")
    if transformation not in ("half_pixel", "output_half_pixel"):
        raise InvalidArgument(
            f"RoiAlign: coordinate_transformation_mode is {transformation!r}, expected half_pixel or output_half_pixel"
        )
    if rois.ndim != 2 or rois.shape[1] != 4:
        raise InvalidArgument(f"RoiAlign: rois have shape {rois.shape}, expected [number, 4]")
    if batch_indices.shape != (rois.shape[0],):
        raise InvalidArgument(f"RoiAlign: batch_indices have shape {batch_indices.shape}, expected {(rois.shape[0],)}")
    if not np.isfinite(rois).all():
        raise InvalidArgument("All 'rois' values must be finite.")
    outside = np.flatnonzero((batch_indices < 0) | (batch_indices >= x.shape[0]))
    if outside.size:
        first = int(outside[0])
        raise InvalidArgument(
            f"batch_indices value {batch_indices[first]} at index {first} is out of range [0, {x.shape[0]})"
        )
