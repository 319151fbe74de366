"""Means of what may be nothing: no number, without numpy's warning, which a kernel's caller can do nothing about."""

from __future__ import annotations

import numpy as np

Axes = int | tuple[int, ...] | None


def mean(x: np.ndarray, axis: Axes, *, keepdims: bool = True, dtype: type[np.floating] | None = None) -> np.ndarray:
    """Return the mean over axes, NaN where there are no elements."""
    if x.size:
        return np.asarray(x.mean(axis=axis, keepdims=keepdims, dtype=dtype))
    return np.full(np.sum(x, axis=axis, keepdims=keepdims).shape, np.nan, dtype or x.dtype)
