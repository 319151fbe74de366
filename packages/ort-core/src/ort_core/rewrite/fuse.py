"""Bodies of fused nodes: the nodes that a fused node stands for, as a graph that anybody can run in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.subgraph import ValueMap, copy_node
from ort_core.ir.values import Value
from ort_core.rewrite.matcher import Match, constant_of
from ort_core.rewrite.patch import GraphPatch


def build_fused_body(nodes: Sequence[Node], inputs: Sequence[Value | None], outputs: Sequence[Value]) -> Graph:
    """Copy ``nodes`` into a graph of its own.

    It has one input per entry of ``inputs`` (one that nothing reads where that is absent or a repetition), so that it
    can be called with the fused node's inputs, and its outputs are ``outputs``. Fixed constants that the nodes read
    beside the inputs come along as initializers; a node that is fused already keeps its body.

    Raises:
        ValueError: a node reads a value that is neither an input, a constant, nor made by one of the nodes.
    """
    graph = Graph("fused")
    values: ValueMap = {}
    for index, value in enumerate(inputs):
        if value is None or value in values:
            graph.add_input(Value(f"unread_{index}"))
        else:
            values[value] = Value(value.name, value.type)
            graph.add_input(values[value])
    for node in _in_graph_order(nodes):
        for value in node.present_inputs():
            if value in values:
                continue
            constant = constant_of(value)
            if constant is None:
                raise ValueError(f"{node.describe()} reads {value.name!r}, which is not an input of the fused node")
            values[value] = graph.add_initializer(Value(value.name, value.type, constant=constant))
        graph.append(copy_node(node, values))
    graph.set_outputs([values[value] for value in outputs])
    return graph


def fuse(
    patch: GraphPatch,
    match: Match,
    op_type: str,
    inputs: Sequence[Value | None],
    attributes: Mapping[str, object] | None = None,
    *,
    domain: str = "com.microsoft",
    outputs: Sequence[Value] | None = None,
    nodes: Sequence[Node] | None = None,
) -> Node:
    """Replace the matched nodes by one fused node that carries them as its body; returns the fused node.

    Args:
        patch: receives the node, the replacements and the removals.
        match: where; its nodes and outputs are replaced unless ``nodes`` and ``outputs`` say otherwise.
        op_type: the fused operator.
        inputs: its inputs in the order of its specification, ``None`` where absent.
        attributes: its attributes.
        domain: its domain.
        outputs: the values that it replaces, in the order of its outputs.
        nodes: the nodes that it stands for.
    """
    members = tuple(nodes if nodes is not None else match.nodes)
    made = tuple(outputs if outputs is not None else match.outputs)
    body = build_fused_body(members, inputs, made)
    node = patch.node(op_type, inputs, attributes or {}, outputs=tuple(v.type for v in made), domain=domain, body=body)
    for old, new in zip(made, node.outputs, strict=True):
        assert new is not None
        patch.replace(old, new)
    patch.remove(*members)
    return node


def _in_graph_order(nodes: Sequence[Node]) -> list[Node]:
    members = set(nodes)
    order: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node in order:
            return
        for value in node.present_inputs():
            if value.producer in members and value.producer is not None:
                visit(value.producer)
        order[node] = None

    for node in nodes:
        visit(node)
    return list(order)
