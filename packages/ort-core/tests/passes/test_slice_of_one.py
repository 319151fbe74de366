"""SliceOfOne: a step beyond every size takes one place, which a Gather finds without a length."""

from __future__ import annotations

import numpy as np
import pytest
from pass_check import context_of, evaluate_with_onnxruntime, model_of, op_types

from ort_core.passes.equivalence import EquivalenceCheck
from ort_core.passes.pipelines import build_basic_passes
from ort_core.passes.runner import run_pipeline

CONSTANTS = (
    "<int64[1] first = {0}, int32[1] zero = {0}, int32[2] axes = {0, 1}, int32[1] one = {1}, int32 next = {1},"
    " int32[2] steps = {1, 1000000000}, float[2] ends = {1000000000, 1000000000}, int32 far = {1000000000},"
    " int64[1] second = {1}, bool[2] begin = {1, 0}, int32 low = {-1000000000}, int32[2] usual = {1, 1}, bool[2] no ="
    " {0, 0}, int32[2] plain = {1000000000, 7}>"
)
MASKED = (
    "u = Unsqueeze(i, first) s = Concat<axis = 0>(zero, u) o = And(begin, no) starts = Where(o, far, s)"
    " k = Add(i, next) v = Unsqueeze(k, first) e = Concat<axis = 0>(zero, v) f = Cast<to = 1>(e) m = Max(f, ends)"
    " j = Cast<to = 6>(m) q = Equal(j, far) p = And(q, no) stops = Where(p, low, j)"
)


def simplified(body: str, index: int = 2) -> list[str]:
    model = model_of(f"g (float[N, T, 3] x, int32 i) => (float[] y) {CONSTANTS} {{ {body} }}", opset=17)
    feeds = {"x": np.arange(60, dtype=np.float32).reshape(4, 5, 3), "i": np.array(index, np.int32)}
    check = EquivalenceCheck(evaluate_with_onnxruntime, 0, 0, feeds, {})
    run_pipeline(build_basic_passes(), context_of(model), verify=True, equivalence=check)
    return op_types(model)


@pytest.mark.parametrize("index", [0, 4, -1])
def test_masked_bounds_are_seen_through(index: int) -> None:
    assert simplified(f"{MASKED} c = Slice(x, starts, stops, axes, steps) y = Squeeze(c, second)", index) == ["Gather"]


def test_two_places_are_two_gathers() -> None:
    body = "u = Unsqueeze(i, first) s = Concat<axis = 0>(u, u) far2 = Cast<to = 6>(ends) big = Max(far2, steps)"
    body += " c = Slice(x, s, big, axes, big) z = Slice(c, zero, one, zero, one) y = Squeeze(c)"
    assert "Slice" in simplified(body)  # no axes: what Squeeze drops is not told
    body = body.replace("Squeeze(c)", "Squeeze(c, both)").replace("z = Slice(c, zero, one, zero, one)", "")
    found = simplified(f"both = Concat<axis = 0>(first, second) {body}")
    assert found == ["Gather", "Gather"]


def test_the_end_of_an_axis_with_one_place_does_not_matter() -> None:
    body = f"{MASKED} c = Slice(x, starts, plain, axes, steps) y = Squeeze(c, second)"
    assert simplified(body) == ["Gather"]


@pytest.mark.parametrize(
    "cut",
    [
        "c = Slice(x, starts, stops, axes, usual) y = ReduceSum(c)",
        "b = Add(starts, usual) c = Slice(x, b, stops, axes, steps) y = Squeeze(c, second)",
        "c = Slice(x, starts, next_ends, axes, steps) y = Squeeze(c, second)",
    ],
    ids=["as many as there are", "begins behind the first", "ends before the last"],
)
def test_other_slices_stay(cut: str) -> None:
    ends = "h = Unsqueeze(next, first) next_ends = Concat<axis = 0>(h, h)" if "next_ends" in cut else ""
    assert "Slice" in simplified(f"{MASKED} {ends} {cut}", 0)
