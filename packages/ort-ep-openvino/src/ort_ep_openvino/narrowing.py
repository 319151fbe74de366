"""Narrowing: what is looked at in inputs before each run, because OpenVINO would go on with a wrong result.

OpenVINO computes int64 as int32, some operators over integers as float32, and reads zeros or other memory where an
index lies outside of its axis. A run whose inputs go beyond is computed by kernels, which also have the words for an
index that is wrong. Bounds of Slice are saturated: the ends of int32 mean the same there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ort_core.plugin.ir import DataType, Graph, TensorType, Value
from ort_ep_openvino.lowering.indexing import INDEXING, indexed_sizes
from ort_ep_openvino.lowering.input_bounds import HIGHEST_SMALL, WIDE, is_sum
from ort_ep_openvino.lowering.movement import MOVEMENT

LOWEST, HIGHEST = -(2**31), 2**31 - 1
_BOUNDS = (1, 2)  # of Slice: starts and ends
_HANDING_ON = frozenset({*MOVEMENT, *INDEXING, "Cast", "CastLike", "Identity", "Where"})
"""Operators that compute nothing with integers."""


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Between which bounds the values of one input must lie for OpenVINO to be right.

    Attributes:
        index: which input of the partition.
        name: its name, for messages.
        lowest: the least value that is right.
        highest: the greatest.
        saturates: whether a value beyond a bound means the bound.
        is_summed: whether elements are added up, so that no sum of them may go beyond either.
    """

    index: int
    name: str
    lowest: int = LOWEST
    highest: int = HIGHEST
    saturates: bool = False
    is_summed: bool = False

    def holds(self, array: np.ndarray) -> bool:
        """Return whether every value lies within the bounds."""
        if array.size == 0:
            return True
        least, most = int(array.min()), int(array.max())
        count = array.size if self.is_summed else 1
        return min(least, least * count) >= self.lowest and max(most, most * count) <= self.highest

    def saturated(self, array: np.ndarray) -> np.ndarray:
        """Return an array within the bounds."""
        return array if self.holds(array) else np.clip(array, self.lowest, self.highest)


def narrowings_of(graph: Graph, places: Sequence[int]) -> tuple[Narrowing, ...]:
    """Return what must hold of the inputs of a partition at the given places."""
    found = (_narrowing_of(graph.inputs[index], index) for index in places)
    return tuple(narrowing for narrowing in found if narrowing is not None)


def has_odd_size(shapes: Sequence[tuple[int, ...] | None]) -> bool:
    """Return whether a size is larger than claims count on, or 0: some of OpenVINO's operators then end the process."""
    return any(not 0 < size <= HIGHEST_SMALL for shape in shapes if shape is not None for size in shape)


def _narrowing_of(value: Value, index: int) -> Narrowing | None:
    if not isinstance(value.type, TensorType) or value.type.dtype not in WIDE:
        return None
    lowest, highest = (-HIGHEST_SMALL, HIGHEST_SMALL) if _is_computed_with(value, set()) else (LOWEST, HIGHEST)
    sizes = indexed_sizes(value)
    if sizes:
        lowest, highest = max(lowest, -min(sizes)), min(highest, min(sizes) - 1)
    elif value.type.dtype is DataType.INT32 and lowest == LOWEST:
        return None
    saturates = bool(value.uses) and all(n.op_type == "Slice" and place in _BOUNDS for n, place in value.uses)
    is_summed = any(is_sum(node) for node in value.consumers())
    return Narrowing(index, value.name, lowest, highest, saturates, is_summed)


def _is_computed_with(value: Value, seen: set[Value]) -> bool:
    """Return whether an operator computes with a value, or with what was moved of it."""
    if value in seen:
        return False
    seen.add(value)
    if any(node.op_type not in _HANDING_ON for node, _ in value.uses):
        return True
    made = (output for node in value.consumers() for output in node.present_outputs())
    return any(_is_computed_with(each, seen) for each in made if _is_wide(each))


def _is_wide(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype in WIDE
