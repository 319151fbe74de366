"""Graph: inputs, initializers, a list of nodes, outputs; and the only place where nodes are placed and removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ort_core.ir.constants import Constant
from ort_core.ir.types import ValueType
from ort_core.ir.values import Body, Value

if TYPE_CHECKING:
    import numpy as np

    from ort_core.ir.nodes import Node


class Graph(Body):
    """A graph of nodes over values.

    Nodes form a doubly linked list, so that inserting beside a known node and removing one take constant time while
    somebody iterates. Values of enclosing graphs are read directly by nodes of nested ones (captured values).
    A frozen graph refuses edits, so that threads may share it.
    """

    def __init__(
        self,
        name: str = "",
        inputs: Iterable[Value] = (),
        outputs: Iterable[Value] = (),
        nodes: Iterable[Node] = (),
        initializers: Iterable[Value] = (),
    ) -> None:
        self.name = name
        self.doc = ""
        self.metadata: dict[str, str] = {}
        self.owner: Node | None = None
        self._inputs: list[Value] = []
        self._outputs: list[Value] = []
        # These let Value.is_graph_input, is_graph_output and replace_uses take constant time: passes ask every value.
        self._input_set: set[Value] = set()
        self._output_places: dict[Value, list[int]] = {}
        self._initializers: dict[str, Value] = {}
        self._first: Node | None = None
        self._last: Node | None = None
        self._count = 0
        self._frozen = False
        self.has_bodies = False  # whether a node has ever held a graph: most graphs need no walk to find nested ones
        self._listed: tuple[Node, ...] | None = None  # the nodes in order, until one is placed, removed or moved
        self.edits = 0  # how often a node was placed, removed or moved: as long as it stays, so do nodes and order
        self._names: set[str] | None = None
        self._fresh = 0
        for value in inputs:
            self.add_input(value)
        for value in initializers:
            self.add_initializer(value)
        for node in nodes:
            self.append(node)
        for value in outputs:
            self.add_output(value)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The formal inputs, those with a default value included."""
        return tuple(self._inputs)

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The returned values."""
        return tuple(self._outputs)

    @property
    def initializers(self) -> tuple[Value, ...]:
        """The values with a constant, those that are inputs too included."""
        return tuple(self._initializers.values())

    @property
    def nodes(self) -> tuple[Node, ...]:
        """A snapshot of the nodes, in order."""
        listed = self._listed
        if listed is None:
            listed = self._listed = tuple(self._walk())
        return listed

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes) if self._frozen else self._walk()

    def _walk(self) -> Iterator[Node]:
        node = self._first
        while node is not None:
            following = node._next
            yield node
            # A removed node has no successor any more; go on with the one it had.
            node = node._next if node.graph is self else following

    def __reversed__(self) -> Iterator[Node]:
        node = self._last
        while node is not None:
            preceding = node._previous
            yield node
            node = node._previous if node.graph is self else preceding

    def __len__(self) -> int:
        return self._count

    def add_input(self, value: Value) -> None:
        """Add a formal input."""
        self._check_editable()
        value.graph = self
        self._inputs.append(value)
        self._input_set.add(value)
        self._note(value)

    def add_output(self, value: Value) -> None:
        """Return one more value."""
        self._check_editable()
        self._output_places.setdefault(value, []).append(len(self._outputs))
        self._outputs.append(value)

    def set_output(self, index: int, value: Value) -> None:
        """Return ``value`` at position ``index``."""
        self._check_editable()
        index = range(len(self._outputs))[index]
        replaced = self._outputs[index]
        self._output_places[replaced].remove(index)
        if not self._output_places[replaced]:  # a value may be returned twice
            del self._output_places[replaced]
        self._output_places.setdefault(value, []).append(index)
        self._outputs[index] = value

    def replace_output(self, old: Value, new: Value) -> None:
        """Return ``new`` wherever ``old`` is returned; looks through no list of outputs, as there may be thousands."""
        self._check_editable()
        places = self._output_places.pop(old, [])
        for place in places:
            self._outputs[place] = new
        if places:
            self._output_places.setdefault(new, []).extend(places)

    def set_inputs(self, inputs: Sequence[Value]) -> None:
        """Replace the list of formal inputs."""
        self._check_editable()
        self._inputs = []
        self._input_set = set()
        for value in inputs:
            self.add_input(value)

    def set_outputs(self, outputs: Sequence[Value]) -> None:
        """Replace the list of returned values."""
        self._check_editable()
        self._outputs, self._output_places = [], {}
        for value in outputs:
            self.add_output(value)

    def add_initializer(self, value: Value) -> Value:
        """Add a value that has a constant; a value that is an input already gets a default that way."""
        self._check_editable()
        if value.constant is None:
            raise ValueError(f"initializer {value.name!r} has no constant")
        value.graph = self
        self._initializers[value.name] = value
        self._note(value)
        return value

    def new_constant(self, array: np.ndarray | Constant, hint: str = "constant") -> Value:
        """Add an initializer under a fresh name and return it."""
        constant = array if isinstance(array, Constant) else Constant.of(array)
        return self.add_initializer(Value(self.fresh_name(hint), constant=constant))

    def remove_initializer(self, value: Value) -> None:
        """Remove an initializer; a value that is also an input keeps being one, without a default."""
        self._check_editable()
        del self._initializers[value.name]
        value.constant = None

    def find_initializer(self, name: str) -> Value | None:
        """Return the initializer of that name, or ``None``."""
        return self._initializers.get(name)

    def fixed_constant(self, value: Value | None) -> Constant | None:
        """Return the constant of a value that no caller can override, or ``None``."""
        if value is None or value.constant is None or value.is_graph_input:
            return None
        return value.constant

    def append(self, node: Node) -> Node:
        """Place a node at the end and return it."""
        return self._link(node, self._last, None)

    def insert_before(self, anchor: Node, node: Node) -> Node:
        """Place a node before another and return it."""
        return self._link(node, anchor._previous, anchor)

    def insert_after(self, anchor: Node, node: Node) -> Node:
        """Place a node behind another and return it."""
        return self._link(node, anchor, anchor._next)

    def remove(self, node: Node) -> None:
        """Remove a node; its outputs must have no readers.

        Raises:
            ValueError: an output is still read by a node or returned by the graph.
        """
        self._check_editable()
        for value in node.present_outputs():
            if value.use_count or value.is_graph_output:
                raise ValueError(f"cannot remove {node.describe()}: its output {value.name!r} is still used")
        self._unlink(node)
        node.graph = None
        node.set_inputs(())
        for nested in node.subgraphs():
            nested.release()

    def release(self) -> None:
        """Give up every use that the nodes of this (nested) graph make of outer values."""
        for node in self:
            for index, value in enumerate(node.inputs):
                if value is not None:
                    value._uses.pop((node, index), None)
            for nested in node.subgraphs():
                nested.release()

    def reorder(self, order: Sequence[Node]) -> None:
        """Arrange the nodes in the given order.

        Raises:
            ValueError: ``order`` does not hold exactly the nodes of this graph.
        """
        self._check_editable()
        if len(order) != self._count or any(node.graph is not self for node in order):
            raise ValueError("the new order must hold each node of the graph once")
        self.edits += 1
        self._listed = None
        self._first = self._last = None
        for node in order:
            node._previous, node._next = self._last, None
            if self._last is None:
                self._first = node
            else:
                self._last._next = node
            self._last = node

    def precedes_all(self, node: Node, others: set[Node]) -> bool:
        """Return whether a node stands before all others given, all of this graph.

        Looks both ways from the node at once: what tells it is mostly near, and a graph has many nodes.
        """
        left = len(others)
        before, after = node._previous, node._next
        while left:
            if after is not None:
                left -= after in others
                after = after._next
            if before is not None:
                if before in others:
                    return False
                before = before._previous
            if before is None and after is None:
                break
        return not left

    def fresh_name(self, hint: str) -> str:
        """Return a name that no value of the whole model has; it is taken from then on."""
        root = self.root()
        if root._names is None:
            root._names = set(_all_names(root))
        if hint not in root._names:
            root._names.add(hint)
            return hint
        while True:
            root._fresh += 1
            name = f"{hint}__{root._fresh}"
            if name not in root._names:
                root._names.add(name)
                return name

    def root(self) -> Graph:
        """Return the outermost graph around this one."""
        graph = self
        while graph.owner is not None and graph.owner.graph is not None:
            graph = graph.owner.graph
        return graph

    @property
    def is_frozen(self) -> bool:
        """Whether edits are refused."""
        return self._frozen

    def freeze(self) -> None:
        """Refuse edits from now on, here and in nested graphs."""
        for node in self.nodes:
            if node.has_graphs:
                for nested in node.subgraphs():
                    nested.freeze()
            if node.body is not None:
                node.body.freeze()
        self._frozen = True

    def new_node(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        attributes: object = (),
        *,
        domain: str = "",
        types: Sequence[ValueType | None] = (None,),
        name: str = "",
        opset: int | None = None,
    ) -> Node:
        """Append a node with freshly named outputs, one per entry of ``types``, and return it."""
        name = name or self.fresh_name(op_type)
        outputs = [Value(self.fresh_name(f"{name}_out{i}"), t) for i, t in enumerate(types)]
        from ort_core.ir.nodes import Node  # the graph of a session out of the cache has none

        return self.append(Node(op_type, inputs, outputs, attributes, domain=domain, name=name, opset=opset))  # type: ignore[arg-type]  # checked by Node

    def _link(self, node: Node, previous: Node | None, following: Node | None) -> Node:
        self._check_editable()
        if node.graph is not None and node.graph is not self:
            raise ValueError(f"{node.describe()} belongs to another graph")
        node.graph = self
        if node.has_graphs:
            self.has_bodies = True
        noted = self._names if self.owner is None else None
        node._previous, node._next = previous, following
        if previous is None:
            self._first = node
        else:
            previous._next = node
        if following is None:
            self._last = node
        else:
            following._previous = node
        self._count += 1
        self.edits += 1
        self._listed = None
        for value in node.outputs:
            if value is None:
                continue
            if not value.name:
                value.name = self.fresh_name(node.name or node.op_type)
            value.graph = self
            if noted is not None:
                noted.add(value.name)
        return node

    def _unlink(self, node: Node) -> None:
        if node.graph is not self:
            raise ValueError(f"{node.describe()} does not belong to this graph")
        previous, following = node._previous, node._next
        if previous is None:
            self._first = following
        else:
            previous._next = following
        if following is None:
            self._last = previous
        else:
            following._previous = previous
        self._count -= 1
        self.edits += 1
        self._listed = None

    def _note(self, value: Value) -> None:
        if self.owner is None and self._names is not None:
            self._names.add(value.name)

    def _check_editable(self) -> None:
        if self._frozen:
            raise ValueError(f"graph {self.name!r} is frozen; clone the model to change it")

    def __repr__(self) -> str:
        return f"<Graph {self.name!r}: {self._count} nodes>"


def _all_names(graph: Graph) -> Iterator[str]:
    for value in (*graph.inputs, *graph.initializers):
        yield value.name
    for node in graph.nodes:
        for output in node.outputs:
            if output is not None:
                yield output.name
        if node.has_graphs:
            for nested in node.subgraphs():
                yield from _all_names(nested)
