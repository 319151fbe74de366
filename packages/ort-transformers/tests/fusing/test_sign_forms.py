"""Rotations whose signs are factors, and softmaxes of logarithms, become operators; what only looks so stays."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import ort_core
from ort_transformers import fuse_model
from ort_transformers.fusing.fusion_report import FusionReport

ROTATED = """
<ir_version: 10, opset_import: ["": 18]>
rotate (float[B,2,T,8] x) => (float[B,2,T,8] y)
<float[1,4] rates = {1.0, 0.5, 0.25, 0.125}, float minus = {MINUS}, int64 nought = {0}, int64 one = {1},
 int64[1] axis = {1}, int64[2] halves = {4, 4}, float[8] signs = {SIGNS}>
{
  count = Shape<start = 2, end = 3>(x)  tokens = Squeeze(count)  places = Range(nought, tokens, one)
  column = Unsqueeze(places, axis)  wide = Cast<to = 1>(column)  angles = Mul(wide, rates)
  c = Cos(angles)  s = Sin(angles)  a, b = Split<axis = -1>(x, halves)
  ROTATION
}
"""
ADDED = "p = Mul(a, c)  q = Mul(b, s)  r = Mul(q, minus)  low = Add(p, r)"
FIRST = "p = Mul(a, c)  q = Mul(b, minus)  r = Mul(q, s)  low = Add(p, r)"
BEHIND = " v = Mul(b, c)  w = Mul(a, s)  high = Add(v, w)  y = Concat<axis = -1>(low, high)"
ROLLED = """j = Concat<axis = -1>(b, a)  t = Mul(j, signs)  cc = Concat<axis = -1>(c, c)  ss = Concat<axis = -1>(s, s)
    u = Mul(x, cc)  z = Mul(t, ss)  y = Add(u, z)"""
HALVES, MIXED = "-1, -1, -1, -1, 1, 1, 1, 1", "-1, 1, -1, 1, -1, 1, -1, 1"


def _fused(model: onnx.ModelProto, **feeds: np.ndarray) -> FusionReport:
    fused, report = fuse_model(model, checks=True, feeds=feeds)
    expected, found = (
        engine.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        for engine, each in ((onnxruntime, model), (ort_core, fused))
    )
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)
    return report


@pytest.mark.parametrize(
    ("rotation", "minus", "signs", "is_fused"),
    [
        (ADDED + BEHIND, -1.0, HALVES, True),
        (FIRST + BEHIND, -1.0, HALVES, True),
        (FIRST + BEHIND, -0.5, HALVES, False),
        (ROLLED, -1.0, HALVES, True),
        (ROLLED, -1.0, MIXED, False),
    ],
)
def test_signs_that_are_factors_make_a_rotation(rotation: str, minus: float, signs: str, is_fused: bool) -> None:
    text = ROTATED.replace("ROTATION", rotation).replace("MINUS", str(minus)).replace("SIGNS", signs)
    x = np.random.default_rng(3).standard_normal((2, 2, 5, 8)).astype(np.float32)
    assert _fused(parser.parse_model(text), x=x).fused.get("RotaryEmbedding", 0) == is_fused


@pytest.mark.parametrize(
    ("axis", "opset", "is_fused"),
    [
        ("<axis = -1>", 18, True), ("<axis = 2>", 18, True), ("<axis = 1>", 18, False), ("", 13, True), ("", 12, False),
        ("<axis = 2>", 12, True),
    ],
)  # fmt: skip
def test_exponentials_of_logarithms_of_shares_are_shares(axis: str, opset: int, is_fused: bool) -> None:
    text = f"""
    <ir_version: 8, opset_import: ["": {opset}]>
    g (float[B,T,8] q, float[B,T,8] k, float[B,T,8] v) => (float[B,T,8] y)
    {{ t = Transpose<perm = [0, 2, 1]>(k)  s = MatMul(q, t)  l = LogSoftmax{axis}(s)  e = Exp(l)
       y = MatMul(e, v) }}
    """
    numbers = np.random.default_rng(4)
    feeds = {name: numbers.standard_normal((2, 5, 8)).astype(np.float32) for name in "qkv"}
    assert _fused(parser.parse_model(text), **feeds).num_attentions == is_fused


NEIGHBORS = """even = Slice(x, start0, stop, last, two)  odd = Slice(x, start1, stop, last, two)
  p = Mul(even, c)  q = Mul(odd, s)  low = Sub(p, q)  v = Mul(odd, c)  w = Mul(even, s)  high = Add(v, w)
  y = Concat<axis = -1>(low, high)"""


BEHIND_OTHERS = NEIGHBORS.replace("low, high)", "rest, low, high)").replace("y = ", "rest = Neg(x)  y = ")


@pytest.mark.parametrize(
    ("rotation", "starts", "is_fused"),
    [(NEIGHBORS, (0, 1), True), (BEHIND_OTHERS, (0, 1), True), (NEIGHBORS, (1, 0), False)],
)
def test_neighbors_that_become_halves_are_rotated(rotation: str, starts: tuple[int, int], is_fused: bool) -> None:
    text = (
        ROTATED.replace("ROTATION", rotation).replace("8] y", "Y] y").replace("MINUS", "-1.0").replace("SIGNS", HALVES)
    )
    more = ", ".join(f"int64[1] start{place} = {{{start}}}" for place, start in enumerate(starts))
    more += ", int64[1] stop = {100}, int64[1] last = {3}, int64[1] two = {2}"
    text = text.replace("int64 nought", f"{more}, int64 nought")
    x = np.random.default_rng(5).standard_normal((2, 2, 5, 8)).astype(np.float32)
    assert _fused(parser.parse_model(text), x=x).fused.get("RotaryEmbedding", 0) == is_fused
