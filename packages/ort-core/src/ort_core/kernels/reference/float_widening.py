"""Computing narrow floats in float32: operands widen on the way in, the result rounds once on the way out."""

from __future__ import annotations

import numpy as np

_NARROW = frozenset({"float16", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"})


def is_narrow(dtype: np.dtype) -> bool:
    """Return whether a dtype is a float of fewer than 32 bits."""
    return dtype.name in _NARROW


def widen(array: np.ndarray) -> np.ndarray:
    """Return float16, bfloat16 and float8 arrays as float32, any other array unchanged."""
    return array.astype(np.float32) if is_narrow(array.dtype) else array


def widen_optional(array: np.ndarray | None) -> np.ndarray | None:
    """Return ``widen(array)``, or ``None`` for an omitted input."""
    return None if array is None else widen(array)


def narrow(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return ``array`` rounded to ``dtype`` (itself when it has that dtype already)."""
    return array.astype(dtype, copy=False)
