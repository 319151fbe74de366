"""RowsOfRounds: the row that has the number of the round is gathered, where each round has one."""

from __future__ import annotations

import numpy as np
import pytest
from pass_check import model_of, op_types, run_pass

LOOP = (
    "g (float[N, 3] x, float[M, 3] w, int64 m) => (float[K] y) <bool yes = {{1}}, int64 zero = {{0}},"
    " int64 one = {{1}}, int64 two = {{2}}, int64 three = {{3}}, int64[1] o = {{0}}, int64[1] k = {{1}}> {{"
    " s = Shape(x) n = Gather(s, zero)"
    " y = Loop({count}, yes)<body = b (int64 i, bool c) => (bool d, float r) {{ d = Identity(c)"
    " e = Add({next})"
    " f = Unsqueeze({first}, o) g1 = Unsqueeze(e, o)"
    " q = Slice({data}, f, g1, {axes}) r = ReduceSum<keepdims = 0>(q) }}> }}"
)
USUAL = {"count": "n", "next": "i, one", "first": "i", "data": "x", "axes": "o"}


def gathered(rows: int = 4, **changed: str) -> bool:
    """Return whether the pass makes a Gather of the slice; results stay what they were."""
    model = model_of(LOOP.format(**{**USUAL, **changed}))
    feeds = {"m": np.array(2)}
    count = run_pass("RowsOfRounds", model, feeds, {"N": rows, "M": 5}).counts().get("RowsOfRounds", 0)
    assert ("Slice" in op_types(model)) is not bool(count)
    return bool(count)


@pytest.mark.parametrize(
    ("rows", "changed"),
    [
        (4, {}),
        (1, {}),
        (4, {"next": "one, i"}),
        (4, {"count": "three", "axes": "k"}),
        (4, {"count": "two", "axes": "k"}),
    ],
)
def test_the_row_of_a_round_is_gathered(rows: int, changed: dict[str, str]) -> None:
    assert gathered(rows, **changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"count": "m"}, {"data": "w"}, {"next": "i, two"}, {"first": "e"}, {"axes": "k", "count": "n"},
        {"axes": "o, k"},
    ],
    ids=["any number of rounds", "of another value", "two rows", "the row behind", "along another axis", "by steps"],
)  # fmt: skip
def test_other_slices_stay(changed: dict[str, str]) -> None:
    assert gathered(**changed) is (changed == {"axes": "o, k"})  # steps of one are no steps


def test_more_rounds_than_columns_stay_a_slice() -> None:
    text = LOOP.format(**{**USUAL, "count": "four", "axes": "k"})
    model = model_of(text.replace("int64 three", "int64 four = {4}, int64 three"))
    assert "RowsOfRounds" not in run_pass("RowsOfRounds", model, {"m": np.array(2)}, {"N": 4, "M": 5}).counts()
