"""TransposeOptimizer: transpositions cancel, merge, and move through operators to where they cancel.

    y = Transpose(Transpose(x, p), q)                          ->  y = Transpose(x, q after p), or x
    b = Relu(Transpose(x, p));  y = Transpose(b, inverse p)    ->  y = Relu(x)

From each Transpose a region is grown over the operators behind it that can as well compute on the data before it
(``transposable``). Where the region ends, the data must be transposed after all; where it meets the inverse, one more
goes. The region is changed only when this removes more transpositions than it adds, so the search ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import ClassVar

from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.types import TensorType, ValueType
from ort_core.ir.values import Value
from ort_core.passes.base import Pass, PassContext, PassRecordState
from ort_core.passes.transposable import (
    ADAPTERS,
    Adapted,
    Adapter,
    Perm,
    adapt,
    compose,
    has_same_perm,
    inverse,
    is_identity,
    perm_of,
)
from ort_core.rewrite.patch import GraphPatch

MAX_REGION_NODES = 256  # between two convolutions lie a handful; whole transformers without a barrier are not searched


class TransposeOptimizer(Pass):
    """Remove transpositions as far as that takes fewer than are there.

    ``adapters`` say how operators take transposed data; a pass for one target may know more of them.
    """

    name = "TransposeOptimizer"
    adapters: ClassVar[Mapping[str, Adapter]] = ADAPTERS

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Simplify chains, then try a region from each Transpose that is left."""
        for graph in context.graphs_with(("Transpose",)):
            nodes = graph.nodes
            record.changed("merged", _simplify_all(context, nodes, record))
            order = {node: place for place, node in enumerate(nodes)}  # what is inserted later is in no region
            for node in nodes:
                if node.graph is graph and _is_transpose(node):
                    region = _Region(context, graph, order, self.adapters)
                    if region.grow(node) and region.gain() > 0:
                        touched = region.commit()
                        record.changed("pushed through")
                        record.changed("merged", _simplify_all(context, touched, record))


def _is_transpose(node: Node) -> bool:
    return node.op_type == "Transpose" and node.domain == ""


def _simplify_all(context: PassContext, nodes: Iterable[Node], record: PassRecordState) -> int:
    """Simplify Transposes among nodes, and those that read what was simplified."""
    count = 0
    waiting = deque(node for node in nodes if _is_transpose(node))
    while waiting:
        node = waiting.popleft()
        if node.graph is None:
            continue
        source = node.input(0)
        readers = [reader for reader in node.output.consumers() if _is_transpose(reader)]
        changes = _simplify(context, node, record)
        if changes:
            count += changes
            waiting.extend(readers)
            if node.graph is not None and node.input(0) is not source:
                waiting.append(node)  # behind another one still
    return count


def _simplify(context: PassContext, node: Node, record: PassRecordState) -> int:
    """Merge a Transpose with one before it, and remove it when nothing is left to move."""
    perm, source = perm_of(node), node.input(0)
    if perm is None or source is None:
        return 0
    count = 0
    before = source.producer
    if before is not None and _is_transpose(before) and before.graph is node.graph:
        first = perm_of(before)
        if first is not None and len(first) == len(perm):
            perm, held = compose(first, perm), before.inputs[0]
            assert held is not None  # perm_of found it
            source = held
            node.set_input(0, source)
            node.set_attributes({"perm": perm})
            count += 1
    if is_identity(perm):
        patch = GraphPatch(context.model, node)
        patch.replace(node.output, source)
        patch.remove(node)
        objection = patch.apply()
        if objection is None:
            return count + 1
        record.refused("merged", objection, node)
    return count


class _Region:
    """Operators that can compute on the data before a Transpose, and what that would take."""

    def __init__(
        self, context: PassContext, graph: Graph, order: Mapping[Node, int], adapters: Mapping[str, Adapter]
    ) -> None:
        self._context = context
        self._adapters = adapters
        self._graph = graph
        self._order = order
        self._touched: list[Node] = []
        self._sources: dict[Value, Node] = {}
        self._perms: dict[Value, Perm] = {}
        self._nodes: dict[Node, tuple[Perm, Adapted]] = {}

    def grow(self, transpose: Node) -> bool:
        """Collect the region behind a Transpose; return whether there is one."""
        perm = perm_of(transpose)
        if perm is None:
            return False
        self._add_source(transpose.output, transpose, perm)
        waiting = [transpose.output]
        while waiting and len(self._nodes) < MAX_REGION_NODES:
            value = waiting.pop()
            for reader, index in value.uses:
                waiting.extend(self._visit(reader, index, self._perms[value]))
        return bool(self._nodes) and self._is_consistent()

    def _add_source(self, value: Value, transpose: Node, perm: Perm) -> None:
        self._sources[value] = transpose
        self._perms[value] = perm

    def _visit(self, reader: Node, index: int, perm: Perm) -> list[Value]:
        """Take a reader into the region if it can be; return the values that are now held transposed."""
        if reader in self._nodes or reader.graph is not self._graph or _is_transpose(reader):
            return []
        adapted = adapt(reader, perm, self._context.opset(reader), self._adapters)
        if adapted is None or index not in adapted.data_inputs:
            return []
        self._nodes[reader] = (perm, adapted)
        found = []
        if not is_identity(adapted.perm):
            for output in reader.present_outputs():
                self._perms[output] = adapted.perm
                found.append(output)
        for position in adapted.data_inputs:
            value = reader.inputs[position]
            if value is not None and value not in self._perms and has_same_perm(value, perm):
                producer = value.producer
                if producer is not None and producer.graph is self._graph:
                    self._add_source(value, producer, perm)
                    found.append(value)
        return found

    def _is_consistent(self) -> bool:
        """Return whether every input of the region is held as its reader needs it, or not held at all."""
        for node, (perm, adapted) in self._nodes.items():
            for index, value in enumerate(node.inputs):
                held = None if value is None else self._perms.get(value)
                if held is not None and (index not in adapted.data_inputs or held != perm):
                    return False
        return True

    def gain(self) -> int:
        """Return how many transpositions fewer there would be."""
        gain = 0
        for value in self._sources:
            if not value.is_graph_output and all(reader in self._nodes for reader, _ in value.uses):
                gain += 1
        for value, perm in self._perms.items():
            if value in self._sources:
                continue
            outside = [reader for reader, _ in value.uses if reader not in self._nodes]
            absorbed = [reader for reader in outside if self._absorbs(reader, perm)]
            gain += sum(is_identity(compose(perm, perm_of(reader) or ())) for reader in absorbed)
            gain -= value.is_graph_output or len(absorbed) < len(outside)
        return gain - len({id(value) for value in self._unheld_inputs()})

    def _absorbs(self, reader: Node, perm: Perm) -> bool:
        """Return whether a reader outside the region is a Transpose that can take over ``perm`` as well."""
        if not _is_transpose(reader) or reader.graph is not self._graph:
            return False
        own = perm_of(reader)
        return own is not None and len(own) == len(perm)

    def _unheld_inputs(self) -> list[Value]:
        found = []
        for node, (_, adapted) in self._nodes.items():
            for index in adapted.data_inputs:
                value = node.inputs[index]
                if value is not None and value not in self._perms:
                    found.append(value)
        return found

    def commit(self) -> list[Node]:
        """Change the region; return the Transposes that are new, changed or now read something else."""
        inserted: dict[Value, Value] = {}
        for node in sorted(self._nodes, key=self._order.__getitem__):
            self._adapt_node(node, inserted)
        for value, perm in self._perms.items():
            if value not in self._sources:
                self._restore(value, perm)
        for value, transpose in self._sources.items():
            if not value.use_count and not value.is_graph_output:
                self._graph.remove(transpose)
        return self._touched

    def _adapt_node(self, node: Node, inserted: dict[Value, Value]) -> None:
        perm, adapted = self._nodes[node]
        for index in adapted.data_inputs:
            value = node.inputs[index]
            assert value is not None
            if value in self._sources:
                node.set_input(index, self._sources[value].inputs[0])
            elif value not in self._perms:
                if value not in inserted:
                    undone = inverse(perm)
                    held = self._new_transpose(value, undone, _transposed(value.type, undone))
                    self._graph.insert_before(node, held)
                    inserted[value] = held.output
                node.set_input(index, inserted[value])
        for index, array in adapted.constants.items():
            node.set_input(index, self._graph.new_constant(array, "transposed"))
        if adapted.op_type is None:
            node.set_attributes(adapted.attributes)
            return
        other = Node(adapted.op_type, node.inputs, [], adapted.attributes, name=node.name)
        self._graph.insert_before(node, other)
        outputs = [None if value is None else node.detach_output(place) for place, value in enumerate(node.outputs)]
        self._graph.remove(node)
        other.adopt_outputs(outputs)
        self._nodes[other] = self._nodes.pop(node)

    def _restore(self, value: Value, perm: Perm) -> None:
        """Make a value that is now held transposed available as it was to readers outside the region."""
        original = value.type
        outside = [(reader, index) for reader, index in value.uses if reader not in self._nodes]
        plain = []
        for reader, index in outside:
            if self._absorbs(reader, perm):
                reader.set_attributes({"perm": compose(perm, perm_of(reader) or ())})
                self._touched.append(reader)
            else:
                plain.append((reader, index))
        value.type = _transposed(original, inverse(perm))
        if not plain and not value.is_graph_output:
            return
        restored = self._new_transpose(value, perm, original)
        assert value.producer is not None
        self._graph.insert_after(value.producer, restored)
        for reader, index in plain:
            reader.set_input(index, restored.output)
        if value.is_graph_output:
            self._graph.replace_output(value, restored.output)
            restored.output.name, value.name = value.name, restored.output.name

    def _new_transpose(self, value: Value, perm: Perm, value_type: ValueType | None) -> Node:
        name = self._graph.fresh_name(f"{value.name}_transposed")
        node = Node("Transpose", [value], [Value(name, value_type)], {"perm": perm}, name=name)
        self._touched.append(node)
        return node


def _transposed(value_type: ValueType | None, perm: Perm) -> ValueType | None:
    if not isinstance(value_type, TensorType) or value_type.shape is None or len(value_type.shape) != len(perm):
        return value_type
    return TensorType(value_type.dtype, tuple(value_type.shape[axis] for axis in perm))
