"""Capability: what is claimed, and the reason for every node that is not. Needs no coremltools."""

from __future__ import annotations

import re
import sys

import pytest

from ort_core.plugin import Claim, Rejection
from ort_ep_coreml.capability import find_capability
from ort_ep_coreml.options import CoreMlOptions
from ort_ep_coreml.provider import CoreMlExecutionProvider

GRU_OF_OPEN_LENGTH = (
    "g (float[s,1,1] x) => (float[s,1,1,1] y) <float[1,3,1] w = {1,1,1}, float[1,3,1] r = {1,1,1}> "
    "{ y = GRU<hidden_size=1>(x, w, r) }"
)


def answers(view, text: str, **options: object) -> tuple[list[list[str]], dict[str, str]]:
    """Return the operators of each claim, and the reasons by operator."""
    found = find_capability(view(text), CoreMlOptions(**options))
    claims = [[node.op_type for node in answer.nodes] for answer in found if isinstance(answer, Claim)]
    return claims, {answer.node.op_type: answer.reason for answer in found if isinstance(answer, Rejection)}


def test_a_chain_is_one_claim(view):
    claims, reasons = answers(view, "g (float[n,4] x) => (float[n,4] y) { a = Relu(x)  b = Tanh(a)  y = Add(a, b) }")
    assert claims == [["Relu", "Tanh", "Add"]]
    assert not reasons


@pytest.mark.parametrize(
    ("operator", "text", "why"),
    [
        ("Exp", "g (double[4] x) => (double[4] y) { y = Exp(x) }", "not an element type"),
        ("Relu", "g (float[1,1,1,1,1,4] x) => (float[1,1,1,1,1,4] y) { y = Relu(x) }", "at most 5 dimensions"),
        ("Relu", "g (float[0,4] x) => (float[0,4] y) { y = Relu(x) }", "no element"),
        (
            "Conv",
            "g (float[1,1,9] x, float[1,1,3] w) => (float[1,1,5] y) { y = Conv<dilations=[2]>(x, w) }",
            "not constants",
        ),
        ("Mul", "g (int64[4] x) => (int64[4] y) { y = Mul(x, x) }", "nothing proves"),
        ("Add", "g (int64[4] x) => (int64[4] y) <int64 c = {4294967296}> { y = Add(x, c) }", "nothing proves"),
        ("Equal", "g (int64[4] x) => (bool[4] y) <int64 c = {4294967296}> { y = Equal(x, c) }", "beyond int32"),
        ("Cast", "g (float[4] x) => (int64[4] y) { y = Cast<to=7>(x) }", "int32"),
        ("Gather", "g (float[n,4] x, int64[3] i) => (float[3,4] y) { y = Gather(x, i) }", "not known beforehand"),
        ("ReduceSum", "g (float[4] x, int64[1] a) => (float[1] y) { y = ReduceSum(x, a) }", "not a constant"),
        ("GRU", GRU_OF_OPEN_LENGTH, "written out"),
        ("Identity", "g (float[4] x) => (float[4] y) { y = Identity(x) }", "nothing to compute"),
        ("Reshape", "g (float[n,m] x, int64[3] s) => (float[a,b,c] y) { y = Reshape(x, s) }", "more than one size"),
        (
            "AveragePool",
            "g (float[1,1,5,5] x) => (float[1,1,3,3] y) { y = "
            "AveragePool<kernel_shape=[2,2],strides=[2,2],ceil_mode=1,count_include_pad=1>(x) }",
            "ceil_mode=1",
        ),
        ("Det", "g (float[2,2] x) => (float y) { y = Det(x) }", "not among"),
    ],
)
def test_what_cannot_be_lowered_is_refused_with_the_reason(view, operator, text, why):
    claims, reasons = answers(view, text)
    assert not claims
    assert re.search(why, reasons[operator]), reasons


def test_integers_that_are_proven_to_fit_are_claimed(view):
    text = "g (float[2,n] x) => (int64[2] y) <int64 c = {2}> { s = Shape(x)  y = Div(s, c) }"
    claims, reasons = answers(view, text)
    assert claims == [["Shape", "Div"]], reasons


def test_a_node_in_the_middle_that_is_refused_splits_the_claim(view):
    text = "g (float[2,2] x) => (float[2,2] y) { a = Relu(x)  d = Det(a)  b = Mul(a, d)  y = Tanh(b) }"
    claims, reasons = answers(view, text)
    assert claims == [["Relu"], ["Mul", "Tanh"]]
    assert set(reasons) == {"Det"}


def test_open_sizes_are_left_where_the_option_says_so(view):
    text = "g (float[n,4] x) => (float[n,4] y) { y = Relu(x) }"
    claims, reasons = answers(view, text, RequireStaticInputShapes=True)
    assert not claims
    assert "RequireStaticInputShapes" in reasons["Relu"]


def test_indices_below_the_smallest_size_of_an_open_axis_are_claimed(view):
    text = (
        "g (float[n,2] x, float[m] t) => (float[m,2] y) <int64 z = {0}, int64 o = {1}> "
        "{ s = Shape(t)  l = Squeeze(s)  i = Range(z, l, o)  y = Gather(x, i) }"
    )
    claims, _ = answers(view, text, OpenSizes="n=8..64, m=1..8")
    assert claims == [["Shape", "Squeeze", "Range", "Gather"]]
    claims, reasons = answers(view, text, OpenSizes="n=8..64, m=1..9")
    assert "below its smallest" in reasons["Gather"]
    claims, reasons = answers(view, text)
    assert "OpenSizes may bound both" in reasons["Gather"]


def test_the_provider_for_apples_devices_tells_its_claims_on_any_system(view, monkeypatch):
    monkeypatch.setitem(sys.modules, "coremltools", None)
    found = CoreMlExecutionProvider().get_capability(view("g (float[n,4] x) => (float[n,4] y) { y = Relu(x) }"))
    assert [type(answer) for answer in found] == [Claim]
