"""LoopEditState: a Loop while a pass rewrites it: results begin to pile up, states go, nodes come around it.

    y = Loop(n, c, x) { ..., s }   ->   w = Front(x);  t, all = Loop(n, c, w) { ..., s', p };  y = Behind(all)

Nodes are placed in front of the Loop, at the end of its body, and behind the Loop, each in the order in which they are
made. What a body returns must be a value of its own that nothing else returns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.dims import SymbolicDim
from ort_core.ir.nodes import Node
from ort_core.ir.traversal import captured_values, is_topologically_sorted, topological_order
from ort_core.ir.types import Shape, TensorType, ValueType
from ort_core.ir.values import Value

FIRST_STATE = 2  # among the inputs of a Loop and of its body; among the body's outputs they begin behind the condition
EVERY_ROW = np.iinfo(np.int64).max
ALLOWS_EMPTY_SINCE = 14  # opset from which Reshape can be told that a size of 0 is one
STATELESS_SINCE = 11  # opset from which a Loop need not carry anything
BACKWARD_SINCE = 10  # opset from which Slice takes its bounds as inputs and has steps


@frozen
class Stacked:
    """What rounds have left, one behind the other: ``value`` has the shape [rounds, *shape]."""

    value: Value
    shape: Shape


class LoopEditState:
    """A Loop and its body, open for changes."""

    def __init__(self, node: Node) -> None:
        assert node.graph is not None
        self.node, self.graph, self.body = node, node.graph, node.attributes["body"].graphs()[0]
        self._behind = node  # behind which the next node goes

    def front(self, op_type: str, inputs: Sequence[Value], attributes: Mapping[str, object] | None = None) -> Value:
        """Place a node in front of the Loop and return its result."""
        made = self._node(op_type, inputs, attributes)
        self.graph.insert_before(self.node, made)
        return made.output

    def inner(
        self, op_type: str, inputs: Sequence[Value], attributes: Mapping[str, object] | None = None,
        result: Value | None = None,
    ) -> Value:  # fmt: skip
        """Place a node at the end of the body and return its result: ``result`` where one is given."""
        return self.body.append(self._node(op_type, inputs, attributes, result)).output

    def behind(
        self, op_type: str, inputs: Sequence[Value], attributes: Mapping[str, object] | None = None,
        result: Value | None = None,
    ) -> Value:  # fmt: skip
        """Place a node behind the Loop and those already there, and return its result: ``result`` if given."""
        made = self._node(op_type, inputs, attributes, result)
        self._behind = self.graph.insert_after(self._behind, made)
        return made.output

    def number(self, numbers: object, hint: str = "numbers") -> Value:
        """Return a constant of int64 that the Loop, its body and all behind can read."""
        return self.graph.new_constant(np.array(numbers, np.int64), hint)

    def state(self, place: int) -> Value:
        """Return a state as a round is given it."""
        return self.body.inputs[FIRST_STATE + place]

    def free_result(self, place: int) -> Value | None:
        """Take the result of a state from the Loop, which gets another that nobody reads, and return it."""
        found = self.node.outputs[place]
        if found is None:
            return None
        unread = Value(self.graph.fresh_name(f"{found.name}_left"))
        outputs = self._free_results()
        outputs[place] = unread
        self.node.adopt_outputs(outputs)
        return found

    def replace_state(self, place: int, initial: Value, left: Value) -> None:
        """Give a state another first value, and leave another one in each round; its type is to be inferred again."""
        inside = self.state(place)
        known = inside.type
        assert isinstance(known, TensorType)
        inside.type = TensorType(known.dtype, None if known.shape is None else (None,) * len(known.shape))
        self.node.set_input(FIRST_STATE + place, initial)
        self.body.set_output(1 + place, self.inner("Identity", [left]))

    def drop_states(self, places: Collection[int]) -> None:
        """Remove states that nothing reads but themselves, and their results, which must have no readers."""
        if not places:
            return
        self.node.adopt_outputs([value for place, value in enumerate(self._free_results()) if place not in places])
        self.node.set_inputs([v for n, v in enumerate(self.node.inputs) if n - FIRST_STATE not in places])
        self.body.set_outputs([v for n, v in enumerate(self.body.outputs) if n - 1 not in places])
        self.body.set_inputs([v for n, v in enumerate(self.body.inputs) if n - FIRST_STATE not in places])

    def stack(self, value: Value) -> Stacked:
        """Let a value of the body pile up and return the result."""
        known = value.type
        assert isinstance(known, TensorType)
        assert known.shape is not None
        self.body.add_output(self.inner("Identity", [value]))
        made = Value(self.graph.fresh_name(f"{value.name}_all"))
        self.node.adopt_outputs([*self._free_results(), made])
        return Stacked(made, known.shape)

    def sort(self) -> None:
        """Bring the nodes of the body in order, where new ones are read by others in front of them."""
        if not is_topologically_sorted(self.body):
            self.body.reorder(topological_order(self.body))

    def joined(
        self, stacked: Stacked, axis: int, initial: Value | None = None, result: Value | None = None, *,
        is_backward: bool = False,
    ) -> Value:  # fmt: skip
        """Return what has piled up as rows along an axis, the last round first if backward.

        Args:
            stacked: the results of rounds.
            axis: along which the rows of one round lie.
            initial: what has the same sizes beside the axis, even where no round runs.
            result: the value that it is to be.
            is_backward: which needs ``BACKWARD_SINCE``; what ``needs_sizes`` needs ``ALLOWS_EMPTY_SINCE``.
        """
        value, rank = stacked.value, len(stacked.shape)
        if is_backward:
            bounds = [self.number([each]) for each in (-1, np.iinfo(np.int64).min, 0, -1)]
            value = self.behind("Slice", [value, *bounds])
        sizes = self._sizes_of_rows(stacked, axis, initial)
        if axis:
            value = self.behind("Transpose", [value], {"perm": moved_first(axis, rank)})
        allows = {"allowzero": 1} if needs_sizes(stacked.shape, axis) else None
        return self.behind("Reshape", [value, sizes], allows, result)

    def _free_results(self) -> list[Value | None]:
        return [None if value is None else self.node.detach_output(n) for n, value in enumerate(self.node.outputs)]

    def _sizes_of_rows(self, stacked: Stacked, axis: int, initial: Value | None) -> Value:
        rank = len(stacked.shape)
        if not needs_sizes(stacked.shape, axis):
            return self.number([-1 if place == axis else size for place, size in enumerate(stacked.shape)], "sizes")
        own = self.behind("Shape", [stacked.value])
        others, first = (own, 1) if initial is None else (self.behind("Shape", [initial]), 0)
        parts = [self.behind("Mul", [self.behind("Gather", [own, self.number([n])]) for n in (0, axis + 1)])]
        if axis:
            parts.insert(0, self.behind("Gather", [others, self.number(range(first, first + axis))]))
        if axis + 1 < rank:
            parts.append(self.behind("Gather", [others, self.number(range(first + axis + 1, first + rank))]))
        return self.behind("Concat", parts, {"axis": 0}) if len(parts) > 1 else parts[0]

    def _node(
        self,
        op_type: str,
        inputs: Sequence[Value],
        attributes: Mapping[str, object] | None,
        result: Value | None = None,
    ) -> Node:
        name = self.graph.fresh_name(f"{self.node.name}/{op_type}" if self.node.name else op_type)
        outputs = [
            Value(self.graph.fresh_name(f"{name}_out0"), _type_of(op_type, inputs)) if result is None else result
        ]
        return Node(op_type, inputs, outputs, attributes or (), name=name, opset=self.node.opset)


def moved_first(axis: int, rank: int) -> tuple[int, ...]:
    """Return the order of axes in which the first of ``rank + 1`` stands at an axis."""
    return (*range(1, axis + 1), 0, *range(axis + 1, rank + 1))


def needs_sizes(shape: Shape, axis: int) -> bool:
    """Return whether sizes beside an axis are not numbers above 0: then no -1 stands for what is left."""
    return not all(isinstance(size, int) and size > 0 for size in (*shape[:axis], *shape[axis + 1 :]))


def outer_symbols(node: Node) -> frozenset[str]:
    """Return the names of sizes that are the same in all rounds of a Loop, as values around it have them."""
    assert node.graph is not None
    around = (*node.graph.root().inputs, *node.present_inputs(), *captured_values(node))
    shapes = [value.shape or () for value in around if value.graph is not None]
    return frozenset().union(*(dim.symbols() for shape in shapes for dim in shape if isinstance(dim, SymbolicDim)))


def is_fixed(shape: Shape | None, known: Collection[str]) -> bool:
    """Return whether a shape of the body is the same in all rounds."""
    if shape is None:
        return False
    return all(isinstance(d, int) or (isinstance(d, SymbolicDim) and d.symbols() <= set(known)) for d in shape)


def _type_of(op_type: str, inputs: Sequence[Value]) -> ValueType | None:
    return inputs[0].type if op_type == "Identity" else None
