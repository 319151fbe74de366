"""GraphPatch: an edit of one graph, prepared beside it, checked as a whole, and applied at once or not at all.

A replaced value hands its name to its replacement, so names that people know survive rewrites and the names of
graph outputs always do. Element types must be equal and known dimensions must not contradict each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ort_core.ir.attributes import Attribute
from ort_core.ir.constants import Constant
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.traversal import is_topologically_sorted, topological_order
from ort_core.ir.types import DataType, Shape, TensorType, ValueType, is_assignable
from ort_core.ir.values import Value


class GraphPatch:
    """New nodes and constants, which value replaces which, and the nodes that fall away.

    New nodes are placed before ``anchor`` in the order in which they were made; what they read must be defined
    there. Nodes to remove that still have readers afterwards stay. A patch is used once.
    """

    def __init__(self, model: Model, anchor: Node) -> None:
        assert anchor.graph is not None
        self._model = model
        self._graph: Graph = anchor.graph
        self._anchor = anchor
        self._nodes: list[Node] = []
        self._constants: list[Value] = []
        self._replacements: dict[Value, Value] = {}
        self._removed: dict[Node, None] = {}

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The new nodes."""
        return tuple(self._nodes)

    def constant(self, array: np.ndarray | Constant, hint: str = "constant", dtype: DataType | None = None) -> Value:
        """Make a new initializer and return it."""
        constant = array if isinstance(array, Constant) else Constant.of(array, dtype)
        value = Value(hint, constant=constant)
        self._constants.append(value)
        return value

    def node(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        attributes: Iterable[Attribute] | Mapping[str, object] = (),
        *,
        outputs: Sequence[ValueType | None] = (None,),
        domain: str = "",
        name: str = "",
        opset: int | None = None,
        body: Graph | None = None,
    ) -> Node:
        """Make a new node with one output per entry of ``outputs`` (their types, ``None``: to be inferred).

        ``opset`` defaults to the anchor's own when the domain is the same; ``body`` is what a fused node stands for.
        """
        if opset is None and domain == self._anchor.domain:
            opset = self._anchor.opset
        made = [Value("", value_type) for value_type in outputs]
        node = Node(op_type, inputs, made, attributes, domain=domain, name=name, opset=opset, body=body)
        self._nodes.append(node)
        return node

    def op(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        attributes: Iterable[Attribute] | Mapping[str, object] = (),
        *,
        type: ValueType | None = None,
        domain: str = "",
        name: str = "",
        opset: int | None = None,
        body: Graph | None = None,
    ) -> Value:
        """Make a new node with one output and return the output."""
        node = self.node(op_type, inputs, attributes, outputs=(type,), domain=domain, name=name, opset=opset, body=body)
        return node.output

    def replace(self, old: Value, new: Value) -> None:
        """Make every reader of ``old`` read ``new``, and the graph return it where it returned ``old``."""
        self._replacements[old] = new

    def remove(self, *nodes: Node) -> None:
        """Remove nodes, as far as nothing reads their outputs once the patch is applied."""
        self._removed.update(dict.fromkeys(nodes))

    def apply(self) -> Rejection | None:
        """Check the patch and make the edit; on a rejection the graph is as it was before."""
        rejection = self.find_objection()
        if rejection is not None:
            self.discard()
            return rejection
        for value in self._constants:
            value.name = self._graph.fresh_name(value.name)
            self._graph.add_initializer(value)
        for node in self._nodes:
            self._place(node)
        for old, new in self._replacements.items():
            self._substitute(old, new)
        for node in sorted_for_removal(self._removed):
            self._graph.remove(node)
        if len(self._replacements) > 1 and self._has_early_readers() and not is_topologically_sorted(self._graph):
            self._graph.reorder(topological_order(self._graph))
        return None

    def _has_early_readers(self) -> bool:
        """Return whether something before the new nodes may read them; much cheaper than looking at the whole order."""
        readers = {node for value in self._replacements.values() for node, _ in value.uses}
        if not self._nodes or any(node.graph is not self._graph for node in readers):
            return True
        readers.discard(self._nodes[0])
        return not self._graph.precedes_all(self._nodes[0], readers)

    def discard(self) -> None:
        """Give up the patch: the new nodes stop counting as readers."""
        for node in self._nodes:
            node.set_inputs(())

    def _place(self, node: Node) -> None:
        if node.domain not in self._model.opset_imports:
            self._model.opset_imports[node.domain] = node.opset or 1
        if not node.name:
            base = f"{self._anchor.name}/" if self._anchor.name else ""
            node.name = self._graph.fresh_name(f"{base}{node.op_type}")
        self._graph.insert_before(self._anchor, node)

    def find_objection(self) -> Rejection | None:
        """Return why the edit may not be made, ``None`` where ``apply`` makes it."""
        for old, new in self._replacements.items():
            rejection = self._objection_to(old, new)
            if rejection is not None:
                return rejection
        return None

    def _objection_to(self, old: Value, new: Value) -> Rejection | None:
        if old.graph is not self._graph:
            return Rejection(f"value {old.name!r} belongs to another graph", self._anchor)
        if old.is_graph_input:
            return Rejection(f"{old.name!r} is an input or an initializer that the caller may override", self._anchor)
        conflict = find_type_conflict(old.type, new.type)
        if conflict is not None:
            return Rejection(f"{old.name!r} cannot be replaced: {conflict}", self._anchor)
        if old.is_graph_output and not self._may_be_returned(new):
            return Rejection(f"the graph returns {old.name!r}, whose replacement cannot take that name", self._anchor)
        return None

    def _may_be_returned(self, new: Value) -> bool:
        if any(new is value for value in self._constants) or new.producer in self._nodes:
            return sum(other is new for other in self._replacements.values()) == 1
        # Nested graphs too: operators such as BeamSearch find the outputs of their bodies by name, and a body that
        # returns an input or one value twice is beyond some runtimes. An Identity costs nothing there.
        return new.graph is self._graph and not (new.is_graph_input or new.is_graph_output)

    def _substitute(self, old: Value, new: Value) -> None:
        is_output = old.is_graph_output
        merged = old.type if is_output and old.type is not None else refine_type(old.type, new.type)
        is_new = new.producer in self._nodes or any(new is value for value in self._constants)
        old.replace_uses(new, outputs=True)
        if is_new or is_output:
            self._hand_over_name(old, new)
        if new.constant is None:
            new.type = merged

    def _hand_over_name(self, old: Value, new: Value) -> None:
        name = old.name
        if old.constant is not None:
            _rename_initializer(self._graph, old, self._graph.fresh_name(f"{name}_replaced"))
        else:
            old.name = self._graph.fresh_name(f"{name}_replaced")
        if new.constant is not None:
            _rename_initializer(self._graph, new, name)
        else:
            new.name = name


def sorted_for_removal(nodes: Iterable[Node]) -> list[Node]:
    """Return those of ``nodes`` that can be removed, readers before producers."""
    remaining = list(nodes)
    order: list[Node] = []
    gone: set[Node] = set()
    progress = True
    while progress:
        progress = False
        for node in list(remaining):
            values = tuple(node.present_outputs())
            if any(v.is_graph_output for v in values):
                continue
            if all(reader in gone for v in values for reader, _ in v.uses):
                order.append(node)
                gone.add(node)
                remaining.remove(node)
                progress = True
    return order


def find_type_conflict(old: ValueType | None, new: ValueType | None) -> str | None:
    """Return why a value of type ``new`` cannot stand for one of type ``old``, as far as both are known."""
    if old is None or new is None:
        return None
    if not (isinstance(old, TensorType) and isinstance(new, TensorType)):
        return None if is_assignable(new, old) else f"its type is {old}, the replacement's is {new}"
    if old.dtype != new.dtype and DataType.UNDEFINED not in (old.dtype, new.dtype):
        return f"its element type is {old.dtype.text}, the replacement's is {new.dtype.text}"
    if old.shape is None or new.shape is None:
        return None
    same_rank = len(old.shape) == len(new.shape)
    pairs = zip(old.shape, new.shape, strict=False)
    if same_rank and not any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
        return None
    return f"its shape is {_shape_text(old.shape)}, the replacement's is {_shape_text(new.shape)}"


def refine_type(old: ValueType | None, new: ValueType | None) -> ValueType | None:
    """Return the more precise of two types that do not contradict each other, dimension by dimension."""
    if old is None or new is None:
        return new or old
    if not (isinstance(old, TensorType) and isinstance(new, TensorType)):
        return new
    if old.shape is None or new.shape is None:
        return TensorType(new.dtype, new.shape if old.shape is None else old.shape)
    pairs = zip(old.shape, new.shape, strict=True)
    return TensorType(new.dtype, tuple(b if isinstance(b, int) or a is None else a for a, b in pairs))


def _shape_text(shape: Shape) -> str:
    return f"[{', '.join('?' if d is None else str(d) for d in shape)}]"


def _rename_initializer(graph: Graph, value: Value, name: str) -> None:
    constant = value.constant
    owner = value.graph or graph
    owner.remove_initializer(value)
    value.name, value.constant = name, constant
    owner.add_initializer(value)
