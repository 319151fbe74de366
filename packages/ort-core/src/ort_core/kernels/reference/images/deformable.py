"""Deformable convolution: windows whose every offset reads at its own displaced, interpolated position.

    Y[n, m, o] = B[m] + sum over c, k of W[m, c, k] * mask[n, k, o] * X[n, c, position[n, k, o]]
    position[n, k, o] = o * stride + k * dilation - pad + offset[n, k, o]

with linear interpolation between elements and zero outside the input.
"""

from __future__ import annotations

import itertools

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.arrays.windows import Windows, slide


@kernel("DeformConv", since=19)
def deform_conv(
    x: np.ndarray,
    w: np.ndarray,
    offset: np.ndarray,
    b: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    *,
    dilations: tuple[int, ...] = (),
    group: int = 1,
    kernel_shape: tuple[int, ...] = (),
    offset_group: int = 1,
    pads: tuple[int, ...] = (),
    strides: tuple[int, ...] = (),
) -> np.ndarray:
    """Convolve [N, C, *spatial] with [M, C / group, *kernel] at displaced positions."""
    if kernel_shape and tuple(kernel_shape) != w.shape[2:]:
        raise InvalidArgument(f"DeformConv: kernel_shape {tuple(kernel_shape)} is not that of W, {w.shape[2:]}")
    windows = slide(x.shape[2:], w.shape[2:], strides, dilations, pads)
    _check_shapes(x, w, offset, mask, windows, group, offset_group)
    batch, channels = x.shape[:2]
    if 0 in (batch, *windows.counts):
        return np.zeros((batch, w.shape[0], *windows.counts), x.dtype)
    reads = int(np.prod(windows.kernel)) * int(np.prod(windows.counts))
    positions = _positions(widen(offset), windows, offset_group).reshape(
        batch, offset_group, len(windows.kernel), reads
    )
    columns = _interpolate(widen(x).reshape(batch, offset_group, channels // offset_group, -1), positions, windows)
    if mask is not None:
        columns *= widen(mask).reshape(batch, offset_group, 1, reads)
    weights = widen(w).reshape(group, w.shape[0] // group, -1)
    y = np.matmul(weights, columns.reshape(batch, group, weights.shape[-1], int(np.prod(windows.counts))))
    y = y.reshape(batch, w.shape[0], *windows.counts)
    if b is not None:
        y += widen(b).reshape(-1, *(1,) * (y.ndim - 2))
    return narrow(y, x.dtype)


def _check_shapes(
    x: np.ndarray,
    w: np.ndarray,
    offset: np.ndarray,
    mask: np.ndarray | None,
    windows: Windows,
    group: int,
    offset_group: int,
) -> None:
    if x.shape[1] != w.shape[1] * group or w.shape[0] % group or x.shape[1] % offset_group:
        raise InvalidArgument(
            f"DeformConv: {x.shape[1]} input channels and weight {w.shape} do not fit group {group} and "
            f"offset_group {offset_group}"
        )
    taps = offset_group * int(np.prod(windows.kernel))
    expected = (x.shape[0], taps * len(windows.kernel), *windows.counts)
    if offset.shape != expected:
        raise InvalidArgument(
            f"Offset channel count must be offset_group * 2 * kH * kW (the kernel's rank instead of 2 in general): "
            f"offset has shape {offset.shape}, expected {expected}"
        )
    if mask is not None and mask.shape != (x.shape[0], taps, *windows.counts):
        raise InvalidArgument(
            f"Mask channel count must be offset_group * kH * kW: mask has shape {mask.shape}, "
            f"expected {(x.shape[0], taps, *windows.counts)}"
        )


def _positions(offset: np.ndarray, windows: Windows, offset_group: int) -> np.ndarray:
    """Return where each tap of each window reads: [N, offset_group, rank, *kernel, *counts]."""
    rank = len(windows.kernel)
    moved = offset.reshape(offset.shape[0], offset_group, *windows.kernel, rank, *windows.counts)
    positions = np.moveaxis(moved, 2 + rank, 2).copy()
    for axis in range(rank):
        taps = np.arange(windows.kernel[axis]) * windows.dilations[axis] - windows.pads_begin[axis]
        starts = np.arange(windows.counts[axis]) * windows.strides[axis]
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = len(taps), len(starts)
        positions[:, :, axis] += np.add.outer(taps, starts).reshape(shape)
    return positions


def _interpolate(image: np.ndarray, positions: np.ndarray, windows: Windows) -> np.ndarray:
    """Read [N, G, C / G, S] at [N, G, rank, R] by linear interpolation: [N, G, C / G, R]."""
    low = np.floor(positions)
    fraction = positions - low
    base = np.nan_to_num(low, nan=-2, posinf=-2, neginf=-2).clip(-(2**31), 2**31).astype(np.int64)
    out = np.zeros((*image.shape[:3], positions.shape[-1]), image.dtype)
    if image.shape[-1] == 0:
        return out
    for corner in itertools.product((0, 1), repeat=len(windows.spatial)):
        weight = np.ones(positions[:, :, 0].shape, image.dtype)
        index = np.zeros(weight.shape, np.int64)
        inside = np.ones(weight.shape, bool)
        for axis, upper in enumerate(corner):
            at = base[:, :, axis] + upper
            inside &= (at >= 0) & (at < windows.spatial[axis])
            weight *= fraction[:, :, axis] if upper else 1 - fraction[:, :, axis]
            index = index * windows.spatial[axis] + at
        index = np.where(inside, index, 0)[:, :, None]
        read = np.where(inside[:, :, None], np.take_along_axis(image, index, axis=3), 0)
        out += read * np.where(inside, weight, 0)[:, :, None]
    return out
