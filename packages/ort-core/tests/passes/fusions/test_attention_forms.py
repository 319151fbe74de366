"""Attentions in rarer spellings: shifted, subtracted and weighed scores, unknown keys, windows, batches of one."""

from __future__ import annotations

import numpy as np
import pytest
from fusion_check import fires, ops_of, stays, typed_model

NUMBERS = "float k = {0.5}, float one = {1.0}, float wide = {32.0}, float low = {-3e38}, float near = {-50.0}"
SHAPES = "int64[4] split = {0, 0, 2, 4}, int64[3] merge = {0, 0, 8}, int64[1] last = {-1}, int64[1] none = {0}"
INPUTS = "float[B,3,8] q, float[B,3,8] k1, float[B,3,8] v"
HEADS = " ".join(
    f"{name}s = Reshape({name}, split) {name}h = Transpose <perm = [{perm}]> ({name}s)"
    for name, perm in (("q", "0,2,1,3"), ("k1", "0,2,3,1"), ("v", "0,2,1,3"))
)
PRODUCT = f"{HEADS} m = MatMul(qh, k1h) c = Mul(m, k)"
BACK = "o = MatMul(p, vh) t = Transpose <perm = [0,2,1,3]> (o) y = Reshape(t, merge)"
MASK = ", float[B,1,3,3] mask"


def _model(body: str, inputs: str = INPUTS, more: str = "") -> str:
    return f"g ({inputs}) => (float[B,3,8] y) <{NUMBERS}, {SHAPES}{more}> {{ {body} }}"


SCORES = {
    "shifted by the largest": "a = Add(c, mask) l = ReduceMax <axes = [-1]> (a) s = Sub(a, l) p = Softmax(s)",
    "shifted by the largest with its axis put back": "a = Add(c, mask) r = ReduceMax <axes = [3], keepdims = 0> (a) "
    "l = Unsqueeze(r, last) s = Sub(a, l) p = Softmax(s)",
    "scaled down, shifted and scaled up": "a = Add(c, mask) d = Div(a, wide) l = ReduceMax <axes = [-1]> (d) "
    "e = Sub(d, l) s = Mul(e, wide) p = Softmax(s)",
    "mask subtracted": "s = Sub(c, mask) p = Softmax(s)",
    "mask subtracted before the scale": "n = Sub(m, mask) s = Mul(n, k) p = Softmax(s)",
}


@pytest.mark.parametrize("form", SCORES)
def test_what_changes_no_share_and_masks_in_differences_are_seen_through(form: str) -> None:
    model = fires("AttentionFusion", _model(f"{PRODUCT} {SCORES[form]} {BACK}", INPUTS + MASK), sizes={"B": 2})
    assert "MultiHeadAttention" in ops_of(model)
    assert not {"Softmax", "ReduceMax"} & set(ops_of(model))


@pytest.mark.parametrize(
    "scores",
    [
        "a = Add(c, mask) l = ReduceMax <axes = [2]> (a) s = Sub(a, l) p = Softmax(s)",
        "a = Add(c, mask) l = ReduceMax <axes = [-1]> (c) s = Sub(a, l) p = Softmax(s)",
        "a = Add(c, mask) s = Mul(a, wide) p = Softmax(s)",
        "s = Sub(mask, c) p = Softmax(s)",
    ],
    ids=["largest of a column", "largest of others", "mask scaled up", "scores subtracted"],
)
def test_near_misses_of_shifts_stay(scores: str) -> None:
    stays("AttentionFusion", _model(f"{PRODUCT} {scores} {BACK}", INPUTS + MASK))


WEIGHED = {
    "cast": "keep = Cast <to = 1> (allowed) not = Not(allowed) hide = Cast <to = 1> (not)",
    "rest": "keep = Cast <to = 1> (allowed) hide = Sub(one, keep)",
}
SUM = "w = Mul(c, keep) h = Mul(hide, low) s = Add(w, h) p = Softmax(s)"


@pytest.mark.parametrize("form", WEIGHED)
def test_scores_weighed_by_zero_and_one_with_the_lowest_number_elsewhere_are_masked(form: str) -> None:
    allowed = np.tril(np.ones((2, 1, 3, 3), bool))
    allowed[1, 0, 1] = False
    body = _model(f"{PRODUCT} {WEIGHED[form]} {SUM} {BACK}", INPUTS + ", bool[B,1,3,3] allowed")
    model = fires("AttentionFusion", body, sizes={"B": 2}, feeds={"allowed": allowed})
    assert "MultiHeadAttention" in ops_of(model)
    assert "Softmax" not in ops_of(model)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("hide, low", "hide, near"),
        ("hide = Sub(one, keep)", "hide = Sub(k, keep)"),
        ("Cast <to = 1> (allowed)", "Identity(parts)"),
    ],
    ids=["number is not low", "not the rest", "other weights than 0 and 1"],
)
def test_near_misses_of_weighed_scores_stay(old: str, new: str) -> None:
    body = f"{PRODUCT} {WEIGHED['rest']} {SUM} {BACK}".replace(old, new)
    stays("AttentionFusion", _model(body, INPUTS + ", bool[B,1,3,3] allowed, float[B,1,3,3] parts"))


def test_keys_of_unknown_origin_are_turned() -> None:
    heads = HEADS.replace("k1s = Reshape(k1, split) k1h = Transpose <perm = [0,2,3,1]> (k1s)", "k1h = Identity(keys)")
    body = f"{heads} m = MatMul(qh, k1h) c = Mul(m, k) p = Softmax(c) {BACK}"
    model = fires(
        "AttentionFusion", _model(body, "float[B,3,8] q, float[B,2,4,3] keys, float[B,3,8] v"), sizes={"B": 2}
    )
    assert "MultiHeadAttention" in ops_of(model)


@pytest.mark.parametrize("mask", ["", ", float[S,3,3] mask", ", float[3,3] mask", ", float[S,1,3] mask"])
def test_heads_stacked_with_the_batch_before_the_model_are_one_head_each(mask: str) -> None:
    scores = "a = Add(c, mask) p = Softmax(a)" if mask else "p = Softmax(c)"
    body = f"kt = Transpose <perm = [0,2,1]> (b) m = MatMul(a0, kt) c = Mul(m, k) {scores} y = MatMul(p, d)"
    inputs = f"float[S,3,4] a0, float[S,3,4] b, float[S,3,4] d{mask}"
    text = f"g ({inputs}) => (float[S,3,4] y) <{NUMBERS}> {{ {body} }}"
    model = fires("AttentionFusion", text, sizes={"S": 6})
    (node,) = [each for each in model.graph.nodes if each.op_type == "MultiHeadAttention"]
    assert node.int_attribute("num_heads", 0) == 1


WINDOWS = ", int64[5] apart = {-1, 2, 2, 3, 3}, int64[4] put_back = {-1, 2, 3, 3}"
SHIFTED = "f = Reshape(c, apart) g = Add(f, mask) s = Reshape(g, put_back) p = Softmax(s)"


@pytest.mark.parametrize("mask", ["float[1,2,1,3,3] mask", "float[2,1,3,3] mask", "float[1,1,2,3,3] mask"])
def test_masks_of_windows_are_repeated_for_the_batch(mask: str) -> None:
    body = _model(f"{PRODUCT} {SHIFTED} {BACK}", f"{INPUTS}, {mask}", WINDOWS)
    model = fires("AttentionFusion", body, sizes={"B": 6})
    assert "MultiHeadAttention" in ops_of(model)
    assert "Softmax" not in ops_of(model)


def test_several_masks_of_windows_are_repeated_for_the_batch() -> None:
    twice = SHIFTED.replace("s = Reshape(g, put_back)", "h = Add(mask, g) s = Reshape(h, put_back)")
    body = _model(f"{PRODUCT} {twice} {BACK}", f"{INPUTS}, float[1,2,1,3,3] mask", WINDOWS)
    model = fires("AttentionFusion", body, sizes={"B": 6})
    assert "MultiHeadAttention" in ops_of(model)
    assert "Softmax" not in ops_of(model)


ZERO = ", float zero = {0.0}, float low = {-3.4028234e38}"
HIDDEN = ["keep, {0}, {1}", "hide, {1}, {0}"]


@pytest.mark.parametrize("choice", HIDDEN)
@pytest.mark.parametrize("low", ["{-inf}", "{-3.4028234e38}", "{-1e4}"])
@pytest.mark.parametrize("shape", ["bool[B,1,3,3]", "bool[B,1,1,3]", "bool[3,3]"])
def test_rows_without_a_key_are_zero_where_hidden_shares_are_set_to_zero(shape: str, low: str, choice: str) -> None:
    text = (
        f"{PRODUCT} a = Where({choice.format('c', 'number')}) s = Softmax(a) p = Where({choice.format('s', 'zero')})"
        f" {BACK}"
    )
    name = choice.split(",")[0]
    seen = np.ones((2, 1, 3, 3) if "3,3]" in shape and "B" in shape else (2, 1, 1, 3) if "B" in shape else (3, 3), bool)
    seen[0] = False  # the first sentence, or query, has no key
    seen[-1, ..., 2] = False
    body = _model(text, f"{INPUTS}, {shape} {name}", f", float number = {low}, float zero = {{0.0}}")
    feeds = {name: seen if name == "keep" else ~seen}
    model = fires("AttentionFusion", body, sizes={"B": 2}, feeds=feeds)
    assert "MultiHeadAttention" in ops_of(model)
    assert "Softmax" not in ops_of(model)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("s, zero", "s, k"),
        ("p = Where(keep", "p = Where(other"),
        ("c, low", "c, zero"),
        ("[B,1,3,3] keep", "[B,2,3,3] keep"),
    ],
)
def test_other_choices_behind_the_softmax_stay(old: str, new: str) -> None:
    text = f"{PRODUCT} a = Where(keep, c, low) s = Softmax(a) p = Where(keep, s, zero) {BACK}"
    body = _model(text, f"{INPUTS}, bool[B,1,3,3] keep, bool[B,1,3,3] other", ZERO)
    assert old in body
    stays("AttentionFusion", body.replace(old, new))


def test_masks_of_windows_of_each_entry_stay() -> None:
    body = _model(f"{PRODUCT} {SHIFTED} {BACK}", f"{INPUTS}, float[N,2,1,3,3] mask", WINDOWS)
    stays("AttentionFusion", body)


@pytest.mark.parametrize("sizes", [{"B": 2, "C": 2}, {"B": 2, "C": 1}, {"B": 1, "C": 2}], ids=str)
def test_batches_of_queries_and_keys_are_brought_to_one_where_they_may_differ(sizes: dict[str, int]) -> None:
    inputs = "float[B,3,8] q, float[C,3,8] k1, float[C,3,8] v"
    body = _model(f"{PRODUCT} p = Softmax(c) {BACK}", inputs).replace("(float[B,3,8] y)", "(float[N,3,8] y)")
    model = fires("AttentionFusion", body, sizes=sizes)
    assert "MultiHeadAttention" in ops_of(model)


def test_sizes_that_a_concatenation_wants_equal_are_called_by_the_name_that_one_of_them_has() -> None:
    model = typed_model("g (float[B,L] x, float[B,M] z) => (float[B,N] y) <int64[4] pads = {0,1,0,0}> "
                        "{ p = Pad(x, pads) a = Transpose <perm = [1,0]> (p) b = Transpose <perm = [1,0]> (z) "
                        "c = Concat <axis = 1> (a, b) y = Transpose <perm = [1,0]> (c) }")  # fmt: skip
    joined = next(node.output for node in model.graph.nodes if node.op_type == "Concat")
    assert joined.shape is not None
    assert str(joined.shape[0]) == "M"
