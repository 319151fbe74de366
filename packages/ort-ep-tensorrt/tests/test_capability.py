"""Claims: our rules, and what the parser says, node by node; with the fake SDK, and with TensorRT-RTX where it is."""

import pytest

from ort_core.plugin import Claim, Rejection
from ort_ep_tensorrt.capability import find_capability
from ort_ep_tensorrt.settings import BuildSettings


def claimed(view, sdk, **settings):
    """Return the operators of each claim, and the reasons by operator."""
    found = find_capability(view, sdk, BuildSettings(**settings))
    claims = [[node.op_type for node in each.nodes] for each in found if isinstance(each, Claim)]
    return claims, {each.node.op_type: each.reason for each in found if isinstance(each, Rejection)}


@pytest.fixture(params=["fake", "rtx"])
def sdk(request):
    return request.getfixturevalue(request.param)


def test_a_chain_is_one_claim(view, sdk):
    assert claimed(view("g (float[n,4] x) => (float[n,4] y) { a = Relu(x)  y = Exp(a) }"), sdk) == (
        [["Relu", "Exp"]],
        {},
    )


def test_a_node_that_the_parser_does_not_take_splits_the_graph(view, sdk):
    text = "g (float[n,4,4] x) => (float[n] y) { a = Relu(x)  b = Exp(a)  c = Det(b)  d = Relu(c)  y = Exp(d) }"
    claims, reasons = claimed(view(text), sdk)
    assert claims == [["Relu", "Exp"], ["Relu", "Exp"]]
    assert list(reasons) == ["Det"]
    assert reasons["Det"] == "TensorRT's parser: UNSUPPORTED_NODE"


@pytest.mark.parametrize(
    ("text", "operator", "words"),
    [
        ("g (double[4] x) => (double[4] y) { y = Exp(x) }", "Exp", "makes float32 of float64"),
        ("g (uint8[4] x) => (float[4] y) { y = Cast<to=1>(x) }", "Cast", "computes nothing in uint8"),
        ("g (int16[4] x) => (float[4] y) { y = Cast<to=1>(x) }", "Cast", "no such element type"),
        ("g (int8[4] x) => (float[4] y) { y = Cast<to=1>(x) }", "Cast", "only beside QuantizeLinear"),
        ("g () => (float[4] y) { y = RandomNormal<shape=[4]>() }", "RandomNormal", "no seed"),
        ("g (float[4] x) => (float[4] y) { y = Identity(x) }", "Identity", "nothing to compute"),
        (
            "g (bool c, float[4] x) => (float[4] y) { y = If(c) <then_branch = t () => (float[4] a) { a = Exp(x) }, "
            "else_branch = e () => (float[4] b) { b = Exp(x) }> }",
            "If",
            "control flow",
        ),
    ],
)
def test_a_rule_of_ours_refuses_before_the_parser_is_asked(view, sdk, text, operator, words):
    claims, reasons = claimed(view(text), sdk)
    assert not claims
    assert words in reasons[operator]


def test_options_refuse_operators_and_small_groups(view, sdk):
    text = "g (float[4] x) => (float[4] y) { a = Relu(x)  b = Exp(a)  y = Tanh(b) }"
    claims, reasons = claimed(view(text), sdk, excluded=frozenset({"Tanh"}))
    assert claims == [["Relu", "Exp"]]
    assert "trt_op_types_to_exclude" in reasons["Tanh"]
    claims, reasons = claimed(view(text), sdk, min_subgraph_size=4)
    assert not claims
    assert "trt_min_subgraph_size" in reasons["Exp"]


def test_values_from_outside_that_decide_shapes_are_refused(view, rtx):
    text = "g (float[n,4] x, int64[2] s) => (float[a,b] y) { z = Exp(x)  y = Reshape(z, s) }"
    claims, reasons = claimed(view(text), rtx)
    assert claims == [["Exp"]]
    assert "needs the values of 's' for shapes" in reasons["Reshape"]


def test_shapes_that_are_computed_inside_a_claim_are_taken(view, rtx):
    text = (
        "g (float[n,4,2] x) => (float[n,8] y) <int64[1] k = {-1}, int64[1] zero = {0}, int64[1] one = {1}> "
        "{ s = Shape(x)  n0 = Slice(s, zero, one)  t = Concat<axis=0>(n0, k)  e = Exp(x)  y = Reshape(e, t) }"
    )
    claims, reasons = claimed(view(text), rtx)
    assert not reasons
    assert len(claims) == 1


def test_what_rtx_parses_and_never_builds_is_refused(view, rtx, fake):
    text = (
        "g (float[1,6,4] b, float[1,1,6] s) => (int64[k,3] y) <int64[1] m = {3}, float[1] t = {0.5}> "
        "{ y = NonMaxSuppression(b, s, m, t) }"
    )
    assert "has no kernel" in claimed(view(text), rtx)[1]["NonMaxSuppression"]
    assert claimed(view(text), fake) == ([["NonMaxSuppression"]], {})


def test_a_zero_point_that_is_computed_is_refused(view, sdk):
    text = "g (float[n,4] x, float s, int8 z) => (int8[n,4] y) { y = QuantizeLinear(x, s, z) }"
    claims, reasons = claimed(view(text), sdk)
    assert not claims
    assert "the zero point 'z' is no constant" in reasons["QuantizeLinear"]


def test_symmetric_quantisation_is_claimed(view, rtx):
    text = (
        "g (float[n,4] x, int8[4,4] w) => (float[n,4] y) <float s = {0.5}, int8 z = {0}> "
        "{ q = QuantizeLinear(x, s, z)  a = DequantizeLinear(q, s, z)  b = DequantizeLinear(w, s, z) "
        "y = MatMul(a, b) }"
    )
    claims, reasons = claimed(view(text), rtx)
    assert not reasons
    assert len(claims) == 1
