"""Experts of an export become MoE, which can be switched off; those in pieces are in the report with their reason."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from exported_graphs import random_weights
from onnx import parser

import ort_core
from ort_core.tolerances import tolerance
from ort_transformers import FusionOptions, fuse_model

EXPERTS = """
<ir_version: 10, opset_import: ["": 18]>
experts (float[tokens, 8] x) => (float[tokens, 8] y)
<int64[1] k = {{2}}, int64[1] last = {{-1}}, int64[1] one = {{1}}, int64[3] repeats = {{1, 2, 1}},
 int64[2] rowshape = {{-1, 8}}, int64[3] slots = {{-1, 2, 8}}>
{{
  logits = MatMul(x, w0_8_4)
  p = {router}(logits)
  s, i = TopK(p, k)
  total = ReduceSum(s, last)
  w = Div(s, total)
  xu = Unsqueeze(x, one)
  xe = Expand(xu, repeats)
  rows = Reshape(xe, rowshape)
  ids = Reshape(i, last)
  g1 = Gather<axis=0>(w1_4_12_8, ids)
  r1 = Unsqueeze(rows, last)
  m1 = MatMul(g1, r1)
  f = Squeeze(m1, last)
  a, b = Split<axis=-1, num_outputs=2>(f)
  e = Sigmoid(a)
  c = Mul(a, e)
  h = Mul(c, b)
  g2 = Gather<axis=0>(w2_4_8_6, ids)
  r2 = Unsqueeze(h, last)
  m2 = MatMul(g2, r2)
  o = Squeeze(m2, last)
  wf = Reshape(w, last)
  wu = Unsqueeze(wf, last)
  q = Mul(o, wu)
  s3 = Reshape(q, slots)
  y = ReduceSum<keepdims=0>(s3, one)
}}
"""

BOUNDED = "sum = ReduceSum(s, last)  low = Constant<value = float {LOW}>()  total = Clip(sum, low)"


def _model(router: str = "Softmax<axis=-1>") -> onnx.ModelProto:
    return random_weights(parser.parse_model(EXPERTS.format(router=router)))


def _bounded(low: float) -> onnx.ModelProto:
    text = EXPERTS.format(router="Sigmoid").replace("total = ReduceSum(s, last)", BOUNDED.replace("LOW", str(low)))
    return random_weights(parser.parse_model(text))


def _is_same(before: onnx.ModelProto, after: onnx.ModelProto) -> bool:
    feeds = {"x": np.random.default_rng(7).standard_normal((5, 8)).astype(np.float32)}
    found = [ort_core.InferenceSession(each.SerializeToString()).run(None, feeds)[0] for each in (before, after)]
    limits = tolerance("approximate", "float32")
    return np.allclose(*found, limits.relative, limits.absolute)


def test_experts_become_one_node_with_the_same_results():
    fused, report = fuse_model(_model(), checks=True)
    assert report.fused["MoE"] == 1
    assert not report.unfused
    assert _is_same(_model(), fused)


def test_shares_of_a_sigmoid_become_logits_of_the_same_shares():
    fused, report = fuse_model(_model("Sigmoid"), checks=True)
    assert report.fused["MoE"] == 1
    assert _is_same(_model("Sigmoid"), fused)


@pytest.mark.parametrize(("low", "is_fused"), [(1e-12, True), (-2.0, False)])
def test_shares_over_a_sum_with_a_lower_bound_are_shares_where_that_is_not_negative(low: float, is_fused: bool):
    fused, report = fuse_model(_bounded(low), checks=True)
    assert report.fused.get("MoE", 0) == is_fused
    assert len(report.unfused_of("experts")) == (not is_fused)
    assert _is_same(_bounded(low), fused)


@pytest.mark.parametrize("way", ["switched off", "other shares"])
def test_experts_in_pieces_are_told_of(way: str):
    options = FusionOptions("gpt2")
    options.enable_experts = way != "switched off"
    fused, report = fuse_model(_model() if way == "switched off" else _model("Tanh"), options)
    (left,) = report.unfused_of("experts")
    assert "MoE" not in report.fused
    assert way == "switched off" or "zero or more" in left.reason
    assert _is_same(_model() if way == "switched off" else _model("Tanh"), fused)
