"""StackedSequences: lists of tensors that rounds collect are tensors, however they are read; other lists stay lists."""

from __future__ import annotations

import numpy as np
import pytest
from pass_check import model_of, op_types, run_pass

import ort_core as ort
from ort_core.ir.traversal import walk
from ort_core.onnx_io.save import model_to_bytes

LOOP = (
    "g (int64 n, float[B, 3] x) => (float[] y{returned}) <bool yes = {{1}}, int64 two = {{2}}, int64 last = {{-1}},"
    " int64[1] one = {{1}}, int64[1] zero = {{0}}> {{ empty = {first}"
    " h, s = Loop({count}, yes, x, empty)<body = b (int64 i, bool c, float[B, 3] t, seq(float[B, 3]) u)"
    " => (bool d, float[B, 3] v, seq(float[B, 3]) w) {{ d = Identity(c) f = Cast<to = 1>(i) k = Add(t, f) v = Tanh(k)"
    " {inside} }}> {after} }}"
)
USUAL = {
    "first": "SequenceEmpty()", "count": "n", "inside": "w = SequenceInsert(u, v)", "returned": "",
    "after": "y = ConcatFromSequence<axis = 0, new_axis = 1>(s)",
}  # fmt: skip
LISTS = ("SequenceEmpty", "SequenceInsert", "ConcatFromSequence", "SequenceAt", "SequenceLength")


def collected(rounds: int, opset: int = 17, **changed: str) -> bool:
    """Return whether the pass leaves no list; results stay what they were."""
    model = model_of(LOOP.format(**{**USUAL, **changed}), opset)
    feeds = {"n": np.array(rounds)}
    count = run_pass("StackedSequences", model, feeds, {"B": 2}).counts().get("StackedSequences", 0)
    lists = [each for each in op_types(model) if each in LISTS]
    assert bool(count) is not bool(lists)
    return bool(count)


@pytest.mark.parametrize(
    "after",
    [
        *(f"y = ConcatFromSequence<axis = {axis}, new_axis = 1>(s)" for axis in (0, 1, 2, -1, -3)),
        *(f"y = ConcatFromSequence<axis = {axis}>(s)" for axis in (0, 1, -1)),
        "a = ConcatFromSequence<axis = 1>(s) m = SequenceAt(s, last) y = Concat<axis = 1>(a, m)",
        "m = SequenceLength(s) f = Cast<to = 1>(m) y = Add(h, f)",
    ],
)
@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize("part", ["v", "e", "c0"])
def test_lists_are_tensors_however_they_are_read(after: str, rounds: int, part: str) -> None:
    inside = {"v": "", "e": "e = Concat<axis = 1>(v, x)", "c0": "c0 = Identity(x)"}[part]
    assert collected(rounds, inside=f"{inside} w = SequenceInsert(u, {part})", after=after)


@pytest.mark.parametrize(
    "changed",
    [
        {"inside": "w = SequenceInsert(u, v, i)"},
        {"first": "SequenceConstruct(x)"},
        {"inside": "m = SequenceInsert(u, v) w = SequenceInsert(m, v)"},
        {"after": "o = SequenceInsert(s, x) y = ConcatFromSequence<axis = 0>(o)"},
        {"after": "y = Abs(h)", "returned": ", seq(float[B, 3]) s"},
        {"inside": "k0 = Add(i, two) k1 = Unsqueeze(k0, zero) k2 = Concat<axis = 0>(k1, one, one) e0 = Expand(v, k2)"
                   " w = SequenceInsert(u, e0)",
         "after": "m = SequenceAt(s, last) y = ReduceSum(m)"},
    ],
    ids=["at a place", "not empty at first", "two in a round", "made longer", "returned", "of other shapes"],
)  # fmt: skip
def test_other_lists_stay(changed: dict[str, str]) -> None:
    assert not collected(1, **changed)


def test_an_element_at_a_place_of_rank_one_stays_one_of_a_list() -> None:
    assert not collected(2, after="m = SequenceAt(s, one) y = Abs(m)")


def test_no_rounds_give_a_stack_of_none() -> None:
    session = ort.InferenceSession(model_to_bytes(model_of(LOOP.format(**USUAL))))
    (found,) = session.run(None, {"n": np.array(0), "x": np.ones((2, 3), np.float32)})
    assert found.shape[0] == 0
    assert found.shape[2] == 3


def test_a_loop_keeps_its_other_states() -> None:
    model = model_of(LOOP.format(**{**USUAL, "returned": ", float[B, 3] h"}))
    run_pass("StackedSequences", model, {"n": np.array(3)}, {"B": 2})
    loop = next(node for node in walk(model.graph) if node.op_type == "Loop")
    assert (len(loop.inputs), len(loop.outputs)) == (3, 2)
    assert [value.name for value in model.graph.outputs] == ["y", "h"]


def test_before_opset_14_rows_of_unknown_sizes_stay_a_list() -> None:
    assert not collected(3, 13, after="y = ConcatFromSequence<axis = 1>(s)")
    assert collected(3, 13, after="y = ConcatFromSequence<axis = 0>(s)")
    assert collected(3, 13)
