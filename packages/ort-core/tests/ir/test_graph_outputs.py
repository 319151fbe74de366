"""What a graph returns, replaced place by place and value by value."""

from __future__ import annotations

import numpy as np

from ort_core.ir.graph import Graph


def test_outputs_are_replaced_in_every_place_in_which_they_stand() -> None:
    random, graph = np.random.default_rng(0), Graph()
    values = [graph.new_constant(np.zeros(1, np.float32)) for _ in range(6)]
    graph.set_outputs([values[0], values[1], values[0], values[2]])
    expected = list(graph.outputs)
    for _ in range(300):
        old, new = (values[i] for i in random.integers(0, len(values), 2))
        if random.random() < 0.5:
            graph.replace_output(old, new)
            expected = [new if each is old else each for each in expected]
        else:
            place = int(random.integers(-len(expected), len(expected)))
            graph.set_output(place, new)
            expected[place] = new
        if random.random() < 0.05:
            graph.add_output(old)
            expected.append(old)
        assert list(graph.outputs) == expected
        assert [each.is_graph_output for each in values] == [each in expected for each in values]
