"""BranchesByRank: an If is decided where readers allow one branch only, never where a run could tell the difference."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from pass_check import context_of, evaluate_with_onnxruntime, model_of, named, op_types

import ort_core
from ort_core.ir.model import Model
from ort_core.passes.equivalence import EquivalenceCheck
from ort_core.passes.pipelines import build_basic_passes
from ort_core.passes.runner import PipelineReport, run_pipeline

ROUNDING = (1e-5, 1e-6)
SQUEEZE = "then_branch = t () => (float[N,4] p) { p = Squeeze(x, last) }"
IDENTITY = "else_branch = e () => (float[N,4,L] q) { q = Identity(x) }"
SIZE = "s = Shape(x)  d = Gather(s, last)  c = Equal(d, one)"
CONSTANTS = (
    "<int64[1] last = {-1}, int64[1] one = {1}, int64[1] first = {0}, int64 two = {2}, float[4,1] w = {1,2,3,4}>"
)


def _graph(nodes: str, inputs: str = "float[N,4,L] x", outputs: str = "float[] y") -> str:
    return f"g ({inputs}) => ({outputs}) {CONSTANTS} {{ {nodes} }}"


def _decided(body: str, **sizes: int) -> tuple[Model, PipelineReport]:
    model = model_of(body)
    check = EquivalenceCheck(evaluate_with_onnxruntime, *ROUNDING, {}, sizes)
    return model, run_pipeline(build_basic_passes(), context_of(model), verify=True, equivalence=check)


def _reasons(body: str) -> list[str]:
    report = run_pipeline([named("BranchesByRank")], context_of(model_of(body)), verify=True)
    assert not report.num_rewrites
    return [rejection.reason for each in report.reports for rejection in each.rejections]


def test_size_that_squeeze_itself_demands_decides() -> None:
    model, report = _decided(_graph(f"{SIZE} z = If(c)<{SQUEEZE}, {IDENTITY}> y = Gemm(z, w)"), N=3, L=1)
    assert report.counts()["BranchesByRank"] == 1
    assert op_types(model) == ["Squeeze", "Gemm"]


def test_rank_that_a_reader_demands_decides_one_if_after_another() -> None:
    body = _graph(
        f"{SIZE} z = If(c)<{SQUEEZE}, {IDENTITY}> r = Shape(z) n = Size(r) f = Equal(n, two) k = Not(f)"
        " v = If(k)<then_branch = t1 () => (float[] p1) { p1 = Unsqueeze(z, first) },"
        " else_branch = e1 () => (float[] q1) { q1 = Identity(z) }> y = Gemm(v, w)"
    )
    model, report = _decided(body, N=3, L=1)
    assert report.counts()["BranchesByRank"] == 2
    assert op_types(model) == ["Squeeze", "Gemm"]


def test_if_of_which_no_branch_fits_its_reader_is_left_to_fail() -> None:
    body = _graph(
        "r = Shape(x) n = Size(r) f = Equal(two, n)"
        " v = If(f)<then_branch = t1 () => (float[] p1) { p1 = Unsqueeze(x, first) },"
        " else_branch = e1 () => (float[] q1) { q1 = Identity(x) }> y = Gemm(v, w)",
        inputs="float[N,4] x",
    )
    context = context_of(model_of(body))
    assert not run_pipeline([named("BranchesByRank")], context, verify=True).num_rewrites


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (f"{SIZE} z = If(c)<{SQUEEZE}, {IDENTITY}> y = MatMul(z, w)", "no reader demands"),
        (f"{SIZE} z = If(c)<{SQUEEZE}, {IDENTITY}> y = Neg(z)", "no reader demands"),
        (f"s = Shape(x) d = Gather(s, first) c = Equal(d, one) z = If(c)<{SQUEEZE}, {IDENTITY}> y = Gemm(z, w)",
         "does not follow"),
        (f"s = Shape(x) d = Gather(s, last) c = Equal(d, two) z = If(c)<{SQUEEZE}, {IDENTITY}> y = Gemm(z, w)",
         "does not follow"),
        (f"m = ReduceMax<keepdims=0>(x) c = Cast<to=9>(m) z = If(c)<{SQUEEZE}, {IDENTITY}> y = Gemm(z, w)",
         "does not follow"),
        (f"{SIZE} z = If(c)<then_branch = t () => (float[] p) {{ p = Identity(x) }},"
         " else_branch = e () => (float[] q) { q = Squeeze(x, last) }> y = Gemm(z, w)", "does not follow"),
        (f"{SIZE} z = If(c)<then_branch = t () => (float[] p) {{ o = Squeeze(x, last) p = Neg(o) }}, {IDENTITY}>"
         " y = Gemm(z, w)", "does more than"),
    ],
)  # fmt: skip
def test_branch_stays_undecided_where_a_run_could_tell_the_difference(nodes: str, reason: str) -> None:
    assert any(reason in found for found in _reasons(_graph(nodes)))


def test_readers_inside_of_a_body_decide_nothing() -> None:
    body = _graph(
        f"{SIZE} z = If(c)<{SQUEEZE}, {IDENTITY}> y = If(b)<then_branch = t1 () => (float[] p1) {{ p1 = Gemm(z, w) }},"
        " else_branch = e1 () => (float[] q1) { q1 = Identity(z) }>",
        inputs="float[N,4,L] x, bool b",
    )
    assert any("no reader demands" in found for found in _reasons(body))


def test_run_that_was_an_error_stays_one() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]>\n' + _graph(
        f"{SIZE} z = If(c)<{SQUEEZE}, {IDENTITY}> y = Gemm(z, w)"
    )
    session = ort_core.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    x = np.arange(8, dtype=np.float32)
    (y,) = session.run(None, {"x": x.reshape(2, 4, 1)})
    np.testing.assert_array_equal(y, x.reshape(2, 4) @ np.array([[1], [2], [3], [4]], np.float32))
    with pytest.raises(ort_core.OrtError, match="Squeeze"):
        session.run(None, {"x": x.reshape(1, 4, 2)})
