"""Graphs in the form of ONNX files: what a node reads, the graphs within, nodes behind those whose results they read.

What a node reads is what its graphs capture, too.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from onnx import AttributeProto, GraphProto, NodeProto

from ort_core.ir.rejection import Rejection


def inner_graphs(node: NodeProto) -> list[GraphProto]:
    """Return the graphs in the attributes of a node."""
    inner = [each.g for each in node.attribute if each.type == AttributeProto.GRAPH]
    return [*inner, *(graph for each in node.attribute for graph in each.graphs)]


def graphs_of(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield a graph and those inside its nodes, to any depth, outer before inner."""
    yield graph
    for node in graph.node:
        for inner in inner_graphs(node) if node.attribute else ():
            yield from graphs_of(inner)


def drop_idle_nodes(graph: GraphProto) -> None:
    """Remove nodes of which no output has a name, in place, those in inner graphs as well."""
    for each in graphs_of(graph):
        for place in reversed(range(len(each.node))):
            if not any(each.node[place].output):
                del each.node[place]


def reads_of(node: NodeProto) -> set[str]:
    """Return the names of the values that a node reads, those that its graphs capture among them."""
    return {name for name in node.input if name} | {name for inner in inner_graphs(node) for name in free_names(inner)}


def reads_in_order(node: NodeProto) -> list[str]:
    """Return the names of the values that a node reads: its inputs, then by name what its graphs capture."""
    inputs = list(dict.fromkeys(name for name in node.input if name))
    return [*inputs, *sorted(reads_of(node) - set(inputs))]


def free_names(graph: GraphProto) -> set[str]:
    """Return the names of the values that a graph reads and does not give."""
    read = {each.name for each in graph.output} | {name for node in graph.node for name in reads_of(node)}
    given = {each.name for each in graph.input} | {tensor.name for tensor in graph.initializer}
    return read - given - {name for node in graph.node for name in node.output}


def sorted_nodes(graph: GraphProto) -> list[NodeProto] | Rejection:
    """Return copies of the nodes of a graph, each behind those whose results it reads, else in their order.

    Nodes that read their own results, over others, have no order: that is the reason given then.
    """
    maker = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
    needs = [{maker[name] for name in reads_of(node) if name in maker} for node in graph.node]
    readers: list[list[int]] = [[] for _ in needs]
    for place, needed in enumerate(needs):
        for other in needed:
            readers[other].append(place)
    left = [len(needed) for needed in needs]
    ready = [place for place, count in enumerate(left) if not count]
    order: list[int] = []
    while ready:
        place = heapq.heappop(ready)
        order.append(place)
        for reader in readers[place]:
            left[reader] -= 1
            if not left[reader]:
                heapq.heappush(ready, reader)
    if len(order) != len(needs):
        stuck = next(node for node, count in zip(graph.node, left, strict=True) if count)
        return Rejection(f"node {stuck.name!r} ({stuck.op_type}) reads, over others, its own result")
    return [copy_of(graph.node[place]) for place in order]


def sort_graph(graph: GraphProto) -> Rejection | None:
    """Put the nodes of a graph in order, or return why they have none. Graphs within stay as they are."""
    if is_sorted(graph):
        return None
    ordered = sorted_nodes(graph)
    if isinstance(ordered, Rejection):
        return ordered
    del graph.node[:]
    graph.node.extend(ordered)
    return None


def is_sorted(graph: GraphProto) -> bool:
    """Return whether each node stands behind those whose results it reads."""
    later = {name for node in graph.node for name in node.output if name}
    for node in graph.node:
        if not later.isdisjoint(reads_of(node)):
            return False
        later.difference_update(node.output)
    return True


def copy_of(node: NodeProto) -> NodeProto:
    """Return a copy of a node, which outlives the graph that holds the node."""
    copied = NodeProto()
    copied.CopyFrom(node)
    return copied
