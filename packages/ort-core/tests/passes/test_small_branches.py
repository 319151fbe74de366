"""SmallBranches: branches of a few numbers are computed both; others stay with their If."""

from __future__ import annotations

import numpy as np
import pytest
from pass_check import evaluate_with_onnxruntime, model_of, op_types, run_pass

IF = (
    "g (bool{cond} c, float[2] x, int64 n, float[N] y) => ({kind} z{more}) <int64 two = {{2}}, float[2] w = {{1, -3}},"
    " int64[1] i0 = {{0}}, bool no = {{0}}> {{ {before} z{results} = If({condition})"
    "<then_branch = t () => ({kind} a{then_more}) {{ {then} }},"
    " else_branch = e () => ({kind} b{else_more}) {{ {other} }}> }}"
)
USUAL = {
    "cond": "", "kind": "float[2]", "before": "", "condition": "c", "then": "a = Add(x, w)", "other": "b = Neg(x)",
    "more": "", "results": "", "then_more": "", "else_more": "",
}  # fmt: skip
CHOSEN = {
    "vectors": {},
    "an operand and a constant": {"then": "a = Identity(w)", "other": "b = Mul(x, x)"},
    "a condition of a loop": {
        "kind": "bool", "then": "k = Add(n, two) a = Less(k, two)", "other": "b = Identity(no)",
    },
    "of one element, for a vector": {"cond": "[1]"},
    "two results": {
        "more": ", int64 z2", "results": ", z2", "then_more": ", int64 a2", "else_more": ", int64 b2",
        "then": "a = Add(x, w) a2 = Mul(n, n)", "other": "b = Neg(x) b2 = Neg(n)",
    },
    "a computed condition": {"condition": "d", "before": "k = Mul(n, two) d = Greater(k, n)"},
    "of other types inside": {"then": "k = Cast<to = 1>(n) a = Add(x, k)"},
}  # fmt: skip


@pytest.mark.parametrize("changed", CHOSEN.values(), ids=CHOSEN)
@pytest.mark.parametrize("taken", [False, True])
def test_small_branches_are_computed_both(changed: dict[str, str], taken: bool) -> None:
    settings = {**USUAL, **changed}
    model = model_of(IF.format(**settings))
    feeds = {"c": np.full((1,) if settings["cond"] else (), taken), "n": np.array(3 if taken else -3)}
    report = run_pass("SmallBranches", model, feeds, {"N": 3})
    assert report.counts()["SmallBranches"] == 1
    assert "If" not in op_types(model)
    assert op_types(model).count("Where") == (0 if settings["kind"] == "bool" else len(model.graph.outputs))


LEFT = {
    "of unknown length": {"kind": "float[N]", "then": "a = Abs(y)", "other": "b = Neg(y)"},
    "of other shapes": {"kind": "float[M]", "then": "a = Abs(x)", "other": "v = Concat<axis = 0>(x, x) b = Neg(v)"},
    "an operator that may fail": {"then": "r = Unsqueeze(n, i0) a = Gather(w, r)", "kind": "float[M]"},
    "a quotient of integers": {"kind": "int64", "then": "a = Div(two, n)", "other": "b = Neg(n)"},
    "a condition of a higher rank": {"cond": "[1]", "kind": "int64", "then": "a = Abs(n)", "other": "b = Neg(n)"},
    "many elements": {"kind": "float[65]", "then": "a = Abs(l)", "other": "b = Neg(l)",
                      "before": "l = Constant<value_floats = [" + ", ".join(["1.0"] * 65) + "]>()"},
    "a type that few choose from": {
        "kind": "uint16[2]", "then": "a = Cast<to = 4>(w)", "other": "b = Cast<to = 4>(x)",
    },
    "many nodes": {"then": "a0 = Abs(x) " + " ".join(f"a{k + 1} = Neg(a{k})" for k in range(8)) + " a = Neg(a8)"},
    "no size of the condition": {"cond": "[K]"},
}  # fmt: skip


@pytest.mark.parametrize("changed", LEFT.values(), ids=LEFT)
def test_other_branches_stay(changed: dict[str, str]) -> None:
    settings = {**USUAL, **changed}
    model = model_of(IF.format(**settings))
    feeds = {"c": np.ones({"": (), "[1]": (1,), "[K]": (1,)}[settings["cond"]], bool), "n": np.array(1)}
    report = run_pass("SmallBranches", model, feeds, {"N": 3, "K": 1})
    assert "SmallBranches" not in report.counts()
    assert "If" in op_types(model)


def test_before_opset_9_an_if_stays() -> None:
    model = model_of(IF.format(**USUAL), 8)
    assert "SmallBranches" not in run_pass("SmallBranches", model, {"c": np.array(True)}, {"N": 2}).counts()


def test_a_loop_whose_condition_is_two_conditions_ends_as_before() -> None:
    text = (
        "g (float x, int64 most) => (float y, int64 n) <int64 zero = {0}, int64 one = {1}, bool yes = {1},"
        " bool no = {0}, float limit = {40}> { y, n = Loop(, yes, x, zero)<body = b (int64 i, bool c, float s, int64 k)"
        " => (bool d, float t, int64 m) { t = Add(s, s) m = Add(k, one) small = Less(t, limit)"
        " d = If(small)<then_branch = a () => (bool d1) { d1 = Less(m, most) },"
        " else_branch = e () => (bool d2) { d2 = Identity(no) }> }> }"
    )
    for x, most, rounds in ((1.0, 3, 3), (1.0, 99, 6), (30.0, 99, 1)):
        model = model_of(text)
        feeds = {"x": np.array(x, np.float32), "most": np.array(most)}
        assert run_pass("SmallBranches", model, feeds).counts()["SmallBranches"] == 1
        assert evaluate_with_onnxruntime(model, feeds)[1] == rounds
