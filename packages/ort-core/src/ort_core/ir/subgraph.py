"""Copies and cuts: clone a graph, copy nodes into another graph, extract a subgraph with its borders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ort_core.frozen import frozen
from ort_core.ir.attributes import Attribute, AttributeKind
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.traversal import captured_values, reads_of
from ort_core.ir.values import Value

ValueMap = dict[Value, Value]
AttributeMap = Callable[[Attribute], Attribute | None]


def clone_graph(graph: Graph, values: ValueMap | None = None, attribute_map: AttributeMap | None = None) -> Graph:
    """Return a copy of a graph.

    ``values`` maps outer values to what the copy reads instead (itself where absent) and receives every copied
    value. ``attribute_map`` may replace an attribute, or drop it by returning ``None``.
    """
    values = {} if values is None else values
    copy = Graph(graph.name)
    copy.doc, copy.metadata = graph.doc, dict(graph.metadata)
    for value in graph.inputs:
        copy.add_input(_copy_value(value, values))
    for value in graph.initializers:
        copy.add_initializer(values[value] if value in values else _copy_value(value, values))
    for node in graph:
        copy.append(copy_node(node, values, attribute_map))
    copy.set_outputs([values.get(value, value) for value in graph.outputs])
    return copy


def copy_node(node: Node, values: ValueMap, attribute_map: AttributeMap | None = None) -> Node:
    """Return a copy of a node that reads mapped values; its new outputs are added to ``values``."""
    attributes: Iterable[Attribute] = node.attributes.values()
    if node.has_graphs or attribute_map is not None:
        mapped = attributes if attribute_map is None else filter(None, map(attribute_map, attributes))
        attributes = [_copy_attribute(each, values, attribute_map) for each in mapped]
    copy = Node(
        node.op_type,
        [None if v is None else values.get(v, v) for v in node.inputs],
        [None if v is None else _copy_value(v, values) for v in node.outputs],
        attributes,
        domain=node.domain,
        name=node.name,
        overload=node.overload,
        opset=node.opset,
        body=node.body,  # a body captures nothing and never changes once fused: shared
    )
    copy.doc = node.doc
    if node.metadata:
        copy.metadata = dict(node.metadata)
    return copy


@frozen
class Border:
    """What crosses the border of a set of nodes: values read from outside, values made inside and needed there."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    constants: tuple[Value, ...]


def border_of(nodes: Iterable[Node]) -> Border:
    """Return the border of a set of nodes of one graph, in order of first use; fixed constants are listed apart."""
    nodes = list(nodes)
    members = set(nodes)
    inputs: dict[Value, None] = {}
    constants: dict[Value, None] = {}
    for node in nodes:
        for value in reads_of(node) if node.has_graphs else node._inputs:
            if value is None or value.producer in members:
                continue
            fixed = value.graph is not None and value.graph.fixed_constant(value) is not None
            (constants if fixed else inputs)[value] = None
    outputs = [
        value for node in nodes for value in node.present_outputs()
        if value.is_graph_output or _is_read_outside(value, node.graph, members)
    ]  # fmt: skip
    return Border(tuple(inputs), tuple(outputs), tuple(constants))


def _is_read_outside(value: Value, graph: Graph | None, members: set[Node]) -> bool:
    for reader, _ in value._uses:  # noqa: SIM110 - asked of each value of a graph: a generator takes twice as long
        if reader not in members and _outermost(reader, graph) not in members:
            return True
    return False


def extract(nodes: Iterable[Node], name: str = "extracted", border: Border | None = None) -> tuple[Graph, Border]:
    """Copy nodes of one graph into a new graph whose inputs and outputs are their border; constants come along.

    ``border`` is that of the nodes, where the caller has it.
    """
    nodes = list(nodes)
    border = border or border_of(nodes)
    values: ValueMap = {}
    graph = Graph(name)
    for value in border.inputs:
        graph.add_input(_copy_value(value, values, keep_constant=False))
    for value in border.constants:
        graph.add_initializer(_copy_value(value, values))
    for node in nodes:
        graph.append(copy_node(node, values))
    graph.set_outputs([values[value] for value in border.outputs])
    return graph, border


def inline(graph: Graph, anchor: Node, body: Graph, bindings: Mapping[Value, Value]) -> list[Value]:
    """Copy the nodes of ``body`` before ``anchor``, its inputs bound to values of ``graph``; return its outputs.

    Names that are taken get fresh ones. The constants of ``body`` become initializers of ``graph``.
    """
    values: ValueMap = dict(bindings)
    for value in body.initializers:
        if value not in values:
            assert value.constant is not None
            values[value] = graph.new_constant(value.constant, value.name)
    for node in body:
        copy = copy_node(node, values)
        _rename_fresh(copy, graph)
        graph.insert_before(anchor, copy)
    return [values.get(value, value) for value in body.outputs]


def _rename_fresh(node: Node, graph: Graph) -> None:
    for value in node.present_outputs():
        value.name = graph.fresh_name(value.name or node.op_type)
    for nested in node.subgraphs():
        for value in nested.inputs:
            value.name = graph.fresh_name(value.name)
        for value in nested.initializers:
            if not value.is_graph_input:
                del nested._initializers[value.name]
                value.name = graph.fresh_name(value.name)
                nested._initializers[value.name] = value
        for inner in nested:
            _rename_fresh(inner, graph)


def _copy_value(value: Value, values: ValueMap, *, keep_constant: bool = True) -> Value:
    copy = Value(value.name, value.type, constant=value.constant if keep_constant else None)
    copy.doc = value.doc
    if value.metadata:
        copy.metadata = dict(value.metadata)
    values[value] = copy
    return copy


def _copy_attribute(attribute: Attribute, values: ValueMap, attribute_map: AttributeMap | None) -> Attribute:
    graphs = attribute.graphs()
    if not graphs:
        return attribute
    copies = tuple(clone_graph(graph, values, attribute_map) for graph in graphs)
    value = copies[0] if attribute.kind is AttributeKind.GRAPH else copies
    return Attribute(attribute.name, attribute.kind, value)  # one that refers to another holds no graph


def _outermost(node: Node, graph: Graph | None) -> Node:
    """Return the node of ``graph`` that is, or around which is, ``node``."""
    while node.graph is not graph and node.graph is not None and node.graph.owner is not None:
        node = node.graph.owner
    return node


__all__ = ["Border", "border_of", "captured_values", "clone_graph", "copy_node", "extract", "inline"]
