"""Narrowing: what is looked at in integer inputs before each run, because OpenVINO would go on with a wrong result.

OpenVINO computes int64 as int32, and reads zeros or other memory where an index lies outside of its axis. A value that
does not fit is saturated where it can only be a bound of Slice, for which the ends of int32 mean the same; everywhere
else it ends the run: a wrong result is never given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ort_core.plugin import EPFail, InvalidArgument
from ort_core.plugin.ir import DataType, TensorType, Value
from ort_ep_openvino.lowering.indexing import indexed_sizes

LOWEST, HIGHEST = -(2**31), 2**31 - 1
_BOUNDS = (1, 2)  # of Slice: starts and ends


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What must hold of the values of one input.

    Attributes:
        index: which input of the partition.
        name: its name, for messages.
        lowest: the least value that is right.
        highest: the greatest.
        is_index: whether the bounds are those of an axis, not of int32.
        saturates: whether a value beyond the bounds means the bound.
    """

    index: int
    name: str
    lowest: int = LOWEST
    highest: int = HIGHEST
    is_index: bool = False
    saturates: bool = False

    def holds(self, array: np.ndarray) -> bool:
        """Return whether every value lies within the bounds."""
        return array.size == 0 or bool(array.min() >= self.lowest and array.max() <= self.highest)

    def applied(self, array: np.ndarray) -> np.ndarray:
        """Return the array, or a saturated copy.

        Raises:
            InvalidArgument: an index lies outside of its axis.
            EPFail: a value does not fit int32.
        """
        if self.holds(array):
            return array
        if self.saturates:
            return np.clip(array, self.lowest, self.highest)
        found = f"input {self.name!r} of an OpenVINO partition holds {array.min()} to {array.max()}"
        if self.is_index:
            raise InvalidArgument(f"{found}, expected indices from {self.lowest} to {self.highest}")
        raise EPFail(
            f"{found}; OpenVINO computes int64 as int32, so values must lie within int32. Leave this provider out of "
            "the session for such data."
        )


def narrowing_of(value: Value, index: int) -> Narrowing | None:
    """Return what must hold of an input, or ``None`` where every value is right."""
    if not isinstance(value.type, TensorType) or value.type.dtype not in (DataType.INT32, DataType.INT64):
        return None
    sizes = indexed_sizes(value)
    if sizes:
        return Narrowing(index, value.name, -min(sizes), min(sizes) - 1, is_index=True)
    if value.type.dtype is DataType.INT32:
        return None
    saturates = bool(value.uses) and all(n.op_type == "Slice" and place in _BOUNDS for n, place in value.uses)
    return Narrowing(index, value.name, saturates=saturates)
