"""Claims: our rules, and what the parser says, node by node; with the fake SDK, and with TensorRT-RTX where it is."""

import onnx
import pytest

from ort_core.plugin import Claim, Rejection
from ort_core.testing.claims import typed_model, view_of
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
    assert reasons["Det"] == "TensorRT's parser has no importer for Det, and no plugin of that name"


@pytest.mark.parametrize(
    ("text", "operator", "words"),
    [
        ("g (double[4] x) => (double[4] y) { y = Exp(x) }", "Exp", "makes float32 of float64"),
        ("g (uint8[4] x) => (uint8[4] y) { y = Add(x, x) }", "Add", "in no integers of 8 bits"),
        ("g (int8[4] x) => (int8[4] y) { y = Abs(x) }", "Abs", "in no integers of 8 bits"),
        ("g (int32[4] x) => (uint8[4] y) { y = Cast<to=2>(x) }", "Cast", "wraps around; float32 does not"),
        ("g (int16[4] x) => (float[4] y) { y = Cast<to=1>(x) }", "Cast", "no such element type"),
        ("g (int4[4] x) => (float[4] y) { y = Cast<to=1>(x) }", "Cast", "only beside QuantizeLinear"),
        ("g () => (float[4] y) { y = RandomNormal<shape=[4]>() }", "RandomNormal", "no seed"),
        ("g (float[4] x) => (float[4] y) { y = Identity(x) }", "Identity", "nothing to compute"),
        (
            "g (bool c, double[4] x) => (double[4] y) { y = If(c) <then_branch = t () => (double[4] a) { a = Exp(x) }, "
            "else_branch = e () => (double[4] b) { b = Neg(x) }> }",
            "If",
            "makes float32 of float64",
        ),
        (
            "g (bool c, float[1,4] x) => (float[m] y) { y = If(c) "
            "<then_branch = t () => (float[1,4] a) { a = Exp(x) }, "
            "else_branch = e () => (float[4] b) <int64[1] k = {0}> { b = Squeeze(x, k) }> }",
            "If",
            "of 1 and 2 axes",
        ),
        (
            "g (float[n,4] x, float s, int4 z) => (int4[n,4] y) { y = QuantizeLinear(x, s, z) }",
            "QuantizeLinear",
            "is not a constant",
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


def test_values_from_outside_that_decide_shapes_are_claimed_where_their_number_is_known(view, sdk):
    text = "g (float[n,4] x, int64[2] s) => (float[a,b] y) { z = Exp(x)  y = Reshape(z, s) }"
    assert claimed(view(text), sdk) == ([["Exp", "Reshape"]], {})
    claims, reasons = claimed(view(text.replace("int64[2] s", "int64[k] s")), sdk)
    assert claims == [["Exp"]]
    assert reasons["Reshape"], "its shape may have any number of elements"


def test_axes_from_outside_are_claimed_and_other_values_where_their_number_is_known(view, rtx):
    text = "g (float[3,4] x, int64[1] k) => (float[3,1] y) { y = ReduceSum(x, k) }"
    assert claimed(view(text), rtx) == ([["ReduceSum"]], {})
    assert claimed(view(text.replace("int64[1] k", "int64[j] k")), rtx) == ([["ReduceSum"]], {})
    text = "g (float[2,2,3] t, int64[j] s) => (float[a,b,c,d] y) { y = AffineGrid(t, s) }"
    claims, reasons = claimed(view(text), rtx)
    assert not claims
    assert "must know the values of 's' when it builds" in reasons["AffineGrid"]


def test_what_the_parser_lacks_is_handed_over_in_its_parts(view, rtx):
    text = "g (float[3,5] x, int64[3] t) => (float loss) { loss = NegativeLogLikelihoodLoss(x, t) }"
    assert claimed(view(text), rtx) == ([["NegativeLogLikelihoodLoss"]], {})


def test_what_has_parts_that_the_parser_lacks_is_refused_with_both_reasons(view, rtx):
    text = "g (float[3,4] x) => (float[3,4] y) { y = Bernoulli(x) }"
    assert "takes no seed" in claimed(view(text), rtx)[1]["Bernoulli"]
    text = "g (float[1,6,4] x, float[1,6,4] w) => (float[1,6,4] y) { y = CausalConvWithState(x, w) }"
    reasons = claimed(view(text), rtx)[1]
    assert "TensorRT's parser" in reasons["CausalConvWithState"]


def test_operators_of_other_domains_are_not_taken_for_those_of_onnx(view, sdk):
    """TensorRT's parser reads ``com.microsoft::RotaryEmbedding``, whose inputs stand in another order, as ONNX's."""
    header = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> '
    text = (
        "g (float[1,2,4,8] x, int64[1,4] p, float[16,4] c, float[16,4] s) => (float[1,2,4,8] y) "
        "{ a = Relu(x)  y = com.microsoft.RotaryEmbedding(a, p, c, s) }"
    )
    program = typed_model(onnx.parser.parse_model(header + text))
    assert claimed(view_of(program), sdk) == ([["Relu", "RotaryEmbedding"]], {}), "in its parts"
    text = (
        "g (float[1,2,4,8] x, float[1,3,3,2] at) => (float[1,2,3,3] y) "
        "{ a = Relu(x)  y = com.microsoft.GridSample(a, at) }"
    )
    claims, reasons = claimed(view_of(typed_model(onnx.parser.parse_model(header + text))), sdk)
    assert claims == [["Relu"]]
    assert "it would take com.microsoft::GridSample for GridSample of ONNX" in reasons["GridSample"]


def test_bodies_are_claimed_with_their_control_flow(view, rtx):
    text = (
        "g (bool c, float[4] x) => (float[4] y) { y = If(c) <then_branch = t () => (float[4] a) { a = Exp(x) }, "
        "else_branch = e () => (float[4] b) { b = Neg(x) }> }"
    )
    assert claimed(view(text), rtx) == ([["If"]], {})


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


def test_integers_of_8_bits_are_claimed_where_float32_stands_for_them(view, rtx):
    text = (
        "g (float[n,4] x, float s, uint8 z) => (float[n,4] y, uint8[4,n] t) "
        "{ q = QuantizeLinear(x, s, z)  t = Transpose(q)  y = DequantizeLinear(q, s, z) }"
    )
    assert claimed(view(text), rtx) == ([["QuantizeLinear", "Transpose", "DequantizeLinear"]], {})


def test_symmetric_quantization_is_claimed(view, rtx):
    text = (
        "g (float[n,4] x, int8[4,4] w) => (float[n,4] y) <float s = {0.5}, int8 z = {0}> "
        "{ q = QuantizeLinear(x, s, z)  a = DequantizeLinear(q, s, z)  b = DequantizeLinear(w, s, z) "
        "y = MatMul(a, b) }"
    )
    claims, reasons = claimed(view(text), rtx)
    assert not reasons
    assert len(claims) == 1
