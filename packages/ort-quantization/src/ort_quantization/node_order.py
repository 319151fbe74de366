"""Nodes behind those whose results they read, as ONNX asks; files of other orders are read, too.

What a node reads is what its graphs capture, too.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection

from onnx import AttributeProto, GraphProto, NodeProto

from ort_quantization.errors import InvalidQuantization


def inner_graphs(node: NodeProto) -> list[GraphProto]:
    """Return the graphs of a node."""
    inner = [each.g for each in node.attribute if each.type == AttributeProto.GRAPH]
    return [*inner, *(graph for each in node.attribute for graph in each.graphs)]


def reads_of(node: NodeProto) -> set[str]:
    """Return the values that a node reads, those that its graphs capture among them."""
    return {name for name in node.input if name} | {name for inner in inner_graphs(node) for name in free_names(inner)}


def free_names(graph: GraphProto) -> set[str]:
    """Return the values that a graph reads and does not give."""
    read = {each.name for each in graph.output} | {name for node in graph.node for name in reads_of(node)}
    given = {each.name for each in graph.input} | {tensor.name for tensor in graph.initializer}
    return read - given - {name for node in graph.node for name in node.output}


def sorted_nodes(graph: GraphProto) -> list[NodeProto]:
    """Return the nodes of a graph, each behind those whose results it reads, else in their order.

    Raises:
        InvalidQuantization: nodes read their own results.
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
        raise InvalidQuantization(f"node {stuck.name!r} ({stuck.op_type}) reads, over others, its own result")
    return [_copied(graph.node[place]) for place in order]


def _copied(node: NodeProto) -> NodeProto:
    copied = NodeProto()
    copied.CopyFrom(node)
    return copied


def put_in_order(graph: GraphProto) -> None:
    """Put the nodes of a graph and of those inside it in order; what is in order stays as it is.

    Raises:
        InvalidQuantization: nodes read their own results.
    """
    for node in graph.node:
        for inner in inner_graphs(node):
            put_in_order(inner)
    if not _is_in_order(graph):
        ordered = sorted_nodes(graph)
        del graph.node[:]
        graph.node.extend(ordered)


def _is_in_order(graph: GraphProto) -> bool:
    later = {name for node in graph.node for name in node.output if name}
    for node in graph.node:
        if not later.isdisjoint(reads_of(node)):
            return False
        later.difference_update(node.output)
    return True


def put_early(graph: GraphProto, results: Collection[str]) -> None:
    """Put nodes right behind the one that gives what they read, whose memory is free when nothing else reads it.

    Args:
        graph: in order; changed in place.
        results: of nodes that read one value each, beside initializers.
    """
    early = [node for node in graph.node if node.output[0] in results]
    others = [node for node in graph.node if node.output[0] not in results]
    given = {name for node in others for name in node.output}
    readers: dict[str, list[NodeProto]] = {}
    for node in early:
        readers.setdefault(next((name for name in node.input if name in given), ""), []).append(node)
    ordered = readers.pop("", [])
    for node in others:
        ordered.append(node)
        for name in node.output:
            ordered += readers.pop(name, [])
    ordered = [_copied(node) for node in ordered]  # of the graph that is emptied now
    del graph.node[:]
    graph.node.extend(ordered)
