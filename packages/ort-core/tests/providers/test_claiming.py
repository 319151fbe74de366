"""The loop from reasons to claims, and values known before a run: what every provider leaves to the door."""

from __future__ import annotations

import numpy as np
import pytest

from ort_core.plugin import Claim, Rejection
from ort_core.plugin.claims import (
    SIZE_ARITHMETIC,
    bounds_of,
    claims_of,
    dtype_of,
    form_groups,
    is_static,
    results_beforehand,
    small_bounds,
)
from ort_core.plugin.ir import Constant, DataType
from ort_core.testing.claims import typed_model, view_of
from ort_core.testing.models import model_of

CHAIN = """g (float[2] x) => (float[2] y) {
    a = Relu (x)
    b = Sigmoid (a)
    c = Neg (b)
    y = Add (c, a)
}"""


@pytest.fixture
def view():
    return view_of(typed_model(model_of(CHAIN)))


def kinds(groups):
    return [[node.op_type for node in group] for group in groups]


def test_groups_are_formed_anew_until_nothing_more_is_refused(view):
    relu, sigmoid, neg, add = view.nodes
    asked = []

    def ask(group):
        asked.append(group)
        return {neg: "not within a group"} if neg in group and len(group) > 1 else {}

    reasons = {}
    groups = form_groups(view, reasons, ask)
    assert kinds(groups) == [["Relu", "Sigmoid"], ["Add"]]
    assert reasons == {neg: "not within a group"}
    assert len(asked) == len(set(asked)), "each group is asked about once"
    assert asked[0] == (relu, sigmoid, neg, add)


def test_without_fusing_each_node_is_a_group_of_its_own(view):
    assert [len(group) for group in form_groups(view, {}, is_fused=False)] == [1, 1, 1, 1]


def test_a_group_that_is_not_worth_it_is_left_with_its_reasons_and_the_others_stay(view):
    relu, sigmoid, _, _ = view.nodes
    reasons = {sigmoid: "no rule"}
    groups = form_groups(view, reasons)
    found = claims_of(groups, reasons, lambda group: dict.fromkeys(group, "too small") if group == (relu,) else {})
    assert [claim.nodes for claim in found if isinstance(claim, Claim)] == [
        group for group in groups if relu not in group
    ]
    left = {each.node: each.reason for each in found if isinstance(each, Rejection)}
    assert left == {sigmoid: "no rule", relu: "too small"}


SIZES = """g (float[2,n] x, int64[2] k) => (int64[1] y, int64[2] z) <int64[1] two = {2}> {
    s = Shape <start = 0, end = 1> (x)
    y = Mul (s, two)
    z = Add (k, two)
}"""


def test_what_follows_from_sizes_is_evaluated_and_what_does_not_says_why():
    view = view_of(typed_model(model_of(SIZES)))
    shape, mul, add = view.nodes
    known = {}

    def content(value):
        constant = view.constant(value)
        return known.get(value) if constant is None else constant.array()

    known.update(results_beforehand(shape, view.context, content, lambda value: (2, 7)))
    known.update(results_beforehand(mul, view.context, content, lambda value: None))
    assert known[mul.output].tolist() == [4]
    found = results_beforehand(add, view.context, content, lambda value: None)
    assert isinstance(found, Rejection)
    assert found.reason == "'k' is not known before a run"
    found = results_beforehand(shape, view.context, content, lambda value: None)
    assert isinstance(found, Rejection), "a size of it is open"
    found = results_beforehand(mul, view.context, content, lambda value: None, SIZE_ARITHMETIC - {"Mul"})
    assert isinstance(found, Rejection)
    assert found.reason == "Mul is not evaluated beforehand"


def test_facts_of_values_are_none_where_they_are_not_known():
    view = view_of(typed_model(model_of(SIZES)))
    x, k = view.graph.inputs[:2]
    assert (dtype_of(x), dtype_of(None)) == (DataType.FLOAT, None)
    assert (is_static(k), is_static(x), is_static(None)) == (True, False, False)
    assert small_bounds(None) is None
    assert small_bounds(Constant.of(np.array([3, -2]), DataType.INT64)) == (-2, 3)
    assert small_bounds(Constant.of(np.zeros(1 << 16, np.int64), DataType.INT64)) is None
    assert bounds_of(np.array([], np.int64)) == (0, 0)
