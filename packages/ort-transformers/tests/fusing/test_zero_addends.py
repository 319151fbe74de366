"""Zeros that are made to be added to scores are dropped, and what only looks like them is not."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import ort_core
from ort_transformers import fuse_model

SCORES = """
<ir_version: 10, opset_import: ["": 18]>
scores (float[B,T,8] q, float[B,T,8] k, float[B,T,8] v, float[1] given) => (float[B,T,8] y)
<float[1] zero = {0.0}, float[1] one = {1.0}, float scale = {0.35}>
{
  turned = Transpose<perm = [0, 2, 1]>(k)  product = MatMul(q, turned)  scaled = Mul(product, scale)
  batch = Shape<start = 0, end = 1>(q)  tokens = Shape<start = 1, end = 2>(q)
  whole = Cast<to = 7>(given)  count = Mul(whole, batch)
  size = Concat<axis = 0>(SIZES)
  ZEROS
  sum = Add(scaled, added)  shares = Softmax<axis = -1>(sum)  y = MatMul(shares, v)
}
"""
PLAIN = "batch, tokens, tokens"


def _left(sizes: str, zeros: str) -> int:
    """Fuse, compare with onnxruntime, and return how many sums are left."""
    model = parser.parse_model(SCORES.replace("SIZES", sizes).replace("ZEROS", zeros))
    fused, report = fuse_model(model)
    numbers = np.random.default_rng(2)
    feeds = {name: numbers.standard_normal((2, 5, 8)).astype(np.float32) for name in "qkv"}
    feeds["given"] = np.ones(1, np.float32)
    expected, found = (
        engine.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        for engine, each in ((onnxruntime, model), (ort_core, fused))
    )
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)
    biases = sum(len(node.input) > 5 for node in fused.graph.node if node.op_type == "MultiHeadAttention")
    return biases + sum(node.op_type == "Add" for node in fused.graph.node) + len(report.unfused)


@pytest.mark.parametrize(
    "zeros",
    [
        "added = Expand(zero, size)",
        "added = ConstantOfShape(size)",
        "made = Expand(zero, size)  added = Mul(made, zero)",
        "made = ConstantOfShape<value = float[1] {0.0}>(size)  added = Mul(zero, made)",
    ],
)
def test_zeros_are_no_bias_of_an_attention(zeros: str) -> None:
    assert _left(PLAIN, zeros) == 0


@pytest.mark.parametrize(
    "zeros",
    [
        "added = Expand(one, size)",
        "made = ConstantOfShape<value = float[1] {0.5}>(size)  added = Mul(made, one)",
        "made = Expand(zero, size)  added = Add(made, given)",
    ],
)
def test_other_numbers_stay(zeros: str) -> None:
    assert _left(PLAIN, zeros) > 0


def test_zeros_that_may_be_larger_than_the_scores_stay() -> None:
    assert _left("count, tokens, tokens", "added = ConstantOfShape(size)") > 0
