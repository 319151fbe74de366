"""Attentions of which the products are Einsums, or of which the sizes of scores are asked for, are fused as others."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import ort_core
from ort_core.tolerances import tolerance
from ort_transformers import fuse_model
from ort_transformers.fusing.einsum_forms import matrix_product

EINSUMS = """
<ir_version: 8, opset_import: ["": 17]>
attention (float[L,B,2,4] q, float[L,B,2,4] k, float[L,B,2,4] v, float[L,L,B,1] hidden) => (float[L,B,2,4] y)
<float scale = {{0.5}}, float low = {{1e30}}>
{{
  m = Einsum<equation="{scores}">(q, k)
  c = Mul(m, scale)
  h = Einsum<equation="ijbn->bnij">(hidden)
  far = Mul(h, low)
  a = Sub(c, far)
  p = Softmax<axis=3>(a)
  y = Einsum<equation="{values}">(p, v)
}}
"""
ASKED = """
<ir_version: 8, opset_import: ["": 17]>
attention (float[B,2,L,4] q, float[B,2,L,4] k, float[B,2,L,4] v) => (float[B,2,L,4] y)
<float scale = {0.5}, int64[1] zero = {0}, int64[1] third = {3}, bool[1,1,6,6] buffer = {
 1,0,0,0,0,0, 1,1,0,0,0,0, 1,1,1,0,0,0, 1,1,1,1,0,0, 1,1,1,1,1,0, 1,1,1,1,1,1}, int64[2] axes = {2, 3},
 int64[2] zeros = {0, 0}, float low = {-3e38}>
{
  kt = Transpose<perm=[0, 1, 3, 2]>(k)
  m = MatMul(q, kt)
  c = Mul(m, scale)
  s = Shape(c)
  n = Gather(s, third)
  ends = Concat<axis=0>(n, n)
  kept = Slice(buffer, zeros, ends, axes)
  a = Where(kept, c, low)
  p = Softmax<axis=3>(a)
  y = MatMul(p, v)
}
"""


def _assert_same_results(before: onnx.ModelProto, after: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    limits = tolerance("approximate", "float32")
    (wanted,) = onnxruntime.InferenceSession(before.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, feeds
    )
    for engine in (onnxruntime, ort_core):
        (found,) = engine.InferenceSession(after.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, feeds
        )
        np.testing.assert_allclose(found, wanted, limits.relative, limits.absolute)


@pytest.mark.parametrize("values", ["bnij,jbnd->ibnd", "bnij,jbnd->ibnd "])
@pytest.mark.parametrize("scores", ["ibnd,jbnd->bnij", "ibnd, jbnd -> bnij"])
def test_einsums_beside_a_softmax_are_products_of_an_attention(scores: str, values: str):
    model = parser.parse_model(EINSUMS.format(scores=scores, values=values))
    fused, report = fuse_model(model)
    assert report.num_attentions == 1, str(report)
    assert "Softmax" not in {node.op_type for node in fused.graph.node}
    random = np.random.default_rng(3)
    feeds = {name: random.standard_normal((5, 3, 2, 4)).astype(np.float32) for name in "qkv"}
    feeds["hidden"] = np.triu(np.ones((5, 5), np.float32), 1)[:, :, None, None].repeat(3, 2)
    _assert_same_results(model, fused, feeds)


@pytest.mark.parametrize("equation", ["ibnd,jbnd->bnjj", "ibnd,jbnd->bni", "iibd,jbnd->bnij", "...d,jbnd->...j"])
def test_other_equations_are_no_products_of_matrices(equation: str):
    assert matrix_product(equation) is None


def test_the_sizes_of_scores_are_taken_from_the_inputs_that_have_them():
    model = parser.parse_model(ASKED)
    fused, report = fuse_model(model)
    assert report.num_attentions == 1, str(report)
    assert not {"MatMul", "Softmax"} & {node.op_type for node in fused.graph.node}
    random = np.random.default_rng(3)
    feeds = {name: random.standard_normal((2, 2, 5, 4)).astype(np.float32) for name in "qkv"}
    _assert_same_results(model, fused, feeds)


def test_a_size_that_is_several_times_an_inputs_is_taken_from_it():
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[B,2,5,4] q, float[B,2,4,5] k) => (float[N,5,5] y, int64[3] sizes)
    <int64[3] queries = {-1, 5, 4}, int64[3] keys = {-1, 4, 5}> {
      a = Reshape(q, queries)   b = Reshape(k, keys)   c = MatMul(a, b)   sizes = Shape(c)   y = Softmax<axis=2>(c)
    }""")
    fused, report = fuse_model(model)
    assert report.counts["SizesOfScores"] == 1
    assert {each for node in fused.graph.node if node.op_type == "Shape" for each in node.input} <= {"q", "k"}
    feeds = {"q": np.ones((3, 2, 5, 4), np.float32), "k": np.ones((3, 2, 4, 5), np.float32)}
    assert ort_core.InferenceSession(fused.SerializeToString()).run(["sizes"], feeds)[0].tolist() == [6, 5, 5]
