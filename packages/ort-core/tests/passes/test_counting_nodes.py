"""What passes know of the graphs is looked up behind changes alone, and nested graphs only where there may be some."""

from __future__ import annotations

import pytest

from ort_core.ir.attributes import Attribute, AttributeKind
from ort_core.ir.graph import Graph
from ort_core.ir.traversal import graphs_of
from ort_core.ops.registry import SchemaRegistry
from ort_core.passes import base
from ort_core.passes.base import PassContext, count_nodes
from ort_core.passes.remove_dead_code import DeadCodeElimination
from ort_core.testing.models import model_of

BODIES = """g (bool c, float[N] x) => (float[N] y) {
    unread = Neg(x)
    t = Tanh(x)
    y = If(c) <then_branch = a () => (float[N] p) { p = Relu(t) }, else_branch = b () => (float[N] q) { q = Abs(t) }>
}"""
PLAIN = "g (float[N] x) => (float[N] y) { t = Tanh(x) y = Neg(t) }"


@pytest.fixture
def walked(monkeypatch):
    """The graphs that were looked through for nested ones."""
    found: list[Graph] = []
    monkeypatch.setattr(base, "graphs_of", lambda graph: found.append(graph) or graphs_of(graph))
    return found


def test_passes_that_change_nothing_count_no_nodes(walked):
    context = PassContext(model_of(BODIES), SchemaRegistry())
    first = DeadCodeElimination().run(context)
    walks = len(walked)
    reports = [first, *(DeadCodeElimination().run(context) for _ in range(3))]
    assert [(each.nodes_before, each.nodes_after) for each in reports] == [(5, 4), (4, 4), (4, 4), (4, 4)]
    assert len(walked) == walks, "nothing has changed"


def test_numbers_follow_edits_that_no_pass_made(walked):
    context = PassContext(model_of(BODIES), SchemaRegistry())
    assert context.num_nodes() == count_nodes(context.model) == 5
    branch = next(node for node in context.model.graph if node.op_type == "If").subgraphs()[0]
    branch.new_node("Neg", [branch.outputs[0]])
    assert context.num_nodes() == count_nodes(context.model) == 6


def test_graph_knows_of_bodies_however_they_come():
    placed = model_of(BODIES).graph
    assert placed.has_bodies
    assert len([*graphs_of(placed)]) == 3
    later = model_of(PLAIN).graph
    assert not later.has_bodies
    assert [*graphs_of(later)] == [later]
    inner = Graph("inner")
    later.nodes[0].set_attributes([Attribute("body", AttributeKind.GRAPH, inner)])
    assert [*graphs_of(later)] == [later, inner]
