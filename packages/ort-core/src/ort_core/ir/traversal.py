"""Walks over graphs: nested graphs, captured values, topological order, reachability."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.values import Value


def walk(graph: Graph) -> Iterator[Node]:
    """Yield every node of a graph and of the graphs nested in it, outer before inner."""
    for node in graph:
        yield node
        if node.has_graphs:
            for nested in node.subgraphs():
                yield from walk(nested)


def graphs_of(graph: Graph) -> Iterator[Graph]:
    """Yield a graph and every graph nested in it, outer before inner."""
    yield graph
    # As the graph's iterator does: most bodies have two nodes, and it is half of the walk.
    node = graph._first if graph.has_bodies else None
    while node is not None:
        following = node._next
        if node.has_graphs:
            for nested in node.subgraphs():
                yield from graphs_of(nested)
        node = node._next if node.graph is graph else following


def captured_values(node: Node) -> tuple[Value, ...]:
    """Return the values of enclosing graphs that the bodies of a node read, each once, in order of first use."""
    nested = node.subgraphs()
    if not nested:
        return ()
    graphs = [graph for body in nested for graph in graphs_of(body)]
    inner = {*graphs, None}
    reads: list[Value | None] = []
    for graph in graphs:
        for reader in graph:
            reads += reader._inputs
        reads += graph._outputs
    return tuple(dict.fromkeys([value for value in reads if value is not None and value.graph not in inner]))


def reads_of(node: Node) -> tuple[Value, ...]:
    """Return all values that a node reads: its inputs and what its bodies capture, each once."""
    if not node.has_graphs:
        return tuple(dict.fromkeys(node.present_inputs()))
    return tuple(dict.fromkeys((*node.present_inputs(), *captured_values(node))))


def predecessors(node: Node) -> tuple[Node, ...]:
    """Return the nodes of the same graph whose outputs a node reads."""
    graph = node.graph
    found: dict[Node, None] = {}
    for value in reads_of(node) if node.has_graphs else node.present_inputs():
        before = value.producer
        if before is not None and before.graph is graph:
            found[before] = None
    return tuple(found)


def topological_order(graph: Graph) -> list[Node]:
    """Return the nodes so that producers come first, keeping the present order where it is free.

    Raises:
        ValueError: the graph has a cycle; the message names a node on it.
    """
    position = {node: index for index, node in enumerate(graph)}
    waiting = {node: len(predecessors(node)) for node in position}
    successors: dict[Node, list[Node]] = {node: [] for node in position}
    for node in position:
        for before in predecessors(node):
            successors[before].append(node)
    ready = [(position[node], id(node), node) for node, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        _, _, node = heapq.heappop(ready)
        order.append(node)
        for after in successors[node]:
            waiting[after] -= 1
            if waiting[after] == 0:
                heapq.heappush(ready, (position[after], id(after), after))
    if len(order) != len(position):
        stuck = next(node for node, count in waiting.items() if count)
        raise ValueError(f"the graph has a cycle through {stuck.describe()}")
    return order


def is_topologically_sorted(graph: Graph) -> bool:
    """Return whether every node stands behind the nodes of the same graph that it reads from."""
    seen: set[Node] = set()
    for node in graph.nodes:
        if not seen.issuperset(predecessors(node)):
            return False
        seen.add(node)
    return True


def depend_on(values: Iterable[Value], nodes: Iterable[Node], behind: Node) -> bool:
    """Return whether any of ``values`` follows from any of ``nodes``, all of them read, near or far, by ``behind``.

    Walks the graph's order back from ``behind``, no further than the first of ``nodes``: what stands before cannot
    follow from them, and a graph has many nodes.
    """
    graph, left = behind.graph, set(nodes)
    producers = (value.producer for value in values)
    wanted = {producer for producer in producers if producer is not None and producer.graph is graph}
    node: Node | None = behind
    while node is not None and left and wanted:
        if node in wanted:
            if node in left:
                return True
            wanted.discard(node)
            wanted.update(predecessors(node))
        left.discard(node)
        node = node._previous
    return False
