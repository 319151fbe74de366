"""Rotations by position become RotaryEmbedding, before or after the split into heads."""

from __future__ import annotations

import pytest
from fusion_check import fires, ops_of, stays

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
        f"{SPLIT} {ANGLES} {TURN}".replace("n = Sin(e)", "k = Neg(e) n = Sin(k)"),
        f"{SPLIT} {ANGLES} {TURN}".replace("(m, a)", "(a, m)"),
        f"{SPLIT} {ANGLES} {TURN}".replace("(t, half, high", "(t, low, half"),
    ],
    ids=["other_angles", "halves_in_order", "the_same_half"],
)
def test_near_misses_of_a_rotation_stay(body: str) -> None:
    stays("RotaryEmbeddingFusion", f"{HEAD} {{ {body} }}")
