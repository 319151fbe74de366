"""Sampling at given points: a grid of normalized coordinates, and what an input holds there.

A coordinate of -1 is the input's one end and 1 the other: the centers of its corner elements with ``align_corners``,
their outer edges without. Outside stands zero, the border's element, or the input mirrored at its ends.
"""

from __future__ import annotations

import itertools

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.axes import check_size
from ort_core.kernels.reference.arrays.widening import narrow, to_real

_MODES = {"bilinear": "linear", "linear": "linear", "nearest": "nearest", "bicubic": "cubic", "cubic": "cubic"}
_CUBIC = -0.75  # the coefficient of the cubic filter, fixed by the operator
# What is not a number, or too far out to be an index, stands at the low edge: so onnxruntime samples it.
_FARTHEST = 2.0**63
_Taps = list[tuple[np.ndarray, np.ndarray | None]]


@kernel("GridSample", since=20)
def grid_sample(
    x: np.ndarray, grid: np.ndarray, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> np.ndarray:
    """Return [N, C, *points] from [N, C, *spatial] and [N, *points, rank]; the grid names the last axis first."""
    _check(x, grid, mode, padding_mode)
    rank = x.ndim - 2
    batch, channels = x.shape[:2]
    shape = (batch, channels, *grid.shape[1:-1])
    if 0 in shape:
        return np.zeros(shape, x.dtype)
    points = to_real(grid).reshape(batch, -1, rank)
    axes = [
        _taps(points[..., rank - 1 - axis], x.shape[axis + 2], _MODES[mode], padding_mode, bool(align_corners))
        for axis in range(rank)
    ]
    flat = x.reshape(batch, channels, -1)
    out = _pick(flat, axes, x.shape[2:], padding_mode) if mode == "nearest" else None
    if out is None:
        out = _interpolate(flat, axes, x.shape[2:], padding_mode)
    return out.reshape(shape)


@kernel("GridSample", since=16, until=19)
def grid_sample_16(
    x: np.ndarray, grid: np.ndarray, *, align_corners: int = 0, mode: str = "bilinear", padding_mode: str = "zeros"
) -> np.ndarray:
    """Sample images, with the modes' older names."""
    return grid_sample(x, grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode)


def _check(x: np.ndarray, grid: np.ndarray, mode: str, padding_mode: str) -> None:
    if mode not in _MODES:
        raise InvalidArgument(f'mode "{mode}" not supported, expect linear, cubic or nearest')
    if padding_mode not in ("zeros", "border", "reflection"):
        raise InvalidArgument(f'padding_mode "{padding_mode}" not supported, expect zeros, border or reflection')
    if x.ndim < 3 or grid.ndim != x.ndim or grid.shape[-1] != x.ndim - 2 or grid.shape[0] != x.shape[0]:
        raise InvalidArgument(
            f"GridSample: grid of shape {grid.shape} does not fit X {x.shape}, expected [N, ..., {x.ndim - 2}]"
        )
    if 0 in x.shape[2:]:
        raise InvalidArgument(f"Input spatial dimensions must be non-empty for sampling. Found {x.shape}")


def _taps(points: np.ndarray, size: int, mode: str, padding_mode: str, aligned: bool) -> _Taps:
    """Return (index, weight) pairs along one axis; indices may lie outside for zeros, never for the other paddings."""
    number = points.dtype.type
    half = number(0.5)
    low, high = (number(0), number(size - 1)) if aligned else (-half, number(size) - half)
    at = (points + 1) * half * number(size - 1) if aligned else ((points + 1) * number(size) - 1) * half
    at = np.where(np.abs(at) < _FARTHEST, at, low)  # false for NaN as well
    if mode == "nearest":
        at = np.rint(at)
    if mode != "cubic":
        at = _inside(at, low, high, size, padding_mode)
    if mode == "nearest":
        return [(_index(at, low, high, size, padding_mode), None)]
    base = np.floor(at)
    fraction = at - base
    if mode == "linear":
        weights = [1 - fraction, fraction]
    else:
        weights = [_cubic(fraction + 1), _cubic(fraction), _cubic(1 - fraction), _cubic(2 - fraction)]
    first = 0 if mode == "linear" else -1
    return [(_index(base + (first + i), low, high, size, padding_mode), weight) for i, weight in enumerate(weights)]


def _inside(at: np.ndarray, low: np.floating, high: np.floating, size: int, padding_mode: str) -> np.ndarray:
    if padding_mode == "border":
        return np.where((at < low) | (at > high), np.clip(at, 0, size - 1), at).astype(at.dtype, copy=False)
    return _reflect(at, low, high) if padding_mode == "reflection" else at


def _index(at: np.ndarray, low: np.floating, high: np.floating, size: int, padding_mode: str) -> np.ndarray:
    if padding_mode == "reflection":
        return np.clip(np.trunc(_reflect(at, low, high)), 0, size - 1).astype(np.int64)
    if padding_mode == "border":
        return np.clip(at, 0, size - 1).astype(np.int64)
    return np.clip(at, -(2.0**31), 2.0**31).astype(np.int64)


def _reflect(at: np.ndarray, low: np.floating, high: np.floating) -> np.ndarray:
    """Mirror coordinates at both ends until they lie between them."""
    span = high - low
    if span <= 0:
        return np.full_like(at, low)
    distance = np.where(at < low, low - at, at - high)
    turns = np.floor(distance / span)
    rest = distance - turns * span
    from_low = (turns % 2 == 0) == (at < low)
    mirrored = np.where(from_low, low + rest, high - rest)
    return np.where((at < low) | (at > high), mirrored, at).astype(at.dtype, copy=False)


def _cubic(distance: np.ndarray) -> np.ndarray:
    a = distance.dtype.type(_CUBIC)
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, far)


def _flat_index(indices: tuple[np.ndarray, ...], spatial: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return positions in the flattened input, and which of them are inside."""
    position = np.zeros(indices[0].shape, np.int64)
    inside = np.ones(indices[0].shape, bool)
    for index, size in zip(indices, spatial, strict=True):
        inside &= (index >= 0) & (index < size)
        position = position * size + index
    return np.where(inside, position, 0)[:, None], inside[:, None]


def _pick(flat: np.ndarray, axes: list[_Taps], spatial: tuple[int, ...], padding_mode: str) -> np.ndarray:
    position, inside = _flat_index(tuple(taps[0][0] for taps in axes), spatial)
    values = np.take_along_axis(flat, position, axis=2)
    if padding_mode != "zeros" or inside.all():
        return values
    outside = np.full((), "", object) if flat.dtype == object else np.zeros((), flat.dtype)
    return np.where(inside, values, outside)


def _interpolate(flat: np.ndarray, axes: list[_Taps], spatial: tuple[int, ...], padding_mode: str) -> np.ndarray:
    wide = to_real(flat)
    out = np.zeros((*flat.shape[:2], axes[0][0][0].shape[1]), wide.dtype)
    for corner in itertools.product(*axes):
        position, inside = _flat_index(tuple(index for index, _ in corner), spatial)
        weight = np.ones(position.shape, wide.dtype)
        for _, factor in corner:
            assert factor is not None
            weight = weight * factor[:, None]
        values = np.take_along_axis(wide, position, axis=2)
        out += (np.where(inside, values, 0) if padding_mode == "zeros" else values) * weight
    return narrow(out, flat.dtype)


@kernel("AffineGrid", since=20)
def affine_grid(
    theta: np.ndarray,
    size: np.ndarray,
    *,
    align_corners: int = 0,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Return the grid [N, *spatial, rank] of points that affine maps [N, rank, rank + 1] send an even grid to."""
    sizes = [int(d) for d in size]
    if len(sizes) not in (4, 5):
        raise InvalidArgument(f"Length of input 'size' is {len(sizes)}, expected 4 (N, C, H, W) or 5 (N, C, D, H, W)")
    rank = len(sizes) - 2
    if theta.shape != (sizes[0], rank, rank + 1):
        raise InvalidArgument(
            f"theta shape must be [N, {rank}, {rank + 1}] for {rank}D, found {theta.shape} for N = {sizes[0]}"
        )
    for index, name in enumerate("HW" if rank == 2 else "DHW", start=2):
        if sizes[index] <= 0:
            raise InvalidArgument(f"AffineGrid: size[{index}] ({name}={sizes[index]}) must be positive")
    check_size((sizes[0], *sizes[2:], rank), theta.dtype, "AffineGrid", ctx)
    wide = to_real(theta)
    lines = [_even(count, bool(align_corners)).astype(wide.dtype) for count in sizes[2:]]
    mesh = np.stack(np.meshgrid(*lines, indexing="ij")[::-1], axis=-1).reshape(-1, rank)
    points = np.matmul(mesh, wide[:, :, :rank].swapaxes(1, 2)) + wide[:, None, :, rank]
    return narrow(points.reshape(sizes[0], *sizes[2:], rank), theta.dtype)


def _even(count: int, aligned: bool) -> np.ndarray:
    """Return ``count`` coordinates over [-1, 1]: from end to end, or the centers of equal parts."""
    if aligned:
        return np.linspace(-1, 1, count)
    return (2 * np.arange(count) + 1) / count - 1
