"""Whether values follow from nodes is told by looking at what stands between, not at all that stands before."""

from __future__ import annotations

import numpy as np
import pytest

from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.traversal import depend_on, predecessors
from ort_core.ir.values import Value


def chain(length: int) -> list[Node]:
    """Return nodes of one graph, each of which reads the one before."""
    graph, nodes = Graph(), []
    value = Value("x")
    graph.add_input(value)
    for i in range(length):
        node = graph.append(Node("Tanh", [value], [Value(f"t{i}")]))
        nodes.append(node)
        value = node.output
    return nodes


def reachable(start: Node) -> set[Node]:
    """Return all nodes that a node follows from, itself included."""
    found: set[Node] = set()
    waiting = [start]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(predecessors(node))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_depend_on_tells_what_a_walk_over_all_nodes_tells(seed):
    random, graph = np.random.default_rng(seed), Graph()
    values = [Value("x")]
    graph.add_input(values[0])
    nodes = []
    for i in range(30):
        picked = [values[j] for j in random.integers(max(0, len(values) - 6), len(values), 2)]
        nodes.append(graph.append(Node("Add", picked, [Value(f"v{i}")])))
        values.append(nodes[-1].output)
    last = graph.append(Node("Sum", values, [Value("y")]))
    for _ in range(20):
        read = [nodes[j] for j in random.integers(0, 30, 2)]
        asked = {nodes[j] for j in random.integers(0, 30, 2)}
        expected = any(reachable(node) & asked for node in read)
        assert depend_on([node.output for node in read], asked, last) is expected


def test_depend_on_takes_inputs_and_values_of_outer_graphs_for_what_follows_from_nothing():
    nodes = chain(3)
    outer = chain(2)
    assert not depend_on([nodes[0].inputs[0], outer[1].output], {nodes[1], outer[0]}, nodes[2])


def test_depend_on_looks_at_no_more_nodes_in_a_longer_graph(calls_of):
    counted = []
    for length in (100, 1000):
        nodes = chain(length)
        calls, told = calls_of(depend_on, [nodes[-6].output], {nodes[-3], nodes[-4]}, nodes[-1])
        assert told is False
        counted.append(calls)
    assert counted[0] == counted[1], "how far the walk goes grows with what stands before"


def test_an_output_is_replaced_wherever_it_is_returned():
    nodes = chain(3)
    graph = nodes[0].graph
    for node in (nodes[2], nodes[1], nodes[2]):
        graph.add_output(node.output)
    nodes[2].output.replace_uses(nodes[0].output, outputs=True)
    assert graph.outputs == (nodes[0].output, nodes[1].output, nodes[0].output)
    assert nodes[0].output.is_graph_output
    assert not nodes[2].output.is_graph_output
