"""Attributes: axes of a node, and integers that are an input in newer opsets, an attribute in older ones."""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.plugin.ir import Node
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.refused import Refused


def constant_ints(to: EmissionState, node: Node, place: int, name: str) -> tuple[int, ...] | None:
    """Return integers that an input holds, or else an attribute; ``None`` when neither is there.

    Raises:
        Refused: the input is not a constant.
    """
    value = node.input(place)
    if value is None:
        return node.ints_attribute(name)
    array = to.context.constant(value)
    if array is None:
        raise Refused(f"input {place} ({value.name!r}) is not a constant, and DirectML compiles for fixed {name}")
    return tuple(int(each) for each in array.ravel())


def from_front(axis: int, rank: int) -> int:
    """Return an axis counted from the front.

    Raises:
        Refused: there is no such axis.
    """
    found = axis + rank if axis < 0 else axis
    if not 0 <= found < max(rank, 1):
        raise Refused(f"axis {axis} is none of {rank}")
    return found


def axis_of(node: Node, rank: int, default: int, name: str = "axis") -> int:
    """Return an axis of a tensor, counted from the front."""
    return from_front(node.int_attribute(name, default), rank)


def sorted_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return axes counted from the front, each once, in order."""
    return tuple(sorted({from_front(axis, rank) for axis in axes}))
