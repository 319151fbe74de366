"""Graphs of files: reads, captures, and order; what packages that edit files share."""

from __future__ import annotations

import onnx
from onnx import parser

from ort_core.ir.rejection import Rejection
from ort_core.model_graphs import free_names, graphs_of, is_sorted, reads_in_order, reads_of, sort_graph, sorted_nodes

TEXT = """<ir_version: 8, opset_import: ["" : 18]>
g (float[2] x, bool c) => (float[2] y) {
    y = Add (r, b)
    r = If (c) <
        then_branch = t () => (float[2] o) { o = Neg (m)  m = Mul (a, z) },
        else_branch = e () => (float[2] p) { p = Relu (a) }
    >
    a = Abs (x)
    b = Exp (a)
    z = Sin (x)
}"""


def _graph() -> onnx.GraphProto:
    return parser.parse_model(TEXT).graph


def test_a_node_reads_what_its_graphs_capture_but_not_what_they_give() -> None:
    branch = _graph().node[1]
    assert reads_of(branch) == {"c", "a", "z"}
    assert reads_in_order(branch) == ["c", "a", "z"]
    assert free_names(branch.attribute[0].g) == {"a", "z"}


def test_nodes_come_behind_what_they_read_and_keep_their_order_where_it_is_free() -> None:
    graph = _graph()
    assert not is_sorted(graph)
    assert sort_graph(graph) is None
    assert [node.op_type for node in graph.node] == ["Abs", "Exp", "Sin", "If", "Add"]
    assert is_sorted(graph)


def test_graphs_within_are_found_to_any_depth_and_sorted_one_by_one() -> None:
    graph = _graph()
    assert [each.name for each in graphs_of(graph)] == ["g", "t", "e"]
    for each in reversed(list(graphs_of(graph))):
        assert sort_graph(each) is None
    assert all(is_sorted(each) for each in graphs_of(graph))


def test_nodes_that_read_their_own_results_have_no_order() -> None:
    graph = _graph()
    graph.node[2].input[0] = "b"
    refused = sorted_nodes(graph)
    assert isinstance(refused, Rejection)
    assert "reads, over others, its own result" in refused.reason
    before = graph.SerializeToString()
    assert isinstance(sort_graph(graph), Rejection)
    assert graph.SerializeToString() == before
