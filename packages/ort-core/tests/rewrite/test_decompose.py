"""Decomposition: a node becomes its operator's parts, which compute the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.subgraph import extract
from ort_core.kernels.evaluator import BoundGraph
from ort_core.kernels.kernel import Unguarded
from ort_core.rewrite.decompose import _reads_alike, decompose
from ort_core.testing.claims import typed_model, view_of

HEADER = '<ir_version: 10, opset_import: ["" : 21]> '


def parts_of(text: str):
    """Return the view of a graph of one node, a copy of the graph, and what decomposing that node answers."""
    view = view_of(typed_model(onnx.parser.parse_model(HEADER + text)))
    graph, _ = extract(view.nodes)
    return view, graph, decompose(graph, graph.nodes[0], view.context)


@pytest.mark.parametrize(
    "text",
    [
        'g (float[3,4] x) => (float[3,4] y) { y = Gelu<approximate="tanh">(x) }',
        "g (float[3,4] x) => (float[3,4] y) { y = HardSwish(x) }",
        "g (float[3,4] x) => (float[3,4] y) { y = ThresholdedRelu<alpha=0.5>(x) }",
        "g (float[3,4] x, float low) => (float[3,4] y) { y = Clip(x, low) }",
        "g (float[3,4] x) => (float[3,4] y) { y = Softmax(x) }",
    ],
    ids=["attribute", "no attribute", "number", "absent input", "default of an attribute"],
)
def test_the_parts_compute_what_the_operator_does(text: str) -> None:
    view, graph, made = parts_of(text)
    assert not isinstance(made, Rejection), made
    assert list(graph.nodes) == list(made), "the node is gone and its parts are told in order"
    assert "Gelu" not in [node.op_type for node in made]
    feeds = [np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4), np.float32(-0.5)][: len(graph.inputs)]
    feeds = [np.asarray(each) for each in feeds]
    whole = extract(view.nodes)[0]
    expected, found = (BoundGraph(g, view.context).run(feeds, {}, Unguarded()) for g in (whole, graph))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)


def test_an_attribute_that_is_left_out_has_the_operators_default_in_the_parts() -> None:
    view, graph, made = parts_of("g (int64 n) => (float[m] y) { y = HannWindow(n) }")  # periodic is 1
    assert not isinstance(made, Rejection), made
    whole = extract(view.nodes)[0]
    feeds = [np.asarray(8)]
    expected, found = (BoundGraph(g, view.context).run(feeds, {}, Unguarded()) for g in (whole, graph))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[0], 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(8) / 8), rtol=1e-5, atol=1e-6)


def test_names_and_types_of_outputs_stay() -> None:
    _, graph, _ = parts_of("g (float[3,4] x) => (float[3,4] y) { y = Gelu(x) }")
    assert [(value.name, str(value.type)) for value in graph.outputs] == [("y", "tensor(float)")]


@pytest.mark.parametrize(
    ("op_type", "attributes", "first", "second", "is_alike"),
    [
        ("Relu", {}, 13, 14, True),  # more element types
        ("Reshape", {}, 13, 14, True),  # an attribute more, whose default is what was before
        ("ReduceMean", {"axes": (0,)}, 13, 18, False),  # axes became an input
        ("Softmax", {}, 11, 13, False),  # another default of axis
        ("Softmax", {"axis": 1}, 11, 13, True),
        ("GroupNormalization", {"num_groups": 2}, 18, 21, False),
    ],
)
def test_versions_are_alike_where_a_node_means_the_same_in_both(op_type, attributes, first, second, is_alike) -> None:
    view = view_of(typed_model(onnx.parser.parse_model(HEADER + "g (float[2] x) => (float[2] y) { y = Relu(x) }")))
    versions = [view.context.schemas.find("", op_type, opset) for opset in (first, second)]
    assert _reads_alike(Node(op_type, [], 1, attributes), *versions) is is_alike


def test_an_operator_without_a_body_is_left_with_the_reason() -> None:
    _, graph, answer = parts_of("g (float[3,4] x) => (float[3,4] y) { y = Exp(x) }")
    assert isinstance(answer, Rejection)
    assert "ai.onnx::Exp has no function body" in answer.reason
    assert [node.op_type for node in graph] == ["Exp"]


def test_a_body_makes_what_is_wanted_where_an_output_before_it_is_absent() -> None:
    header = '<ir_version: 11, opset_import: ["" : 23]> '
    text = "g (float[1,2,3,4] q, float[1,2,5,4] k, float[1,2,5,4] v) => (float[1,2,3,4] y) { y = Attention(q, k, v) }"
    model = onnx.parser.parse_model(header + text)
    model.graph.node[0].output.extend(["", "", "products"])
    model.graph.output.append(onnx.helper.make_tensor_value_info("products", 1, [1, 2, 3, 5]))
    view = view_of(typed_model(model))
    graph, _ = extract(view.nodes)
    made = decompose(graph, graph.nodes[0], view.context)
    assert not isinstance(made, Rejection), made
    random = np.random.default_rng(2)
    feeds = [random.standard_normal((1, 2, size, 4)).astype(np.float32) for size in (3, 5, 5)]
    whole = extract(view.nodes)[0]
    expected, found = (BoundGraph(g, view.context).run(feeds, {}, Unguarded()) for g in (whole, graph))
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)


def test_parts_that_would_compute_something_else_are_refused() -> None:
    header = HEADER.replace("21", "23")
    model = onnx.parser.parse_model(
        f"{header} g (float[1,2,3,4] q, bool[3,1] m) => (float[1,2,3,4] y) {{ y = Attention(q, q, q, m) }}",
    )
    view = view_of(typed_model(model))
    graph, _ = extract(view.nodes)
    made = decompose(graph, graph.nodes[0], view.context)
    assert isinstance(made, Rejection)
    assert "shorter than the keys" in made.reason
    assert [node.op_type for node in graph] == ["Attention"], "nothing is changed"


@pytest.mark.parametrize(
    ("opset", "keys"), [(23, 3), (24, 1)], ids=["of all keys", "of one, where the parts make more"]
)
def test_an_attention_with_a_mask_has_parts_that_compute_the_same(opset: int, keys: int) -> None:
    header = HEADER.replace("21", str(opset))
    model = onnx.parser.parse_model(
        f"{header} g (float[1,2,3,4] q, bool[3,{keys}] m) => (float[1,2,3,4] y) {{ y = Attention(q, q, q, m) }}"
    )
    view = view_of(typed_model(model))
    graph, _ = extract(view.nodes)
    assert not isinstance(decompose(graph, graph.nodes[0], view.context), Rejection)
    feeds = [np.random.default_rng(3).standard_normal((1, 2, 3, 4)).astype(np.float32), np.ones((3, keys), np.bool_)]
    expected, found = (
        BoundGraph(each, view.context).run(feeds, {}, Unguarded()) for each in (extract(view.nodes)[0], graph)
    )
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)


def test_a_mapped_sequence_of_unknown_type_has_no_parts() -> None:
    """onnx's builder of the body reads that type without a look: an unknown one ended the process."""
    text = """g (seq(float[3]) s) => (seq(float[3]) y)
        { y = SequenceMap<body = b (float[3] i) => (float[3] o) { o = Neg(i) }>(s) }"""
    view = view_of(typed_model(onnx.parser.parse_model(HEADER + text)))
    schema = view.context.schemas.find("", "SequenceMap", 21)
    answer = schema.build_body(view.nodes[0], [None], 21, {"": 21})
    assert isinstance(answer, Rejection)
    assert "the type of the first input of ai.onnx::SequenceMap is not known" in answer.reason
