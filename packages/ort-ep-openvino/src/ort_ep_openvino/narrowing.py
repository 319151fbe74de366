"""Narrowing: OpenVINO computes int64 as int32, so int64 inputs are looked at before each run.

A value that does not fit is saturated where it can only be a bound of Slice, for which the ends of int32 mean the same;
everywhere else it ends the run: a wrong result is never given.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ort_core.plugin import EPFail
from ort_core.plugin.ir import DataType, TensorType, Value

LOWEST, HIGHEST = -(2**31), 2**31 - 1
Narrow = Callable[[np.ndarray], np.ndarray]
_BOUNDS = (1, 2)  # of Slice: starts and ends


def narrowing_of(value: Value) -> Narrow | None:
    """Return what checks the values of an input, or ``None`` where its type needs no look."""
    if not isinstance(value.type, TensorType) or value.type.dtype is not DataType.INT64:
        return None
    if value.uses and all(node.op_type == "Slice" and position in _BOUNDS for node, position in value.uses):
        return _saturated
    return lambda array: _checked(array, value.name)


def fits(array: np.ndarray) -> bool:
    """Return whether every value fits int32."""
    return array.size == 0 or bool(array.min() >= LOWEST and array.max() <= HIGHEST)


def _saturated(array: np.ndarray) -> np.ndarray:
    return array if fits(array) else np.clip(array, LOWEST, HIGHEST)


def _checked(array: np.ndarray, name: str) -> np.ndarray:
    if fits(array):
        return array
    raise EPFail(
        f"input {name!r} of an OpenVINO partition holds {array.min()} to {array.max()}; OpenVINO computes int64 as "
        "int32, so values must lie within int32. Leave this provider out of the session for such data."
    )
