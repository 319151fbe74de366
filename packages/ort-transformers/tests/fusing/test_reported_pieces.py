"""What stays in pieces: norms and attentions that no operator has are named, with what is special about them."""

from __future__ import annotations

import pytest
from exported_graphs import random_weights
from onnx import parser

from ort_transformers import fuse_model

HEADER = '<ir_version: 10, opset_import: ["": 18]>'
BY_LENGTH = """
norm (float[B,L,8] x) => (float[B,L,8] y) <int64[1] last = {-1}, float least = {1e-12}, float root = {2.828}>
{
  l = ReduceL2(x, last)  c = Clip(l, least)  d = Div(x, c)  s = Mul(d, root)  y = Mul(s, w0_8)
}"""
UNBIASED = """
norm (float[B,L,8] x) => (float[B,L,8] y)
<int64[1] last = {-1}, float n = {8}, float less = {7}, float epsilon = {1e-6}>
{
  m = ReduceMean(x, last)  d = Sub(x, m)  q = Mul(d, d)  v = ReduceMean(q, last)  t = Mul(v, n)  u = Div(t, less)
  r = Sqrt(u)  e = Add(r, epsilon)  s = Div(d, e)  y = Mul(s, w0_8)
}"""
DIFFERENCE = """
attention (float[B,4,L,8] q, float[B,4,8,L] k, float[B,2,L,8] v) => (float[B,2,L,8] y)
<int64[2] heads = {2, 2}, int64 first = {0}, int64 second = {1}, float share = {0.3}>
{
  m = MatMul(q, k)  p = Softmax<axis = -1>(m)  length = Shape<start = 2, end = 4>(p)  batch = Shape<end = 1>(p)
  shape = Concat<axis = 0>(batch, heads, length)  f = Reshape(p, shape)
  a = Gather<axis = 2>(f, first)  b = Gather<axis = 2>(f, second)  c = Mul(b, share)  d = Sub(a, c)  y = MatMul(d, v)
}"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [(BY_LENGTH, "bounded from below in place of an epsilon"), (UNBIASED, "one less than the number")],
)
def test_norms_that_no_operator_has_are_named(text: str, reason: str) -> None:
    _, report = fuse_model(random_weights(parser.parse_model(HEADER + text)))
    (left,) = report.unfused
    assert left.kind == "norm"
    assert reason in left.reason


def test_vectors_divided_by_their_length_without_weights_are_no_norm() -> None:
    text = BY_LENGTH.replace("s = Mul(d, root)  y = Mul(s, w0_8)", "y = Mul(d, root)")
    _, report = fuse_model(parser.parse_model(HEADER + text))
    assert not report.unfused


def test_a_temperature_of_each_head_is_no_weight_of_a_norm() -> None:
    text = BY_LENGTH.replace("[B,L,8]", "[B,4,L,8]").replace("w0_8", "w0_4_1_1")
    _, report = fuse_model(random_weights(parser.parse_model(HEADER + text)))
    assert not report.unfused


def test_a_difference_of_shares_is_named() -> None:
    _, report = fuse_model(parser.parse_model(HEADER + DIFFERENCE))
    (left,) = report.unfused_of("attention")
    assert "Sub" in left.reason
    assert "changes the shares in front of values" in left.reason
