"""Blocks whose values lie on a grid: they were quantized before, and keep their values when the grid is found again.

The step of a grid divides the distance between a block's least and greatest value: it is that distance over a whole
number. 32 values that lie on such a grid by chance are not met.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray
_NEAR = 2e-3  # of a step; float32 leaves less than 1e-4, values that were never on a grid are 0.25 away on average
_SAMPLE = 64  # blocks that are looked at before all are


def find_grids(values: Array, scale: Array, least: Array, top: int) -> tuple[Array, Array]:
    """Return scales and least values (n, blocks, 1) of blocks, those of their grids where they lie on one.

    Args:
        values: float32 (n, blocks, block_size).
        scale: what was found without a look at grids, (n, blocks, 1).
        least: likewise, of number 0.
        top: the greatest number.
    """
    flat = values.reshape(-1, values.shape[-1])
    scales, leasts = scale.reshape(-1, 1).copy(), least.reshape(-1, 1).copy()
    places = np.flatnonzero(~_fits(flat, scales, leasts)[:, 0])
    sample = places[:: max(len(places) // _SAMPLE, 1)]
    if not len(sample) or not _steps(flat[sample], top).any():
        return scale, least
    steps = _steps(flat[places], top)
    found = places[steps[:, 0] > 0]
    scales[found], leasts[found] = steps[steps[:, 0] > 0], flat[found].min(axis=-1, keepdims=True)
    return scales.reshape(scale.shape), leasts.reshape(least.shape)


def _steps(values: Array, top: int) -> Array:
    """Return the widest step (n, 1) of a grid that values (n, block_size) lie on; 0: none of up to ``top`` steps."""
    least, most = values.min(axis=-1, keepdims=True), values.max(axis=-1, keepdims=True)
    found = np.zeros_like(least)
    for count in range(top, 0, -1):  # the last that fits is the widest
        step = (most - least) / np.float32(count)
        fits = _fits(values, step, least) & (step > 0)
        found[fits] = step[fits]
    return found


def _fits(values: Array, step: Array, least: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        places = (values - least) / step
        return (np.abs(places - np.round(places)) < _NEAR).all(axis=-1, keepdims=True)


def has_symmetric_grid(values: Array, top: int = 127) -> bool:
    """Return whether values of each block (n, blocks, block_size) are whole times its greatest over ``top``."""
    flat = values.reshape(-1, values.shape[-1])
    step = np.abs(flat).max(axis=-1, keepdims=True) / np.float32(top)
    is_empty = step == 0
    return bool((_fits(flat, np.where(is_empty, 1, step), np.zeros_like(step)) | is_empty).all())
