"""Where nodes of a graph stand to each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.values import Value


@pytest.mark.parametrize("place", range(5))
def test_precedes_all_tells_what_stands_before_a_node_whichever_way_it_lies(place):
    graph = Graph()
    value = graph.new_constant(np.zeros(1, np.float32))
    nodes = [graph.append(Node("Relu", [value])) for _ in range(5)]
    graph.reorder([nodes[i] for i in (3, 1, 4, 0, 2)])
    order = graph.nodes
    for others in itertools.chain.from_iterable(itertools.combinations(order, n) for n in range(5)):
        if order[place] not in others:
            expected = all(order.index(other) > place for other in others)
            assert graph.precedes_all(order[place], set(others)) is expected


class _Counting(set):
    asked = 0

    def __contains__(self, item):
        self.asked += 1
        return super().__contains__(item)


@pytest.mark.parametrize(("place", "other"), [(500, 502), (500, 498), (1, 0), (998, 999)])
def test_precedes_all_looks_no_further_than_the_node_that_tells_it(place, other):
    graph = Graph()
    value = graph.new_constant(np.zeros(1, np.float32))
    nodes = [graph.append(Node("Relu", [value])) for _ in range(1000)]
    others = _Counting({nodes[other]})
    assert graph.precedes_all(nodes[place], others) is (other > place)
    assert others.asked <= 4


def test_lists_of_nodes_and_inputs_follow_every_edit() -> None:
    x, y = Value("x"), Value("y")
    first, last = Node("Relu", [x]), Node("Neg", [x])
    graph = Graph("g", inputs=[x, y], nodes=[first, last])
    assert (graph.nodes, last.inputs) == ((first, last), (x,))
    last.set_input(0, y)
    assert last.inputs == (y,)
    last.append_input(x)
    assert last.inputs == (y, x)
    last.set_inputs([x])
    assert last.inputs == (x,)
    middle = graph.insert_before(last, Node("Abs", [x]))
    assert graph.nodes == (first, middle, last)
    graph.reorder([last, middle, first])
    assert graph.nodes == (last, middle, first)
    graph.remove(middle)
    assert graph.nodes == tuple(graph) == (last, first)
    graph.freeze()
    assert graph.nodes == tuple(graph) == (last, first)
