"""Operators that read by index. Core ML does not look whether an index lies within its axis: rules and runs do."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.plugin.ir import Node
from ort_ep_coreml.lowering.asked import Asked, rank_of
from ort_ep_coreml.lowering.conditions import constant_inputs, only_attributes
from ort_ep_coreml.lowering.emission import EmissionState, axis_of
from ort_ep_coreml.lowering.rule import FLOATS, INTS, NUMBERS, Rule
from ort_ep_coreml.mil import Operand


def _indexed_size(node: Node) -> int | None:
    """Return the size of the axis that is indexed, where it is known."""
    data = node.input(0)
    size = None if data is None or data.shape is None else data.shape[axis_of(node, data, 0)]
    return size if isinstance(size, int) else None


def _gather(to: EmissionState, node: Node) -> Operand:
    kind = "gather" if node.op_type == "Gather" else "gather_along_axis"
    return to.emit(
        kind,
        x=to.operand(node.input(0)),
        indices=_from_the_front(to, node),
        axis=axis_of(node, node.input(0), 0),
        validate_indices=False,
    )


def _from_the_front(to: EmissionState, node: Node) -> Operand:
    """Return the indices, those that count from the end counted from the front."""
    value, size = node.input(1), _indexed_size(node)
    assert value is not None, "required"
    constant = to.asked.constant(value)
    if constant is not None:
        wrapped = constant if size is None else np.where(constant < 0, constant + size, constant)
        return wrapped.astype(np.int32)
    found = to.asked.interval(value)
    if size is not None and not _lies_within(found, size):  # an input of the claim: looked at before each run
        lowest, highest = to.limits.get(value, (-size, size - 1))
        to.limits[value] = (max(lowest, -size), min(highest, size - 1))
    indices = to.operand(value)
    if size is None or (found is not None and found[0] >= 0):
        return indices
    is_from_end = to.emit("less", x=indices, y=_int(0))
    return to.emit("select", cond=is_from_end, a=to.emit("add", x=indices, y=_int(size)), b=indices)


def _int(value: int) -> np.ndarray:
    return np.array(value, np.int32)


def _lies_within(found: tuple[int, int] | None, size: int) -> bool:
    return found is not None and -size <= found[0] and found[1] < size


def _indices_are_in_bounds(asked: Asked, node: Node) -> str | None:
    value, size = node.input(1), _indexed_size(node)
    assert value is not None, "required"
    constant = asked.constant(value)
    if size is None:
        is_from_front = constant is not None and constant.size and int(constant.min()) == int(constant.max()) == 0
        return None if is_from_front else f"the size of the axis that {value.name!r} indexes is not known beforehand"
    if _lies_within(asked.interval(value), size) or (constant is None and value in asked.outside):
        return None
    return f"nothing proves that the indices {value.name!r} lie within an axis of {size}; Core ML does not look"


def _not_of_scalar(asked: Asked, node: Node) -> str | None:
    if rank_of(node.input(0)) - 1 + rank_of(node.input(1)) == 0:
        return "the result is a scalar out of a vector, which is not lowered"
    return None


def _top(to: EmissionState, node: Node) -> list[Operand]:
    count = to.asked.constant(node.input(1))
    k = int(count.reshape(-1)[0]) if count is not None else node.int_attribute("k", 1)
    found = to.emit_many(
        "topk",
        2,
        x=to.operand(node.input(0)),
        k=k,
        axis=axis_of(node, node.input(0), -1),
        ascending=not node.int_attribute("largest", 1),
    )
    return list(found)


INDEXING: Mapping[str, Rule] = {
    "Gather": Rule(_gather, NUMBERS, ports={1: INTS}, conditions=(_not_of_scalar, _indices_are_in_bounds), required=2),
    "GatherElements": Rule(_gather, NUMBERS, ports={1: INTS}, conditions=(_indices_are_in_bounds,), required=2),
    "TopK": Rule(
        _top,
        FLOATS,
        ports={1: INTS},
        results={1: INTS},
        conditions=(constant_inputs(1), only_attributes(sorted=1)),
        outputs=2,
    ),
}
"""Rules by operator."""
