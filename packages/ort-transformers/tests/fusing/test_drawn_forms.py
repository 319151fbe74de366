"""Attentions and norms written by hand, of drawn forms: fused, they give the same results in both engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from drawn_forms import drawn_attention, drawn_norm
from exported_graphs import random_weights
from onnx import parser

import ort_core
from ort_core.tolerances import tolerance
from ort_transformers import FusionOptions, fuse_model


def _run(engine: Any, model: onnx.ModelProto, feeds: dict[str, np.ndarray], *, is_plain: bool = False) -> np.ndarray:
    options = engine.SessionOptions()
    if is_plain:
        options.graph_optimization_level = engine.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = engine.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


def _seeds(count: int, more: int) -> list[Any]:
    return [*range(count), *(pytest.param(seed, marks=pytest.mark.sweep) for seed in range(count, count + more))]


def _assert_equal(model: onnx.ModelProto, fused: onnx.ModelProto, feeds: dict[str, np.ndarray], drawn: object) -> None:
    wanted = _run(onnxruntime, model, feeds, is_plain=True)
    limits = tolerance("approximate", "float32")
    scale = max(1.0, float(np.abs(wanted).max()))
    for engine in (onnxruntime, ort_core):
        found = _run(engine, fused, feeds)
        np.testing.assert_allclose(found, wanted, limits.relative, limits.absolute * scale, err_msg=str(drawn))


@pytest.mark.sweep
@pytest.mark.parametrize("seed", _seeds(30, 100))
def test_an_attention_of_any_form_is_fused_to_the_same_results(seed: int) -> None:
    model, feeds, drawn = drawn_attention(seed)
    options = FusionOptions("bert")
    options.use_standard_operators = seed % 3 == 0
    fused, report = fuse_model(model, options)
    _assert_equal(model, fused, feeds, drawn)
    assert report.num_attentions == 1, (report.unfused, drawn)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", _seeds(20, 60))
def test_a_norm_of_any_form_is_fused_to_the_same_results(seed: int) -> None:
    model, feeds, drawn = drawn_norm(seed)
    options = FusionOptions("bert")
    options.use_standard_operators = seed % 3 == 0
    fused, report = fuse_model(model, options)
    _assert_equal(model, fused, feeds, drawn)
    assert report.num_norms == 1, (str(report), drawn)


TALKING = """
<ir_version: 8, opset_import: ["": 17]>
attention (float[B,4,L,8] q, float[B,4,L,8] k, float[B,4,L,8] v) => (float[B,4,L,8] y)
{
  kt = Transpose<perm=[0, 1, 3, 2]>(k)
  m = MatMul(q, kt)
  MIXED
  w = MatMul(p, v)
  y = Identity(w)
}
"""
BY_PRODUCT = (
    "t = Transpose<perm=[0,2,3,1]>(m) x = MatMul(t, w0_4_4) a = Transpose<perm=[0,3,1,2]>(x) p = Softmax<axis=3>(a)"
)
BY_CONVOLUTION = "a = Conv(m, w0_4_4_1_1) s = Softmax<axis=3>(a) p = Conv(s, w1_4_4_1_1)"


@pytest.mark.parametrize("mixed", [BY_PRODUCT, BY_CONVOLUTION])
def test_talking_heads_stay_and_the_node_that_mixes_them_is_named(mixed: str) -> None:
    fused, report = fuse_model(random_weights(parser.parse_model(TALKING.replace("MIXED", mixed))))
    assert report.num_attentions == 0
    (found,) = report.unfused_of("attention")
    assert "mixes the scores of heads in front of the softmax" in found.reason
    assert "Softmax" in {node.op_type for node in fused.graph.node}


ROTATED = """
<ir_version: 8, opset_import: ["": 18]>
rotation (float[B,L,2,8] x, int64[B,L] places) => (float[B,L,2,8] y)
<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] last = {-1}>
{
  FACTORS
  a, d = Split<axis=3, num_outputs=2>(x)
  ac = Mul(a, c)  ds = Mul(d, s)  first = Sub(ac, ds)
  dc = Mul(d, c)  as = Mul(a, s)  second = Add(dc, as)
  y = Concat<axis=3>(first, second)
}
"""
CUT = """n = Shape<start=1, end=2>(x)
  cr = Slice(w0_64_4, zero, n, zero, one)  c = Unsqueeze(cr, one)
  sr = Slice(w1_64_4, zero, n, zero, one)  s = Unsqueeze(sr, one)"""
INDEXED = """i = Unsqueeze(places, last)
  cr = GatherND(w0_64_4, i)  c = Unsqueeze(cr, two)
  sr = GatherND(w1_64_4, i)  s = Unsqueeze(sr, two)"""


@pytest.mark.parametrize("factors", [CUT, INDEXED])
def test_factors_cut_from_a_table_or_indexed_turn_heads(factors: str) -> None:
    model = random_weights(parser.parse_model(ROTATED.replace("FACTORS", factors)))
    fused, report = fuse_model(model)
    random = np.random.default_rng(3)
    feeds = {"x": random.standard_normal((2, 5, 2, 8)).astype(np.float32), "places": random.integers(0, 64, (2, 5))}
    _assert_equal(model, fused, feeds, factors)
    assert report.fused.get("RotaryEmbedding") == 1, str(report)


PAIRS = """
<ir_version: 8, opset_import: ["": 18]>
rotation (float[B,L,16] flat, float[L,4] angles) => (float[B,L,2,8] y)
<int64[5] apart = {0, 0, 2, 4, 2}, int64[1] last = {-1}, int64[1] one = {1}, int64 first = {0}, int64 second = {1},
 int64[4] shape = {0, 0, 2, 8}, int64[2] alone = {1, 1}>
{
  cr = Cos(angles)  sr = Sin(angles)  c = Unsqueeze(cr, one)  s = Unsqueeze(sr, one)
  pairs = Reshape(flat, apart)
  TAKEN
  ac = Mul(a, c)  ds = Mul(d, s)  real = Sub(ac, ds)
  as = Mul(a, s)  dc = Mul(d, c)  imaginary = Add(as, dc)
  ru = Unsqueeze(real, last)  iu = Unsqueeze(imaginary, last)
  stacked = Concat<axis=-1>(ru, iu)
  y = Reshape(stacked, shape)
}
"""
GATHERED = "a = Gather<axis=4>(pairs, first)  d = Gather<axis=-1>(pairs, second)"
UNBOUND = "a5, d5 = Split<axis=4>(pairs, alone)  a = Squeeze(a5, last)  d = Squeeze(d5, last)"


@pytest.mark.parametrize("taken", [GATHERED, UNBOUND])
def test_a_rotation_of_pairs_as_complex_numbers_is_fused(taken: str) -> None:
    model = parser.parse_model(PAIRS.replace("TAKEN", taken))
    fused, report = fuse_model(model)
    random = np.random.default_rng(3)
    feeds = {"flat": random.standard_normal((2, 5, 16)), "angles": random.standard_normal((5, 4))}
    _assert_equal(model, fused, {name: each.astype(np.float32) for name, each in feeds.items()}, taken)
    assert report.fused.get("RotaryEmbedding") == 1, str(report)
