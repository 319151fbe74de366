"""LoopStates: what a loop carries from round to round without a change is read from outside.

    y, z = Loop(n, c, x, w) { ..., w }   ->   y = Loop(n, c, x) { ... }, whose body reads w;  readers of z read w

While loops of TensorFlow and JAX carry all that their bodies read, weights too. Inside the body those are constants
then: they fold, and products pack them once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ort_core.frozen import frozen
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.types import TensorType
from ort_core.ir.values import Value
from ort_core.passes.base import Pass, PassContext, PassRecordState
from ort_core.passes.loop_edits import STATELESS_SINCE

T = TypeVar("T")
_NAME = "unchanged state"
SCAN_SINCE = 9  # before, a Scan had a batch and lengths of sequences


@frozen
class _Places:
    """Where the states of a loop stand: the first of the node's inputs, of the body's inputs and outputs."""

    count: int
    given: int
    read: int
    left: int


class LoopStates(Pass):
    """Let bodies of Loop and Scan read what no round changes from outside."""

    name = "LoopStates"
    after = ("EliminateIdentity",)
    before = ("ConstantFolding",)

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Look at every Loop and Scan, the outer ones first."""
        if context.op_types().isdisjoint(("Loop", "Scan")):
            return
        for graph in context.graphs():
            for node in [each for each in graph if each.domain == "" and each.op_type in ("Loop", "Scan")]:
                body = node.attributes["body"].graphs()[0]
                places = _places_of(node, body, context.opset(node))
                unchanged = () if places is None else _unchanged(node, body, places)
                if places is not None and _must_carry(node, context.opset(node)) and len(unchanged) == places.count:
                    unchanged = unchanged[1:]
                if places is not None and unchanged:
                    _release(node, body, places, unchanged)
                    record.changed(_NAME, len(unchanged))


def _must_carry(node: Node, opset: int) -> bool:
    """Return whether a node must have a state."""
    return node.op_type == "Loop" and opset < STATELESS_SINCE


def _places_of(node: Node, body: Graph, opset: int) -> _Places | None:
    """Return where the states stand, ``None`` where the node and its body do not fit each other."""
    if node.op_type == "Loop":
        places = _Places(len(node.inputs) - 2, 2, 2, 1)
    elif opset >= SCAN_SINCE:
        places = _Places(len(node.inputs) - node.int_attribute("num_scan_inputs", 0), 0, 0, 0)
    else:
        return None
    least = min(len(body.inputs) - places.read, len(body.outputs) - places.left, len(node.outputs))
    return places if 0 < places.count <= least else None


def _unchanged(node: Node, body: Graph, places: _Places) -> tuple[int, ...]:
    names = {value.name for each in body for value in each.present_outputs()}
    names.update(value.name for value in (*body.inputs, *body.initializers))
    return tuple(
        place
        for place in range(places.count)
        if _is_unchanged(node, body, places, place)
        and _is_free(node.inputs[places.given + place], body.inputs[places.read + place], names)
    )


def _is_unchanged(node: Node, body: Graph, places: _Places, place: int) -> bool:
    """Return whether the body returns a state as it was given, and nothing else returns it."""
    inside, result = body.inputs[places.read + place], node.outputs[place]
    left = [_copied(value) for value in body.outputs]
    is_returned = result is not None and result.is_graph_output
    return left[places.left + place] is inside and left.count(inside) == 1 and not is_returned


def _copied(value: Value) -> Value:
    """Return what a value is a copy of."""
    node = value.producer
    while node is not None and node.op_type == "Identity" and node.domain == "" and node.graph is value.graph:
        source = node.input(0)
        if source is None or source.graph is not value.graph:
            return value
        value, node = source, source.producer
    return value


def _is_free(outer: Value | None, inside: Value, names: set[str]) -> bool:
    """Return whether a body can read a value from outside: it has no other of that name, and believes its type."""
    if outer is None or (outer.name in names and outer.name != inside.name):
        return False
    return isinstance(outer.type, TensorType) or outer.constant is not None


def _release(node: Node, body: Graph, places: _Places, unchanged: Sequence[int]) -> None:
    """Let readers inside and outside read the values that were given, and drop the states."""
    for place in unchanged:
        outer, result = node.inputs[places.given + place], node.outputs[place]
        assert outer is not None  # as _is_free has seen
        body.inputs[places.read + place].replace_uses(outer)
        if result is not None:
            result.replace_uses(outer)
    outputs = [None if value is None else node.detach_output(index) for index, value in enumerate(node.outputs)]
    node.set_inputs(_without(node.inputs, places.given, unchanged))
    body.set_outputs(_without(body.outputs, places.left, unchanged))
    body.set_inputs(_without(body.inputs, places.read, unchanged))
    node.adopt_outputs(_without(outputs, 0, unchanged))


def _without(values: Sequence[T], first: int, places: Sequence[int]) -> list[T]:
    dropped = {first + place for place in places}
    return [value for index, value in enumerate(values) if index not in dropped]
