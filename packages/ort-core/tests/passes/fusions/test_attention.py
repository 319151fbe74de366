"""Attention in the shapes of the exporters becomes MultiHeadAttention; what cannot be proven stays."""

from __future__ import annotations

import re

import numpy as np
import pytest
from fusion_check import fires, infer, ops_of, run_passes, stays, typed_model

from ort_core.passes.base import PassContext, RulePass
from ort_core.passes.eliminate_movement import PreShapeNodeElimination
from ort_core.passes.runner import run_pipeline

SHAPES = "int64[4] split = {0, 0, 2, 4}, int64[3] merge = {0, 0, 8}, int64[3] stack = {-1, 3, 4}, int64[4] back \
= {-1, 2, 4, 3}"
NUMBERS = "float k = {0.5}, float root = {0.70710678}, float zero = {0.0}, float low = {-3.4028234e38}"
INPUTS = "float[B,3,8] q, float[B,3,8] k1, float[B,3,8] v"


def _model(body: str, inputs: str = INPUTS, outputs: str = "float[B,3,8] y", more: str = "") -> str:
    return f"g ({inputs}) => ({outputs}) <{SHAPES}, {NUMBERS}{more}> {{ {body} }}"


def _heads(name: str, perm: str = "0,2,1,3", source: str | None = None) -> str:
    return f"{name}s = Reshape({source or name}, split) {name}h = Transpose <perm = [{perm}]> ({name}s)"


BACK = "o = MatMul(p, vh) t = Transpose <perm = [0,2,1,3]> (o) y = Reshape(t, merge)"
BERT = f"{_heads('q')} {_heads('k1', '0,2,3,1')} {_heads('v')} m = MatMul(qh, k1h) c = Mul(m, k)"
FORMS = {
    "bert": f"{BERT} p = Softmax(c) {BACK}",
    "divided": f"{_heads('q')} {_heads('k1', '0,2,3,1')} {_heads('v')} m = MatMul(qh, k1h) c = Div(m, k) p = \
Softmax(c) {BACK}",
    "turned_twice": f"{_heads('q')} {_heads('k1')} {_heads('v')} kt = Transpose <perm = [0,1,3,2]> (k1h) m = \
MatMul(qh, kt) "
    f"c = Mul(m, k) p = Softmax(c) {BACK}",
    "scaled_operands": f"{_heads('q')} {_heads('k1')} {_heads('v')} kt = Transpose <perm = [0,1,3,2]> (k1h) "
    f"qr = Mul(qh, root) kr = Mul(kt, root) m = MatMul(qr, kr) p = Softmax <axis = -1> (m) {BACK}",
    "dynamo": f"{_heads('q')} {_heads('k1')} {_heads('v')} k3 = Reshape(k1h, stack) kt = Transpose <perm = \
[0,2,1]> (k3) "
    f"k4 = Reshape(kt, back) kr = Mul(k4, root) qr = Mul(qh, root) m = MatMul(qr, kr) p = Softmax <axis = 3> \
(m) {BACK}",
}


@pytest.mark.parametrize("form", FORMS)
def test_attention_without_mask_is_found_in_every_form(form: str) -> None:
    model = fires("AttentionFusion", _model(FORMS[form]), ["MultiHeadAttention"], sizes={"B": 2})
    node = model.graph.nodes[0]
    assert node.int_attribute("num_heads", 0) == 2
    assert node.float_attribute("scale", 0.0) == pytest.approx(2.0 if form == "divided" else 0.5, rel=1e-6)


MASKS = {
    "padding": "float[B,1,1,3] mask",
    "full": "float[B,1,3,3] mask",
    "by_head": "float[1,2,3,3] mask",
    "matrix": "float[3,3] mask",
    "row": "float[3] mask",
}


@pytest.mark.parametrize("shape", MASKS)
def test_mask_of_any_shape_becomes_attention_bias(shape: str) -> None:
    body = f"{BERT} a = Add(c, mask) p = Softmax(a) {BACK}"
    model = fires("AttentionFusion", _model(body, f"{INPUTS}, {MASKS[shape]}"), sizes={"B": 2})
    assert ("Expand" in ops_of(model)) == (shape not in ("full", "by_head"))


@pytest.mark.parametrize(
    ("inputs", "mask"),
    [
        (INPUTS, "float[5,1,1,3] mask"),
        (INPUTS.replace("B,", "1,"), "float[4,1,3,3] mask"),
        (INPUTS.replace("B,3,8] q", "B,1,8] q"), "float[1,1,5,3] mask"),
        (INPUTS.replace("B,3,8] k1", "B,1,8] k1").replace("B,3,8] v", "B,1,8] v"), "float[3,7] mask"),
    ],
    ids=["named batch", "batch", "queries", "keys"],
)
def test_a_mask_that_makes_scores_larger_stays(inputs: str, mask: str) -> None:
    body = f"{BERT} a = Add(c, mask) p = Softmax(a) o = MatMul(p, vh) y = Transpose <perm = [0,2,1,3]> (o)"
    text = _model(body, f"{inputs}, {mask}", "float[?,?,?,?] y")
    stays("AttentionFusion", text, because="sizes that the scores do not have")


def test_two_masks_are_added_up() -> None:
    body = f"{BERT} a = Add(c, mask) a2 = Add(bias, a) p = Softmax(a2) {BACK}"
    inputs = f"{INPUTS}, float[B,1,3,3] mask, float[1,2,3,3] bias"
    fires("AttentionFusion", _model(body, inputs), ["Add", "MultiHeadAttention"], sizes={"B": 2})


def test_layers_share_the_expansion_of_their_mask() -> None:
    layer = f"{BERT} a = Add(c, mask) p = Softmax(a) {BACK}"
    names = ["qs", "qh", "k1s", "k1h", "vs", "vh", "m", "c", "a", "p", "o", "t"]
    second = layer.replace("Reshape(q,", "Reshape(y,").replace("y = ", "z = ").replace("k1h = ", "K1h = ")
    for name in names:
        second = second.replace(f" {name} = ", f" {name}2 = ").replace(f"({name},", f"({name}2,")
        second = second.replace(f"({name})", f"({name}2)").replace(f", {name})", f", {name}2)")
    second = second.replace("qs = Reshape(y", "qs2 = Reshape(y").replace("K1h = ", "k1h2 = ")
    text = _model(f"{layer} {second}", f"{INPUTS}, float[B,1,1,3] mask", "float[B,3,8] z")
    assert ops_of(fires("AttentionFusion", text, sizes={"B": 2})).count("Expand") == 1


GUARD = (
    f"{BERT} bias = Where(keep, zero, low) a = Add(c, bias) s = Softmax(a) n = IsNaN(s) p = Where(n, zero, s) {BACK}"
)


def test_replacement_of_nan_goes_away_where_the_mask_is_finite() -> None:
    model = fires("AttentionFusion", _model(GUARD, f"{INPUTS}, bool[B,1,3,3] keep"), sizes={"B": 2})
    assert ops_of(model) == ["Where", "MultiHeadAttention"]


INFINITE = ", float none = {-inf}"
HIDING = {
    "row of every head": ("bool[B,1,3,3] keep", GUARD.replace("zero, low", "zero, none")),
    "keys alone": ("bool[B,1,1,3] keep", GUARD.replace("zero, low", "zero, none")),
    "one matrix": ("bool[3,3] keep", GUARD.replace("zero, low", "zero, none")),
    "two choices": (
        "bool[B,1,1,3] keep, bool[3,3] sees",
        GUARD.replace("zero, low", "zero, none").replace("a = Add(c, bias)", "w = Where(sees, zero, none) "
        "both = Add(bias, w) a = Add(c, both)"),
    ),
}  # fmt: skip


def _hiding(inputs: str) -> dict[str, np.ndarray]:
    """Return masks that hide all keys of some rows, and some of others."""
    shapes = {"bool[B,1,3,3] keep": (2, 1, 3, 3), "bool[B,1,1,3] keep": (2, 1, 1, 3), "bool[3,3] keep": (3, 3)}
    feeds = {"keep": np.ones(shapes[inputs.split(", bool")[0]], bool)}
    feeds["keep"][0] = False
    feeds["keep"][-1, ..., 2] = False
    return feeds | ({"sees": np.tril(np.ones((3, 3), bool))} if "sees" in inputs else {})


@pytest.mark.parametrize("opset", [13, 17, 18])
@pytest.mark.parametrize("case", HIDING)
def test_rows_that_a_mask_hides_whole_are_zero_as_behind_the_replacement_of_nan(case: str, opset: int) -> None:
    inputs, body = HIDING[case]
    text = _model(body, f"{INPUTS}, {inputs}", more=INFINITE)
    model = fires("AttentionFusion", text, sizes={"B": 2}, feeds=_hiding(inputs), opset=opset)
    assert ops_of(model).count("MultiHeadAttention") == 1
    assert "IsNaN" not in ops_of(model)


def test_layers_share_what_rows_their_mask_hides() -> None:
    second = GUARD.replace("bias = Where(keep, zero, low) ", "")
    for name in ("qs", "qh", "k1s", "k1h", "vs", "vh", "m", "c", "a", "s", "n", "p", "o", "t"):
        second = re.sub(rf"\b{name}\b", f"{name}_2", second)
    second = second.replace("y = ", "y_2 = ")
    body = GUARD.replace("zero, low", "zero, none") + " " + second
    text = _model(body, f"{INPUTS}, bool[B,1,3,3] keep", "float[B,3,8] y, float[B,3,8] y_2", INFINITE)
    feeds = _hiding("bool[B,1,3,3] keep")
    model = fires("AttentionFusion", text, sizes={"B": 2}, feeds=feeds, opset=18)
    assert [ops_of(model).count(each) for each in ("MultiHeadAttention", "ReduceMax", "Less")] == [2, 1, 1]


@pytest.mark.parametrize(
    ("mask", "change"),
    [
        ("float[B,1,3,3] bias", ("bias = Where(keep, zero, low) ", "")),
        ("bool[B,1,3,3] keep", ("Where(keep, zero, low)", "Where(keep, zero, high)")),
        ("bool[B,1,3,3] keep", ("Where(keep, zero, low)", "Where(keep, zero, nothing)")),
        ("bool[B,2,3,3] keep", ("Where(keep, zero, low)", "Where(keep, zero, none)")),
        ("bool[B,1,3,3] keep", ("p = Where(n, zero, s)", "p = Where(n, k, s)")),
    ],
    ids=["unknown", "infinite above", "nan", "other keys for each head", "replaced by another number"],
)
def test_replacement_of_nan_stays_where_it_cannot_be_told_what_it_replaces(mask: str, change: tuple[str, str]) -> None:
    more = f"{INFINITE}, float high = {{inf}}, float nothing = {{nan}}"
    text = _model(GUARD.replace(*change), f"{INPUTS}, {mask}", more=more)
    stays("AttentionFusion", text)


def test_cache_of_keys_and_values_becomes_past_and_present() -> None:
    body = f"{_heads('q')} {_heads('k1')} {_heads('v', source='v')} kc = Concat <axis = 2> (pk, k1h) "
    body += "vc = Concat <axis = -2> (pv, vh) kt = Transpose <perm = [0,1,3,2]> (kc) m = MatMul(qh, kt) c = Mul(m, k) "
    body += "a = Add(c, mask) p = Softmax(a) " + BACK.replace("vh", "vc")
    inputs = f"{INPUTS}, float[B,2,P,4] pk, float[B,2,P,4] pv, float[B,1,3,P + 3] mask".replace("P + 3", "T")
    text = _model(body, inputs, "float[B,3,8] y, float[B,2,T,4] kc, float[B,2,T,4] vc")
    model = fires("AttentionFusion", text, sizes={"B": 2, "P": 5, "T": 8})
    node = next(node for node in model.graph if node.op_type == "MultiHeadAttention")
    assert [value.name for value in node.present_outputs()] == ["y", "kc", "vc"]
    assert "Concat" not in [each.op_type for each in model.graph if each.inputs[0] is model.graph.inputs[3]]


def test_cache_whose_length_the_mask_is_made_from_stays_outside() -> None:
    body = f"{_heads('q')} {_heads('k1')} {_heads('v', source='v')} kc = Concat <axis = 2> (pk, k1h) "
    body += "vc = Concat <axis = 2> (pv, vh) kt = Transpose <perm = [0,1,3,2]> (kc) m = MatMul(qh, kt) c = Mul(m, k) "
    body += "mean = ReduceMax(kc) a = Add(c, mean) p = Softmax(a) " + BACK.replace("vh", "vc")
    text = _model(body, f"{INPUTS}, float[B,2,5,4] pk, float[B,2,5,4] pv")
    model = fires("AttentionFusion", text, sizes={"B": 2})
    assert ops_of(model).count("Concat") == 2 + ops_of(model).count("Expand")


def test_keys_and_values_of_four_axes_are_taken_as_they_are() -> None:
    body = f"{_heads('q')} kt = Transpose <perm = [0,1,3,2]> (kh) m = MatMul(qh, kt) p = Softmax(m) {BACK}"
    inputs = "float[B,3,8] q, float[B,2,7,4] kh, float[B,2,7,4] vh"
    fires("AttentionFusion", _model(body, inputs), ["MultiHeadAttention"], sizes={"B": 2})


def test_product_that_is_not_merged_is_split_again() -> None:
    body = f"{BERT} p = Softmax(c) o = MatMul(p, vh) y = Neg(o)"
    text = _model(body, outputs="float[B,2,3,4] y")
    fires("AttentionFusion", text, ["MultiHeadAttention", "Reshape", "Transpose", "Neg"], sizes={"B": 2})


def test_merging_to_a_matrix_keeps_its_reshape() -> None:
    body = f"{BERT} p = Softmax(c) {BACK}".replace("merge)", "flat)")
    text = _model(body, outputs="float[N,8] y", more=", int64[2] flat = {-1, 8}")
    fires("AttentionFusion", text, ["MultiHeadAttention", "Reshape"], sizes={"B": 2, "N": 6})


@pytest.mark.parametrize(
    "body",
    [
        f"{BERT} p = Softmax <axis = 1> (c) {BACK}",
        f"{_heads('q')} {_heads('k1')} {_heads('v')} m = Mul(qh, k1h) p = Softmax(m) o = Mul(p, vh) "
        "t = Transpose <perm = [0,2,1,3]> (o) y = Reshape(t, merge)",
        f"{BERT} s = Softmax(c) p = Mul(s, k) {BACK}",
    ],
    ids=["softmax_over_heads", "no_products", "weights_scaled"],
)
def test_near_misses_of_attention_stay(body: str) -> None:
    stays("AttentionFusion", _model(body))


def test_attention_stays_when_the_weights_are_a_graph_output() -> None:
    text = _model(f"{BERT} p = Softmax(c) {BACK}", outputs="float[B,3,8] y, float[B,2,3,3] p")
    stays("AttentionFusion", text)


def test_attention_stays_when_the_batches_are_not_known_to_be_equal() -> None:
    body = f"{BERT} p = Softmax(c) {BACK}"
    stays("AttentionFusion", _model(body, INPUTS.replace("float[B,3,8] v", "float[1,3,8] v")), because="same batch")


def test_padding_that_masks_whole_rows_gives_equal_results() -> None:
    body = f"{BERT} a = Add(c, mask) p = Softmax(a) {BACK}"
    mask = np.zeros((2, 1, 1, 3), np.float32)
    mask[0] = np.finfo(np.float32).min
    mask[1, ..., 2] = np.finfo(np.float32).min
    text = _model(body, f"{INPUTS}, float[B,1,1,3] mask")
    fires("AttentionFusion", text, sizes={"B": 2}, feeds={"mask": mask})


CAUSAL = ", uint8[1,1,4,4] tril = {1,0,0,0, 1,1,0,0, 1,1,1,0, 1,1,1,1}, int64[1] none = {0}, int64[1] three = {3}, \
int64[1] row = {2}, int64[1] column = {3}, int64[1] one = {1}, float far = {-10000.0}, float near = {-10.0}"
CHOICE = (
    "rows = Slice(tril, none, three, row, one) cut = Slice(rows, none, three, column, one) keep = Cast <to = 9> (cut) "
)
CHOICE += f"a = Where(keep, c, far) p = Softmax(a) {BACK}"


def test_choice_by_a_causal_buffer_becomes_a_mask() -> None:
    model = fires("AttentionFusion", _model(f"{BERT} {CHOICE}", more=CAUSAL), sizes={"B": 2})
    assert "MultiHeadAttention" in ops_of(model)
    assert "Softmax" not in ops_of(model)


@pytest.mark.parametrize(
    "cut",
    ["none, three, column", "one, far_end, column"],
)
def test_choice_of_a_number_that_is_not_low_stays_by_a_causal_buffer(cut: str) -> None:
    choice = CHOICE.replace("c, far", "c, near").replace("none, three, column", cut)
    stays("AttentionFusion", _model(f"{BERT} {choice}", more=f"{CAUSAL}, int64[1] far_end = {{4}}"))


def test_choice_by_a_causal_buffer_without_its_first_column_hides_the_first_row() -> None:
    choice = CHOICE.replace("none, three, column", "one, far_end, column")
    text = _model(f"{BERT} {choice}", more=f"{CAUSAL}, int64[1] far_end = {{4}}")
    assert "MultiHeadAttention" in ops_of(fires("AttentionFusion", text, sizes={"B": 2}))


STACK = (
    ", int64[4] heads = {2, 3, 2, 4}, int64[3] stacked = {4, 3, 4}, int64[4] apart = {2, 2, 3, 3}, "
    "int64[3] scores = {4, 3, 3}, int64[4] wrong = {1, 4, 3, 3}, int64[4] back4 = {2, 2, 3, 4}, "
    "int64[3] mask3 = {4, 3, 3}"
)
FIXED = INPUTS.replace("B", "2")
STACKED = " ".join(f"{_heads(name)} {name}3 = Reshape({name}h, stacked)" for name in ("q", "k1", "v"))
STACKED += " kt = Transpose <perm = [0,2,1]> (k13) m = MatMul(q3, kt) c = Mul(m, k)"
STACKED_BACK = "o3 = MatMul(p, v3) o = Reshape(o3, back4) t = Transpose <perm = [0,2,1,3]> (o) y = Reshape(t, merge)"
STACKED_FORMS = {
    "plain": (f"{STACKED} p = Softmax(c) {STACKED_BACK}", ""),
    "masked by matrix": (f"{STACKED} a = Add(c, mask) p = Softmax(a) {STACKED_BACK}", ", float[3,3] mask"),
    "masked in four axes": (
        f"{STACKED} c4 = Reshape(c, apart) a4 = Add(c4, mask) a = Reshape(a4, scores) p = Softmax(a) {STACKED_BACK}",
        ", float[2,1,1,3] mask",
    ),
    "masked by a stacked mask": (
        f"{STACKED} m3 = Reshape(mask, mask3) a = Add(c, m3) p = Softmax(a) {STACKED_BACK}",
        ", float[2,2,3,3] mask",
    ),
    "read stacked": (f"{STACKED} p = Softmax(c) y = MatMul(p, v3)", ""),
    "stacked behind the softmax": (
        f"{STACKED} c4 = Reshape(c, apart) a4 = Add(c4, mask) s4 = Softmax(a4) p = Reshape(s4, scores) {STACKED_BACK}",
        ", float[2,1,1,3] mask",
    ),
    "biased by token and head": (f"{STACKED} a = Add(c, mask) p = Softmax(a) {STACKED_BACK}", ", float[4,1,3] mask"),
    "biased by stacked scores": (
        f"{STACKED} a = Add(c, mask) a4 = Reshape(a, apart) s4 = Softmax(a4) p = Reshape(s4, scores) {STACKED_BACK}",
        ", float[4,3,3] mask",
    ),
}


@pytest.mark.parametrize("form", STACKED_FORMS)
def test_batch_and_heads_stacked_to_one_axis_are_pulled_apart(form: str) -> None:
    body, mask = STACKED_FORMS[form]
    outputs = "float[4,3,4] y" if form == "read stacked" else "float[2,3,8] y"
    model = fires("AttentionFusion", _model(body, FIXED + mask, outputs, STACK))
    assert "MultiHeadAttention" in ops_of(model)
    assert "Softmax" not in ops_of(model)


LENGTH_FIRST = "float[3,B,8] q, float[5,B,8] k1, float[5,B,8] v"
FIRST = (
    "qs = Reshape(q, first) q3 = Transpose <perm = [1,0,2]> (qs) ks = Reshape(k1, keys) "
    "kt = Transpose <perm = [1,2,0]> (ks) vs = Reshape(v, keys) v3 = Transpose <perm = [1,0,2]> (vs) c = Mul(q3, k) "
    "m = MatMul(c, kt) p = Softmax(m) o = MatMul(p, v3) t = Transpose <perm = [1,0,2]> (o) y = Reshape(t, whole)"
)
SIZES = ", int64[3] first = {3, -1, 4}, int64[3] keys = {5, -1, 4}, int64[3] whole = {3, -1, 8}"


def test_length_before_batch_is_turned_round_as_nn_multihead_attention_has_it() -> None:
    model = fires("AttentionFusion", _model(FIRST, LENGTH_FIRST, "float[3,B,8] y", SIZES), sizes={"B": 2})
    assert "MultiHeadAttention" in ops_of(model)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("c4 = Reshape(c, apart) a4", "c4 = Reshape(c, wrong) a4"),
        ("q3 = Reshape(qh, stacked)", "q3 = Reshape(qs, stacked)"),
    ],
    ids=["mask over other heads", "queries not split"],
)
def test_near_misses_of_stacked_attention_stay(old: str, new: str) -> None:
    body, _ = STACKED_FORMS["masked in four axes"]
    assert old in body
    inputs = FIXED + (", float[1,4,1,3] mask" if "wrong" in new else ", float[2,1,1,3] mask")
    stays("AttentionFusion", _model(body.replace(old, new), inputs, more=STACK))


CHOSEN = f"{BERT} a = Where(keep, c, low) p = Softmax(a) {BACK}"


@pytest.mark.parametrize("choice", ["keep, c, low", "keep, low, c"])
def test_choice_of_the_lowest_number_is_a_mask_whatever_rows_it_hides(choice: str) -> None:
    keep = np.ones((2, 1, 3, 3), bool)
    keep[0, 0, 1] = False
    keep[1, ..., 2] = False
    text = _model(CHOSEN.replace("keep, c, low", choice), f"{INPUTS}, bool[B,1,3,3] keep")
    model = fires("AttentionFusion", text, sizes={"B": 2}, feeds={"keep": keep})
    assert ops_of(model) == ["Where", "MultiHeadAttention"]


@pytest.mark.parametrize("choice", ["c, other", "other, c"])
@pytest.mark.parametrize("number", ["-1e4", "-1e9", "-1e30"])
def test_choice_of_a_low_number_is_a_mask_of_the_lowest_whatever_rows_it_hides(number: str, choice: str) -> None:
    keep = np.ones((2, 1, 3, 3), bool)
    keep[0, 0, 1] = False
    keep[1, ..., 2] = False
    text = _model(
        CHOSEN.replace("c, low", choice), f"{INPUTS}, bool[B,1,3,3] keep", more=f", float other = {{{number}}}"
    )
    model = fires("AttentionFusion", text, sizes={"B": 2}, feeds={"keep": keep})
    assert ops_of(model) == ["Where", "MultiHeadAttention"]


@pytest.mark.parametrize("number", ["-1e3", "3.4e38"])
def test_choice_of_a_number_that_is_not_low_stays(number: str) -> None:
    text = _model(
        CHOSEN.replace("c, low", "c, other"), f"{INPUTS}, bool[B,1,3,3] keep", more=f", float other = {{{number}}}"
    )
    stays("AttentionFusion", text)


def test_choice_of_a_low_number_stays_where_more_is_added_to_the_scores() -> None:
    body = f"{BERT} b = Add(c, mask) a = Where(keep, b, other) p = Softmax(a) {BACK}"
    text = _model(body, f"{INPUTS}, bool[B,1,3,3] keep, float[B,1,1,3] mask", more=", float other = {-1e9}")
    stays("AttentionFusion", text)


@pytest.mark.parametrize("factor", ["0.5", "4.0", "-0.5"])
def test_a_factor_behind_the_mask_scales_both_where_it_makes_neither_infinite(factor: str) -> None:
    body = f"{BERT} bias = Where(keep, zero, low) a = Add(m, bias) f = Mul(a, factor) p = Softmax(f) {BACK}"
    body = body.replace("c = Mul(m, k) ", "")
    text = _model(body, f"{INPUTS}, bool[B,1,3,3] keep", more=f", float factor = {{{factor}}}")
    if factor != "0.5":
        stays("AttentionFusion", text)
        return
    node = fires("AttentionFusion", text, sizes={"B": 2}).graph.nodes[-1]
    assert node.float_attribute("scale", 0.0) == 0.5


@pytest.mark.parametrize("low", ["low", "none"])
def test_a_bound_from_below_goes_where_the_mask_is_finite(low: str) -> None:
    body = f"{BERT} bias = Where(keep, zero, {low}) a = Add(c, bias) x = Max(a, low) p = Softmax(x) {BACK}"
    keep = np.ones((2, 1, 3, 3), bool)
    keep[0, 0, 1] = False
    text = _model(body, f"{INPUTS}, bool[B,1,3,3] keep", more=INFINITE)
    if low == "none":
        stays("AttentionFusion", text)
        return
    assert "Max" not in ops_of(fires("AttentionFusion", text, sizes={"B": 2}, feeds={"keep": keep}))


def test_softmax_whose_shape_is_asked_for_is_fused_all_the_same() -> None:
    body = f"{BERT} p = Softmax(c) {BACK} z = Shape(p)"
    text = _model(body, outputs="float[B,3,8] y, int64[4] z")
    model = typed_model(text)
    run_passes(model, "AttentionFusion")
    assert "Softmax" in ops_of(model)
    context = PassContext(model, infer=infer)
    run_pipeline([RulePass("PreShapeNodeElimination", [PreShapeNodeElimination()])], context, verify=True)
    run_passes(model, "AttentionFusion")
    assert "MultiHeadAttention" in ops_of(model)
    assert "Softmax" not in ops_of(model)


def test_scores_capped_by_tanh_stay_and_say_so() -> None:
    body = f"{BERT} n = Tanh(c) f = Mul(n, high) a = Add(f, mask) p = Softmax(a) {BACK}"
    text = _model(body, f"{INPUTS}, float[B,1,3,3] mask", more=", float high = {50.0}")
    stays("AttentionFusion", text, because="capped by Tanh")
