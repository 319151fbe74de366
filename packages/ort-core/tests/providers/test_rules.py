"""Rules of operators: the checks that the tables of all providers share."""

from __future__ import annotations

import pytest

from ort_core.plugin import GraphView
from ort_core.plugin.claims import (
    PLACED_BODIES,
    arity_refusal,
    attribute_refusal,
    first_refusal,
    held_bounds,
    held_constant,
    open_size,
    types_refusal,
)
from ort_core.plugin.ir import DataType
from ort_core.testing.claims import typed_model, view_of
from ort_core.testing.models import model_of

TEXT = """g (float[2,n] x, float[2,3] w) => (float[m,k] y, float[2,3] v, int64[2,3] i, int64[2] c) {
    y = Resize <mode = "cubic"> (x, , , sizes)
    sizes = Constant <value_ints = [4, 6]> ()
    v, i = TopK <axis = 0, largest = 0> (w, two)
    two = Constant <value_ints = [2]> ()
    c = Add (sizes, two)
}"""


@pytest.fixture
def view() -> GraphView:
    return view_of(typed_model(model_of(TEXT)))


def test_an_old_opset_an_absent_input_and_an_output_too_many_are_refused(view: GraphView) -> None:
    resize, top = (next(node for node in view.nodes if node.op_type == kind) for kind in ("Resize", "TopK"))
    assert arity_refusal(view, resize, oldest=1, required=1, outputs=1) is None
    assert arity_refusal(view, resize, oldest=99) == "Resize before opset 99 means something else"
    assert arity_refusal(view, resize, required=2) == "Resize lacks one of its first 2 inputs"
    assert arity_refusal(view, top, outputs=1) == "only the first 1 of the outputs of TopK are lowered"
    assert arity_refusal(view, top) is None


def test_types_are_asked_by_position_and_absent_values_are_passed_over(view: GraphView) -> None:
    top = next(node for node in view.nodes if node.op_type == "TopK")
    asked = []

    def refusal(value, allowed):
        asked.append((value.name, allowed))
        return None if value.type.dtype in allowed else f"{value.name} is {value.type.dtype.name}"

    floats, whole = frozenset({DataType.FLOAT}), frozenset({DataType.INT64})
    assert types_refusal([top.input(0), None, top.input(1)], floats, {2: whole}, refusal) is None
    assert asked == [("w", floats), ("two", whole)]
    assert types_refusal(top.inputs, floats, {}, refusal) == "two is INT64"


def test_the_first_condition_that_refuses_gives_the_reason(view: GraphView) -> None:
    node = view.nodes[0]
    conditions = [lambda v, n: None, lambda v, n: f"no {n.op_type}", lambda v, n: 1 / 0]
    assert first_refusal(conditions, view, node) == f"no {node.op_type}"
    assert first_refusal([], view, node) is None


def test_attributes_are_compared_with_what_is_allowed_as_text_and_by_default(view: GraphView) -> None:
    resize = next(node for node in view.nodes if node.op_type == "Resize")
    assert attribute_refusal(resize, {"mode": ("nearest", "cubic")}) is None
    assert attribute_refusal(resize, {"mode": ("nearest", "linear")}) == "mode='cubic'"
    assert attribute_refusal(resize, {"antialias": (0,)}) is None, "the first value is the default"


def test_constants_of_nodes_and_open_sizes_are_found(view: GraphView) -> None:
    resize, top, add = (next(n for n in view.nodes if n.op_type == kind) for kind in ("Resize", "TopK", "Add"))
    held = held_constant(view, top.input(1))
    assert held is not None
    assert held.array().tolist() == [2]
    assert held_constant(view, top.input(0)) is None
    assert held_bounds(view, add.inputs[0]) == (4, 6)
    assert open_size(resize) == "x"
    assert open_size(top) is None
    assert set(PLACED_BODIES) == {"If", "Loop", "Scan"}
