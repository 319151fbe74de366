"""Convex groups: what each holds, and where nodes that read constants alone are."""

from __future__ import annotations

import pytest

from ort_core.plugin import convex_groups
from ort_core.testing.claims import typed_model, view_of
from ort_core.testing.models import model_of

TEXT = """g (float[4,4] x) => (float[4,4] y)
    <int8[4,4] a = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}, float s = {0.5}> {
    early = DequantizeLinear (a, s)
    scale = DequantizeLinear (a, s)
    turned = Transpose (scale)
    both = DequantizeLinear (a, s)
    first = MatMul (x, early)
    shared = Add (first, both)
    middle = Erf (shared)
    last = MatMul (middle, turned)
    y = Add (last, both)
}"""


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        ((), [{"early", "scale", "turned", "both", "first", "shared", "middle", "last", "y"}]),
        (("Erf",), [{"early", "both", "first", "shared"}, {"scale", "turned", "last", "y"}]),
        (("Erf", "Transpose"), [{"early", "scale", "both", "first", "shared"}, {"last", "y"}]),
        (("MatMul",), [{"early"}, {"scale", "turned", "both", "shared", "middle"}, {"y"}]),
    ],
    ids=["all supported", "cut once", "weights behind a refused node", "cut twice"],
)
def test_nodes_of_constants_are_in_the_group_of_their_first_reader(refused: tuple, expected: list) -> None:
    view = view_of(typed_model(model_of(TEXT)))
    groups = convex_groups(view.nodes, lambda node: node.op_type not in refused)
    assert [{node.output.name for node in group} for group in groups] == expected
    order = {node: place for place, node in enumerate(view.nodes)}
    assert all(sorted(group, key=order.__getitem__) == list(group) for group in groups)


def test_nodes_that_read_inputs_of_the_graph_stay_with_those_in_front_of_them() -> None:
    text = "g (float[4,4] x) => (float[4,4] y) { a = Relu(x)  d = Det(a)  b = Neg(a)  y = Mul(b, d) }"
    view = view_of(typed_model(model_of(text)))
    groups = convex_groups(view.nodes, lambda node: node.op_type != "Det")
    assert [[node.output.name for node in group] for group in groups] == [["a", "b"], ["y"]]


def test_refused_nodes_that_depend_on_no_supported_one_split_nothing() -> None:
    text = "g (float[4,4] x) => (float[4,4] y) { a = Relu(x)  d = Det(x)  e = Neg(d)  y = Mul(a, e) }"
    view = view_of(typed_model(model_of(text)))
    groups = convex_groups(view.nodes, lambda node: node.op_type not in ("Det", "Neg"))
    assert [[node.output.name for node in group] for group in groups] == [["a", "y"]]
