"""EarlierInference: what one inference found of each node, taken over by the next where nothing has changed since.

Passes rewrite a few nodes of a graph; the types of all the others follow again from the same inputs by the same rules.
Only nodes of the main graph that stand for themselves are remembered; bodies and functions mean something else each
time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ort_core.frozen import frozen
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.types import TensorType, ValueType
from ort_core.ir.values import Value
from ort_core.ops.symbolic_values import has_same_elements

if TYPE_CHECKING:
    from ort_core.ir.attributes import Attribute
    from ort_core.ir.constants import Constant
    from ort_core.ops.symbolic_values import SymbolicValue


@frozen
class _Seen:
    opset: int
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]
    attributes: tuple[Attribute, ...]
    found: tuple[ValueType | None, ...]  # by the node's rule, before it was merged with what is declared


class EarlierInference:
    """What was found of the nodes of one graph, and which of its values still have it."""

    def __init__(self) -> None:
        self._seen: dict[Node, _Seen] = {}
        self._given: dict[Value, Constant | None] = {}
        self._types: Mapping[Value, ValueType] = {}
        self._values: Mapping[Value, SymbolicValue | None] = {}
        self._constants: Mapping[Value, Constant] = {}

    def note(self, node: Node, opset: int, found: Sequence[ValueType | None]) -> None:
        """Note a node about which nothing is wrong, and what its rule found."""
        self._seen[node] = _Seen(opset, node.inputs, node.outputs, tuple(node.attributes.values()), tuple(found))

    def finish(
        self,
        graph: Graph,
        types: Mapping[Value, ValueType],
        values: Mapping[Value, SymbolicValue | None],
        constants: Mapping[Value, Constant],
    ) -> None:
        """Take over what a whole inference found, which does not change any more."""
        self._given = {value: value.constant for value in (*graph.inputs, *graph.initializers)}
        self._types, self._values, self._constants = types, values, constants

    def of_copies(self, nodes: Iterable[tuple[Node, Node]], values: Mapping[Value, Value]) -> EarlierInference:
        """Return what was found of nodes as what was found of their copies.

        Args:
            nodes: nodes with their copies, as they were made.
            values: the copies of all values that those nodes read and make.
        """
        made = EarlierInference()
        for node, copy in nodes:
            seen = self._seen.get(node)
            if seen is None:
                continue
            inputs, outputs = ([None if v is None else values.get(v) for v in of] for of in (seen.inputs, seen.outputs))
            made._seen[copy] = _Seen(seen.opset, tuple(inputs), tuple(outputs), seen.attributes, seen.found)
        made._given = {values[value]: constant for value, constant in self._given.items() if value in values}
        made._types = {copy: self._types[value] for value, copy in values.items() if value in self._types}
        made._values = {copy: self._values[value] for value, copy in values.items() if value in self._values}
        made._constants = {copy: self._constants[value] for value, copy in values.items() if value in self._constants}
        return made

    def unchanged_inputs(self, graph: Graph, types: Mapping[Value, ValueType]) -> set[Value]:
        """Return the inputs and initializers of a graph that are what they were, given their types now."""
        return {
            value
            for value in (*graph.inputs, *graph.initializers)
            if value in self._given
            and value.constant is self._given[value]
            and types.get(value) == self._types.get(value)
        }

    def still_holds(self, node: Node, opset: int, unchanged: set[Value]) -> bool:
        """Return whether inferring a node again would find what was found, given the values that have not changed."""
        seen = self._seen.get(node)
        if seen is None or seen.opset != opset or node.inputs != seen.inputs or node.outputs != seen.outputs:
            return False
        for value in seen.inputs:
            if value is not None and value not in unchanged:
                return False
        attributes = node.attributes.values()
        if len(attributes) != len(seen.attributes):
            return False
        for attribute, before in zip(attributes, seen.attributes):
            if attribute is not before:
                return False
        for value, found in zip(seen.outputs, seen.found):
            if value is not None and not self._is_unchanged(value, found):
                return False
        return True

    def copy(
        self,
        node: Node,
        types: dict[Value, ValueType],
        values: dict[Value, SymbolicValue | None],
        constants: dict[Value, Constant],
        unchanged: set[Value],
    ) -> None:
        """Write what was found of a node's outputs, now unchanged ones, and what was read of its constants."""
        for value in node.present_inputs():
            if value not in values and value in self._values:
                values[value] = self._values[value]
        for value in node.present_outputs():
            known = self._types.get(value)
            if known is not None:
                types[value] = known
            if value in self._constants:
                constants[value] = self._constants[value]
            else:
                values[value] = self._values.get(value)
            unchanged.add(value)

    def compare(
        self,
        node: Node,
        types: Mapping[Value, ValueType],
        values: Mapping[Value, SymbolicValue | None],
        constants: Mapping[Value, Constant],
        unchanged: set[Value],
    ) -> None:
        """Count those outputs of a node that was inferred again as unchanged of which nothing else was found."""
        for value in node.present_outputs():
            if types.get(value) == self._types.get(value) and constants.get(value) is self._constants.get(value):
                now, before = values.get(value), self._values.get(value)
                if now is before or (now is not None and before is not None and has_same_elements(now, before)):
                    unchanged.add(value)

    def keep(self, node: Node, later: EarlierInference) -> None:
        """Hand what was noted of a node on to a later inference."""
        later._seen[node] = self._seen[node]

    def _is_unchanged(self, value: Value, found: ValueType | None) -> bool:
        """Return whether merging what a rule finds with what is declared by now gives what is declared."""
        earlier = self._types.get(value)
        if value.type is not earlier and value.type != earlier:
            return False  # a pass has changed it
        if found is None or found is earlier or found == earlier:
            return True
        if not isinstance(found, TensorType) or not isinstance(earlier, TensorType) or found.dtype is not earlier.dtype:
            return False
        if found.shape is None:
            return True
        shape = earlier.shape or ()
        return len(found.shape) == len(shape) and all(a is None or a == b for a, b in zip(found.shape, shape))
