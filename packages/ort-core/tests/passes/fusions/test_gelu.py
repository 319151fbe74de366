"""Gelu in all the spellings of exporters becomes one operator; formulas that only look like it stay."""

from __future__ import annotations

import pytest
from fusion_check import PASSES, fires, stays

HEAD = "g (float[2,3,8] x) => (float[2,3,8] y) <float half = {0.5}, float one = {1.0}, float two = {2.0}, \
float root = {1.4142135}, float inverse = {0.70710678}, float small = {0.044715}, float pi = {0.7978845608}, \
float twice = {1.5957691216}, float less = {0.0356774081}, float more = {0.0713548162}, \
float three = {3.0}, float[1] vector = {0.5}, float[1,1,1,1] wide = {0.5}, float wrong = {0.6}>"

ERF_FORMS = {
    "pytorch": "a = Div(x, root) e = Erf(a) s = Add(e, one) m = Mul(x, s) y = Mul(m, half)",
    "pytorch_2": "a = Div(x, root) e = Erf(a) s = Add(e, one) h = Mul(half, s) y = Mul(x, h)",
    "halved_first": "h = Mul(x, half) a = Div(x, root) e = Erf(a) s = Add(one, e) y = Mul(h, s)",
    "inverse_root": "a = Mul(x, inverse) e = Erf(a) s = Add(e, one) m = Mul(x, s) y = Mul(half, m)",
    "keras": "h = Mul(half, x) a = Mul(inverse, x) e = Erf(a) s = Add(one, e) y = Mul(h, s)",
    "divided_by_two": "a = Div(x, root) e = Erf(a) s = Add(e, one) h = Div(s, two) y = Mul(h, x)",
    "vector_constant": "a = Div(x, root) e = Erf(a) s = Add(e, one) m = Mul(x, s) y = Mul(m, vector)",
}
TANH_FORMS = {
    "pytorch": "c = Pow(x, three) k = Mul(c, small) i = Add(x, k) r = Mul(i, pi) t = Tanh(r) s = Add(t, one) "
    "h = Mul(x, half) y = Mul(h, s)",
    "product_cube": "q = Mul(x, x) c = Mul(x, q) k = Mul(small, c) i = Add(x, k) r = Mul(pi, i) t = Tanh(r) "
    "s = Add(one, t) h = Mul(s, half) y = Mul(x, h)",
    "factored": "q = Mul(x, x) k = Mul(q, small) g1 = Add(k, one) p = Mul(x, pi) r = Mul(p, g1) t = Tanh(r) "
    "s = Add(t, one) m = Mul(x, s) y = Mul(m, half)",
    "nested": "k = Mul(small, x) q = Mul(k, x) g1 = Add(one, q) p = Mul(pi, x) r = Mul(p, g1) t = Tanh(r) "
    "s = Add(t, one) h = Mul(half, x) y = Mul(h, s)",
    "multiplied": "q = Mul(x, x) k = Mul(q, less) g1 = Add(pi, k) r = Mul(x, g1) t = Tanh(r) s = Add(t, one) "
    "h = Mul(half, x) y = Mul(h, s)",
    "sigmoid": "c = Pow(x, three) k = Mul(small, c) i = Add(x, k) r = Mul(twice, i) s = Sigmoid(r) y = Mul(x, s)",
    "sigmoid_factored": "q = Mul(x, x) k = Mul(q, small) g1 = Add(k, one) p = Mul(x, twice) r = Mul(p, g1) "
    "s = Sigmoid(r) y = Mul(s, x)",
    "sigmoid_multiplied": "q = Pow(x, two) k = Mul(more, q) g1 = Add(twice, k) r = Mul(x, g1) s = Sigmoid(r) "
    "y = Mul(s, x)",
}


@pytest.mark.parametrize("form", ERF_FORMS)
def test_erf_form_becomes_gelu_of_onnxruntime_before_opset_20(form: str) -> None:
    fires("GeluFusionL2", f"{HEAD} {{ {ERF_FORMS[form]} }}", ["Gelu"])


@pytest.mark.parametrize("form", TANH_FORMS)
def test_tanh_form_becomes_fast_gelu(form: str) -> None:
    fires("FastGeluFusion", f"{HEAD} {{ {TANH_FORMS[form]} }}", ["FastGelu"])


@pytest.mark.parametrize("text", [*ERF_FORMS.values(), *TANH_FORMS.values()])
def test_both_forms_become_the_standard_gelu_at_opset_20(text: str) -> None:
    model = fires("GeluFusionL1", f"{HEAD} {{ {text} }}", ["Gelu"], opset=20)
    node = model.graph.nodes[0]
    assert node.domain == ""
    assert node.string_attribute("approximate", "") == ("none" if "Erf" in text else "tanh")


def test_standard_gelu_is_not_used_before_opset_20() -> None:
    stays("GeluFusionL1", f"{HEAD} {{ {ERF_FORMS['pytorch']} }}", because="has no Gelu")


@pytest.mark.parametrize(
    "body",
    [
        "a = Div(x, root) e = Erf(a) s = Add(e, one) m = Mul(x, s) y = Mul(m, wrong)",
        "a = Div(x, two) e = Erf(a) s = Add(e, one) m = Mul(x, s) y = Mul(m, half)",
        "a = Div(x, root) e = Erf(a) s = Add(e, half) m = Mul(x, s) y = Mul(m, half)",
        "z = Neg(x) a = Div(z, root) e = Erf(a) s = Add(e, one) m = Mul(x, s) y = Mul(m, half)",
        "a = Div(x, root) e = Erf(a) s = Add(e, one) m = Mul(x, s) p = Mul(m, half) y = Add(p, e)",
    ],
    ids=["wrong_half", "wrong_root", "wrong_one", "another_operand", "erf_read_twice"],
)
def test_near_misses_of_the_erf_form_stay(body: str) -> None:
    stays("GeluFusionL2", f"{HEAD} {{ {body} }}")


@pytest.mark.parametrize(
    "body",
    [
        "c = Pow(x, three) k = Mul(small, c) i = Add(x, k) r = Mul(pi, i) s = Sigmoid(r) y = Mul(x, s)",
        "c = Pow(x, two) k = Mul(small, c) i = Add(x, k) r = Mul(twice, i) s = Sigmoid(r) y = Mul(x, s)",
        "q = Mul(x, x) k = Mul(less, q) g1 = Add(twice, k) r = Mul(x, g1) s = Sigmoid(r) y = Mul(x, s)",
        "c = Pow(x, three) k = Mul(small, c) i = Add(x, k) r = Mul(twice, i) s = Sigmoid(r) y = Mul(i, s)",
    ],
    ids=["wrong_root", "square", "wrong_small", "another_operand"],
)
def test_near_misses_of_the_sigmoid_form_stay(body: str) -> None:
    stays("FastGeluFusion", f"{HEAD} {{ {body} }}")


def test_gelu_stays_when_an_interior_value_is_a_graph_output() -> None:
    head = HEAD.replace("(float[2,3,8] y)", "(float[2,3,8] y, float[2,3,8] e)")
    stays("GeluFusionL2", f"{head} {{ {ERF_FORMS['pytorch']} }}")


def test_gelu_stays_when_a_constant_adds_dimensions() -> None:
    head = HEAD.replace("(float[2,3,8] y)", "(float[1,2,3,8] y)")
    body = "a = Div(x, root) e = Erf(a) s = Add(e, one) m = Mul(x, s) y = Mul(m, wide)"
    stays("GeluFusionL2", f"{head} {{ {body} }}", because="may add dimensions")


def test_gelu_of_double_stays_as_onnxruntime_has_none() -> None:
    head = HEAD.replace("float", "double")
    stays("GeluFusionL2", f"{head} {{ {ERF_FORMS['pytorch']} }}", because="is double")


@pytest.mark.parametrize(
    ("body", "alpha"),
    [("s = Sigmoid(x) y = Mul(x, s)", 1.0), ("k = Mul(x, a) s = Sigmoid(k) y = Mul(s, x)", 1.702)],
)
def test_product_with_its_own_sigmoid_becomes_quick_gelu(body: str, alpha: float) -> None:
    model = fires(
        "QuickGeluFusion", f"g (float[2,8] x) => (float[2,8] y) <float a = {{1.702}}> {{ {body} }}", ["QuickGelu"]
    )
    assert model.graph.nodes[0].float_attribute("alpha", 0.0) == pytest.approx(alpha)


@pytest.mark.parametrize(
    "body",
    [
        "s = Sigmoid(z) y = Mul(x, s)",
        "s = Sigmoid(x) m = Mul(x, s) y = Add(m, s)",
        "k = Mul(x, z) s = Sigmoid(k) y = Mul(x, s)",
    ],
    ids=["of_another_value", "sigmoid_read_twice", "factor_is_no_constant"],
)
def test_near_misses_of_quick_gelu_stay(body: str) -> None:
    stays("QuickGeluFusion", f"g (float[2,8] x, float[2,8] z) => (float[2,8] y) {{ {body} }}")


def test_bias_before_gelu_becomes_bias_gelu() -> None:
    body = ERF_FORMS["pytorch"].replace("x", "v")
    text = f"{HEAD[:-1]}, float[8] b = {{0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8}}> {{ v = Add(x, b) {body} }}"
    fires(["GeluFusionL2", "BiasGeluFusion"], text, ["BiasGelu"])


def test_bias_before_fast_gelu_becomes_its_input() -> None:
    body = TANH_FORMS["pytorch"].replace("(x,", "(v,")
    text = f"{HEAD[:-1]}, float[8] b = {{0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8}}> {{ v = Add(b, x) {body} }}"
    fires(["FastGeluFusion", "BiasGeluFusion"], text, ["FastGelu"])


def test_bias_of_another_length_stays_outside() -> None:
    body = ERF_FORMS["pytorch"].replace("x", "v")
    text = f"{HEAD[:-1]}, float[1] b = {{0.1}}> {{ v = Add(x, b) {body} }}"
    stays(["GeluFusionL2", "BiasGeluFusion"], text, because="as long as the last axis")


def test_bias_before_the_standard_approximation_becomes_fast_gelu() -> None:
    text = 'g (float[2,8] x, float[8] b) => (float[2,8] y) { v = Add(x, b) y = Gelu <approximate = "tanh"> (v) }'
    fires("BiasGeluFusion", text, ["FastGelu"], opset=20)


def test_gelu_is_approximated_when_that_is_asked_for() -> None:
    text = f"{HEAD} {{ {ERF_FORMS['pytorch']} }}"
    fires(["GeluFusionL2", "GeluApproximation"], text, ["FastGelu"], steps=5e-4)


def test_approximation_is_not_part_of_any_level() -> None:
    assert PASSES["GeluApproximation"].is_opt_in
