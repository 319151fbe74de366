"""Capability: what is claimed at which feature level, and the reasons for what is not. Needs no DirectML."""

from __future__ import annotations

import onnx
import pytest

from ort_core.plugin import Claim, Rejection
from ort_core.testing.claims import typed_model, view_of
from ort_ep_directml.capability import find_capability
from ort_ep_directml.schema.operators import parse_level

LEVEL = parse_level("6.4")


def context(text: str, level: int = LEVEL, opset: int = 21, lacking: frozenset[str] = frozenset(), **others):
    """What is claimed of a graph in ONNX text, as operators of each claim, and the reasons for the rest by operator."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')
    found = find_capability(view_of(typed_model(model)), level, lacking, **others)
    claims = [[node.op_type for node in each.nodes] for each in found if isinstance(each, Claim)]
    return claims, {each.node.op_type: each.reason for each in found if isinstance(each, Rejection) and each.node}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("g (float[4] x) => (int64[1,n] y) { y = NonZero(x) }", "depends on values"),
        ("g (string[4] x) => (string[4] y) { y = StringConcat(x, x) }", "not among the operators"),
        ("g (double[4] x) => (double[4] y) { y = Exp(x) }", "does not compute float64; it takes float32, float16"),
        ("g (bfloat16[4] x) => (bfloat16[4] y) { y = Neg(x) }", "has no such element type"),
        ("g (int64[4] a, int64[4] b) => (int64[4] y) { y = Pow(a, b) }", "does not compute int64"),
        ("g (float[0,4] x) => (float[0,4] y) { y = Neg(x) }", "no empty tensors"),
        ("g (float[1,1,1,1,1,1,1,1,2] x) => (float[1,1,1,1,1,1,1,1,2] y) { y = Neg(x) }", "at most 8"),
        ("g (float[4] x, int64[1] b, int64[1] e) => (float[n] y) { y = Slice(x, b, e) }", "is not a constant"),
        ("g (float[4] x) => (float[2,2] y) <int64[2] s = {2,2}> { y = Reshape(x, s) }", "nothing to compute"),
        ("g (float[4] x) => (int64[1] y) { y = Shape(x) }", "it follows from shapes alone"),
        ("g (float[3,3] x, int64[1,2] i, float[1,2] u) => (float[3,3] y) { y = ScatterElements(x, i, u) }", "a part"),
        ('g (float[3] x, int64[1] i, float[1] u) => (float[3] y) { y = ScatterElements<reduction="add">(x, i, u) }',
         "combines"),
    ],
)  # fmt: skip
def test_a_node_is_refused_with_a_reason(text, words):
    claims, reasons = context(text)
    assert not claims
    (reason,) = reasons.values()
    assert words in reason


def test_of_a_level_that_is_older_than_the_table_only_a_device_tells():
    claims, reasons = context("g (float[4] x) => (float[4] y) { y = Neg(x) }", parse_level("5.1"))
    assert not claims
    assert reasons == {
        "Neg": "what DirectML takes at feature level 5.1, before 5.2, only a device tells, and there is none"
    }


def test_at_a_level_that_is_older_than_the_table_the_device_is_asked_about_every_operator():
    seen: list[str] = []

    def refuse_halves(node) -> str | None:
        seen.append(node.kind)
        return "no halves" if "float16" in node.text() else None

    text = "g (float[4] x, float16[4] h) => (float[4] y, float16[4] z, float[4] w) "
    body = "{ a = Neg(x)  y = Mish(a)  z = Relu(h)  w = Softmax(y) }"
    claims, reasons = context(text + body, parse_level("5.0"), device_refusal=refuse_halves)
    assert claims == [["Neg", "Mish"]]
    assert reasons == {
        "Relu": "no halves",
        "Softmax": "DirectML's ACTIVATION_SOFTMAX1 needs feature level 5.1; this device has 5.0",
    }
    assert set(seen) == {
        "ELEMENT_WISE_NEGATE", "ACTIVATION_SOFTPLUS", "ACTIVATION_TANH", "ELEMENT_WISE_MULTIPLY", "ACTIVATION_RELU",
    }  # fmt: skip


def test_a_type_that_came_with_a_level_is_refused_before_it():
    text = "g (int64[4] a, int64[4] b) => (int64[4] y) { y = Div(a, b) }"
    assert context(text, parse_level("6.0"))[0] == [["Div"]]
    assert context(text, parse_level("5.2"))[1] == {
        "Div": "DirectML's ELEMENT_WISE_DIVIDE of int64 needs feature level 6.0, this is 5.2"
    }


def test_a_type_that_the_device_lacks_is_refused():
    text = "g (int64[4] x) => (int64[4] y) { y = Neg(x) }"
    assert context(text, lacking=frozenset({"int64"}))[1] == {
        "Neg": "'x' is of type int64, which this device has no tensors of"
    }


def test_sizes_with_names_are_claimed():
    text = "g (float[n,4] x, float[4,m] w) => (float[n,m] y) { a = MatMul(x, w)  y = Relu(a) }"
    assert context(text)[0] == [["MatMul", "Relu"]]


def test_shape_arithmetic_inside_of_a_claim_is_claimed_with_it():
    text = (
        "g (float[n,6] x) => (float[k] y) <int64[1] o = {-1}> "
        "{ s = Shape(x)  p = ReduceProd(s)  z = Reshape(x, p)  y = Neg(z) }"
    )
    assert context(text)[0] == [["Shape", "ReduceProd", "Reshape", "Neg"]]


def test_shape_arithmetic_that_others_read_is_left_to_them():
    text = "g (float[n,6] x) => (float[n,6] y, int64[2] s) { s = Shape(x)  z = Reshape(x, s)  y = Neg(z) }"
    claims, reasons = context(text)
    assert claims == [["Reshape", "Neg"]]
    assert reasons["Shape"] == "it follows from shapes alone, and others than DirectML read it"


def test_sizes_that_follow_from_values_are_refused():
    text = "g (float[n] x, int64[2] s) => (float[a,b] y) { z = Reshape(x, s)  y = Neg(z) }"
    claims, reasons = context(text)
    assert claims == [["Neg"]]  # by itself: there the sizes are those of its input
    assert reasons["Reshape"] == "the sizes of 'z' follow from values, and DirectML compiles for fixed sizes"


def test_a_size_that_the_inputs_of_a_claim_do_not_tell_ends_it():
    text = (
        "g (float[n] x, int64[1] s) => (float[k] y) { a = Neg(x)  b = Expand(a, s)  y = Neg(b) } "
        "<float[n] a, float[k] b>"
    )
    claims, reasons = context(text.replace("} <float[n] a, float[k] b>", "}"))
    assert "Expand" in reasons
    assert ["Neg"] in claims
