"""Layer norm, RMS norm and the residual additions before them, in the spellings of exporters."""

from __future__ import annotations

import pytest
from fusion_check import fires, ops_of, stays

from ort_core.passes.base import Level, RulePass
from ort_core.passes.fusions.channel_norm import ChannelNormFusion

WEIGHTS = "float[4] w = {1.5, 0.5, 2.0, 1.0}, float[4] b = {0.1, 0.2, 0.3, 0.4}"
HEAD = f"g (float[2,3,4] x) => (float[2,3,4] y) <{WEIGHTS}, float two = {{2.0}}, float eps = {{0.00001}}, \
float half = {{0.5}}, float minus = {{-0.5}}, float one = {{1.0}}, int64[1] last = {{-1}}, float big = {{3.0}}>"
HALF_HEAD = (
    "g (float16[2,3,4] x, float16[4] w, float16[4] b) => (float16[2,3,4] y) <float two = {2.0}, float eps = {0.00001}>"
)
MEAN = "m = ReduceMean <axes = [-1]> (x) d = Sub(x, m)"
FORMS = {
    "pow": f"{MEAN} s = Pow(d, two) v = ReduceMean <axes = [-1]> (s) p = Add(v, eps) r = Sqrt(p) n = Div(d, r) "
    "c = Mul(n, w) y = Add(c, b)",
    "product_and_swapped": f"{MEAN} s = Mul(d, d) v = ReduceMean <axes = [-1]> (s) p = Add(eps, v) r = Sqrt(p) "
    "n = Div(d, r) c = Mul(w, n) y = Add(b, c)",
    "two_subtractions": f"{MEAN} e = Sub(x, m) s = Pow(e, two) v = ReduceMean <axes = [2]> (s) p = Add(v, eps) "
    "r = Sqrt(p) n = Div(d, r) c = Mul(n, w) y = Add(c, b)",
    "reciprocal": f"{MEAN} s = Pow(d, two) v = ReduceMean <axes = [-1]> (s) p = Add(v, eps) r = Sqrt(p) "
    "i = Reciprocal(r) n = Mul(d, i) c = Mul(n, w) y = Add(c, b)",
    "negative_power": f"{MEAN} s = Pow(d, two) v = ReduceMean <axes = [-1]> (s) p = Add(v, eps) i = Pow(p, minus) "
    "n = Mul(i, d) c = Mul(n, w) y = Add(c, b)",
    "keras": "m = ReduceMean <axes = [-1]> (x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean <axes = [-1]> (s) "
    "p = Add(v, eps) r = Sqrt(p) i = Reciprocal(r) k = Mul(i, w) a = Mul(x, k) t = Mul(m, k) u = Sub(b, t) y = \
Add(a, u)",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["LayerNormFusionL1", "LayerNormFusionL2"])
def test_layer_norm_is_found_in_every_form(name: str, form: str) -> None:
    fires(name, f"{HEAD} {{ {FORMS[form]} }}", ["LayerNormalization"])


def test_layer_norm_is_fused_before_opset_17_only_for_targets_that_have_it() -> None:
    text = f"{HEAD} {{ {FORMS['pow']} }}"
    stays("LayerNormFusionL1", text, opset=13, because="has no LayerNormalization")
    fires("LayerNormFusionL2", text, ["LayerNormalization"], opset=13)


def test_layer_norm_takes_its_axes_from_an_input_at_opset_18() -> None:
    body = FORMS["pow"].replace(" <axes = [-1]> (x)", "(x, last)").replace(" <axes = [-1]> (s)", "(s, last)")
    fires("LayerNormFusionL1", f"{HEAD} {{ {body} }}", ["LayerNormalization"], opset=18)


def test_layer_norm_over_two_axes_needs_weights_of_both() -> None:
    body = FORMS["pow"].replace("[-1]", "[1, 2]")
    stays("LayerNormFusionL2", f"{HEAD} {{ {body} }}", because="has not the rank")


@pytest.mark.parametrize("name", ["LayerNormFusionL2", "SimplifiedLayerNormFusion"])
def test_norms_stay_where_epsilon_gives_the_result_a_further_axis(name: str) -> None:
    head = HEAD.replace("float[2,3,4] y", "float[1,2,3,4] y").replace("float eps", "float[1,1,1,1] eps")
    simple = "s = Mul(x, x) v = ReduceMean <axes = [-1]> (s) p = Add(v, eps) r = Sqrt(p) n = Div(x, r) y = Mul(n, w)"
    body = FORMS["pow"] if name.startswith("Layer") else simple
    stays(name, f"{head} {{ {body} }}", because="further axes")


def test_layer_norm_without_weights_gets_ones() -> None:
    body = FORMS["pow"].replace("n = Div(d, r) c = Mul(n, w) y = Add(c, b)", "y = Div(d, r)")
    fires("LayerNormFusionL2", f"{HEAD} {{ {body} }}", ["LayerNormalization"])


@pytest.mark.parametrize("name", ["LayerNormFusionL2", "SimplifiedLayerNormFusion"])
def test_norms_of_rows_without_elements_stay_as_onnxruntime_refuses_them(name: str) -> None:
    head = HEAD.replace("[2,3,4]", "[2,3,0]")
    form = "s = Mul(x, x) v = ReduceMean <axes = [-1]> (s) p = Add(v, eps) r = Sqrt(p) y = Div(x, r)"
    if name.startswith("Layer"):
        form = FORMS["pow"].replace("n = Div(d, r) c = Mul(n, w) y = Add(c, b)", "y = Div(d, r)")
    stays(name, f"{head} {{ {form} }}", because="no elements")


def test_half_precision_layer_norm_computes_in_float() -> None:
    head = HALF_HEAD
    body = "z = Cast <to = 1> (x) " + FORMS["pow"].replace("(x", "(z")
    body = body.replace("n = Div(d, r)", "o = Div(d, r) n = Cast <to = 10> (o)").replace(
        "Cast <to = 1> (z)", "Cast <to = 1> (x)"
    )
    fires("LayerNormFusionL2", f"{head} {{ {body} }}", ["LayerNormalization"])


@pytest.mark.parametrize(
    "body",
    [
        FORMS["pow"].replace("[-1]", "[1]"),
        FORMS["pow"].replace("Pow(d, two)", "Pow(d, big)"),
        FORMS["pow"].replace("Add(v, eps)", "Add(v, one)"),
        FORMS["pow"].replace("y = Add(c, b)", "q = Add(c, b) y = Add(q, d)"),
        FORMS["pow"].replace("v = ReduceMean <axes = [-1]> (s)", "v = ReduceMean <axes = [1]> (s)"),
    ],
    ids=["wrong_axis", "wrong_power", "no_epsilon", "centered_read_twice", "two_axes"],
)
def test_near_misses_of_layer_norm_stay(body: str) -> None:
    stays("LayerNormFusionL2", f"{HEAD} {{ {body} }}")


def test_layer_norm_stays_when_the_mean_is_a_graph_output() -> None:
    head = HEAD.replace("(float[2,3,4] y)", "(float[2,3,4] y, float[2,3,1] m)")
    stays("LayerNormFusionL2", f"{head} {{ {FORMS['pow']} }}")


RMS_FORMS = {
    "llama": "s = Pow(x, two) v = ReduceMean <axes = [-1]> (s) p = Add(v, eps) r = Sqrt(p) i = Reciprocal(r) "
    "n = Mul(x, i) y = Mul(w, n)",
    "division": "s = Mul(x, x) v = ReduceMean <axes = [-1]> (s) p = Add(v, eps) r = Sqrt(p) n = Div(x, r) y = \
Mul(n, w)",
    "one_over": "s = Pow(x, two) v = ReduceMean <axes = [-1]> (s) p = Add(v, eps) r = Sqrt(p) i = Div(one, r) "
    "n = Mul(x, i) y = Mul(n, w)",
    "without_scale": "s = Pow(x, two) v = ReduceMean <axes = [-1]> (s) p = Add(v, eps) r = Sqrt(p) y = Div(x, r)",
    "scaled_first": "g = Mul(w, x) s = Pow(x, two) v = ReduceMean <axes = [-1]> (s) p = Add(v, eps) r = Sqrt(p) "
    "i = Reciprocal(r) y = Mul(g, i)",
    "without_epsilon": "s = Pow(x, two) v = ReduceMean <axes = [-1]> (s) r = Sqrt(v) i = Reciprocal(r) n = Mul(x, i) "
    "y = Mul(w, n)",
}


@pytest.mark.parametrize("form", RMS_FORMS)
def test_rms_norm_is_found_in_every_form(form: str) -> None:
    fires("SimplifiedLayerNormFusion", f"{HEAD} {{ {RMS_FORMS[form]} }}", ["SimplifiedLayerNormalization"])


def test_rms_norm_of_half_precision_is_found_between_its_casts() -> None:
    head = HALF_HEAD
    body = "z = Cast <to = 1> (x) s = Pow(z, two) v = ReduceMean <axes = [-1]> (s) p = Add(v, eps) r = Sqrt(p) "
    body += "i = Reciprocal(r) o = Mul(z, i) n = Cast <to = 10> (o) y = Mul(w, n)"
    fires("SimplifiedLayerNormFusion", f"{head} {{ {body} }}", ["SimplifiedLayerNormalization"])


@pytest.mark.parametrize(
    "body",
    [
        RMS_FORMS["division"].replace("[-1]", "[0]"),
        "z = Neg(x) " + RMS_FORMS["division"].replace("Mul(x, x)", "Mul(x, z)"),
        RMS_FORMS["division"].replace("y = Mul(n, w)", "q = Mul(n, w) y = Add(q, r)"),
    ],
    ids=["wrong_axis", "no_square", "root_read_twice"],
)
def test_near_misses_of_rms_norm_stay(body: str) -> None:
    stays("SimplifiedLayerNormFusion", f"{HEAD} {{ {body} }}")


SKIP_HEAD = f"g (float[2,3,4] x, float[2,3,4] z) => (float[2,3,4] y) <{WEIGHTS}>"


def test_residual_addition_becomes_part_of_the_norm() -> None:
    fires(
        "SkipLayerNormFusion",
        f"{SKIP_HEAD} {{ s = Add(x, z) y = LayerNormalization(s, w, b) }}",
        ["SkipLayerNormalization"],
    )


def test_residual_sum_with_other_readers_becomes_an_output() -> None:
    body = "s = Add(x, z) n = LayerNormalization(s, w, b) k = Neg(n) y = Add(k, s)"
    model = fires("SkipLayerNormFusion", f"{SKIP_HEAD} {{ {body} }}", ["SkipLayerNormalization", "Neg", "Add"])
    assert [value is not None for value in model.graph.nodes[0].outputs] == [True, False, False, True]


def test_residual_sum_may_be_read_before_the_norm_and_be_returned() -> None:
    head = SKIP_HEAD.replace("(float[2,3,4] y)", "(float[2,3,4] y, float[2,3,4] s)")
    model = fires(
        "SkipLayerNormFusion", f"{head} {{ s = Add(x, z) e = Neg(s) n = LayerNormalization(s, w, b) y = Add(n, e) }}"
    )
    assert ops_of(model)[0] == "SkipLayerNormalization"


def test_residual_addition_before_rms_norm_becomes_part_of_it() -> None:
    body = "s = Add(x, z) " + RMS_FORMS["division"].replace("s = Mul(x, x)", "t = Mul(s, s)").replace("(s) p", "(t) p")
    body = body.replace("Div(x, r)", "Div(s, r)")
    head = HEAD.replace("(float[2,3,4] x)", "(float[2,3,4] x, float[2,3,4] z)")
    names = ["SimplifiedLayerNormFusion", "SkipLayerNormFusion"]
    fires(names, f"{head} {{ {body} }}", ["SkipSimplifiedLayerNormalization"])


def test_bias_of_a_product_becomes_the_fifth_input() -> None:
    head = f"g (float[2,3,5] a, float[2,3,4] z) => (float[2,3,4] y) <{WEIGHTS}, float[5,4] k = \
{{{','.join(['0.3'] * 20)}}}>"
    body = "p = MatMul(a, k) q = Add(p, b) s = Add(q, z) y = LayerNormalization(s, w, b)"
    model = fires(
        ["SkipLayerNormFusion", "BiasSkipLayerNormFusion"], f"{head} {{ {body} }}", ["MatMul", "SkipLayerNormalization"]
    )
    assert len(model.graph.nodes[1].inputs) == 5


ROWS = "g (float[2,3,4] x, float[2,3,4] z) => (float[2,3,4] y) <{}>"


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (SKIP_HEAD.replace("float[2,3,4] z", "float[1,3,4] z"), "s = Add(x, z) y = LayerNormalization(s, w, b)"),
        (SKIP_HEAD.replace("float[2,3,4] z", "float[n,3,4] z"), "s = Add(x, z) y = LayerNormalization(s, w, b)"),
        (f"g (float[3,4] x, float[3,4] z) => (float[3,4] y) <float[3,4] w = {{{','.join(['1'] * 12)}}}>",
         "s = Add(x, z) y = LayerNormalization <axis = 0> (s, w)"),
        (ROWS.format("float[1] w = {2.0}"), "s = Add(x, z) y = LayerNormalization(s, w)"),
        (ROWS.format("float[1] w = {2.0}"), "s = Add(x, z) y = SimplifiedLayerNormalization(s, w)"),
        (ROWS.format("float[4] w = {1,2,3,4}, float[1] b = {2.0}"), "s = Add(x, z) y = LayerNormalization(s, w, b)"),
        (ROWS.format("float[4] w = {1,2,3,4}, float[1,4] b = {4,3,2,1}"),
         "s = Add(x, z) y = LayerNormalization(s, w, b)"),
    ],
    ids=["broadcast", "unknown_size", "other_axis", "one_scale", "one_scale_of_rms", "one_bias", "bias_of_rank_2"],
)  # fmt: skip
def test_near_misses_of_the_residual_addition_stay(head: str, body: str) -> None:
    stays("SkipLayerNormFusion", f"{head} {{ {body} }}")


KERAS_NORM = "g (float[N,4,8] x) => (float[N,4,8] y) <float[1,1,8] s = {1,2,3,4,5,6,7,8}, \
float[1,1,8] b = {8,7,6,5,4,3,2,1}, float e = {1e-3}> { m = GlobalAveragePool(x) n = Neg(m) d = Sub(x, m) \
q = Mul(d, d) v = GlobalAveragePool(q) p = Add(v, e) r = Sqrt(p) i = Reciprocal(r) g = Mul(i, s) a = Mul(x, g) \
c = Mul(n, g) h = Add(c, b) y = Add(a, h) }"


def test_a_layer_norm_of_tensorflows_converter_is_one_with_weights_of_one_axis():
    model = fires("LayerNormFusionL1", KERAS_NORM, ["LayerNormalization"], sizes={"N": 3})
    assert [value.rank for value in model.graph.nodes[0].inputs] == [3, 1, 1]


def test_weights_that_differ_along_another_axis_are_no_weights_of_a_norm():
    body = KERAS_NORM.replace(
        "float[1,1,8] s = {1,2,3,4,5,6,7,8}",
        "float[1,2,4] s0 = {1,2,3,4,5,6,7,8}, \
int64[3] t = {1,4,2}",
    ).replace("float[1,1,8] b = {8,7,6,5,4,3,2,1}", "float[1,4,1] b = {8,7,6,5}")
    body = body.replace("r = Sqrt(p)", "r = Sqrt(p) z = Reshape(s0, t) s = Concat <axis = 2> (z, z, z, z)")
    stays("LayerNormFusionL1", body)


def test_the_scale_of_an_rms_norm_may_be_joined_to_the_inverse_root():
    body = "g (float[N,4,8] x) => (float[N,4,8] y) <float[8] s = {1,2,3,4,5,6,7,8}, float e = {1e-5}> { q = Mul(x, x) \
m = GlobalAveragePool(q) p = Add(m, e) r = Sqrt(p) i = Reciprocal(r) g = Mul(i, s) y = Mul(x, g) }"
    fires("SimplifiedLayerNormFusion", body, ["SimplifiedLayerNormalization"], sizes={"N": 3})


CHANNEL_HEAD = "g (float[N,4,5] x) => (float[N,4,5] y) <float[4,1] w = {1,2,3,4}, float[1,4,1] b = {1,0,-1,2}, \
float two = {2}, float eps = {1e-5}>"
CHANNEL_LAYER = "m = ReduceMean <axes = [1]> (x) d = Sub(x, m) s = Pow(d, two) v = ReduceMean <axes = [-2]> (s) \
p = Add(v, eps) r = Sqrt(p) n = Div(d, r) c = Mul(n, w) y = Add(c, b)"
CHANNEL_ROOT = "s = Mul(x, x) v = ReduceMean <axes = [1]> (s) p = Add(v, eps) r = Sqrt(p) n = Div(x, r) y = Mul(n, w)"


def _channel_norms(*, is_centered: bool) -> RulePass:
    return RulePass("ChannelNormFusion", [ChannelNormFusion(is_centered=is_centered)], Level.EXTENDED)


def test_norms_over_channels_become_norms_over_the_last_axis() -> None:
    for is_centered, body, name in (
        (True, CHANNEL_LAYER, "LayerNormalization"),
        (False, CHANNEL_ROOT, "SimplifiedLayerNormalization"),
    ):
        expected = ["Transpose", name, "Transpose"]
        fires(_channel_norms(is_centered=is_centered), f"{CHANNEL_HEAD} {{ {body} }}", expected, sizes={"N": 3})


@pytest.mark.parametrize(
    ("old", "new", "because"),
    [
        ("axes = [-2]", "axes = [0]", "not over one axis"),
        ("axes = [1]", "axes = [2]", "not over one axis"),
    ],
)
def test_near_misses_of_norms_over_channels_stay(old: str, new: str, because: str) -> None:
    body = CHANNEL_LAYER.replace(old, new)
    stays(_channel_norms(is_centered=True), f"{CHANNEL_HEAD} {{ {body} }}", because=because)
