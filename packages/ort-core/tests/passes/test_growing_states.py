"""GrowingStates: a state that only grows piles up; what reads more of it than its end, or grows unevenly, stays."""

from __future__ import annotations

import numpy as np
import pytest
from pass_check import context_of, evaluate_with_onnxruntime, model_of, op_types, run_pass

from ort_core.ir.traversal import walk
from ort_core.passes.equivalence import EquivalenceCheck
from ort_core.passes.pipelines import build_basic_passes
from ort_core.passes.runner import run_pipeline

CONSTANTS = (
    "<bool yes = {1}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] less = {-1},"
    " int64[1] three = {-3}, int64[1] end = {9223372036854775807}, float[2, 0, 3] none = {}, int64 last = {-1},"
    " int64 i1 = {1}, int64 six = {6}, int64[1] three0 = {3}, float one_half = {1.5}>"
)
LOOP = (
    "g (int64 n, float[2, 3] x, float[2, R, 3] y) => (float[2, S, 3] z{returned}) {constants} {{ {given}"
    " h, z{results} = Loop({count}, yes, x, {initial})<body = b (int64 i, bool c, float[2, 3] s, float[2, T, 3] u)"
    " => (bool d, float[2, 3] t, float[2, U, 3] v{more}) {{ {inside} d = {goes} }}> {after} }}"
)
STEP = "q = Tanh(s) f = Cast<to = 1>(i) t = Add(q, f) p = Unsqueeze(t, one) "
USUAL = {
    "constants": CONSTANTS, "given": "", "returned": "", "results": "", "more": "", "initial": "none", "count": "n",
    "inside": STEP + "v = Concat<axis = 1>(u, p)", "goes": "Identity(c)", "after": "",
}  # fmt: skip


def feeds_of(rounds: int, rows: int = 2) -> dict[str, np.ndarray]:
    draws = np.random.default_rng(rounds)
    return {
        "n": np.array(rounds), "x": draws.standard_normal((2, 3)).astype(np.float32),
        "y": draws.standard_normal((2, rows, 3)).astype(np.float32),
    }  # fmt: skip


def states_left(rounds: int = 3, rows: int = 2, opset: int = 17, **changed: str) -> tuple[int, int]:
    """Return how many states the pass collected, and how many a Loop still has; results stay what they were."""
    model = model_of(LOOP.format(**{**USUAL, **changed}), opset)
    count = run_pass("GrowingStates", model, feeds_of(rounds, rows)).counts().get("GrowingStates", 0)
    loop = next(node for node in walk(model.graph) if node.op_type == "Loop")
    return count, len(loop.inputs) - 2


COLLECTED = {
    "appended": {},
    "put in front": {"inside": STEP + "v = Concat<axis = 1>(p, u)"},
    "on both sides": {"inside": STEP + "r = Neg(p) v = Concat<axis = -2>(r, u, p)"},
    "twice": {"inside": STEP + "r = Neg(p) w = Concat<axis = 1>(u, p) v = Concat<axis = 1>(r, w, r)"},
    "two rows": {"inside": STEP + "r = Neg(p) o = Concat<axis = 1>(p, r) v = Concat<axis = 1>(u, o)"},
    "behind rows": {"initial": "y"},
    "behind rows in front": {"initial": "y", "inside": STEP + "v = Concat<axis = 1>(p, u)"},
    "beside a copy": {"inside": STEP + "w = Concat<axis = 1>(u, p) v = Identity(w)"},
    "until a bound": {
        "inside": STEP + "v = Concat<axis = 1>(u, p) m = ReduceMax<keepdims = 0>(t)", "goes": "Less(m, one_half)",
    },
    "read by its size": {
        "inside": "l = Shape(u) k = Gather(l, i1) f = Cast<to = 1>(k) t = Add(s, f) p = Unsqueeze(t, one)"
        " v = Concat<axis = 1>(u, p)",
        "initial": "y",
    },
    "read by the size behind": {
        "inside": STEP + "v = Concat<axis = 1>(u, p) l = Shape<start = 1>(v)", "results": ", a",
        "more": ", int64[2] l", "returned": ", int64[W, 2] a",
    },
    "never read": {"after": "zz = Abs(h)", "returned": ", float[2, 3] zz"},
}  # fmt: skip


@pytest.mark.parametrize("changed", COLLECTED.values(), ids=COLLECTED)
@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_a_state_that_only_grows_piles_up(changed: dict[str, str], rounds: int) -> None:
    assert states_left(rounds, **changed) == (1, 1)


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("rounds", [0, 1, 5])
@pytest.mark.parametrize(
    "read",
    [
        "g1 = Gather<axis = 1>(w, last)",
        "g0 = Slice(w, three, end, one) g1 = ReduceSum<keepdims = 0>(g0, one)",
        "g0 = Slice(w, three, less, one, one) g1 = ReduceSum<keepdims = 0>(g0, one)",
    ],
    ids=["a row", "three rows", "all but the last of three"],
)
@pytest.mark.parametrize("longer", [False, True])
@pytest.mark.parametrize("parts", ["p", "p, p, p, p"])
def test_last_rows_that_rounds_read_are_carried_on(rows: int, rounds: int, read: str, longer: bool, parts: str) -> None:
    value, own = ("w", f"p = Unsqueeze(s, one) w = Concat<axis = 1>(u, {parts})") if longer else ("u", "")
    own += f" {read.replace('(w', f'({value}')} t = Tanh(g1)"
    own += " v = Identity(w)" if longer else f" p = Unsqueeze(t, one) v = Concat<axis = 1>(u, {parts})"
    there = max(rows, int("Gather" in read))  # onnxruntime refuses a row that is not there, and so do we
    assert states_left(rounds, there, inside=own, initial="y") == (1, 2)


LEFT = {
    "read as a whole": {
        "inside": "r = ReduceSum<keepdims = 0>(v, one) t = Tanh(r) p = Unsqueeze(s, one) v = Concat<axis = 1>(u, p)",
    },
    "returned twice": {
        "inside": STEP + "v = Concat<axis = 1>(u, p) e = Identity(v)", "results": ", a", "more": ", float[2, W, 3] e",
        "returned": ", float[N, 2, W, 3] a", "count": "i1",
    },
    "doubled": {"inside": STEP + "v = Concat<axis = 1>(u, u)", "initial": "y"},
    "changed": {"inside": STEP + "w = Neg(u) v = Concat<axis = 1>(w, p)"},
    "first row read": {
        "inside": "r = Gather<axis = 1>(y, i) t = Tanh(r) k = Gather<axis = 1>(u, zero) v = Concat<axis = 1>(u, k)",
        "initial": "y", "count": "i1",
    },
    "last row read of another axis": {
        "inside": "p = Unsqueeze(s, one) v = Concat<axis = 1>(u, p) r = Gather<axis = 2>(v, last)"
        " k = ReduceMax<keepdims = 1>(r) t = Add(s, k)", "initial": "y",
    },
    "read within a branch": {
        "inside": "r = If(c)<then_branch = a () => (float[2, T, 3] o) { o = Neg(u) },"
        " else_branch = e () => (float[2, T, 3] o2) { o2 = Abs(u) }> k = ReduceMax<keepdims = 0>(r) t = Add(s, k)"
        " p = Unsqueeze(s, one) v = Concat<axis = 1>(u, p)", "initial": "y",
    },
    "by more rows each round": {
        "inside": STEP + "k = Add(i, i1) j = Unsqueeze(k, zero) m = Concat<axis = 0>(two, j, three0)"
        " e = Expand(p, m) v = Concat<axis = 1>(u, e)",
    },
}  # fmt: skip


@pytest.mark.parametrize("changed", LEFT.values(), ids=LEFT)
def test_other_states_stay(changed: dict[str, str]) -> None:
    assert states_left(**changed) == (0, 2)


def test_states_that_grow_in_inner_loops_pile_up() -> None:
    text = (
        "g (int64 n, float[3] x) => (float[S, 3] z) " + CONSTANTS.replace("[2, 0, 3]", "[0, 3]") + " {"
        " z = Loop(n, yes, none)<body = b (int64 i, bool c, float[T, 3] u) => (bool d, float[U, 3] v) {"
        " d = Identity(c) f = Cast<to = 1>(i) e = Add(x, f)"
        " w = Loop(two0, yes, none)<body = b2 (int64 j, bool c2, float[T2, 3] u2) => (bool d2, float[U2, 3] v2) {"
        " d2 = Identity(c2) k = Cast<to = 1>(j) m = Mul(e, k) p = Unsqueeze(m, zero) v2 = Concat<axis = 0>(u2, p) }>"
        " v = Concat<axis = 0>(u, w) }> }"
    ).replace("int64 six", "int64 two0 = {2}, int64 six")
    model = model_of(text)
    check = EquivalenceCheck(evaluate_with_onnxruntime, 1e-5, 1e-6, {"n": np.array(3)}, {})
    report = run_pipeline(build_basic_passes(), context_of(model), verify=True, equivalence=check)
    assert report.counts()["GrowingStates"] == 2
    assert all(len(node.inputs) == 2 for node in walk(model.graph) if node.op_type == "Loop")


@pytest.mark.parametrize("opset", [8, 9, 11, 13, 14])
def test_older_opsets_collect_what_needs_no_newer_operator(opset: int) -> None:
    text = (
        "g (int64 n, float[B, 3] x) => (float[B, S, 3] z) <bool yes = {1}, float[2, 0, 3] none = {}> {"
        " h, z = Loop(n, yes, x, FIRST)<body = b (int64 i, bool c, float[B, 3] s, float[B, T, 3] u)"
        " => (bool d, float[B, 3] t, float[B, U, 3] v) { d = Identity(c) t = Tanh(s) p = OP v = Concat<axis = 1>(PARTS)"
        " }> }"
    ).replace("OP", "Unsqueeze<axes = [1]>(t)" if opset < 13 else "Unsqueeze(t, one)")
    text = text.replace("<bool", "<int64[1] one = {1}, bool")
    for sizes, first, parts, expected in (
        ("2", "none", "u, p", True),
        ("2", "none", "p, u", opset >= 10),
        ("B", "Unsqueeze<axes = [1]>(x)" if opset < 13 else "Unsqueeze(x, one)", "u, p", opset >= 14),
    ):
        own = text.replace("[B", f"[{sizes}").replace("PARTS", parts)
        own = own.replace("FIRST", "w" if "(" in first else first)
        model = model_of(own.replace("{ h,", f"{{ w = {first} h," if "(" in first else "{ h,"), opset)
        report = run_pass("GrowingStates", model, {"n": np.array(3)}, {"B": 2})
        assert ("GrowingStates" in report.counts()) is expected, (opset, sizes, parts)


def test_what_piles_up_keeps_its_name_and_is_one_node_where_it_is_empty_at_first() -> None:
    model = model_of(LOOP.format(**USUAL))
    run_pass("GrowingStates", model, feeds_of(3))
    assert [value.name for value in model.graph.outputs] == ["z"]
    assert op_types(model)[-2:] == ["Transpose", "Reshape"]


@pytest.mark.parametrize(("opset", "left"), [(10, 1), (11, 0)])
def test_before_opset_11_a_loop_keeps_a_state(opset: int, left: int) -> None:
    text = (
        "g (int64 n, float[3] x) => (float[S] y, float[R] z) <bool yes = {1}, float[0] none = {}> {"
        " y, z = Loop(n, yes, none, none)<body = b (int64 i, bool c, float[T] u, float[P] w)"
        " => (bool d, float[U] v, float[Q] r) {"
        " d = Identity(c) v = Concat<axis = 0>(u, x) r = Concat<axis = 0>(x, w) }> }"
    )
    model = model_of(text, opset)
    assert run_pass("GrowingStates", model, {"n": np.array(3)}).counts()["GrowingStates"] == 2 - left
    loop = next(node for node in walk(model.graph) if node.op_type == "Loop")
    assert len(loop.inputs) == 2 + left
