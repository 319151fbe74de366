"""Narrow floats compute in float32 and round once, at the end: kernels widen their inputs and narrow their result."""

from __future__ import annotations

import numpy as np

_FULL_WIDTH = (np.dtype(np.float32), np.dtype(np.float64))


def widen(array: np.ndarray) -> np.ndarray:
    """Return float32 and float64 arrays as they are, anything else as float32."""
    return array if array.dtype in _FULL_WIDTH else array.astype(np.float32)


def narrow(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return ``array`` rounded to ``dtype``; a value beyond its range becomes infinite without a warning."""
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(dtype)


def accumulator(dtype: np.dtype) -> np.dtype:
    """Return the type that computes for ``dtype``: float64 for itself, float32 for every narrower float."""
    return _FULL_WIDTH[1] if dtype == _FULL_WIDTH[1] else _FULL_WIDTH[0]
