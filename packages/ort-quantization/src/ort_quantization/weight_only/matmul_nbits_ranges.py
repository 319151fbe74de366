"""Scales and zero points of blocks by the error that they leave, where each row of a block has a weight of its own.

Ranges are cut at both ends; those of each cut get the scale and the least value that fit their numbers best. What was
on a grid with float zero points before has no error at its own range, and keeps it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ort_quantization.weight_only.matmul_nbits_blocks import Array
from ort_quantization.weight_only.matmul_nbits_grids import find_grids

ZeroPoints = Literal["symmetric", "whole", "real"]
_SAFE = 8  # digits of a zero point that stay behind the point: 1 / _SAFE of a step
_CUTS = (0.0, 0.03, 0.06, 0.1, 0.15, 0.2)  # shares of a range, from each end
_SHARES = np.arange(1.0, 0.4, -0.03)  # of a range without zero points


def block_parameters(
    values: Array, importance: Array | None, bits: int, zero_points: ZeroPoints, dtype: np.dtype
) -> tuple[Array, Array]:
    """Return scales and zero points (N,), float32, of a block (rows, N).

    Args:
        values: float32.
        importance: positive (rows,), what a squared error of a row costs; ``None``: the range as it is.
        bits: of a number.
        zero_points: ``symmetric``: all lie in the middle; ``whole`` numbers, so that ranges hold 0; or ``real`` ones.
        dtype: that scales and zero points are stored in; a zero point far from 0 keeps no share of a step in it.
    """
    top = (1 << bits) - 1
    least, most = values.min(axis=0), values.max(axis=0)
    if zero_points != "real":
        least, most = np.minimum(least, 0), np.maximum(most, 0)
    if zero_points == "symmetric":
        most = np.maximum(-least, most)
        least = -most
    peak = np.maximum(np.abs(least), np.abs(most))
    narrowest = np.where(peak > 0, peak * np.float32(_SAFE * top * np.finfo(dtype).eps), 1)
    most = np.where(most - least < narrowest, least + narrowest, most).astype(np.float32)
    if zero_points == "real":
        scale, point = _own_range(values, least, most, top)
    else:
        scale, point = _of_range(least, most, top, zero_points)
    if importance is None:
        return scale, point
    costs = importance[:, None]
    best = _error(values, costs, scale, point, _numbers(values, scale, point, top))
    for tried_least, tried_most in _ranges(least, most, zero_points):
        tried = _of_range(tried_least, tried_most, top, zero_points)
        numbers = _numbers(values, *tried, top)
        for found, its in ((tried, numbers), (_fitted(values, costs, *tried, numbers, zero_points), None)):
            error = _error(values, costs, *found, _numbers(values, *found, top) if its is None else its)
            is_better = error < best
            best = np.where(is_better, error, best)
            scale, point = np.where(is_better, found[0], scale), np.where(is_better, found[1], point)
    return scale, point


def _own_range(values: Array, least: Array, most: Array, top: int) -> tuple[Array, Array]:
    """Return float zero points of the whole range, or of the grid that a block lies on."""
    scale = (most - least) / np.float32(top)
    scales, leasts = find_grids(
        np.ascontiguousarray(values.T)[:, None], scale[:, None, None], least[:, None, None], top
    )  # fmt: skip
    scale, least = scales[:, 0, 0], leasts[:, 0, 0]
    return scale, -least / scale


def _ranges(least: Array, most: Array, zero_points: ZeroPoints) -> list[tuple[Array, Array]]:
    if zero_points == "symmetric":
        return [(least * np.float32(share), most * np.float32(share)) for share in _SHARES]
    spread = most - least
    return [(least + np.float32(low) * spread, most - np.float32(high) * spread) for low in _CUTS for high in _CUTS]


def _of_range(least: Array, most: Array, top: int, zero_points: ZeroPoints) -> tuple[Array, Array]:
    scale = (most - least) / np.float32(top)
    if zero_points == "symmetric":
        return scale, np.full_like(scale, (top + 1) / 2)
    point = -least / scale
    return scale, point if zero_points == "real" else np.clip(np.round(point), 0, top)


def _fitted(
    values: Array, costs: Array, scale: Array, point: Array, numbers: Array, zero_points: ZeroPoints
) -> tuple[Array, Array]:
    """Return the scales and zero points with the least squares for the numbers that others give."""
    if zero_points == "real":
        total = costs.sum()
        mean, middle = (costs * values).sum(axis=0) / total, (costs * numbers).sum(axis=0) / total
        values, centered = values - mean, numbers - middle
    else:
        centered = numbers - point
    weighted = costs * centered
    above, below = np.einsum("ij,ij->j", weighted, values), np.einsum("ij,ij->j", weighted, centered)
    is_better = (below > 0) & (above > 0)
    fitted = np.divide(above, below, out=scale.copy(), where=is_better)
    if zero_points == "real":
        point = np.where(is_better, middle - mean / fitted, point)
    return fitted, point


def _numbers(values: Array, scale: Array, point: Array, top: int) -> Array:
    return np.clip(np.round(values / scale + point), 0, top)


def _error(values: Array, costs: Array, scale: Array, point: Array, numbers: Array) -> Array:
    lost = (numbers - point) * scale - values
    found: Array = np.einsum("ij,ij,i->j", lost, lost, costs[:, 0])
    return found
