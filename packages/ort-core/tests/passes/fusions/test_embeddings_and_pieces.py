"""Embeddings with their norm, and the pieces that tensors are cut into."""

from __future__ import annotations

import numpy as np
import pytest
from fusion_check import fires, ops_of, run_passes, stays, typed_model


def _table(name: str, rows: int) -> str:
    numbers = np.random.default_rng(rows).standard_normal(rows * 4).round(3)
    return f"float[{rows},4] {name} = {{{','.join(map(str, numbers))}}}"


TABLES = f"{_table('words', 9)}, {_table('places', 6)}, {_table('segments', 3)}, float[4] w = {{1.5,0.5,2,1}}, \
float[4] b = {{0.1,0.2,0.3,0.4}}, int64[1,6] positions = {{0,1,2,3,4,5}}, int64[1] one = {{1}}, int64[1] none = {{0}}"
HEAD = f"g (int64[B,S] ids, int64[B,S] kinds) => (float[B,S,4] y) <{TABLES}>"
PLACES = "sh = Shape(ids) n = Slice(sh, one, end, none) i = Slice(positions, none, n, one) p = Gather(places, i)"
BERT = f"{PLACES} a = Gather(words, ids) c = Gather(segments, kinds) s = Add(a, c) t = Add(s, p) y = \
LayerNormalization(t, w, b)"
WITH_END = HEAD[:-1] + ", int64[1] end = {2}>"
SIZES = {"B": 2, "S": 5}


def test_three_embeddings_and_their_norm_become_one_operator() -> None:
    model = fires("EmbedLayerNormFusion", f"{WITH_END} {{ {BERT} }}", sizes=SIZES)
    assert "EmbedLayerNormalization" in ops_of(model)
    assert "LayerNormalization" not in ops_of(model)


def test_sum_of_embeddings_with_other_readers_becomes_an_output() -> None:
    body = (
        "p = Gather(places, kinds) a = Gather(words, ids) t = Add(p, a) l = LayerNormalization(t, w, b) y = Add(l, t)"
    )
    model = fires(
        "EmbedLayerNormFusion", f"{HEAD} {{ {body} }}", ["Cast", "Cast", "EmbedLayerNormalization", "Add"], sizes=SIZES
    )
    assert [v is not None for v in model.graph.nodes[2].outputs] == [True, True, True]


@pytest.mark.parametrize(
    "body",
    [
        "p = Gather(places, kinds) a = Gather <axis = 1> (wt, ids) t = Add(p, a) y = LayerNormalization(t, w, b)",
        "p = Neg(x) a = Gather(words, ids) t = Add(p, a) y = LayerNormalization(t, w, b)",
    ],
    ids=["columns", "no_embedding"],
)
def test_other_sums_stay(body: str) -> None:
    head = HEAD.replace("int64[B,S] kinds)", "int64[B,S] kinds, float[B,S,4] x, float[4,9] wt)")
    stays("EmbedLayerNormFusion", f"{head} {{ {body.replace(' <axis = 1>', '')} }}")


CUT = "g (float[2,3,8] x) => (float[2,3,4] y) <int64[1] start = {0}, int64[1] half = {4}, int64[1] far = \
{9223372036854775807}, \
int64[1] axis = {2}, int64[1] back = {-1}, int64[1] two = {2}>"


def test_slices_that_cover_an_axis_become_a_split() -> None:
    body = "a = Slice(x, half, far, back) c = Slice(x, start, half, axis) y = Sub(a, c)"
    fires("GatherSliceToSplitFusion", f"{CUT} {{ {body} }}", ["Split", "Sub"], within="exact")


@pytest.mark.parametrize("opset", [11, 17])
def test_gathers_that_cover_an_axis_become_a_split(opset: int) -> None:
    head = "g (float[2,3,8] x) => (float[2,8] y) <int64 i = {0}, int64 j = {1}, int64 k = {-1}>"
    body = "a = Gather <axis = 1> (x, j) c = Gather <axis = 1> (x, i) d = Gather <axis = 1> (x, k) e = Sub(a, \
c) y = Sub(e, d)"
    model = fires("GatherSliceToSplitFusion", f"{head} {{ {body} }}", opset=opset, within="exact")
    assert ops_of(model).count("Split") == 1
    assert "Gather" not in ops_of(model)


@pytest.mark.parametrize(
    "body",
    [
        "a = Slice(x, start, half, axis) y = Neg(a)",
        "a = Slice(x, start, half, axis) c = Slice(x, start, half, axis) y = Sub(a, c)",
    ],
    ids=["half_is_missing", "overlap"],
)
def test_pieces_that_do_not_cover_stay(body: str) -> None:
    stays("GatherSliceToSplitFusion", f"{CUT} {{ {body} }}", because="cover")


def test_many_pieces_are_not_each_held_against_all_others(calls_by_function) -> None:
    def asked(count: int) -> int:
        graph = f"g (float[{2 * count}] x) => (float[1] y) <int64[1] axis = {{0}}"
        bounds = "".join(f", int64[1] s{i} = {{{i}}}, int64[1] e{i} = {{{i + 1}}}" for i in range(count))
        pieces = " ".join(f"p{i} = Slice(x, s{i}, e{i}, axis)" for i in range(count))
        sums = "y = Sum(" + ", ".join(f"p{i}" for i in range(count)) + ")"
        model = typed_model(f"{graph}{bounds}> {{ {pieces} {sums} }}")
        calls, _ = calls_by_function(run_passes, model, "GatherSliceToSplitFusion")
        return sum(number for name, number in calls.items() if name.startswith("find_piece"))

    assert asked(80) < 2.2 * asked(40)


RANGE = "g (float[7,3] x, float[N,2] z) => (float[M,3] y) <int64 zero = {0}, int64 one = {1}, int64 back = {-3}>"


def test_gather_of_a_range_becomes_a_slice() -> None:
    body = "s = Shape(z) n = Gather(s, zero) r = Range(one, n, one) y = Gather(x, r)"
    model = fires("GatherToSliceFusion", f"{RANGE} {{ {body} }}", within="exact", sizes={"N": 5, "M": 4})
    assert "Slice" in ops_of(model)


def test_gather_of_a_range_from_the_end_stays() -> None:
    stays("GatherToSliceFusion", f"{RANGE} {{ r = Range(back, zero, one) y = Gather(x, r) }}", because="at least 0")
