"""Rotations by position become RotaryEmbedding, before or after the split into heads."""

from __future__ import annotations

import pytest
from fusion_check import fires, ops_of, stays

from ort_core.ir.traversal import walk
from ort_core.passes.base import Level, RulePass
from ort_core.passes.fusions.rotary import RotaryEmbeddingFusion

HEAD = "g (float[B,3,8] x, float[B,3,2] angles, float[B,2,3,4] h) => (float[B,2,3,4] y) <int64[4] split = {0,0,2,4}, \
int64[1] low = {0}, int64[1] half = {2}, int64[1] high = {9223372036854775807}, int64[1] last = {3}, \
int64[1] one = {1}>"
SPLIT = "s = Reshape(x, split) t = Transpose <perm = [0,2,1,3]> (s)"
ANGLES = "e = Concat <axis = -1> (angles, angles) c = Cos(e) cu = Unsqueeze(c, one) n = Sin(e) su = Unsqueeze(n, one)"
TURN = (
    "b = Slice(t, half, high, last, one) m = Neg(b) a = Slice(t, low, half, last, one) r = Concat <axis = -1> (m, a) \
p = Mul(t, cu) q = Mul(r, su) y = Add(p, q)"
)


def test_rotation_comes_before_the_split_into_heads() -> None:
    model = fires("RotaryEmbeddingFusion", f"{HEAD} {{ {SPLIT} {ANGLES} {TURN} }}", sizes={"B": 2})
    assert ops_of(model)[-3:] == ["RotaryEmbedding", "Reshape", "Transpose"]


def test_rotation_of_heads_that_were_not_split_here_keeps_their_axes() -> None:
    body = f"t = Neg(h) {ANGLES} {TURN}"
    assert ops_of(fires("RotaryEmbeddingFusion", f"{HEAD} {{ {body} }}", sizes={"B": 2}))[-1] == "RotaryEmbedding"


def test_rotation_of_halves_made_by_split_is_found() -> None:
    turn = TURN.replace("b = Slice(t, half, high, last, one)", "a, b = Split <axis = 3> (t)")
    turn = turn.replace("a = Slice(t, low, half, last, one) ", "")
    model = fires("RotaryEmbeddingFusion", f"{HEAD} {{ {SPLIT} {ANGLES} {turn} }}", sizes={"B": 2})
    assert "RotaryEmbedding" in ops_of(model)


def test_rotations_by_the_same_angles_share_their_tables() -> None:
    second = TURN.replace("(t,", "(u,").replace("y = ", "z = ")
    for name in ("b", "m", "a", "r", "p", "q"):
        second = (
            second.replace(f"{name} = ", f"{name}2 = ")
            .replace(f"({name},", f"({name}2,")
            .replace(f"({name})", f"({name}2)")
        )
        second = second.replace(f", {name})", f", {name}2)")
    text = HEAD.replace("(float[B,2,3,4] y)", "(float[B,2,3,4] y, float[B,2,3,4] z)")
    model = fires("RotaryEmbeddingFusion", f"{text} {{ {SPLIT} {ANGLES} u = Neg(h) {TURN} {second} }}", sizes={"B": 2})
    assert ops_of(model).count("RotaryEmbedding") == 2
    assert ops_of(model).count("Cos") == 1


@pytest.mark.parametrize(
    "body",
    [
        f"{SPLIT} {ANGLES} {TURN}".replace("(m, a)", "(a, m)"),
        f"{SPLIT} {ANGLES} {TURN}".replace("(t, half, high", "(t, low, half"),
    ],
    ids=["halves_in_order", "the_same_half"],
)
def test_near_misses_of_a_rotation_stay(body: str) -> None:
    stays("RotaryEmbeddingFusion", f"{HEAD} {{ {body} }}")


def test_a_rotation_of_heads_that_are_stacked_with_the_batch_is_named() -> None:
    body = f"s = Reshape(x, three) t = Identity(s) {ANGLES} {TURN}".replace("Unsqueeze(c, one)", "Identity(c)")
    body = body.replace("Unsqueeze(n, one)", "Identity(n)").replace("axis = -1", "axis = 2")
    head = HEAD.replace("float[B,2,3,4] y", "float[C,3,4] y").replace(
        "<int64[4] split", "<int64[3] three = {-1,3,4}, int64[4] split"
    )
    head = head.replace("float[B,3,2] angles", "float[1,3,2] angles").replace("last = {3}", "last = {2}")
    stays("RotaryEmbeddingFusion", f"{head} {{ {body} }}", because="has 3 axes, heads have 4")


WIDE = "g (float[B,3,8] x, float[{batch},3,{width}] cos, float[{batch},3,{width}] sin) => (float[B,2,3,4] y) \
<int64[4] split = {{0,0,2,4}}, int64[1] low = {{0}}, int64[1] half = {{2}}, int64[1] high = {{9223372036854775807}}, \
int64[1] last = {{3}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] end = {{4}}, int64[4] merge = {{0,0,0,4}}>"
DOUBLED = (
    "c = Concat <axis = -1> (cos, cos) cu = Unsqueeze(c, one) n = Concat <axis = -1> (sin, sin) su = Unsqueeze(n, one)"
)
TWINS = "ce = Unsqueeze(cos, last) cj = Concat <axis = 3> (ce, ce) cf = Reshape(cj, wide) cu = Unsqueeze(cf, one) \
ne = Unsqueeze(sin, last) nj = Concat <axis = -1> (ne, ne) nf = Reshape(nj, wide) su = Unsqueeze(nf, one)"
TWINS_OF_AXES = " ".join(  # each axis of an image has its own pairs
    f"{v}a, {v}b = Split <axis = 2> ({name}) {v}e = Unsqueeze({v}a, last) {v}i = Concat <axis = 3> ({v}e, {v}e) "
    f"{v}j = Unsqueeze({v}b, last) {v}k = Concat <axis = 3> ({v}j, {v}j) {v}f = Reshape({v}i, pair) "
    f"{v}g = Reshape({v}k, pair) {v}h = Concat <axis = 2> ({v}f, {v}g) {v}u = Unsqueeze({v}h, one)"
    for v, name in (("c", "cos"), ("s", "sin"))
)
TURN_TWINS = "b = Slice(t, one, high, last, two) m = Neg(b) a = Slice(t, low, high, last, two) \
mu = Unsqueeze(m, end) au = Unsqueeze(a, end) st = Concat <axis = -1> (mu, au) r = Reshape(st, merge) \
p = Mul(t, cu) q = Mul(su, r) y = Add(q, p)"
APART = "a, b = Split <axis = 3> (t) cu = Unsqueeze(cos, one) su = Unsqueeze(sin, one) ac = Mul(a, cu) bs = Mul(b, su) \
bc = Mul(cu, b) as = Mul(a, su) f = Sub(ac, bs) g = Add(as, bc)"


@pytest.mark.parametrize("batch", ["1", "B"])
@pytest.mark.parametrize("form", ["halves", "twins", "twins_of_axes", "apart", "apart_twins"])
def test_rotations_of_all_spellings_are_one_operator(batch: str, form: str) -> None:
    head = WIDE.format(batch=batch, width=2).replace(
        "<int64[4] split", "<int64[3] wide = {0,0,4}, int64[3] pair = {0,0,2}, int64[4] split"
    )
    body = {
        "halves": f"{DOUBLED} {TURN}",
        "twins": f"{TWINS} {TURN_TWINS}",
        "twins_of_axes": f"{TWINS_OF_AXES} {TURN_TWINS}",
        "apart": f"{APART} y = Concat <axis = -1> (f, g)",
        "apart_twins": APART.replace("a, b = Split <axis = 3> (t)", "b = Slice(t, one, high, last, two) \
a = Slice(t, low, high, last, two)") + " fu = Unsqueeze(f, end) gu = Unsqueeze(g, end) \
st = Concat <axis = -1> (fu, gu) y = Reshape(st, merge)",
    }[form]  # fmt: skip
    model = fires("RotaryEmbeddingFusion", f"{head} {{ {SPLIT} {body} }}", sizes={"B": 2})
    (node,) = [each for each in walk(model.graph) if each.op_type == "RotaryEmbedding"]
    assert node.int_attribute("interleaved", 0) == ("twins" in form)
    assert ("Range" in ops_of(model)) == (batch == "B"), "tokens of all sentences at one place share their row"


def test_rotation_of_heads_behind_their_tokens_needs_no_transposition() -> None:
    head = (
        WIDE.format(batch="1", width=4)
        .replace("float[B,2,3,4] y", "float[B,3,2,4] y")
        .replace("float[1,3,4]", "float[3,4]")
    )
    tables = "c2 = Slice(cos, low, half, one) c = Concat <axis = -1> (c2, c2) cu = Unsqueeze(c, one) \
n2 = Slice(sin, low, half, one) n = Concat <axis = -1> (n2, n2) su = Unsqueeze(n, one)"
    model = fires("RotaryEmbeddingFusion", f"{head} {{ t = Reshape(x, split) {tables} {TURN} }}", sizes={"B": 2})
    assert "Transpose" not in ops_of(model)


def test_first_features_alone_are_rotated_by_the_attribute_for_it() -> None:
    head = WIDE.format(batch="1", width=1).replace("<int64[4] split", "<int64[1] eight = {8}, int64[4] split")
    head = head.replace("float[B,3,8] x", "float[B,3,16] x").replace("split = {0,0,2,4}", "split = {0,0,2,8}")
    head = head.replace("float[B,2,3,4] y", "float[B,2,3,8] y").replace("float[1,3,1]", "float[1,3,2]")
    body = f"s = Reshape(x, split) w = Transpose <perm = [0,2,1,3]> (s) t = Slice(w, low, end, last, one) \
rest = Slice(w, end, high, last, one) {DOUBLED} {TURN}".replace("y = Add", "z = Add")
    model = fires("RotaryEmbeddingFusion", f"{head} {{ {body} y = Concat <axis = -1> (z, rest) }}", sizes={"B": 2})
    (node,) = [each for each in walk(model.graph) if each.op_type == "RotaryEmbedding"]
    assert node.int_attribute("rotary_embedding_dim", 0) == 4
    assert node.int_attribute("num_heads", 0) == 2


@pytest.mark.parametrize(
    ("tables", "because"),
    [
        ("cu = Unsqueeze(cos, one) su = Unsqueeze(sin, one)", "the same for both elements"),
        ("c = Concat <axis = -1> (hc, hn) n = Concat <axis = -1> (hn, hn) cu = Unsqueeze(c, one) "
         "su = Unsqueeze(n, one)", "the same for both elements"),
        ("c = Concat <axis = -1> (hc, hc) n = Concat <axis = -1> (hn, hn) cu = Unsqueeze(c, low) "
         "su = Unsqueeze(n, low)", "one for each token"),
    ],
    ids=["any_factors", "joined_of_two", "one_for_each_head"],
)  # fmt: skip
def test_factors_that_are_not_of_pairs_and_tokens_stay(tables: str, because: str) -> None:
    head = (
        WIDE.format(batch="1", width=4).replace("float[B,3,8] x", "float[B,2,12] x").replace("{0,0,2,4}", "{0,0,3,4}")
    )
    head = head.replace("float[B,2,3,4] y", "float[B,3,2,4] y")
    if because == "one for each token":
        head = head.replace("float[1,3,4]", "float[3,2,4]")
    else:
        head = head.replace("float[1,3,4]", "float[1,2,4]")
    halves = "hc = Slice(cos, low, half, two) hn = Slice(sin, low, half, two)"
    stays("RotaryEmbeddingFusion", f"{head} {{ {SPLIT} {halves} {tables} {TURN} }}", because=because)


def _twice(turn: str) -> str:
    """Return a rotation, and one of its negated result with other names."""
    second = f"u = Neg(y) {turn}".replace("(t,", "(u,").replace("y = ", "z = ")
    for name in ("b", "m", "a", "r", "p", "q"):
        second = second.replace(f" {name} = ", f" {name}2 = ").replace(f"({name}", f"({name}2")
        second = second.replace(f", {name})", f", {name}2)")
    return second


@pytest.mark.parametrize("is_standard", [False, True])
@pytest.mark.parametrize("batch", ["1", "B"])
@pytest.mark.parametrize("names", [("su", "su"), ("cu", "cu"), ("su", "cu")])
def test_tables_of_an_earlier_rotation_are_read_by_one_with_the_same_factors(
    names: tuple[str, str], batch: str, is_standard: bool
) -> None:
    rule = RulePass("RotaryEmbeddingFusion", [RotaryEmbeddingFusion(is_standard=is_standard)], Level.EXTENDED)
    second = _twice(TURN)
    assert second.count("cu") == second.count("su") == 1
    second = second.replace("cu", "{0}").replace("su", "{1}").format(*names)
    head = WIDE.format(batch=batch, width=2).replace("float[B,2,3,4] y", "float[B,2,3,4] z")
    model = fires(rule, f"{head} {{ {SPLIT} {DOUBLED} {TURN} {second} }}", sizes={"B": 2}, opset=23)
    nodes = [each for each in walk(model.graph) if each.op_type == "RotaryEmbedding"]
    assert len(nodes) == 2
    assert nodes[0].inputs[1:] != nodes[1].inputs[1:], "each has tables of its own factors"


@pytest.mark.parametrize("batch", ["1", "B"])
def test_the_standards_operator_gets_a_row_for_each_token(batch: str) -> None:
    rule = RulePass("RotaryEmbeddingFusion", [RotaryEmbeddingFusion(is_standard=True)], Level.EXTENDED)
    second = _twice(TURN)
    head = WIDE.format(batch=batch, width=2).replace("float[B,2,3,4] y", "float[B,2,3,4] z")
    model = fires(rule, f"{head} {{ {SPLIT} {DOUBLED} {TURN} {second} }}", sizes={"B": 2}, opset=23)
    nodes = [each for each in walk(model.graph) if each.op_type == "RotaryEmbedding"]
    assert [each.domain for each in nodes] == ["", ""]
    assert nodes[0].inputs[1:] == nodes[1].inputs[1:], "the tables are made once"
    stays(rule, f"{head} {{ {SPLIT} {DOUBLED} {TURN} {second} }}", opset=22, because="opset 22")
