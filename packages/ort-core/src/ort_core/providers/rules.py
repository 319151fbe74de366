"""Rules of operators: what a provider's table asks of a node before it takes it, in the words that all tables share.

A table has a rule for each operator; a rule names opsets, inputs, element types and conditions. Who asks is a view:
``GraphView``, or what a provider knows besides, with the same methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import TYPE_CHECKING, Protocol, TypeVar

from ort_core.ops.constant_node import constant_of_node
from ort_core.providers.static_values import is_static, small_bounds

if TYPE_CHECKING:
    from ort_core.ir.constants import Constant
    from ort_core.ir.nodes import Node
    from ort_core.ir.types import DataType
    from ort_core.ir.values import Value
    from ort_core.providers.capability import GraphView

STANDARD_DOMAINS = frozenset({"", "ai.onnx"})
PLACED_BODIES: Mapping[str, str] = {
    "If": "its branches are placed on their own",
    "Loop": "its body is placed on its own",
    "Scan": "its body is placed on its own",
}
"""Why a provider that takes no control flow leaves it: what is inside is offered by itself."""


class AskedView(Protocol):
    """What rules ask of whatever a provider knows of a graph; ``GraphView`` is one."""

    def opset(self, node: Node) -> int:
        """Return the version of the node's operator set."""

    def constant(self, value: Value | None) -> object | None:
        """Return the constant that a value is, ``None`` of all others."""


View = TypeVar("View", bound=AskedView, contravariant=True)
Condition = Callable[[View, "Node"], "str | None"]
"""Returns why a node is not taken, or ``None``."""


def arity_refusal(
    view: AskedView, node: Node, *, oldest: int = 1, required: int = 0, outputs: int | None = None
) -> str | None:
    """Return why a node's opset, its inputs or its outputs are not those of a rule, or ``None``.

    Args:
        view: knows the opset.
        node: is asked about.
        oldest: the oldest opset in which the operator means what the rule does.
        required: how many of the first inputs must be present.
        outputs: how many of the first outputs are computed; ``None`` computes all.
    """
    if view.opset(node) < oldest:
        return f"{node.op_type} before opset {oldest} means something else"
    if any(node.input(index) is None for index in range(required)):
        return f"{node.op_type} lacks one of its first {required} inputs"
    if outputs is not None and any(value is not None for value in node.outputs[outputs:]):
        return f"only the first {outputs} of the outputs of {node.op_type} are lowered"
    return None


def types_refusal(
    values: Iterable[Value | None],
    types: Set[DataType],
    ports: Mapping[int, Set[DataType]],
    refusal: Callable[[Value, Set[DataType]], str | None],
) -> str | None:
    """Return why a value among the inputs or the outputs of a node is not taken, or ``None``.

    Args:
        values: the inputs or the outputs; those that are absent count for nothing.
        types: element types that are taken, unless said otherwise for one.
        ports: element types of single values, by position.
        refusal: returns why a value whose place allows some types is not taken, or ``None``.
    """
    for index, value in enumerate(values):
        reason = None if value is None else refusal(value, ports.get(index, types))
        if reason is not None:
            return reason
    return None


def first_refusal(conditions: Iterable[Condition[View]], view: View, node: Node) -> str | None:
    """Return the first reason that a condition gives, or ``None``."""
    return next((reason for condition in conditions if (reason := condition(view, node)) is not None), None)


def attribute_refusal(node: Node, allowed: Mapping[str, tuple[object, ...]]) -> str | None:
    """Return the text of the first attribute whose value is none of those allowed (``mode='cubic'``), or ``None``.

    The first value allowed is the default; strings are compared as text.
    """
    for name, values in allowed.items():
        found = node.attribute(name, values[0])
        text = found.decode() if isinstance(found, bytes) else found
        if text not in values:
            return f"{name}={text!r}"
    return None


def open_size(node: Node) -> str | None:
    """Return the name of the first value of a node with a size that is not a number, or ``None``."""
    return next((v.name for v in (*node.present_inputs(), *node.present_outputs()) if not is_static(v)), None)


def held_constant(view: GraphView, value: Value | None) -> Constant | None:
    """Return the constant that a value is: an initializer that nobody overrides, or what a Constant node holds."""
    found = view.constant(value)
    if found is None and value is not None and value.producer is not None:
        return constant_of_node(value.producer)
    return found


def held_bounds(view: GraphView, value: Value) -> tuple[int, int] | None:
    """Return proven bounds (inclusive) of the elements of an integer value, or ``None``."""
    found = small_bounds(held_constant(view, value))
    return view.value_range(value) if found is None else found
