"""BagLoops: bags of equal length are one sum; whatever is not known to be rows of a matrix stays a Loop."""

from __future__ import annotations

import pytest
from pass_check import context_of, evaluate_with_onnxruntime, model_of, op_types

from ort_core.passes.equivalence import EquivalenceCheck
from ort_core.passes.pipelines import build_basic_passes
from ort_core.passes.runner import run_pipeline

CONSTANTS = (
    "<int64 zero = {0}, int64 bag = {4}, int64 five = {5}, int64[1] first = {0}, int64[1] one = {1},"
    " int64[1] end = {9223372036854775807}, int64[1] flat = {-1}, bool yes = {1}, bool no = {0},"
    " float[3, 2] w = {1, 2, 3, 4, 5, 7}>"
)
OFFSETS = (
    "s = Shape(ids) n = ReduceProd<keepdims = 0>(s) r = Range(zero, n, {step}) f = Reshape(ids, flat)"
    " k = Shape(f) o = Concat<axis = 0>(r, k) e = Slice(o, one, end, {axis}, one)"
    " q = Shape(e) m = Gather(q, zero)"
)
BODY = (
    " y = Loop({rounds}, yes)<body = b (int64 i, bool c) => (bool d, float[u] t) {{ d = Identity({goes})"
    " x = Gather(o, i) z = Gather({ends}, i) g = Unsqueeze(x, first) h = Unsqueeze(z, first)"
    " j = Slice({indices}, g, h, first) v = Gather<axis = {along}>(w, j) t = {reduction} }}>"
)
SUM = "ReduceSum<keepdims = 0>(v, first)"
USUAL = {
    "step": "bag", "axis": "first", "rounds": "m", "goes": "yes", "ends": "e", "indices": "f", "along": "0",
    "reduction": SUM,
}  # fmt: skip


def _graph(shape: str = "N,4", **changed: str) -> str:
    text = (OFFSETS + BODY).format(**{**USUAL, **changed})
    return f"g (int64[{shape}] ids, int64[K] other) => (float[] y) {CONSTANTS} {{ {text} }}"


def _folded(body: str, **sizes: int) -> tuple[list[str], int]:
    model = model_of(body)
    check = EquivalenceCheck(evaluate_with_onnxruntime, 1e-5, 1e-6, {}, sizes) if sizes else None
    report = run_pipeline(build_basic_passes(), context_of(model), verify=True, equivalence=check)
    return op_types(model), report.counts().get("BagLoops", 0)


@pytest.mark.parametrize(
    "reduction", [SUM, "ReduceMean<keepdims = 0, axes = [0]>(v)", "ReduceMax<keepdims = 0, axes = [0]>(v)"]
)
@pytest.mark.parametrize("rows", [1, 6])
def test_bags_of_equal_length_are_one_reduction(reduction: str, rows: int) -> None:
    found, count = _folded(_graph(reduction=reduction), N=rows, K=1)
    assert found == ["Gather", reduction.partition("<")[0]]
    assert count == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"step": "five"}, {"rounds": "bag"}, {"goes": "no"}, {"ends": "o"}, {"indices": "other"}, {"along": "1"},
        {"reduction": "ReduceSum<keepdims = 1>(v, first)"}, {"reduction": "ReduceSum<keepdims = 0>(v, one)"},
        {"reduction": "ReduceProd<keepdims = 0, axes = [0]>(v)"},
    ],
)  # fmt: skip
def test_other_loops_stay(changed: dict[str, str]) -> None:
    found, count = _folded(_graph(**changed))
    assert "Loop" in found
    assert count == 0


def test_indices_of_three_axes_stay_a_loop() -> None:
    assert _folded(_graph("N,2,2"))[1] == 0
