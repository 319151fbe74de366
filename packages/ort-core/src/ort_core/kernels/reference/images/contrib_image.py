"""Reading images at fractional positions: CropAndResize and GridSample."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.widening import narrow, widen


def _crop_positions(low: np.ndarray, high: np.ndarray, count: int, size: int) -> np.ndarray:
    """Return (rois, count) positions in pixels: corners on the first and last output, the middle if there is one."""
    if count > 1:
        share = np.arange(count, dtype=np.float32) / np.float32(count - 1)
        positions = low[:, None] * (size - 1) + share * ((high - low) * (size - 1))[:, None]
        positions[:, -1] = high * (size - 1)
        return positions
    return (0.5 * (low + high) * (size - 1))[:, None]


@kernel("CropAndResize", domain="com.microsoft")
def crop_and_resize(
    x: np.ndarray,
    rois: np.ndarray,
    batch_indices: np.ndarray,
    crop_size: np.ndarray,
    *,
    extrapolation_value: float = 0.0,
    mode: str = "bilinear",
) -> np.ndarray:
    """Cut regions (y1, x1, y2, x2 as shares of the image) and resize each to one size, corners aligned."""
    if crop_size.size != 2:
        raise errors.InvalidArgument(
            f"[ShapeInferenceError] crop_size input tensor must have exactly 2 elements; got {crop_size.size}"
        )
    if min(crop_size.tolist()) < 1:
        raise errors.InvalidArgument(f"crop_size values must be positive; got {crop_size.tolist()}")
    if mode not in ("bilinear", "nearest"):
        raise errors.InvalidArgument(f"mode {mode!r}: expected bilinear or nearest")
    wrong = batch_indices[(batch_indices < 0) | (batch_indices >= x.shape[0])]
    if wrong.size:
        raise errors.InvalidArgument(f"batch_indices value {int(wrong[0])} is out of range [0, {x.shape[0]})")
    images, regions = widen(x), widen(rois)
    height, width = x.shape[2:]
    ys = _crop_positions(regions[:, 0], regions[:, 2], int(crop_size[0]), height)
    xs = _crop_positions(regions[:, 1], regions[:, 3], int(crop_size[1]), width)
    inside = ((ys >= 0) & (ys <= height - 1))[:, :, None] & ((xs >= 0) & (xs <= width - 1))[:, None, :]
    # NaN lies inside of nothing; it gets a place only so that it can be an index.
    ys, xs = np.clip(np.nan_to_num(ys), 0, height - 1), np.clip(np.nan_to_num(xs), 0, width - 1)
    batch = batch_indices[:, None, None]

    def at(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        picked = images[batch, :, rows.astype(np.int64)[:, :, None], columns.astype(np.int64)[:, None, :]]
        return np.moveaxis(picked, -1, 1)

    if mode == "nearest":
        values = at(np.floor(ys + 0.5), np.floor(xs + 0.5))
    else:
        top, left = np.floor(ys), np.floor(xs)
        bottom, right = np.ceil(ys), np.ceil(xs)
        across, along = (xs - left)[:, None, None, :], (ys - top)[:, None, :, None]
        upper = at(top, left) + (at(top, right) - at(top, left)) * across
        lower = at(bottom, left) + (at(bottom, right) - at(bottom, left)) * across
        values = upper + (lower - upper) * along
    return narrow(np.where(inside[:, None], values, np.float32(extrapolation_value)), x.dtype)


def _reflect(position: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return positions folded back into [low, high]."""
    span = high - low
    if span == 0:
        return np.full_like(position, low)
    offset = np.mod(position - low, 2 * span)
    return low + np.where(offset > span, 2 * span - offset, offset)


def _cubic(distance: np.ndarray) -> np.ndarray:
    """Return the weight of a cubic convolution with a = -0.75."""
    a, d = -0.75, np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = a * (((d - 5) * d + 8) * d - 4)
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


@kernel("GridSample", domain="com.microsoft")
def grid_sample(
    x: np.ndarray,
    grid: np.ndarray,
    *,
    align_corners: int = 0,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
) -> np.ndarray:
    """Sample (N, C, H, W) at a grid (N, h, w, 2) of (x, y) in [-1, 1]."""
    if mode not in ("bilinear", "nearest", "bicubic") or padding_mode not in ("zeros", "border", "reflection"):
        raise errors.InvalidArgument(f"mode {mode!r} or padding_mode {padding_mode!r} is not known")
    images, points = widen(x), widen(grid).astype(np.float64)
    sizes = (x.shape[3], x.shape[2])
    bounds = [(0.0, n - 1.0) if align_corners else (-0.5, n - 0.5) for n in sizes]
    positions = []
    for axis, (n, (low, high)) in enumerate(zip(sizes, bounds, strict=True)):
        unit = (points[..., axis] + 1) / 2
        position = unit * (n - 1) if align_corners else unit * n - 0.5
        if mode == "nearest":
            position = np.rint(position)
        if mode != "bicubic" and padding_mode == "border":
            position = np.clip(position, 0, n - 1)
        if mode != "bicubic" and padding_mode == "reflection":
            position = np.clip(_reflect(position, low, high), 0, n - 1)
        positions.append(position)
    offsets = {"nearest": (0,), "bilinear": (0, 1), "bicubic": (-1, 0, 1, 2)}[mode]
    corner = [np.floor(position) for position in positions]

    def weight(axis: int, offset: int) -> np.ndarray:
        distance = positions[axis] - corner[axis] - offset
        if mode == "nearest":
            return np.ones_like(distance)
        return 1 - np.abs(distance) if mode == "bilinear" else _cubic(distance)

    def bring_in(index: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
        """Return pixel numbers within the image, and whether each gives its value or zero."""
        n, (low, high) = sizes[axis], bounds[axis]
        valid = np.ones(index.shape, bool)
        if padding_mode == "zeros":
            valid = (index >= 0) & (index < n)
        elif padding_mode == "reflection":
            index = np.rint(_reflect(index, low, high))
        return np.clip(index, 0, n - 1).astype(np.int64), valid

    batch = np.arange(x.shape[0])[:, None, None]
    total = np.zeros((*grid.shape[:3], x.shape[1]))
    for down in offsets:
        rows, rows_valid = bring_in(corner[1] + down, 1)
        for across in offsets:
            columns, columns_valid = bring_in(corner[0] + across, 0)
            share = weight(1, down) * weight(0, across) * (rows_valid & columns_valid)
            total += share[..., None] * images[batch, :, rows, columns]
    return narrow(np.moveaxis(total, -1, 1).astype(np.float32), x.dtype)
