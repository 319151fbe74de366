"""Narrow floating-point types compute in float32 and are rounded once, when the result is stored.

float16, bfloat16 and the 8-bit and 4-bit floats have too few bits to hold intermediate results; every family of
kernels widens its inputs with ``widen`` and stores with ``narrow``. Types of 32 bits and more pass unchanged.
"""

from __future__ import annotations

import functools

import numpy as np

from ort_core.ir.types import DataType


@functools.cache
def is_float(dtype: np.dtype) -> bool:
    """Return whether a numpy dtype holds real floating-point numbers, ml_dtypes' types included."""
    return DataType.from_numpy(dtype).is_float


@functools.cache
def computing_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which values of ``dtype`` are computed: float32 for narrower floats, else itself."""
    if dtype.itemsize < 4 and is_float(dtype):
        return np.dtype(np.float32)
    return dtype


@functools.cache
def accumulating_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which values of ``dtype`` are summed: float64 for floats, else itself.

    An oracle's sums must not depend on the order of the terms; integers wrap as in C whatever the order.
    """
    return np.dtype(np.float64) if is_float(dtype) else dtype


def widen(x: np.ndarray) -> np.ndarray:
    """Return ``x`` in its computing dtype (``x`` itself where that is the same)."""
    return x.astype(computing_dtype(x.dtype), copy=False)


def to_real(x: np.ndarray) -> np.ndarray:
    """Return floats in their computing dtype, and anything else as float32."""
    return widen(x) if is_float(x.dtype) else x.astype(np.float32)


def widen_optional(x: np.ndarray | None) -> np.ndarray | None:
    """Return ``widen(x)``, or ``None`` for an omitted input."""
    return None if x is None else widen(x)


def narrow(y: np.ndarray | np.generic, dtype: np.dtype) -> np.ndarray:
    """Return a result as an array of ``dtype``, rounded to nearest even; what is beyond its range becomes infinite."""
    if y.dtype == dtype:
        return np.asarray(y)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(y).astype(dtype)
