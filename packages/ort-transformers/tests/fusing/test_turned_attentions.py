"""Attentions whose values stand in front of the shares, whose keys were never turned, or that have five axes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import ort_core
from ort_core.tolerances import tolerance
from ort_transformers import fuse_model

HEADER = '<ir_version: 8, opset_import: ["": 17]>'
CHANNELS_FIRST = """
g (float[B,2,4,N] q, float[B,2,4,N] k, float[B,2,4,N] v) => (float[B,2,4,N] y) {
  qt = Transpose <perm = [0,1,3,2]> (q)   m = MatMul(qt, k)   p = Softmax <axis = -1> (m)
  pt = Transpose <perm = [0,1,3,2]> (p)   y = MatMul(v, pt)
}"""
ONE_HEAD = """
g (float[B,N,4] q, float[B,4,N] k, float[B,4,N] v) => (float[B,4,N] y) <float scale = {0.5}> {
  m = MatMul(q, k)   c = Mul(m, scale)   p = Softmax <axis = 2> (c)
  pt = Transpose <perm = [0,2,1]> (p)   y = MatMul(v, pt)
}"""
KEYS_BY_QUERIES = """
g (float[B,4,N] f, float[B,4,N] q, float[B,6,N] h) => (float[B,6,N] y) {
  ft = Transpose <perm = [0,2,1]> (f)   m = MatMul(ft, q)   p = Softmax <axis = 1> (m)   y = MatMul(h, p)
}"""
TALKING_HEADS = """
g (float[B,4,N,8] q, float[B,4,8,N] k, float[B,4,N,8] v, float[4,4] mix) => (float[B,4,N,8] y) {
  m = MatMul(q, k)   t = Transpose <perm = [0,2,3,1]> (m)   h = MatMul(t, mix)   p = Softmax <axis = -2> (h)
  b = Transpose <perm = [0,3,1,2]> (p)   y = MatMul(b, v)
}"""
SCALED_KEYS_BY_QUERIES = """
g (float[B,2,N,8] q, float[B,2,M,8] k, float[B,2,M,8] v) => (float[B,2,N,8] y) <float scale = {0.5}> {
  qt = Transpose <perm = [0,1,3,2]> (q)   m = MatMul(k, qt)   c = Mul(scale, m)   p = Softmax <axis = -2> (c)
  pt = Transpose <perm = [0,1,3,2]> (p)   y = MatMul(pt, v)
}"""
WINDOWS = """
g (float[B,W,2,N,4] q, float[B,W,2,4,N] k, float[B,W,2,N,4] v, float[BIAS] bias) => (float[B,W,2,N,4] y)
<float scale = {0.5}> {
  m = MatMul(q, k)   c = Mul(scale, m)   a = Add(bias, c)   p = Softmax <axis = -1> (a)   y = MatMul(p, v)
}"""
SHARED = """
g (float[B,2,N,4] q, float[B,N,4] k, float[B,N,4] v) => (float[B,2,N,4] y) {
  m = Einsum <equation = "bhid,bjd->bhij"> (q, k)   p = Softmax <axis = -1> (m)
  y = Einsum <equation = "bhij,bjd->bhid"> (p, v)
}"""


ELLIPSES = """
g (float[B,2,N,8] q, float[B,2,M,8] k, float[B,2,M,8] v) => (float[B,2,N,8] y) {
  m = Einsum <equation = "... i d, ... j d -> ... i j"> (q, k)   p = Softmax <axis = -1> (m)
  y = Einsum <equation = "...ij,...jd->...id"> (p, v)
}"""
BIASES_OF_IMAGES = """
g (float[6,16,8] q, float[6,8,16] k, float[6,16,8] v, float[6,4,4,4] r, float[6,4,4,4] c) => (float[6,16,8] y)
<int64[5] apart = {6,4,4,4,4}, int64[3] joined = {6,16,16}, int64[1] three = {3}, int64[1] four = {4}> {
  n = Neg(q)   m = MatMul(n, k)   a = Reshape(m, apart)   rows = Unsqueeze(r, four)   columns = Unsqueeze(c, three)
  b = Add(a, rows)   d = Add(b, columns)   e = Reshape(d, joined)   p = Softmax <axis = -1> (e)   y = MatMul(p, v)
}"""


def _assert_fused(text: str, sizes: dict[str, int]) -> None:
    model = parser.parse_model(HEADER + text)
    fused, report = fuse_model(model)
    assert report.num_attentions == 1, str(report)
    random = np.random.default_rng(11)
    feeds = {}
    for each in model.graph.input:
        shape = [dim.dim_value or sizes[dim.dim_param] for dim in each.type.tensor_type.shape.dim]
        feeds[each.name] = random.standard_normal(shape).astype(np.float32)
    limits = tolerance("approximate", "float32")
    (wanted,) = _run(onnxruntime, model, feeds)
    for engine in (onnxruntime, ort_core):
        np.testing.assert_allclose(_run(engine, fused, feeds)[0], wanted, limits.relative, limits.absolute)


def _run(engine: object, model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = engine.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@pytest.mark.parametrize("text", [KEYS_BY_QUERIES, SCALED_KEYS_BY_QUERIES])
def test_a_softmax_over_keys_that_stand_in_columns_is_that_of_an_attention(text: str) -> None:
    _assert_fused(text, {"B": 3, "N": 5, "M": 7})


@pytest.mark.parametrize(
    ("old", "new"),
    [("axis = 1", "axis = 0"), ("y = MatMul(h, p)", "z = MatMul(h, p) s = ReduceSum(p) y = Mul(z, s)"),
     ("p = Softmax <axis = 1> (m)", "e = Exp(m) p = Softmax <axis = 1> (e)")],
)  # fmt: skip
def test_softmaxes_that_only_look_like_it_keep_their_results(old: str, new: str) -> None:
    model = parser.parse_model(HEADER + KEYS_BY_QUERIES.replace(old, new))
    fused, report = fuse_model(model)
    assert report.num_attentions == 0
    random = np.random.default_rng(12)
    feeds = {name: random.standard_normal((3, size, 5)).astype(np.float32) for name, size in zip("fqh", (4, 4, 6))}
    limits = tolerance("approximate", "float32")
    (wanted,) = _run(onnxruntime, model, feeds)
    np.testing.assert_allclose(_run(ort_core, fused, feeds)[0], wanted, limits.relative, limits.absolute)


def test_scores_that_a_matrix_mixes_between_heads_keep_their_softmax() -> None:
    model = parser.parse_model(HEADER + TALKING_HEADS)
    fused, report = fuse_model(model)
    assert report.num_attentions == 0
    random = np.random.default_rng(13)
    shapes = {"q": (3, 4, 5, 8), "k": (3, 4, 8, 5), "v": (3, 4, 5, 8), "mix": (4, 4)}
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    limits = tolerance("approximate", "float32")
    (wanted,) = _run(onnxruntime, model, feeds)
    for engine in (onnxruntime, ort_core):
        np.testing.assert_allclose(_run(engine, fused, feeds)[0], wanted, limits.relative, limits.absolute)


@pytest.mark.parametrize("text", [CHANNELS_FIRST, ONE_HEAD])
def test_values_in_front_of_turned_shares_are_those_of_an_attention(text: str) -> None:
    _assert_fused(text, {"B": 3, "N": 5})


@pytest.mark.parametrize("windows", ["W", "6"])
@pytest.mark.parametrize("bias", ["2,N,N", "N,N"])
def test_windows_beside_the_batch_are_joined_with_it(windows: str, bias: str) -> None:
    _assert_fused(WINDOWS.replace("W,", f"{windows},").replace("BIAS", bias), {"B": 3, "W": 6, "N": 5})


def test_a_bias_of_each_window_is_fused() -> None:
    _assert_fused(WINDOWS.replace("BIAS", "W,1,N,N"), {"B": 3, "W": 6, "N": 5})


@pytest.mark.parametrize("text", [ELLIPSES, BIASES_OF_IMAGES])
def test_ellipses_and_biases_of_images_are_parts_of_an_attention(text: str) -> None:
    _assert_fused(text, {"B": 3, "N": 5, "M": 7})


def test_einsums_with_keys_of_all_heads_are_products_of_matrices() -> None:
    model = parser.parse_model(HEADER + SHARED)
    fused, _ = fuse_model(model)
    assert "Einsum" not in {node.op_type for node in fused.graph.node}
    random = np.random.default_rng(2)
    feeds = {"q": random.standard_normal((3, 2, 5, 4)).astype(np.float32)}
    feeds |= {name: random.standard_normal((3, 5, 4)).astype(np.float32) for name in "kv"}
    limits = tolerance("approximate", "float32")
    (wanted,) = _run(onnxruntime, model, feeds)
    for engine in (onnxruntime, ort_core):
        np.testing.assert_allclose(_run(engine, fused, feeds)[0], wanted, limits.relative, limits.absolute)
