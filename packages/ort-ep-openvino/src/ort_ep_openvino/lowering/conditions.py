"""Conditions that rules of several families share. Each returns the reason of a refusal, or ``None``."""

from __future__ import annotations

from collections.abc import Callable

from ort_core.plugin import GraphView
from ort_core.plugin.claims import attribute_refusal, dtype_of, held_bounds, held_constant
from ort_core.plugin.ir import DataType, Node
from ort_ep_openvino.lowering.input_bounds import HIGHEST_SMALL, WIDE, Interval
from ort_ep_openvino.lowering.rule import Condition
from ort_ep_openvino.lowering.sized_view import SizedView

SMALL_LIMITS = (-HIGHEST_SMALL, HIGHEST_SMALL)


def _lies_within(found: Interval | None, limits: Interval) -> bool:
    return found is not None and limits[0] <= found[0] and found[1] <= limits[1]


def within(limit: int, types: frozenset[DataType], why: str) -> Condition:
    """Refuse when elements of some types, of an input or output, are not proven to lie between -limit and limit."""

    def check(view: GraphView, node: Node) -> str | None:
        for value in (*node.present_inputs(), *node.present_outputs()):
            if dtype_of(value) not in types:
                continue
            if not _lies_within(held_bounds(view, value), (-limit - 1, limit)):
                return f"{value.name!r} is {value.type}: {why}"
        return None

    return check


fits_int32 = within(
    2**31 - 1, WIDE - {DataType.INT32}, "OpenVINO computes int64 as int32, and nothing bounds these values"
)
"""Integers that OpenVINO computes in int32."""
fits_float32 = within(
    HIGHEST_SMALL,
    WIDE,
    "OpenVINO computes this operator as float32, and nothing keeps these values below 2**24",
)
"""Integers that OpenVINO computes in float32."""


def constant_inputs(*positions: int) -> Condition:
    """Refuse when one of these inputs is present and not a constant: OpenVINO needs the values to know shapes."""

    def check(view: GraphView, node: Node) -> str | None:
        for position in positions:
            value = node.input(position)
            if value is not None and held_constant(view, value) is None:
                return f"input {position} ({value.name!r}) is not a constant; OpenVINO needs its values for shapes"
        return None

    return check


def without_attributes(**defaults: object) -> Condition:
    """Refuse attributes that differ from the value given; strings are compared as text."""

    def check(view: GraphView, node: Node) -> str | None:
        found = attribute_refusal(node, {name: (default,) for name, default in defaults.items()})
        return None if found is None else f"OpenVINO is wrong for {node.op_type} with {found}"

    return check


def only_attributes(**allowed: tuple[object, ...]) -> Condition:
    """Refuse attributes whose value is none of those given."""

    def check(view: GraphView, node: Node) -> str | None:
        found = attribute_refusal(node, allowed)
        return None if found is None else f"OpenVINO is wrong for {node.op_type} with {found}"

    return check


def without_inputs(*positions: int) -> Condition:
    """Refuse when one of these optional inputs is given."""

    def check(view: GraphView, node: Node) -> str | None:
        given = next((p for p in positions if node.input(p) is not None), None)
        return None if given is None else f"OpenVINO ignores or misreads input {given} of {node.op_type}"

    return check


def proven_between(position: int, lowest: int, highest: Callable[[Node], int | None]) -> Condition:
    """Refuse when nothing proves that an input's elements lie between two bounds: OpenVINO writes beyond its memory.

    Args:
        position: of the input.
        lowest: the lower bound.
        highest: gives the upper bound of a node, ``None`` where it is not known.
    """

    def check(view: GraphView, node: Node) -> str | None:
        value, last = node.input(position), highest(node)
        if value is None:
            return None
        found = held_bounds(view, value)
        if last is not None and found is not None and lowest <= found[0] and found[1] <= last:
            return None
        return f"nothing proves that {value.name!r} is valid; OpenVINO does not check it, and uses memory of others"

    return check


def nonempty_data(view: GraphView, node: Node) -> str | None:
    """Refuse data that are known to hold no element: the value of an empty reduction is not ONNX's."""
    data = node.input(0)
    if data is None or data.shape is None or 0 not in data.shape:
        return None
    return f"{data.name!r} holds no element; OpenVINO's result then is not ONNX's"


def counted_axes(view: GraphView, node: Node) -> str | None:
    """Refuse a list of axes of unknown length: OpenVINO needs the rank of the result."""
    axes = node.input(1)
    if axes is None or held_constant(view, axes) is not None:
        return None
    if axes.shape is not None and all(isinstance(size, int) for size in axes.shape):
        return None
    return f"the number of axes in {axes.name!r} is not known before a run; OpenVINO needs the rank of the result"


def comparable_integers(view: SizedView, node: Node) -> str | None:
    """Refuse comparisons of wide integers, which OpenVINO makes in float32, unless one side is a small constant."""
    if all(dtype_of(value) not in WIDE for value in node.present_inputs()):
        return None
    if fits_int32(view, node) is None and any(
        _lies_within(held_bounds(view, value), SMALL_LIMITS) for value in node.present_inputs()
    ):
        return None
    return "OpenVINO compares int32 and int64 as float32; neither side is known to stay below 2**24"
