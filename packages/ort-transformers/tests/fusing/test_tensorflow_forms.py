"""Attentions, norms and choices as TensorFlow's converter writes them are fused as those of other exporters are."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from exported_graphs import random_weights
from onnx import parser

import ort_core
from ort_core.tolerances import tolerance
from ort_transformers import fuse_model

HEAD = """
<ir_version: 8, opset_import: ["": 15]>
attention (float[batch, 5, 8] x{more}) => (float[batch, 5, 8] y)
<int64[4] split = {{-1, 5, 2, 4}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] three = {{3}},
 int64[1] four = {{4}}, int64[2] stacked = {{0, 1}}, int64[1] rest = {{-1}}, int64[1] size = {{4}},
 int64[1] length = {{5}}, int64[5] apart = {{-1, 2, 5, 5, 1}}, int64[5] apart_v = {{-1, 2, 5, 4, 1}},
 int64[3] merge = {{-1, 5, 8}}, float scale = {{0.5}}, float low = {{{low}}}, float epsilon = {{1e-5}}>
{{
  q = MatMul(x, w0_8_8)
  k = MatMul(x, w1_8_8)
  v = MatMul(x, w2_8_8)
  q4 = Reshape(q, split)
  k4 = Reshape(k, split)
  v4 = Reshape(v, split)
  q5 = Unsqueeze(q4, three)
  k5 = Unsqueeze(k4, one)
  v5 = Unsqueeze(v4, two)
  qt = Transpose<perm=[0, 2, 1, 3, 4]>(q5)
  kt = Transpose<perm=[0, 3, 1, 2, 4]>(k5)
  vt = Transpose<perm=[0, 3, 2, 4, 1]>(v5)
"""
BATCH = "{0}s = Shape({0}t)  {0}b = Gather({0}s, stacked)  {0}p = ReduceProd<keepdims=1>({0}b)  "
PRODUCTS = f"""
  {BATCH.format("q")} qn = Concat<axis=0>(qp, rest, size)   qm = Reshape(qt, qn)
  {BATCH.format("k")} kn = Concat<axis=0>(kp, rest, size)   km = Reshape(kt, kn)
  kw = Transpose<perm=[0, 2, 1]>(km)
  m = MatMul(qm, kw)
  m5 = Reshape(m, apart)
  m4 = Squeeze(m5, four)
  scores = Mul(m4, scale)
"""
SELECTED = """
  kept = Cast<to=1>(mask)   not = Not(mask)   hidden = Cast<to=1>(not)
  a1 = Mul(kept, scores)    a2 = Mul(low, hidden)   chosen = Add(a1, a2)
  p = Softmax<axis=-1>(chosen)
"""
PLAIN = "p = Softmax<axis=-1>(scores)"
VALUES = f"""
  p5 = Unsqueeze(p, three)
  pt = Identity(p5)
  {BATCH.format("p")} pn = Concat<axis=0>(pp, rest, length)  pm = Reshape(p5, pn)
  {BATCH.format("v")} vn = Concat<axis=0>(vp, rest, length)  vm = Reshape(vt, vn)
  vw = Transpose<perm=[0, 2, 1]>(vm)
  o = MatMul(pm, vw)
  o5 = Reshape(o, apart_v)
  o4 = Squeeze(o5, four)
  ot = Transpose<perm=[0, 2, 1, 3]>(o4)
  merged = Reshape(ot, merge)
"""
NORM = """
  mean = GlobalAveragePool(merged)
  off = Neg(mean)
  d = Sub(merged, mean)
  square = Mul(d, d)
  variance = GlobalAveragePool(square)
  safe = Add(variance, epsilon)
  deviation = Sqrt(safe)
  inverse = Reciprocal(deviation)
  gain = Mul(inverse, b0_1_1_8)
  part = Mul(merged, gain)
  shift = Mul(off, gain)
  bias = Add(shift, b1_1_1_8)
  y = Add(part, bias)
}}
"""


def _model(middle: str, *, more: str = "", low: str = "-2.4e38") -> onnx.ModelProto:
    text = (HEAD + PRODUCTS + middle + VALUES + NORM).format(more=more, low=low)
    return random_weights(parser.parse_model(text))


def _assert_same_results(before: onnx.ModelProto, after: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    limits = tolerance("approximate", "float32")
    sessions = [
        onnxruntime.InferenceSession(before.SerializeToString(), providers=["CPUExecutionProvider"]),
        onnxruntime.InferenceSession(after.SerializeToString(), providers=["CPUExecutionProvider"]),
        ort_core.InferenceSession(after.SerializeToString()),
    ]
    wanted, *found = (each.run(None, feeds)[0] for each in sessions)
    for each in found:
        np.testing.assert_allclose(each, wanted, limits.relative, limits.absolute)


@pytest.mark.parametrize("form", ["plain", "selected"])
def test_a_written_out_einsum_becomes_one_attention_and_its_norm_one_norm(form: str):
    is_plain = form == "plain"
    model = _model(PLAIN) if is_plain else _model(SELECTED, more=", bool[1, 1, 5, 5] mask")
    fused, report = fuse_model(model)
    assert (report.num_attentions, report.num_norms) == (1, 1), str(report)
    assert not report.unfused
    assert not {"ReduceProd", "Unsqueeze", "GlobalAveragePool"} & {node.op_type for node in fused.graph.node}
    feeds = {"x": np.random.default_rng(5).standard_normal((3, 5, 8)).astype(np.float32)}
    if not is_plain:
        feeds["mask"] = np.tril(np.ones((5, 5), bool))[None, None]
    _assert_same_results(model, fused, feeds)


def test_a_sum_with_an_infinite_number_is_no_choice():
    """Nothing times infinity is not a number, which a choice would hide."""
    model = _model(SELECTED, more=", bool[1, 1, 5, 5] mask", low="-inf")
    _, report = fuse_model(model)
    assert report.counts.get("TensorFlowForms", 0) > 0
    assert report.num_attentions == 0
    assert len(report.unfused_of("attention")) == 1


def test_a_sum_that_is_no_attentions_keeps_what_infinities_make():
    """Zero times infinity is not a number, though it is not chosen."""
    text = """<ir_version: 8, opset_import: ["": 15]> g (float[3] x, bool[3] c) => (float[3] y) <float n = {2.0}> {
      kept = Cast<to=1>(c)   not = Not(c)   hidden = Cast<to=1>(not)   a = Mul(kept, x)   b = Mul(hidden, n)
      y = Add(a, b)
    }"""
    fused, _ = fuse_model(parser.parse_model(text))
    feeds = {"x": np.array([np.inf, -np.inf, 1], np.float32), "c": np.array([False, True, False])}
    for engine in (ort_core, onnxruntime):
        session = engine.InferenceSession(fused.SerializeToString(), providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(session.run(None, feeds)[0], np.array([np.nan, -np.inf, 2], np.float32))
