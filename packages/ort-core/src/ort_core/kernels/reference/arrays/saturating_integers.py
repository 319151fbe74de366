"""Integer sums, products and means over axes that stop at the type's limits instead of wrapping, as onnxruntime's do.

The exact result modulo 2**64 is compared with a float64 estimate: where they lie more than 2**62 apart the integer
has wrapped, and the estimate's sign says at which end it belongs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Axes = tuple[int, ...]
KeepDims = Any  # a bool; numpy types the two values apart, so that a bool known only at run time fits neither
_WRAPPED = 2.0**62


def sum_integers(x: np.ndarray, axes: Axes, keepdims: KeepDims) -> np.ndarray:
    """Return sums over ``axes``, limited to the range of ``x``'s dtype."""
    return _reduced(np.add.reduce, lambda values: values, x, axes, keepdims)


def multiply_integers(x: np.ndarray, axes: Axes, keepdims: KeepDims) -> np.ndarray:
    """Return products over ``axes``, limited to the range of ``x``'s dtype."""
    return _reduced(np.multiply.reduce, lambda values: values, x, axes, keepdims)


def sum_absolute_integers(x: np.ndarray, axes: Axes, keepdims: KeepDims) -> np.ndarray:
    """Return sums of magnitudes over ``axes``, limited to the range of ``x``'s dtype."""
    return _reduced(np.add.reduce, np.abs, x, axes, keepdims)


def sum_square_integers(x: np.ndarray, axes: Axes, keepdims: KeepDims) -> np.ndarray:
    """Return sums of squares over ``axes``, limited to the range of ``x``'s dtype."""
    return _reduced(np.add.reduce, np.square, x, axes, keepdims)


@np.errstate(all="ignore")
def _reduced(
    reduce: Callable[..., np.ndarray],
    change: Callable[[np.ndarray], np.ndarray],
    x: np.ndarray,
    axes: Axes,
    keepdims: KeepDims,
) -> np.ndarray:
    exact, estimate = (
        np.asarray(reduce(values, axis=axes, dtype=values.dtype, keepdims=keepdims))
        for values in (change(x.astype(_widest(x.dtype))), change(x.astype(np.float64)))
    )
    return _limited(exact, estimate, x.dtype)


def mean_integers(x: np.ndarray, axes: Axes, keepdims: KeepDims) -> np.ndarray:
    """Return means over ``axes`` truncated towards zero, exact even where the sum would not fit."""
    count = max(math.prod([x.shape[axis] for axis in axes]), 1)
    wide = x.astype(_widest(x.dtype))
    quotients, remainders = np.divmod(wide, wide.dtype.type(count))
    rest = np.sum(remainders, axis=axes, dtype=wide.dtype, keepdims=keepdims)
    whole = np.sum(quotients, axis=axes, dtype=wide.dtype, keepdims=keepdims) + rest // wide.dtype.type(count)
    if x.dtype.kind == "u":
        return whole.astype(x.dtype)
    return (whole + ((whole < 0) & (rest % count != 0))).astype(x.dtype)


def saturate_to_integer(real: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return real numbers truncated to integers of ``dtype``, limited to its range; NaN becomes 0."""
    limits = np.iinfo(dtype)
    with np.errstate(all="ignore"):
        inside = np.where((real > limits.min) & (real < limits.max), real, 0).astype(dtype)
    return np.where(real >= limits.max, limits.max, np.where(real <= limits.min, limits.min, inside)).astype(dtype)


def _widest(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)


def _limited(exact: np.ndarray, estimate: np.ndarray, dtype: np.dtype) -> np.ndarray:
    wrapped = np.abs(estimate - exact) > _WRAPPED
    if dtype == exact.dtype and not wrapped.any():
        return exact
    wide = np.iinfo(exact.dtype)
    ends = np.where(estimate > 0, exact.dtype.type(wide.max), exact.dtype.type(wide.min))
    limits = np.iinfo(dtype)
    return np.clip(np.where(wrapped, ends, exact), limits.min, limits.max).astype(dtype)
