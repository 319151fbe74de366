"""ElementsOfSplits: rows of a list that was split from a tensor are gathered from it; other lists stay."""

from __future__ import annotations

import numpy as np
import pytest
from pass_check import model_of, op_types, run_pass

READ = (
    "g (float[N, 3, 2] x, int64 i, int64[1] sizes) => (float[] y, int64 n) <int64 one = {{1}},"
    " int64[3] ones = {{1, 1, 1}}, int64 two = {{2}}> {{ s = SplitToSequence<axis = {axis}{keeps}>(x{split})"
    " y = SequenceAt(s, i) n = SequenceLength(s) }}"
)
LOOP = (
    "g (float[N, 3] x, int64 i, int64[1] sizes) => (float[] y) <bool yes = {1}, int64[1] zero = {0}> {"
    " s = SplitToSequence<keepdims = 0>(x)"
    " n = SequenceLength(s) h0 = ReduceSum<keepdims = 0>(x, zero) e = SequenceEmpty()"
    " h, l = Loop(n, yes, h0, e)<body = b (int64 k, bool c, float[3] t, seq(float[3]) u)"
    " => (bool d, float[3] v, seq(float[3]) w) { d = Identity(c) r = SequenceAt(s, k) m = Mul(r, t) v = Tanh(m)"
    " w = SequenceInsert(u, v) }> y = ConcatFromSequence<axis = 0, new_axis = 1>(l) }"
)
LISTS = {"SplitToSequence", "SequenceAt", "SequenceLength"}


def gathered(place: int, opset: int = 17, axis: int = 0, keeps: str = "", split: str = "") -> bool:
    """Return whether the pass leaves no list; results stay what they were."""
    model = model_of(READ.format(axis=axis, keeps=keeps, split=split), opset)
    feeds = {"i": np.array(place), "sizes": np.array([3])}
    count = run_pass("ElementsOfSplits", model, feeds, {"N": 3}).counts().get("ElementsOfSplits", 0)
    assert bool(count) is not bool(LISTS & set(op_types(model)))
    return bool(count)


@pytest.mark.parametrize("keeps", ["", ", keepdims = 0", ", keepdims = 1"])
@pytest.mark.parametrize("axis", [0, 1, -2])
@pytest.mark.parametrize("place", [0, 2, -1, -3])
@pytest.mark.parametrize("opset", [11, 17])
def test_rows_are_gathered(keeps: str, axis: int, place: int, opset: int) -> None:
    assert gathered(place, opset, axis, keeps)


@pytest.mark.parametrize("keeps", ["", ", keepdims = 0"])
@pytest.mark.parametrize("axis", [0, 1])
def test_parts_of_one_row_are_gathered(axis: int, keeps: str) -> None:
    assert gathered(1, axis=axis, keeps=keeps, split=", one")


@pytest.mark.parametrize("split", [", two", ", ones", ", sizes"])
def test_other_parts_stay_a_list(split: str) -> None:
    assert not gathered(0, split=split)


def test_a_loop_over_rows_carries_no_list() -> None:
    model = model_of(LOOP)
    counts = run_pass("ElementsOfSplits", model, {}, {"N": 4}).counts()
    assert counts["ElementsOfSplits"] == 2
    assert not LISTS & set(op_types(model))
