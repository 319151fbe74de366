"""LoopStates: what no round changes is read from outside, so that it may be a constant; the rest is carried on."""

from __future__ import annotations

import numpy as np
import pytest
from pass_check import evaluate_with_onnxruntime, model_of, op_types, run_pass

from ort_core.ir.traversal import walk

CONSTANTS = "<int64 n = {3}, bool yes = {1}, float[2, 2] w = {1, 2, 3, 4}>"
LOOP = (
    "g (float[2, 2] x) => (float[2, 2] y{returned}) {constants} {{ {given} y, left{scans} = Loop(n, yes, x, v)<body = "
    "b (int64 i, bool c, float[2, 2] s, float[2, 2] u) => (bool d, float[2, 2] t, float[2, 2] z{more}) "
    "{{ d = Identity(c) m = MatMul(s, u) t = Tanh(m) {left} }}> {after} }}"
)
USUAL = {
    "constants": CONSTANTS, "given": "v = Identity(w)", "returned": "", "scans": "", "more": "",
    "left": "z = Identity(u)", "after": "",
}  # fmt: skip
FEEDS = {"x": np.array([[0.5, -1], [2, 0.25]], np.float32)}


def states_of(**changed: str) -> tuple[int, int]:
    """Return how many states the pass took out of a loop, and how many are left."""
    model = model_of(LOOP.format(**{**USUAL, **changed}))
    count = run_pass("LoopStates", model, FEEDS).counts().get("LoopStates", 0)
    loop = next(node for node in walk(model.graph) if node.op_type == "Loop")
    return count, len(loop.inputs) - 2


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"given": "v = Neg(x)"},
        {"left": "k = Identity(u) z = Identity(k)"},
        {"after": "q = Add(left, x)"},
        {"constants": CONSTANTS.replace("{3}", "{0}"), "after": "q = Add(left, x)"},
    ],
)
def test_a_state_that_is_returned_as_it_came_is_read_from_outside(changed: dict[str, str]) -> None:
    assert states_of(**changed) == (1, 1)


@pytest.mark.parametrize(
    "changed",
    [
        {"left": "z = Neg(u)"},
        {"left": "z = Identity(s)"},
        {"returned": ", float[2, 2] left"},
        {"scans": ", all", "more": ", float[2, 2] p", "left": "z = Identity(u) p = Identity(u)"},
    ],
    ids=["changed", "another", "returned", "collected"],
)
def test_other_states_stay(changed: dict[str, str]) -> None:
    assert states_of(**changed) == (0, 2)


def test_states_of_a_scan() -> None:
    model = model_of(
        "g (float[2] x, float[2] w, float[5, 2] xs) => (float[2] y, float[5, 2] ys) {"
        " y, kept, ys = Scan<num_scan_inputs = 1, body = b (float[2] s, float[2] u, float[2] e)"
        " => (float[2] t, float[2] z, float[2] o) { m = Mul(s, u) t = Add(m, e) z = Identity(u) o = Abs(t) }>"
        "(x, w, xs) }"
    )
    assert run_pass("LoopStates", model).counts()["LoopStates"] == 1
    scan = next(node for node in walk(model.graph) if node.op_type == "Scan")
    assert len(scan.inputs) == 2
    assert len(scan.outputs) == 2


def test_both_states_of_a_loop_inside_of_a_loop_are_released() -> None:
    text = (
        "g (float[2] x, float[2] w) => (float[2] y) <int64 n = {2}, bool yes = {1}> { y, a = Loop(n, yes, x, w)<body ="
        " b (int64 i, bool c, float[2] s, float[2] u) => (bool d, float[2] t, float[2] z) { d = Identity(c)"
        " t, e = Loop(n, yes, s, u)<body = b2 (int64 j, bool f, float[2] p, float[2] q) =>"
        " (bool h, float[2] r, float[2] k) { h = Identity(f) r = Add(p, q) k = Identity(q) }> z = Identity(u) }> }"
    )
    model = model_of(text)
    assert run_pass("LoopStates", model).counts()["LoopStates"] == 2
    feeds = {"x": np.float32([1, 2]), "w": np.float32([3, 5])}
    (found,) = evaluate_with_onnxruntime(model, feeds)
    np.testing.assert_array_equal(found, [13, 22])
    assert op_types(model).count("Loop") == 2


@pytest.mark.parametrize(("opset", "left"), [(10, 1), (11, 0)])
def test_before_opset_11_a_loop_keeps_a_state(opset: int, left: int) -> None:
    text = (
        "g (float[2] x, float[2] w) => (float[N, 2] y) <int64 n = {3}, bool yes = {1}> {"
        " p, q, y = Loop(n, yes, x, w)<body = b (int64 i, bool c, float[2] s, float[2] u)"
        " => (bool d, float[2] t, float[2] k, float[2] z) { d = Identity(c) t = Identity(s) k = Identity(u)"
        " z = Add(s, u) }> }"
    )
    model = model_of(text, opset)
    assert run_pass("LoopStates", model).counts()["LoopStates"] == 2 - left
    loop = next(node for node in walk(model.graph) if node.op_type == "Loop")
    assert len(loop.inputs) == 2 + left
