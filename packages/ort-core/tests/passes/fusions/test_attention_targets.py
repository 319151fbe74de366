"""Attentions become the operator that is asked for: grouped heads and bounded scores, caches, the standard's."""

from __future__ import annotations

import re

import numpy as np
import pytest
from fusion_check import fires, ops_of, stays

from ort_core.ir.traversal import walk
from ort_core.passes.base import Level, RulePass
from ort_core.passes.fusions.attention import AttentionFusion
from ort_core.passes.fusions.attention_targets import AttentionTarget

MULTI_HEAD, GROUPED, GROUPED_PAST, STANDARD, MADE_KEYS = (
    AttentionTarget.MULTI_HEAD, AttentionTarget.GROUPED, AttentionTarget.GROUPED_PAST, AttentionTarget.STANDARD,
    AttentionTarget.MULTI_HEAD_OF_MADE_KEYS,
)  # fmt: skip
SIZES = {"B": 2, "P": 4}
HEAD = "g (float[B,3,32] q, float[B,3,16] k, float[B,3,16] v, float[B,1,3,3] mask{more}) => (float[B,3,32] y{out}) \
<int64[4] four = {{0,0,4,8}}, int64[4] two = {{0,0,2,8}}, int64[1] axis = {{2}}, int64[5] wide = {{1,1,2,1,1}}, \
int64[3] merge = {{0,0,32}}, float scale = {{0.3}}, float cap = {{2.5}}, float over = {{0.4}}>"
HEADS = "qs = Reshape(q, four) qh = Transpose <perm = [0,2,1,3]> (qs) ks = Reshape(k, two) \
kh = Transpose <perm = [0,2,1,3]> (ks) vs = Reshape(v, two) vh = Transpose <perm = [0,2,1,3]> (vs)"
REPEATS = "ku = Unsqueeze(kh, axis) ke = Expand(ku, wide) kr = Reshape(ke, back) \
vu = Unsqueeze(vh, axis) ve = Expand(vu, wide) vr = Reshape(ve, back)"
SCORES = "kt = Transpose <perm = [0,1,3,2]> (kr) m = MatMul(qh, kt) c = Mul(m, scale) b = Add(c, mask) \
p = Softmax <axis = 3> (b) o = MatMul(p, vr) t = Transpose <perm = [0,2,1,3]> (o) y = Reshape(t, merge)"
CAPPED = SCORES.replace("c = Mul(m, scale)", "n = Mul(m, scale) d = Mul(n, over) e = Tanh(d) c = Mul(e, cap)")
PAST = "pk = Identity(past_k) kj = Concat <axis = 2> (past_k, kh) vj = Concat <axis = 2> (past_v, vh)"


def _rule(*targets: AttentionTarget) -> RulePass:
    return RulePass("AttentionFusion", [AttentionFusion(targets=targets)], Level.EXTENDED)


def _model(body: str, length: str = "3", more: str = "", out: str = "") -> str:
    head = HEAD.format(more=more, out=out).replace(
        "<int64[4] four", f"<int64[4] back = {{-1,4,{length},8}}, int64[4] four"
    )
    return f"{head} {{ {body} }}"


def _node(model: object, op_type: str) -> object:
    (node,) = [each for each in walk(model.graph) if each.op_type == op_type]  # type: ignore[attr-defined]  # a model
    return node


@pytest.mark.parametrize("repeat", ["expand", "tile", "concat"])
@pytest.mark.parametrize("form", ["plain", "capped"])
def test_heads_that_share_keys_become_groups(form: str, repeat: str) -> None:
    repeats = {
        "expand": REPEATS,
        "tile": REPEATS.replace("Expand(", "Tile("),
        "concat": re.sub(r"Expand\((.)u, wide\)", r"Concat <axis = 2> (\1u, \1u)", REPEATS),
    }[repeat]
    body = _model(f"{HEADS} {repeats} {CAPPED if form == 'capped' else SCORES}")
    node = _node(fires(_rule(MULTI_HEAD, GROUPED), body, sizes=SIZES), "GroupQueryAttention")
    assert (node.int_attribute("kv_num_heads", 0), node.int_attribute("causal", 1)) == (2, 0)
    assert node.float_attribute("softcap", 0.0) == (2.5 if form == "capped" else 0.0)
    assert node.float_attribute("scale", 0.0) == pytest.approx(0.3)


def test_heads_that_share_keys_stay_repeated_where_groups_are_not_asked_for() -> None:
    model = fires(_rule(MULTI_HEAD), _model(f"{HEADS} {REPEATS} {SCORES}"), sizes=SIZES)
    assert "MultiHeadAttention" in ops_of(model)
    assert "Expand" in ops_of(model)


def test_bounded_scores_stay_where_groups_are_not_asked_for() -> None:
    stays(_rule(MULTI_HEAD), _model(f"{HEADS} {REPEATS} {CAPPED}"), because="capped by Tanh")


def test_a_mask_inside_the_bound_stays() -> None:
    body = SCORES.replace(
        "c = Mul(m, scale) b = Add(c, mask)", "n = Mul(m, scale) d = Add(n, mask) e = Tanh(d) b = Mul(e, cap)"
    )
    stays(_rule(MULTI_HEAD, GROUPED), _model(f"{HEADS} {REPEATS} {body}"))


def test_heads_of_a_size_that_the_kernels_do_not_take_stay_repeated() -> None:
    body = _model(f"{HEADS} {REPEATS} {SCORES}").replace(",8}", ",4}").replace("[B,3,32]", "[B,3,16]")
    body = body.replace("float[B,3,16] k, float[B,3,16] v", "float[B,3,8] k, float[B,3,8] v").replace(
        "0,0,32", "0,0,16"
    )
    assert "MultiHeadAttention" in ops_of(fires(_rule(MULTI_HEAD, GROUPED), body, sizes=SIZES))


WITH_PAST = _model(
    f"{HEADS} {PAST} {REPEATS} {SCORES}".replace("(kh, axis)", "(kj, axis)").replace("(vh, axis)", "(vj, axis)"), "-1",
    ", float[B,2,P,8] past_k, float[B,2,P,8] past_v", ", float[B,2,N,8] kj, float[B,2,N,8] vj",
).replace("float[B,1,3,3] mask", "float[B,1,1,1] mask").replace("back = {-1,4,-1,8}", "back = {0,4,-1,8}")  # fmt: skip


def test_a_cache_is_appended_to_by_groups_only_where_that_is_asked_for() -> None:
    body = WITH_PAST.replace("B,", "1,")  # onnxruntime's kernel takes several new tokens of one sentence only
    model = fires(_rule(MULTI_HEAD, GROUPED, GROUPED_PAST), body, sizes={"P": 4})
    node = _node(model, "GroupQueryAttention")
    assert node.inputs[3] is not None
    assert "Concat" not in [each.op_type for each in walk(model.graph) if each.output.rank == 4]
    model = fires(_rule(MULTI_HEAD, GROUPED), WITH_PAST, sizes=SIZES)
    assert "MultiHeadAttention" in ops_of(model)


@pytest.mark.parametrize("form", ["plain", "capped", "past"])
def test_the_standards_operator_takes_groups_bounds_and_caches(form: str) -> None:
    body = {
        "plain": _model(f"{HEADS} {REPEATS} {SCORES}"), "capped": _model(f"{HEADS} {REPEATS} {CAPPED}"),
        "past": WITH_PAST,
    }[form]  # fmt: skip
    model = fires(_rule(MULTI_HEAD, STANDARD), body, sizes=SIZES, opset=23)
    node = _node(model, "Attention")
    assert node.domain == ""
    assert (node.int_attribute("q_num_heads", 0), node.int_attribute("kv_num_heads", 0)) == (4, 2)
    assert (len(node.inputs) == 6) == (form == "past")


def test_rows_that_a_mask_hides_whole_keep_their_equal_shares_in_the_standards_operator() -> None:
    body = SCORES.replace("b = Add(c, mask)", "bias = Where(keep, zero, low) b = Add(c, bias)")
    text = _model(f"{HEADS} {REPEATS} {body}", more=", bool[B,1,3,3] keep").replace(
        "float over",
        "float zero = {0.0}, \
float low = {-3.4028234663852886e38}, float over",
    )
    keep = np.ones((2, 1, 3, 3), bool)
    keep[0, 0, 1] = False
    fires(_rule(STANDARD), text, sizes=SIZES, opset=23, feeds={"keep": keep})


def test_what_the_standards_operator_cannot_say_stays_where_it_alone_is_asked_for() -> None:
    text = _model(f"{HEADS} {REPEATS} {SCORES}").replace("scale = {0.3}", "scale = {-0.3}")
    stays(_rule(STANDARD), text, opset=23, because="a positive scale")


def test_the_standards_operator_is_not_written_below_its_opset() -> None:
    model = fires(_rule(MULTI_HEAD, STANDARD), _model(f"{HEADS} {REPEATS} {SCORES}"), sizes=SIZES, opset=18)
    assert "MultiHeadAttention" in ops_of(model)


def test_heads_of_four_axes_may_have_values_of_another_size_than_keys() -> None:
    body = "g (float[B,3,32] q, float[B,4,3,8] kh, float[B,4,3,4] vh) => (float[B,3,16] y) \
<int64[4] four = {0,0,4,8}, int64[3] merge = {0,0,16}> { qs = Reshape(q, four) qh = Transpose <perm = [0,2,1,3]> (qs) \
kt = Transpose <perm = [0,1,3,2]> (kh) m = MatMul(qh, kt) p = Softmax <axis = 3> (m) o = MatMul(p, vh) \
t = Transpose <perm = [0,2,1,3]> (o) y = Reshape(t, merge) }"
    assert "MultiHeadAttention" in ops_of(fires(_rule(MULTI_HEAD), body, sizes=SIZES))


SUNK = SCORES.replace(
    "p = Softmax <axis = 3> (b)",
    "se = Expand(sinks, places) j = Concat <axis = -1> (b, se) l = ReduceMax <axes = [-1]> (j) d = Sub(j, l) "
    "w = Softmax <axis = 3> (d) p = Slice(w, first, last, axis3)",
)
SINKS = (
    "float[1,4,1,1] sinks = {0.5,-1,2,0.1}, int64[4] places = {2,1,3,1}, int64[1] first = {0}, int64[1] last = {-1}, \
int64[1] axis3 = {3}"
)


def _sunk(scores: str = SUNK, sinks: str = SINKS) -> str:
    return _model(f"{HEADS} {REPEATS} {scores}").replace("<int64[4] back", f"<{sinks}, int64[4] back")


@pytest.mark.parametrize("is_shifted", [True, False])
def test_sinks_beside_the_scores_become_an_input(is_shifted: bool) -> None:
    scores = SUNK if is_shifted else SUNK.replace("Softmax <axis = 3> (d)", "Softmax <axis = 3> (j)")
    node = _node(fires(_rule(MULTI_HEAD, GROUPED), _sunk(scores), sizes={"B": 2}), "GroupQueryAttention")
    assert node.inputs[11].shape == (4,)


def test_sinks_in_front_of_the_scores_become_an_input() -> None:
    sinks = SINKS.replace("first = {0}", "first = {1}").replace("last = {-1}", "last = {9223372036854775807}")
    node = _node(
        fires(_rule(MULTI_HEAD, GROUPED), _sunk(SUNK.replace("(b, se)", "(se, b)"), sinks), sizes={"B": 2}),
        "GroupQueryAttention",
    )
    assert node.inputs[11].shape == (4,)


@pytest.mark.parametrize(
    ("old", "new", "because"),
    [
        ("last = {-1}", "last = {-2}", "something else than the first or the last share"),
        ("Sub(j, l)", "Add(j, l)", "not joined with one of each head"),
    ],
)  # fmt: skip
def test_sinks_of_another_form_stay(old: str, new: str, because: str) -> None:
    stays(_rule(MULTI_HEAD, GROUPED), _sunk().replace(old, new), because=because)


def test_sinks_are_told_of_where_the_operator_asked_for_has_none() -> None:
    stays(_rule(MULTI_HEAD), _sunk(), because="have sinks beside them")


@pytest.mark.parametrize("operator", ["MultiHeadAttention", "Attention"])
def test_sinks_become_one_more_key_of_an_operator_that_has_none(operator: str) -> None:
    targets = (MULTI_HEAD, MADE_KEYS) if operator == "MultiHeadAttention" else (STANDARD,)
    opset = {} if operator == "MultiHeadAttention" else {"opset": 23}
    scores = SUNK.replace("ReduceMax <axes = [-1]> (j)", "ReduceMax(j, last)")
    node = _node(fires(_rule(*targets), _sunk(scores if opset else SUNK), sizes={"B": 2}, **opset), operator)
    assert node.inputs[1].shape[1] == 4


def test_sinks_that_a_pad_puts_there_become_an_input() -> None:
    scores = SCORES.replace(
        "p = Softmax <axis = 3> (b)",
        "j = Pad(b, pads, over) w = Softmax <axis = 3> (j) p = Slice(w, first, last, axis)",
    )
    sinks = "int64[8] pads = {0,0,0,0,0,0,0,1}, int64[1] first = {0}, int64[1] last = {-1}, int64[1] axis3 = {3}"
    body = _sunk(scores.replace("last, axis)", "last, axis3)"), sinks)
    node = _node(fires(_rule(MULTI_HEAD, GROUPED), body, sizes={"B": 2}), "GroupQueryAttention")
    assert node.inputs[11].constant.array().tolist() == pytest.approx([0.4] * 4)
    stays(_rule(MULTI_HEAD, GROUPED), body.replace("0,0,0,1}", "0,0,1,0}"), because="not padded by one constant")


@pytest.mark.parametrize("lifts", [True, False])
def test_one_head_of_keys_for_all_of_queries_is_repeated_where_it_is_asked_for(lifts: bool) -> None:
    body = "g (float[B,3,32] q, float[B,5,8] k, float[B,5,8] v) => (float[B,3,32] y) \
<int64[4] four = {0,0,4,8}, int64[3] merge = {0,0,32}, int64[1] one = {1}> { qs = Reshape(q, four) \
qh = Transpose <perm = [0,2,1,3]> (qs) kt = Transpose <perm = [0,2,1]> (k) ku = Unsqueeze(kt, one) \
vu = Unsqueeze(v, one) m = MatMul(qh, ku) p = Softmax <axis = 3> (m) o = MatMul(p, vu) \
t = Transpose <perm = [0,2,1,3]> (o) y = Reshape(t, merge) }"
    if not lifts:
        body = body.replace(
            "kt = Transpose <perm = [0,2,1]> (k) ku = Unsqueeze(kt, one)",
            "kl = Unsqueeze(k, one) \
ku = Transpose <perm = [0,1,3,2]> (kl)",
        )
    node = _node(fires(_rule(MULTI_HEAD, MADE_KEYS), body, sizes=SIZES), "MultiHeadAttention")
    assert node.inputs[1].shape[2] == 32
    stays(_rule(MULTI_HEAD), body, because="one head of keys and values is for all 4 of queries")


@pytest.mark.parametrize(
    ("targets", "operators"),
    [
        ((MULTI_HEAD,), {("com.microsoft", "MultiHeadAttention")}),
        ((MULTI_HEAD, GROUPED, GROUPED_PAST),
         {("com.microsoft", "MultiHeadAttention"), ("com.microsoft", "GroupQueryAttention")}),
        ((STANDARD,), {("", "Attention")}),
    ],
)  # fmt: skip
def test_the_rule_says_what_it_emits_for_its_targets(targets: tuple[AttentionTarget, ...], operators: set) -> None:
    (rule,) = _rule(*targets).rules
    assert set(rule.emits) == operators


SHOWN = f"{HEADS} {REPEATS} {SCORES}"


@pytest.mark.parametrize("groups", ["groups", "own heads"])
@pytest.mark.parametrize(("op_type", "opset", "shows"), [("GroupQueryAttention", 21, 2), ("Attention", 23, 3)])
def test_shares_that_are_a_result_are_an_output_of_the_operator(
    op_type: str, opset: int, shows: int, groups: str
) -> None:
    body = _model(SHOWN, out=", float[B,4,3,3] p")
    if groups == "own heads":
        body = _model(
            f"{HEADS} {SCORES}".replace("(k, two)", "(k, four)").replace("(v, two)", "(v, four)")
            .replace("kr", "kh").replace("vr", "vh"), out=", float[B,4,3,3] p",
        ).replace("float[B,3,16]", "float[B,3,32]")  # fmt: skip
    target = STANDARD if opset == 23 else GROUPED
    node = _node(fires(_rule(MULTI_HEAD, target), body, sizes=SIZES, opset=opset), op_type)
    assert node.int_attribute("qk_output" if opset == 21 else "qk_matmul_output_mode", 0) == shows


def test_shares_that_weigh_other_values_too_keep_the_attention() -> None:
    body = _model(SHOWN, out=", float[B,4,3,3] z").replace("o = MatMul(p, vr)", "o = MatMul(p, vr) z = MatMul(p, mask)")
    stays(_rule(MULTI_HEAD, GROUPED), body, because="a factor of another product")


def test_shares_of_queries_that_other_tokens_answer_keep_the_attention() -> None:
    body = (
        _model(SHOWN, "5", out=", float[B,4,3,5] p")
        .replace("float[B,3,16]", "float[B,5,16]")
        .replace("float[B,1,3,3] mask", "float[B,1,3,5] mask")
    )
    stays(_rule(MULTI_HEAD, GROUPED), body, because="keys of its 3 queries, there are 5")


def test_shares_that_are_a_result_keep_the_attention_where_only_multi_head_attention_is_asked_for() -> None:
    stays(_rule(MULTI_HEAD), _model(SHOWN, out=", float[B,4,3,3] p"))
