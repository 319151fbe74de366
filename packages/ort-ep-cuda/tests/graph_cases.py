"""Graphs of every family with their inputs; expected values come from the numpy kernels, and from numpy itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import pytest
from drawn_attentions import drawn_attentions

RANDOM = np.random.default_rng(7)


@dataclass(frozen=True)
class GraphCase:
    """A graph, its inputs, and how closely its results must agree; ``truth`` is numpy's own where it is given."""

    name: str
    body: str
    feeds: dict[str, np.ndarray]
    tolerance: str = "approximate"
    opset: int = 21
    truth: Callable[..., np.ndarray] | None = field(default=None, compare=False)


def _normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(dtype)


X = _normal(3, 4, 5)
IMAGE = _normal(2, 6, 7, 5)
INDICES = np.array([[0, -1], [3, 1]], np.int64)
ROWS = _normal(5, 200)

LOW_MASK = np.array([
    [-65504] * 4, [-np.inf] * 4, [-np.inf, -65504, -np.inf, -65504], [-65504, -62016, -61984, -65504],
    [0, -65504, -np.inf, 1], [-65504, -65472, -65504, 0], [-3000, -2998, -65504, -np.inf],
])  # fmt: skip
"""What models write for "not this key" in float16: its least number, minus infinity, and what lies near them."""


def _bytes(dtype: str, *shape: int) -> np.ndarray:
    return RANDOM.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, endpoint=True).astype(dtype)


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _case(name: str, body: str, tolerance: str = "approximate", opset: int = 21, truth=None, **feeds) -> GraphCase:
    return GraphCase(name, body, feeds, tolerance, opset, truth)


CASES = (
    _case("chain_of_elementwise", "g (float[N,4,5] x) => (float[N,4,5] y) { a = Mul(x, x) b = Sigmoid(a) c = Tanh(b) y = Add(c, x) }", x=X),
    _case("broadcast", "g (float[N,4,5] x, float[4,1] b) => (float[N,4,5] y) { y = Sub(x, b) }", "exact", x=X, b=_normal(4, 1), truth=lambda x, b: x - b),
    _case("where_and_compare", "g (float[N,4,5] x, float[5] b) => (float[N,4,5] y) { c = Greater(x, b) y = Where(c, x, b) }", "exact", x=X, b=_normal(5), truth=lambda x, b: np.maximum(x, b)),
    _case("cast_to_integers", "g (float[N,4,5] x) => (int64[N,4,5] y) { a = Mul(x, x) y = Cast<to = 7>(a) }", "exact", x=X * 4),
    _case("half", "g (float16[N,4,5] x) => (float16[N,4,5] y) { a = Mul(x, x) y = Add(a, x) }", x=X.astype("f2")),
    _case("cast_through_half", "g (float[N,4,5] x) => (float[N,4,5] y) { h = Cast<to = 10>(x) y = Cast<to = 1>(h) }", "exact", x=X, truth=lambda x: x.astype("f2").astype("f4")),
    _case("integers", "g (int32[6] x, int32[6] z) => (int32[6] y) { a = Mul(x, z) y = Sub(a, x) }", "exact", x=np.arange(6, dtype="i4") * 10**9, z=np.arange(6, dtype="i4")),
    _case("softmax", "g (float[N,200] x) => (float[N,200] y) { y = Softmax(x) }", x=ROWS, truth=_softmax),
    _case("softmax_along_the_first_axis", "g (float[40,64] x) => (float[40,64] y) { y = Softmax<axis = 0>(x) }", x=_normal(40, 64), truth=lambda x: _softmax(x.T).T),
    _case("log_softmax", "g (float[3,4,5] x) => (float[3,4,5] y) { y = LogSoftmax<axis = 1>(x) }", x=X),
    *(
        _case(f"{op}_{axes}", f"g (float[3,4,5] x) => (float[a,b,c] y) <int64[{len(axes)}] ax = {{{', '.join(map(str, axes))}}}> {{ y = {op}(x, ax) }}", x=np.abs(X) + 0.1)
        for op, axes in (("ReduceSum", (0, 2)), ("ReduceMean", (1,)), ("ReduceMax", (0,)), ("ReduceMin", (2,)), ("ReduceProd", (2,)), ("ReduceL1", (1, 2)), ("ReduceL2", (2,)), ("ReduceSumSquare", (0, 1, 2)), ("ReduceLogSum", (2,)), ("ReduceLogSumExp", (1,)))
    ),
    _case("reduce_integers", "g (int32[3,4] x) => (int32[c] y) <int64[1] ax = {0}> { y = ReduceMax<keepdims = 0>(x, ax) }", "exact", x=np.arange(12, dtype="i4").reshape(3, 4) - 6),
    *(
        _case(f"limits_of_{op}", f"g (int32[3,300] x) => (int32[3] y) <int64[1] ax = {{1}}> {{ y = {op}<keepdims = 0>(x, ax) }}", "exact", x=np.repeat(np.array([[2**30], [-(2**30)], [3]], "i4"), 300, 1), truth=lambda x, exact=exact: np.array(exact, "i4"))
        for op, exact in (("ReduceSum", (2**31 - 1, -(2**31), 900)), ("ReduceL1", (2**31 - 1, 2**31 - 1, 900)), ("ReduceSumSquare", (2**31 - 1, 2**31 - 1, 2700)))
    ),
    _case("normalization_with_statistics", "g (float[3,40] x, float[40] s, float[40] b) => (float[3,40] y, float[3,1] m, float[3,1] d) { y, m, d = LayerNormalization(x, s, b) }", x=_normal(3, 40), s=_normal(40), b=_normal(40)),
    _case("half_sum_accumulates_in_float32", "g (float16[2,3000] x) => (float16[2,1] y) <int64[1] ax = {1}> { y = ReduceSum(x, ax) }", x=np.ones((2, 3000), "f2"), truth=lambda x: np.full((2, 1), 3000, "f2")),
    _case("layer_norm", "g (float[N,200] x, float[200] s, float[200] b) => (float[N,200] y) { y = LayerNormalization(x, s, b) }", x=ROWS, s=_normal(200), b=_normal(200)),
    _case("rms_norm", "g (float[N,200] x, float[200] s) => (float[N,200] y) { y = RMSNormalization(x, s) }", opset=23, x=ROWS, s=_normal(200)),
    _case("instance_norm", "g (float[2,6,7,5] x, float[6] s, float[6] b) => (float[2,6,7,5] y) { y = InstanceNormalization(x, s, b) }", x=IMAGE, s=_normal(6), b=_normal(6)),
    _case("group_norm", "g (float[2,6,7,5] x, float[6] s, float[6] b) => (float[2,6,7,5] y) { y = GroupNormalization<num_groups = 3>(x, s, b) }", x=IMAGE, s=_normal(6), b=_normal(6)),
    _case("batch_norm", "g (float[2,6,7,5] x, float[6] s, float[6] b, float[6] m, float[6] v) => (float[2,6,7,5] y) { y = BatchNormalization(x, s, b, m, v) }", x=IMAGE, s=_normal(6), b=_normal(6), m=_normal(6), v=np.abs(_normal(6)) + 1),
    _case("global_mean", "g (float[2,6,7,5] x) => (float[2,6,1,1] y) { y = GlobalAveragePool(x) }", x=IMAGE, truth=lambda x: x.mean((2, 3), keepdims=True)),
    _case("transpose_and_reshape", "g (float[3,4,5] x) => (float[5,12] y) <int64[2] s = {5, -1}> { t = Transpose<perm = [2, 0, 1]>(x) y = Reshape(t, s) }", "exact", x=X, truth=lambda x: x.transpose(2, 0, 1).reshape(5, 12)),
    _case("transpose_read_by_elementwise", "g (float[3,4,5] x, float[5,4,3] z) => (float[5,4,3] y) { t = Transpose(x) y = Mul(t, z) }", "exact", x=X, z=_normal(5, 4, 3), truth=lambda x, z: x.T * z),
    _case("slice_backwards", "g (float[3,4,5] x) => (float[a,b,c] y) <int64[2] f = {-1, 1}, int64[2] l = {-100, 5}, int64[2] ax = {1, 2}, int64[2] st = {-2, 3}> { y = Slice(x, f, l, ax, st) }", "exact", x=X, truth=lambda x: x[:, ::-2, 1:5:3]),
    _case("slice_backwards_from_before_the_first", "g (float[3,4,5] x) => (float[a,b,c] y) <int64[2] f = {-7, 2}, int64[2] l = {-9, -9223372036854775807}, int64[2] ax = {0, 1}, int64[2] st = {-2, -1}> { y = Slice(x, f, l, ax, st) }", "exact", x=X, truth=lambda x: x[:1, 2::-1]),
    _case("slice_backwards_to_the_end", "g (float[3,4,5] x) => (float[a,b,c] y) <int64[1] f = {1}, int64[1] l = {9223372036854775807}, int64[1] ax = {0}, int64[1] st = {-1}> { y = Slice(x, f, l, ax, st) }", "exact", x=X, truth=lambda x: x[:0]),
    _case("split", "g (float[3,4,5] x) => (float[3,1,5] y, float[3,3,5] z) <int64[2] s = {1, 3}> { y, z = Split<axis = 1>(x, s) }", "exact", x=X),
    _case("concat", "g (float[3,4,5] x, float[3,2,5] z) => (float[3,6,5] y) { n = Neg(x) y = Concat<axis = 1>(n, z) }", "exact", x=X, z=_normal(3, 2, 5), truth=lambda x, z: np.concatenate([-x, z], 1)),
    _case("expand_and_tile", "g (float[4,1] x) => (float[a,b,c] y) <int64[3] s = {2, 4, 3}, int64[3] r = {1, 2, 3}> { e = Expand(x, s) y = Tile(e, r) }", "exact", x=_normal(4, 1)),
    _case("pad", "g (float[3,4,5] x) => (float[a,b,c] y) <int64[6] p = {0, 1, -1, 2, 0, 3}, float v = {7.0}> { y = Pad(x, p, v) }", "exact", x=X),
    _case("gather", "g (float[3,4,5] x, int64[2,2] i) => (float[3,2,2,5] y) { y = Gather<axis = 1>(x, i) }", "exact", x=X, i=INDICES, truth=lambda x, i: np.take(x, i % 4, 1)),
    _case("gather_elements", "g (float[4,2] x, int64[2,2] i) => (float[2,2] y) { y = GatherElements<axis = 0>(x, i) }", "exact", x=_normal(4, 2), i=INDICES),
    _case("gather_nd", "g (float[3,4,5] x, int64[2,2] i) => (float[2,5] y) { y = GatherND(x, i) }", "exact", x=X, i=np.array([[0, -1], [2, 1]])),
    _case("gather_nd_in_batches", "g (float[3,4,5] x, int64[3,1] i) => (float[3,5] y) { y = GatherND<batch_dims = 1>(x, i) }", "exact", x=X, i=np.array([[0], [3], [1]])),
    _case("scatter_elements", "g (float[4,2] x, int64[2,2] i, float[2,2] u) => (float[4,2] y) { y = ScatterElements<axis = 0>(x, i, u) }", "exact", x=_normal(4, 2), i=INDICES, u=_normal(2, 2)),
    _case("scatter_nd", "g (float[3,4,5] x, int64[2,2] i, float[2,5] u) => (float[3,4,5] y) { y = ScatterND(x, i, u) }", "exact", x=X, i=np.array([[0, 3], [2, 1]]), u=_normal(2, 5)),
    _case("one_hot", "g (int64[2,2] i, float[2] v) => (float[2,2,5] y) <int64 d = {5}> { y = OneHot(i, d, v) }", "exact", i=INDICES, v=np.array([2, 3], "f4")),
    _case("top_k", "g (float[N,200] x) => (float[N,7] v, int64[N,7] p) <int64[1] k = {7}> { v, p = TopK(x, k) }", "exact", x=np.round(ROWS, 1)),
    _case("smallest_along_the_first_axis", "g (float[40,6] x) => (float[5,6] v, int64[5,6] p) <int64[1] k = {5}> { v, p = TopK<axis = 0, largest = 0>(x, k) }", "exact", x=np.round(_normal(40, 6), 1)),
    _case("arg_max", "g (float[N,200] x) => (int64[N] p) { p = ArgMax<axis = 1, keepdims = 0>(x) }", "exact", x=ROWS, truth=lambda x: x.argmax(1)),
    _case("arg_min_of_the_last_equal", "g (float[4,5] x) => (int64[4,1] p) { p = ArgMin<axis = 1, select_last_index = 1>(x) }", "exact", x=np.array([[1, 0, 2, 0, 1]] * 4, "f4")),
    _case("cumulative_sum", "g (float[3,4,5] x) => (float[3,4,5] y) <int64 a = {1}> { y = CumSum<exclusive = 1, reverse = 1>(x, a) }", x=X),
    _case("triangle", "g (float[3,4,5] x) => (float[3,4,5] y) <int64 k = {1}> { y = Trilu<upper = 0>(x, k) }", "exact", x=X, truth=lambda x: np.tril(x, 1)),
    _case("max_pool", "g (float[2,6,7,5] x) => (float[2,6,a,b] y) { y = MaxPool<kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1], dilations = [1, 2], ceil_mode = 1>(x) }", "exact", x=IMAGE),
    _case("mean_pool", "g (float[2,6,7,5] x) => (float[2,6,a,b] y) { y = AveragePool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(x) }", x=IMAGE),
    _case("mean_of_windows_that_do_not_fit", "g (float[n,6,2,5] x) => (float[a,6,b,c] y) { y = AveragePool<kernel_shape = [3, 2], strides = [2, 2], dilations = [2, 1]>(x) }", x=IMAGE[:, :, :2], truth=lambda x: np.zeros((2, 6, 0, 2), np.float32)),
    _case("mean_pool_with_its_padding", "g (float[2,6,7,5] x) => (float[2,6,a,b] y) { y = AveragePool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], count_include_pad = 1>(x) }", x=IMAGE),
    _case("resize_nearest", "g (float[2,6,7,5] x) => (float[2,6,a,b] y) <float[4] s = {1.0, 1.0, 2.0, 0.6}> { y = Resize<mode = \"nearest\">(x, , s) }", "exact", x=IMAGE),
    _case("resize_linear", "g (float[2,6,7,5] x) => (float[2,6,9,11] y) <int64[4] s = {2, 6, 9, 11}> { y = Resize<mode = \"linear\", coordinate_transformation_mode = \"align_corners\">(x, , , s) }", x=IMAGE),
    _case("resize_cubic", "g (float[2,6,7,5] x) => (float[2,6,a,b] y) <float[4] s = {1.0, 1.0, 1.5, 2.0}> { y = Resize<mode = \"cubic\">(x, , s) }", x=IMAGE),
    _case("quantize", "g (float[3,4,5] x, float[4] s, uint8[4] z) => (uint8[3,4,5] y) { y = QuantizeLinear<axis = 1>(x, s, z) }", "exact", x=X * 3, s=np.array([0.1, 0.5, 0.02, 0.25], "f4"), z=np.array([0, 128, 3, 255], "u1")),
    _case("dequantize", "g (int8[3,4,5] x, float s, int8 z) => (float[3,4,5] y) { y = DequantizeLinear(x, s, z) }", "exact", x=RANDOM.integers(-128, 128, (3, 4, 5)).astype("i1"), s=np.float32(0.3), z=np.int8(-7)),
    _case("products_in_batches", "g (float[3,4,5] x, float[3,5,6] z) => (float[3,4,6] y) { y = MatMul(x, z) }", x=X, z=_normal(3, 5, 6), truth=np.matmul),
    _case("product_with_a_transpose", "g (float[3,4,5] x, float[6,5] z) => (float[3,4,6] y) { t = Transpose(z) y = MatMul(x, t) }", x=X, z=_normal(6, 5), truth=lambda x, z: x @ z.T),
    _case("product_of_vectors", "g (float[5] x, float[5] z) => (float y) { y = MatMul(x, z) }", x=_normal(5), z=_normal(5), truth=np.matmul),
    _case("attention_as_products", "g (float[2,3,4,8] q, float[2,3,6,8] k, float[2,3,6,8] v) => (float[2,3,4,8] y) <float s = {0.35}> { t = Transpose<perm = [0, 1, 3, 2]>(k) a = MatMul(q, t) b = Mul(a, s) p = Softmax(b) y = MatMul(p, v) }", q=_normal(2, 3, 4, 8), k=_normal(2, 3, 6, 8), v=_normal(2, 3, 6, 8)),
    _case("causal_attention", "g (float[2,4,5,8] q, float[2,4,6,8] k, float[2,4,6,8] v) => (float[2,4,5,8] y) { y = Attention<is_causal = 1, softcap = 2.0>(q, k, v) }", opset=23, q=_normal(2, 4, 5, 8), k=_normal(2, 4, 6, 8), v=_normal(2, 4, 6, 8)),
    _case("grouped_attention_with_a_mask", "g (float[2,5,32] q, float[2,6,16] k, float[2,6,16] v, bool[5,6] m) => (float[2,5,32] y) { y = Attention<q_num_heads = 4, kv_num_heads = 2>(q, k, v, m) }", opset=23, q=_normal(2, 5, 32), k=_normal(2, 6, 16), v=_normal(2, 6, 16), m=np.tril(np.ones((5, 6), bool), 1)),
    _case("grouped_attention_in_half", "g (float16[2,4,5,8] q, float16[2,2,6,8] k, float16[2,2,6,8] v, float16[1,1,5,6] m) => (float16[2,4,5,8] y) { y = Attention<scale = 0.5>(q, k, v, m) }", opset=23, q=_normal(2, 4, 5, 8).astype("f2"), k=_normal(2, 2, 6, 8).astype("f2"), v=_normal(2, 2, 6, 8).astype("f2"), m=_normal(1, 1, 5, 6).astype("f2")),
    _case("gemm_with_relu", "g (float[4,5] x, float[6,5] w, float[6] b) => (float[4,6] y) { a = Gemm<transB = 1, alpha = 0.5, beta = 2.0>(x, w, b) y = Relu(a) }", x=_normal(4, 5), w=_normal(6, 5), b=_normal(6), truth=lambda x, w, b: np.maximum(0.5 * x @ w.T + 2 * b, 0)),
    _case("convolution_with_bias_and_relu", "g (float[2,6,7,5] x, float[4,3,3,3] w, float[4] b) => (float[2,4,a,c] y) { k = Conv<group = 2, pads = [1, 1, 1, 1], strides = [2, 1]>(x, w, b) y = Relu(k) }", x=IMAGE, w=_normal(4, 3, 3, 3), b=_normal(4)),
    _case("double_functions", "g (double[3,4,5] x) => (double[3,4,5] y) { a = Exp(x) b = Log(a) c = Erf(b) d = Tanh(c) e = Sigmoid(d) f = Gelu(e) y = Pow(f, f) }", x=np.abs(X).astype("f8")),
    _case("double_circular_functions", "g (double[3,4,5] x) => (double[3,4,5] y) { a = Sin(x) b = Cos(a) c = Tan(b) d = Atan(c) e = Sinh(d) y = Asinh(e) }", x=X.astype("f8") * 100),
    _case("double_softmax", "g (double[N,200] x) => (double[N,200] y) { y = Softmax(x) }", x=ROWS.astype("f8"), truth=_softmax),
    _case("double_layer_norm", "g (double[N,200] x, double[200] s) => (double[N,200] y) { y = LayerNormalization(x, s) }", x=ROWS.astype("f8"), s=_normal(200, dtype="float64")),
    _case("bfloat16", "g (bfloat16[3,4,5] x) => (bfloat16[3,4,5] y) { a = Mul(x, x) b = Sigmoid(a) y = Add(b, x) }", x=X.astype(ml_dtypes.bfloat16)),
    _case("bfloat16_sum", "g (bfloat16[2,3000] x) => (bfloat16[2,1] y) <int64[1] ax = {1}> { y = ReduceSum(x, ax) }", x=np.ones((2, 3000), ml_dtypes.bfloat16)),
    _case("bytes_wrap_around", "g (uint8[6] x, int8[6] z) => (uint8[6] y, int8[6] w) { y = Add(x, x) w = Mul(z, z) }", "exact", x=np.arange(6, dtype="u1") * 50, z=np.arange(6, dtype="i1") * 20),
    _case("clip_of_bytes", "g (int8[3,4,5] x, int8 h) => (int8[3,4,5] y) { y = Clip(x, , h) }", "exact", x=(X * 40).astype("i1"), h=np.int8(9)),
    _case("layer_norm_with_its_statistics", "g (float[3,4,5] x, float[4,5] s) => (float[3,4,5] y, float[3,1,1] m, float[3,1,1] d) { y, m, d = LayerNormalization<axis = 1>(x, s) }", x=X, s=_normal(4, 5)),
    _case("lp_normalization", "g (float[3,4,5] x) => (float[3,4,5] y, float[3,4,5] z) { y = LpNormalization<axis = 1, p = 1>(x) z = LpNormalization(x) }", opset=22, x=X),
    _case("dynamic_quantization", "g (float[3,4,5] x) => (uint8[3,4,5] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }", "exact", x=X),
    _case("hardmax", "g (float[3,4,5] x) => (float[3,4,5] y) { y = Hardmax<axis = 1>(x) }", "exact", x=np.round(X)),
    _case("cumulative_product", "g (float[3,4,5] x) => (float[3,4,5] y) <int64 a = {-1}> { y = CumProd<reverse = 1>(x, a) }", opset=26, x=X),
    _case("scatter_elements_that_meet", "g (float[4,2] x, int64[3,2] i, float[3,2] u) => (float[4,2] y, float[4,2] z) { y = ScatterElements<reduction = \"add\">(x, i, u) z = ScatterElements<reduction = \"max\">(x, i, u) }", x=_normal(4, 2), i=np.array([[0, 1], [0, -1], [0, 1]]), u=_normal(3, 2)),
    _case("scatter_nd_that_meets", "g (float[3,4,5] x, int64[3,2] i, float[3,5] u) => (float[3,4,5] y) { y = ScatterND<reduction = \"mul\">(x, i, u) }", x=X, i=np.array([[0, 3], [2, 1], [0, 3]]), u=_normal(3, 5)),
    _case("gather_elements_of_fewer_rows", "g (float[3,4,5] x, int64[2,2,3] i) => (float[2,2,3] y) { y = GatherElements<axis = 1>(x, i) }", "exact", x=X, i=RANDOM.integers(-4, 4, (2, 2, 3))),
    *(
        _case(f"pad_by_{mode}", f"g (float[3,4,5] x) => (float[a,b,c] y) <int64[6] p = {{1, 2, -1, 2, 0, 3}}> {{ y = Pad<mode = \"{mode}\">(x, p) }}", "exact", x=X)
        for mode in ("reflect", "edge", "wrap")
    ),
    _case("resize_to_whole_products", "g (float[1,2,10,20] x) => (float[1,2,a,b] y) <float[4] s = {1.0, 1.0, 0.7, 0.35}> { y = Resize<mode = \"nearest\">(x, , s) }", "exact", x=np.arange(400, dtype="f4").reshape(1, 2, 10, 20)),
    _case("resize_at_ties", "g (float[1,2,20,9] x) => (float[1,2,a,b] y) <float[4] s = {1.0, 1.0, 0.3, 0.4}> { y = Resize<mode = \"nearest\", nearest_mode = \"round_prefer_ceil\">(x, , s) }", "exact", x=np.arange(360, dtype="f4").reshape(1, 2, 20, 9)),
    _case("resize_by_tensorflow", "g (float[2,6,7,5] x) => (float[2,6,a,b] y) <float[4] s = {1.0, 1.0, 0.6, 1.6}> { y = Resize<mode = \"nearest\", coordinate_transformation_mode = \"tf_half_pixel_for_nn\", nearest_mode = \"floor\">(x, , s) }", "exact", x=IMAGE),
    _case("resize_to_corners_by_scale", "g (float[2,6,7,5] x) => (float[2,6,a,b] y) <float[4] s = {1.0, 1.0, 1.7, 0.7}> { y = Resize<mode = \"nearest\", coordinate_transformation_mode = \"align_corners\">(x, , s) }", "exact", x=IMAGE),
    _case("resize_antialiased", "g (float[2,6,7,5] x) => (float[2,6,a,b] y) <float[2] s = {0.6, 0.4}> { y = Resize<mode = \"cubic\", antialias = 1, axes = [2, 3], exclude_outside = 1>(x, , s) }", x=IMAGE),
    _case("resize_within_an_area", "g (float[2,6,7,5] x) => (float[2,6,a,b] y) <int64[2] s = {9, 12}> { y = Resize<mode = \"linear\", axes = [2, 3], keep_aspect_ratio_policy = \"not_larger\">(x, , , s) }", x=IMAGE),
    _case("max_pool_with_places", "g (float[2,6,7,5] x) => (float[2,6,a,b] y, int64[2,6,a,b] p) { y, p = MaxPool<kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1]>(x) }", "exact", x=IMAGE),
    _case("max_pool_of_bytes", "g (uint8[2,6,7,5] x) => (uint8[2,6,a,b] y) { y = MaxPool<kernel_shape = [3, 2]>(x) }", "exact", x=RANDOM.integers(0, 256, (2, 6, 7, 5)).astype("u1")),
    _case("norm_pool", "g (float[2,6,7,5] x) => (float[2,6,a,b] y, float[2,6,a,b] z) { y = LpPool<kernel_shape = [3, 2]>(x) z = LpPool<kernel_shape = [3, 2], p = 3>(x) }", x=IMAGE),
    _case("depth_and_space", "g (float[2,8,4,6] x) => (float[2,2,8,12] y, float[2,2,8,12] z, float[2,32,2,3] w) { y = DepthToSpace<blocksize = 2>(x) z = DepthToSpace<blocksize = 2, mode = \"CRD\">(x) w = SpaceToDepth<blocksize = 2>(x) }", "exact", x=_normal(2, 8, 4, 6)),
    _case("unit_matrix", "g (float[4,6] x) => (float[4,6] y) { y = EyeLike<k = 1>(x) }", "exact", x=_normal(4, 6), truth=lambda x: np.eye(4, 6, 1)),
    _case("reversed_sequences", "g (float[4,3,5] x, int64[3] n) => (float[4,3,5] y) { y = ReverseSequence(x, n) }", "exact", x=_normal(4, 3, 5), n=np.array([4, 1, 2])),
    _case("einsum_as_product", "g (float[2,3,4,8] q, float[2,6,3,8] k) => (float[2,3,4,6] y) { y = Einsum<equation = \"bhid,bjhd->bhij\">(q, k) }", q=_normal(2, 3, 4, 8), k=_normal(2, 6, 3, 8), truth=lambda q, k: np.einsum("bhid,bjhd->bhij", q, k)),
    _case("einsum_of_a_diagonal", "g (float[3,3,4] x, float[4] z) => (float[3] y) { y = Einsum<equation = \"iij,j->i\">(x, z) }", x=_normal(3, 3, 4), z=_normal(4), truth=lambda x, z: np.einsum("iij,j->i", x, z)),
    _case("einsum_with_an_ellipsis", "g (float[2,3,4] x, float[2,4,5] z) => (float[2,3,5] y) { y = Einsum<equation = \"...ij,...jk->...ik\">(x, z) }", x=_normal(2, 3, 4), z=_normal(2, 4, 5), truth=np.matmul),
    _case("integer_product", "g (uint8[3,20,33] x, int8[33,18] w, uint8 a, int8[18] b) => (int32[3,20,18] y) { y = MatMulInteger(x, w, a, b) }", "exact", x=_bytes("u1", 3, 20, 33), w=_bytes("i1", 33, 18), a=np.uint8(3), b=_bytes("i1", 18)),
    _case("integer_product_of_tiles", "g (int8[2,70,96] x, int8[2,96,80] w) => (int32[2,70,80] y) { y = MatMulInteger(x, w) }", "exact", x=_bytes("i1", 2, 70, 96), w=_bytes("i1", 2, 96, 80)),
    _case("integer_product_of_columns", "g (uint8[65,160] x, uint8[66,160] w, uint8[65] a, uint8[66] b) => (int32[65,66] y) { t = Transpose(w) y = MatMulInteger(x, t, a, b) }", "exact", x=_bytes("u1", 65, 160), w=_bytes("u1", 66, 160), a=_bytes("u1", 65), b=_bytes("u1", 66)),
    _case("integer_product_of_signed_rows", "g (int8[1,7,130] x, uint8[130,3] w, int8 a) => (int32[1,7,3] y) { y = MatMulInteger(x, w, a) }", "exact", x=_bytes("i1", 1, 7, 130), w=_bytes("u1", 130, 3), a=np.int8(-128)),
    _case("integer_product_of_nothing", "g (uint8[3,0] x, uint8[0,4] w, uint8 a) => (int32[3,4] y) { y = MatMulInteger(x, w, a) }", "exact", x=np.zeros((3, 0), "u1"), w=np.zeros((0, 4), "u1"), a=np.uint8(3)),
    _case("quantized_product", "g (uint8[20,33] x, float sx, uint8 zx, int8[33,18] w, float[18] sw, int8[18] zw, float sy, uint8 zy) => (uint8[20,18] y) { y = QLinearMatMul(x, sx, zx, w, sw, zw, sy, zy) }", "exact", x=_bytes("u1", 20, 33), sx=np.float32(0.02), zx=np.uint8(120), w=_bytes("i1", 33, 18), sw=np.full(18, 0.01, "f4"), zw=np.zeros(18, "i1"), sy=np.float32(0.9), zy=np.uint8(128)),
    *(
        _case(f"not_a_number_in_{name}", f"g (float[4,4] x) => ({outputs}) {{ {node} }}", "exact", x=np.array([[1, np.nan, 3, 2], [np.nan] * 4, [np.nan, -np.inf, np.nan, 5], [-np.inf, -np.inf, np.nan, -np.inf]], "f4"))
        for name, outputs, node in (
            ("the_largest", "float[4,3] y, int64[4,3] i", "k = Constant<value_ints = [3]>() y, i = TopK(x, k)"),
            ("the_least", "float[4,3] y, int64[4,3] i", "k = Constant<value_ints = [3]>() y, i = TopK<largest = 0>(x, k)"),
            ("the_place_of_the_largest", "int64[4,1] y", "y = ArgMax<axis = 1>(x)"),
            ("the_place_of_the_least", "int64[4,1] y", "y = ArgMin<axis = 1>(x)"),
        )
    ),
    _case("integer_convolution", "g (uint8[2,4,7,5] x, int8[6,2,3,3] w, uint8 a) => (int32[2,6,a,c] y) { y = ConvInteger<group = 2, pads = [1, 1, 1, 1], strides = [2, 1]>(x, w, a) }", "exact", x=_bytes("u1", 2, 4, 7, 5), w=_bytes("i1", 6, 2, 3, 3), a=np.uint8(7)),
    _case("integer_convolution_in_tiles", "g (uint8[2,8,9,7] x, int8[20,4,3,3] w, uint8 a, int8[20] b) => (int32[2,20,c,d] y) { y = ConvInteger<group = 2, pads = [1, 2, 1, 0], strides = [2, 1], dilations = [1, 2]>(x, w, a, b) }", "exact", x=_bytes("u1", 2, 8, 9, 7), w=_bytes("i1", 20, 4, 3, 3), a=np.uint8(7), b=_bytes("i1", 20)),
    _case("integer_convolution_in_tiles_without_points", "g (int8[2,16,130] x, int8[9,16,3] w) => (int32[2,9,c] y) { y = ConvInteger<pads = [1, 1]>(x, w) }", "exact", x=_bytes("i1", 2, 16, 130), w=_bytes("i1", 9, 16, 3)),
    _case("integer_convolution_of_volumes_in_tiles", "g (uint8[1,2,5,6,7] x, uint8[8,2,3,2,3] w, uint8 a) => (int32[1,8,c,d,e] y) { y = ConvInteger<pads = [1, 0, 1, 0, 1, 2]>(x, w, a) }", "exact", x=_bytes("u1", 1, 2, 5, 6, 7), w=_bytes("u1", 8, 2, 3, 2, 3), a=np.uint8(250)),
    _case("quantized_convolution_in_tiles", "g (uint8[1,32,9,9] x, float sx, uint8 zx, int8[70,32,1,1] w, float[70] sw, int8[70] zw, float sy, uint8 zy, int32[70] b) => (uint8[1,70,9,9] y) { y = QLinearConv(x, sx, zx, w, sw, zw, sy, zy, b) }", "exact", x=_bytes("u1", 1, 32, 9, 9), sx=np.float32(0.02), zx=np.uint8(120), w=_bytes("i1", 70, 32, 1, 1), sw=np.linspace(0.01, 0.02, 70, dtype="f4"), zw=np.zeros(70, "i1"), sy=np.float32(0.9), zy=np.uint8(128), b=np.arange(70, dtype="i4") * 100),
    _case("quantized_convolution_of_many_channels_in_tiles", "g (uint8[1,64,5,6] x, float sx, uint8 zx, int8[16,64,1,1] w, float sw, int8 zw, float sy, uint8 zy) => (uint8[1,16,5,6] y) { y = QLinearConv(x, sx, zx, w, sw, zw, sy, zy) }", "exact", x=_bytes("u1", 1, 64, 5, 6), sx=np.float32(0.02), zx=np.uint8(120), w=_bytes("i1", 16, 64, 1, 1), sw=np.float32(0.02), zw=np.int8(-3), sy=np.float32(1.9), zy=np.uint8(128)),
    _case("quantized_convolution", "g (uint8[2,4,7,5] x, float sx, uint8 zx, int8[6,4,3,3] w, float[6] sw, int8[6] zw, float sy, uint8 zy, int32[6] b) => (uint8[2,6,5,3] y) { y = QLinearConv(x, sx, zx, w, sw, zw, sy, zy, b) }", "exact", x=_bytes("u1", 2, 4, 7, 5), sx=np.float32(0.02), zx=np.uint8(120), w=_bytes("i1", 6, 4, 3, 3), sw=np.linspace(0.01, 0.02, 6, dtype="f4"), zw=np.zeros(6, "i1"), sy=np.float32(0.9), zy=np.uint8(128), b=np.arange(6, dtype="i4") * 100),
    _case("transposed_convolution", "g (float[2,6,5,4] x, float[6,2,3,3] w, float[4] b) => (float[2,4,a,c] y) { y = ConvTranspose<group = 2, pads = [1, 0, 1, 1], strides = [2, 1], output_padding = [1, 0]>(x, w, b) }", x=_normal(2, 6, 5, 4), w=_normal(6, 2, 3, 3), b=_normal(4)),
    _case("no_elements_to_reduce", "g (float[2,0] x, bool[2,0] z) => (float[2] y, bool[2] w) <int64[1] ax = {1}> { y = ReduceMax<keepdims = 0>(x, ax) w = ReduceMax<keepdims = 0>(z, ax) }", "exact", x=np.zeros((2, 0), "f4"), z=np.zeros((2, 0), bool)),
    _case("empty", "g (float[N,5] x) => (float[N,5] y, float[N] z) <int64[1] ax = {1}> { y = Relu(x) z = ReduceSum<keepdims = 0>(x, ax) }", "exact", x=np.zeros((0, 5), "f4")),
    _case("product_with_bias_and_relu", "g (float[B,3,4] x, float[4,6] w, float[6] b) => (float[B,3,6] y) { p = MatMul(x, w) s = Add(b, p) y = Relu(s) }", x=_normal(2, 3, 4), w=_normal(4, 6), b=_normal(6), truth=lambda x, w, b: np.maximum(x @ w + b, 0)),
    _case("product_with_bias_and_residual", "g (float[B,3,4] x, float[4,6] w, float[6] b, float[B,3,6] r) => (float[B,3,6] y, float[B,3,6] z) { p = MatMul(x, w) s = Add(p, b) z = Add(r, s) y = Softmax(z) }", x=_normal(2, 3, 4), w=_normal(4, 6), b=_normal(6), r=_normal(2, 3, 6)),
    _case("batched_product_with_bias", "g (float[2,3,4] x, float[2,4,6] w, float[6] b) => (float[2,3,6] y) { p = MatMul(x, w) s = Add(p, b) y = com.microsoft.FastGelu(s) }", x=_normal(2, 3, 4), w=_normal(2, 4, 6), b=_normal(6)),
    _case("gemm_with_a_bias_and_clip", "g (float[4,3] x, float[6,4] w, float[6] b, float l) => (float[3,6] y) <float h = {1.0}> { p = Gemm<transA = 1, transB = 1, alpha = 0.5>(x, w, b) y = Clip(p, , h) }", x=_normal(4, 3), w=_normal(6, 4), b=_normal(6), l=np.float32(0)),
    _case("gemm_with_a_scaled_addend", "g (float[3,4] x, float[4,6] w, float[3,6] c) => (float[3,6] y) { y = Gemm<beta = 0.25>(x, w, c) }", x=_normal(3, 4), w=_normal(4, 6), c=_normal(3, 6), truth=lambda x, w, c: x @ w + 0.25 * c),
    _case("sum_of_two_products", "g (float16[3,4] x, float16[4,6] w, float16[4,6] v) => (float16[3,6] y) { p = MatMul(x, w) q = MatMul(x, v) s = Add(p, q) y = Tanh(s) }", x=_normal(3, 4, dtype="f2"), w=_normal(4, 6, dtype="f2"), v=_normal(4, 6, dtype="f2")),
    _case("sums_that_no_epilogue_holds", "g (float[3,4] x, float[4,6] w, float[2,3,6] r, float[3,1] c, float[1] d) => (float[2,3,6] y, float[3,6] z, float[3,6] u) { p = MatMul(x, w) y = Add(p, r) q = MatMul(x, w) z = Add(q, c) t = MatMul(x, w) u = Add(t, d) }", x=_normal(3, 4), w=_normal(4, 6), r=_normal(2, 3, 6), c=_normal(3, 1), d=_normal(1)),
    _case("attention_of_16_bits", "g (float16[2,4,5,8] q, float16[2,2,7,8] k, float16[2,2,7,8] v) => (float16[2,4,5,8] y) { y = Attention<is_causal = 1, scale = 0.5>(q, k, v) }", "approximate", 23, q=_normal(2, 4, 5, 8, dtype="f2"), k=_normal(2, 2, 7, 8, dtype="f2"), v=_normal(2, 2, 7, 8, dtype="f2")),
    _case("attention_with_mask", "g (float16[2,4,5,8] q, float16[2,4,7,8] k, float16[2,4,7,8] v, float16[5,7] m) => (float16[2,4,5,8] y) { y = Attention(q, k, v, m) }", "approximate", 23, q=_normal(2, 4, 5, 8, dtype="f2"), k=_normal(2, 4, 7, 8, dtype="f2"), v=_normal(2, 4, 7, 8, dtype="f2"), m=_normal(5, 7, dtype="f2")),
    _case("multi_head_attention", "g (float16[2,5,32] q, float16[2,7,32] k, float16[2,7,32] v, float16[2,1,5,7] a) => (float16[2,5,32] y) { y = com.microsoft.MultiHeadAttention<num_heads = 4>(q, k, v, , , a) }", q=_normal(2, 5, 32, dtype="f2"), k=_normal(2, 7, 32, dtype="f2"), v=_normal(2, 7, 32, dtype="f2"), a=_normal(2, 1, 5, 7, dtype="f2")),
    _case("multi_head_attention_behind_a_cache", "g (float[2,1,32] q, float[2,1,32] k, float[2,1,32] v, float[2,4,6,8] pk, float[2,4,6,8] pv) => (float[2,1,32] y, float[2,4,7,8] nk, float[2,4,7,8] nv) { y, nk, nv = com.microsoft.MultiHeadAttention<num_heads = 4, scale = 0.25>(q, k, v, , , , pk, pv) }", q=_normal(2, 1, 32), k=_normal(2, 1, 32), v=_normal(2, 1, 32), pk=_normal(2, 4, 6, 8), pv=_normal(2, 4, 6, 8)),
    _case("sizes_that_are_computed", "g (float[B,S,4] x) => (float[S,a] y, int64[2] n, float[B,S,4] z) <int64[1] i = {1}, int64[1] m = {-1}, int64 zero = {0}, int64 one = {1}, int64 two = {2}> { s = Shape(x) d = Gather(s, i) t = Concat<axis = 0>(d, m) y = Reshape(x, t) e = Mul(d, d) n = Concat<axis = 0>(d, e) l = Gather(s, one) r = Range(zero, l, one) f = Cast<to = 1>(r) u = Unsqueeze(f, m) z = Add(x, u) }", x=_normal(2, 3, 4)),
    _case("residual_block", "g (float[2,4,6,5] x, float[8,4,3,3] w, float[8] b, float[4,8,1,1] v, float[4] c) => (float[2,4,6,5] y) { p = Conv<pads = [1, 1, 1, 1]>(x, w, b) q = Relu(p) r = Conv(q, v, c) s = Add(r, x) y = Relu(s) }", x=_normal(2, 4, 6, 5), w=_normal(8, 4, 3, 3), b=_normal(8), v=_normal(4, 8, 1, 1), c=_normal(4)),
    _case("convolution_between_other_operators", "g (float[2,4,6,5] x, float[8,4,3,3] w, float[8] b) => (float[2,8,2,1] y, float[2,8,1,1] z, float[2,8,4,3] u) { a = Mul(x, x) p = Conv(a, w, b) t = Sigmoid(p) u = Mul(p, t) y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(u) z = GlobalAveragePool(u) }", x=_normal(2, 4, 6, 5), w=_normal(8, 4, 3, 3), b=_normal(8)),
    _case("scalar", "g (float x) => (float y) { y = Sqrt(x) }", "rounding", x=np.float32(2).reshape(()), truth=np.sqrt),
    _case("input_that_is_an_output", "g (float[3] x) => (float[3] y, float[3] z) { y = Identity(x) z = Neg(y) }", "exact", x=_normal(3)),
)  # fmt: skip

RECURRENT = (
    _case("memory_layer", "g (float[5,3,4] x, float[2,24,4] w, float[2,24,6] r, float[2,48] b, int32[3] n, float[2,3,6] h, float[2,3,6] c, float[2,18] p) => (float[5,2,3,6] y, float[2,3,6] yh, float[2,3,6] yc) { y, yh, yc = LSTM<hidden_size = 6, direction = \"bidirectional\", clip = 1.5>(x, w, r, b, n, h, c, p) }", x=_normal(5, 3, 4), w=_normal(2, 24, 4), r=_normal(2, 24, 6), b=_normal(2, 48), n=np.array([5, 0, 3], "i4"), h=_normal(2, 3, 6), c=_normal(2, 3, 6), p=_normal(2, 18)),
    _case("memory_layer_batch_first_in_half", "g (float16[3,5,4] x, float16[1,24,4] w, float16[1,24,6] r) => (float16[3,5,1,6] y, float16[3,1,6] yh) { y, yh = LSTM<hidden_size = 6, layout = 1, input_forget = 1>(x, w, r) }", x=_normal(3, 5, 4, dtype="f2"), w=_normal(1, 24, 4, dtype="f2"), r=_normal(1, 24, 6, dtype="f2")),
    _case("gated_layer", "g (float[5,3,4] x, float[1,18,4] w, float[1,18,6] r, float[1,36] b) => (float[5,1,3,6] y, float[1,3,6] yh) { y, yh = GRU<hidden_size = 6, direction = \"reverse\">(x, w, r, b) }", x=_normal(5, 3, 4), w=_normal(1, 18, 4), r=_normal(1, 18, 6), b=_normal(1, 36)),
    _case("gated_layer_reset_last", "g (double[5,3,4] x, double[2,18,4] w, double[2,18,6] r, double[2,36] b, int32[3] n) => (double[5,2,3,6] y, double[2,3,6] yh) { y, yh = GRU<hidden_size = 6, direction = \"bidirectional\", linear_before_reset = 1, activations = [\"HardSigmoid\", \"Softsign\", \"Sigmoid\", \"Tanh\"], activation_alpha = [0.3], activation_beta = [0.4]>(x, w, r, b, n) }", x=_normal(5, 3, 4, dtype="f8"), w=_normal(2, 18, 4, dtype="f8"), r=_normal(2, 18, 6, dtype="f8"), b=_normal(2, 36, dtype="f8"), n=np.array([2, 5, 4], "i4")),
    _case("plain_layer_last_state_only", "g (float[5,3,4] x, float[1,6,4] w, float[1,6,6] r) => (float[1,3,6] yh) { y, yh = RNN<hidden_size = 6, activations = [\"LeakyRelu\"], activation_alpha = [0.2]>(x, w, r) }", x=_normal(5, 3, 4), w=_normal(1, 6, 4), r=_normal(1, 6, 6)),
    _case("gated_layer_of_many_units", "g (float[3,2,4] x, float[1,630,4] w, float[1,630,210] r, float[1,1260] b, int32[2] n) => (float[3,1,2,210] y, float[1,2,210] yh) { y, yh = GRU<hidden_size = 210>(x, w, r, b, n) }", x=_normal(3, 2, 4), w=_normal(1, 630, 4), r=_normal(1, 630, 210) / np.float32(14), b=_normal(1, 1260), n=np.array([2, 3], "i4")),
    _case("memory_layer_of_many_units", "g (float[3,2,4] x, float[1,744,4] w, float[1,744,186] r, float[1,2,186] h) => (float[3,1,2,186] y, float[1,2,186] yc) { y, yh, yc = LSTM<hidden_size = 186>(x, w, r, , , h) }", x=_normal(3, 2, 4), w=_normal(1, 744, 4), r=_normal(1, 744, 186) / np.float32(14), h=_normal(1, 2, 186)),
)  # fmt: skip

SAMPLED = (
    *(
        _case(f"sampled_{mode}_{padding}_{corners}", f"g (float[2,3,5,6] x, float[2,4,7,2] z) => (float[2,3,4,7] y) {{ y = GridSample<mode = \"{mode}\", padding_mode = \"{padding}\", align_corners = {corners}>(x, z) }}", opset=22, x=_normal(2, 3, 5, 6), z=_normal(2, 4, 7, 2))
        for mode in ("linear", "nearest", "cubic") for padding in ("zeros", "border", "reflection") for corners in (0, 1)
    ),
    _case("sampled_volume", "g (float16[2,3,4,5,6] x, float[2,2,3,4,3] z) => (float16[2,3,2,3,4] y) { y = GridSample<mode = \"linear\", padding_mode = \"border\">(x, z) }", opset=22, x=_normal(2, 3, 4, 5, 6, dtype="f2"), z=_normal(2, 2, 3, 4, 3)),
    _case("sampled_bytes", "g (uint8[2,3,5,6] x, double[2,4,7,2] z) => (uint8[2,3,4,7] y) { y = GridSample<mode = \"nearest\">(x, z) }", "exact", 22, x=_bytes("u1", 2, 3, 5, 6), z=_normal(2, 4, 7, 2, dtype="f8")),
    *(
        _case(f"regions_{mode}_{coordinates}", f"g (float[2,3,8,9] x, float[4,4] r, int64[4] b) => (float[4,3,3,2] y) {{ y = RoiAlign<mode = \"{mode}\", coordinate_transformation_mode = \"{coordinates}\", output_height = 3, output_width = 2, sampling_ratio = {ratio}, spatial_scale = 0.5>(x, r, b) }}", x=_normal(2, 3, 8, 9), r=np.array([[0, 0, 9, 9], [2, 3, 20, 14], [-3, -3, 4, 5], [5, 5, 5.5, 5.5]], "f4"), b=np.array([0, 1, 1, 0]))
        for mode, coordinates, ratio in (("avg", "half_pixel", 0), ("max", "output_half_pixel", 2))
    ),
)  # fmt: skip

PARTS = (
    _case("quotients_by_data", "g (int32[6] a, int32[6] b) => (int32[6] y, int32[6] z, int32[6] w) { y = Div(a, b) z = Mod(a, b) w = Mod<fmod = 1>(a, b) }", "exact", a=np.array([7, -7, -(2**31), 8, -8, 0], "i4"), b=np.array([2, 2, -1, -3, -3, 5], "i4")),
    _case("quotients_of_bytes", "g (uint8[2,3] a, uint8[3] b) => (uint8[2,3] y, uint8[2,3] z) { y = Div(a, b) z = Mod(a, b) }", "exact", a=_bytes("u1", 2, 3), b=np.array([3, 255, 1], "u1")),
    _case("remainders_of_floats", "g (float[5] a, float[5] b) => (float[5] y, float[5] z) { y = Mod<fmod = 1>(a, b) z = Mod(a, b) }", "exact", 28, a=np.array([7, -7, 7.5, -7.5, 0], "f4"), b=np.array([2, 2, -2, -2, 5], "f4")),
    _case("shifts_of_integers", "g (int32[5] a, int32[5] b, uint8[3] c, uint8[3] d) => (int32[5] y, int32[5] z, uint8[3] v, uint8[3] w) { y = BitShift<direction = \"RIGHT\">(a, b) z = BitShift<direction = \"LEFT\">(a, b) v = BitShift<direction = \"RIGHT\">(c, d) w = BitShift<direction = \"LEFT\">(c, d) }", "exact", 28, a=np.array([7, -7, -(2**31), 8, -8], "i4"), b=np.array([1, 1, 31, 32, -1], "i4"), c=np.array([255, 128, 7], "u1"), d=np.array([1, 8, 7], "u1")),
    _case("bits_of_another_type", "g (float[3,4] x, int64[3] i) => (int32[4,3] y, double[3] z) { t = Transpose(x) y = BitCast<to = 6>(t) z = BitCast<to = 11>(i) }", "exact", 26, x=_normal(3, 4), i=np.arange(3) * 2**52),
    _case("turned_positions", "g (float[2,4,3,8] x, float[50,4] c, float[50,4] s, int64[2,3] p) => (float[2,4,3,8] y) { y = RotaryEmbedding(x, c, s, p) }", opset=23, x=_normal(2, 4, 3, 8), c=_normal(50, 4), s=_normal(50, 4), p=np.array([[0, 7, 49], [3, 2, 1]])),
    _case("loss", "g (float[3,5,4] x, int64[3,4] t, float[5] w) => (float l, float[3,5,4] p) { l, p = SoftmaxCrossEntropyLoss<ignore_index = 2>(x, t, w) }", x=_normal(3, 5, 4), t=np.array([[0, 1, 2, 3], [4, 2, 1, 0], [1, 1, 4, 3]]), w=np.abs(_normal(5))),
    _case("attention_with_masks_of_low_numbers", "g (float[1,2,3,8] q, float[1,2,4,8] k, float[1,2,4,8] v, float[3,4] m) => (float[1,2,3,8] y) { y = Attention(q, k, v, m) }", "approximate", 23, q=_normal(1, 2, 3, 8), k=_normal(1, 2, 4, 8), v=_normal(1, 2, 4, 8), m=np.array([[-3.4e38] * 4, [-1e5, -2e5, -3e5, -3.4e38], [0, -1e9, -np.inf, 0]], np.float32)),
    _case("attention_in_parts", "g (float[2,4,5,8] q, float[2,4,6,8] k, float[2,4,6,8] v, float[2,4,3,8] pk, float[2,4,3,8] pv) => (float[2,4,5,8] y, float[2,4,9,8] nk, float[2,4,9,8] nv) { y, nk, nv = Attention<is_causal = 1>(q, k, v, , pk, pv) }", opset=23, q=_normal(2, 4, 5, 8), k=_normal(2, 4, 6, 8), v=_normal(2, 4, 6, 8), pk=_normal(2, 4, 3, 8), pv=_normal(2, 4, 3, 8)),
    _case("attention_of_16_bits_with_rows_that_read_nothing", "g (float16[2,4,5,8] q, float16[2,4,7,8] k, float16[2,4,7,8] v, bool[2,1,5,7] m, float16[5,7] a) => (float16[2,4,5,8] y, float16[2,4,5,8] z) { y = Attention(q, k, v, m) z = Attention<is_causal = 1>(q, k, v, a) }", "approximate", 23, q=_normal(2, 4, 5, 8, dtype="f2"), k=_normal(2, 4, 7, 8, dtype="f2"), v=_normal(2, 4, 7, 8, dtype="f2"), m=np.arange(70).reshape(2, 1, 5, 7) % 14 > 7, a=np.where(np.arange(35).reshape(5, 7) % 14 < 7, -np.inf, np.arange(35).reshape(5, 7) / 35).astype("f2")),
    _case("normalizations_of_plain_tensors", "g (float16[6,40] x, float16[40] s, float16[40] b, float[2,3,4,5] i, float[3] c, float[3] d) => (float16[6,40] y, float16[6,40] z, float[2,3,4,5] w) { y = LayerNormalization(x, s, b) z = RMSNormalization<epsilon = 0.01>(x, s) w = InstanceNormalization(i, c, d) }", "approximate", 23, x=_normal(6, 40, dtype="f2"), s=_normal(40, dtype="f2"), b=_normal(40, dtype="f2"), i=_normal(2, 3, 4, 5), c=_normal(3), d=_normal(3)),
    _case("product_with_an_exact_gelu", "g (float16[3,4] x, float16[4,6] w, float16[6] b) => (float16[3,6] y) { p = MatMul(x, w) s = Add(p, b) y = Gelu(s) }", "approximate", x=_normal(3, 4, dtype="f2"), w=_normal(4, 6, dtype="f2"), b=_normal(6, dtype="f2")),
    _case("dropout_with_its_mask", "g (float[3,4] x, float r) => (float[3,4] y, bool[3,4] m, float[3,4] z) <bool t = {0}> { y, m = Dropout(x) z = Dropout(x, r, t) }", "exact", x=_normal(3, 4), r=np.float32(0.5)),
    _case("sizes_of_rows", "g (float[B,3,4] x) => (float[B,3,4] y) <int64[1] i = {-1}, int64[1] z = {0}, int64[1] two = {2}, int64[1] end = {9}> { s = Shape(x) n = Shape(s) o = ConstantOfShape<value = int64[1] {-1}>(n) e = Equal(s, o) w = Where(e, n, s) a = Slice(w, z, two) b = Slice(w, two, end) c = Concat<axis = 0>(a, b) m = Abs(x) y = Reshape(m, c) }", "exact", x=_normal(2, 3, 4)),
    _case("constants_that_are_nodes", "g (float[2,3] x) => (float[3,2] y, float[2] z) { s = Constant<value_ints = [3, 2]>() r = Reshape(x, s) c = Constant<value_float = 2.5>() y = Mul(r, c) z = Constant<value_floats = [1.0, 2.0]>() }", "exact", x=_normal(2, 3)),
    _case("softmax_of_16_bits_of_low_numbers", "g (float16[7,4] m) => (float16[7,4] y, float16[7,4] z) { y = Softmax(m) z = LogSoftmax(m) }", m=LOW_MASK.astype("f2")),
    _case("attention_of_16_bits_with_masks_of_low_numbers", "g (float16[1,2,7,8] q, float16[1,2,4,8] k, float16[1,2,4,8] v, float16[7,4] m) => (float16[1,2,7,8] y, float16[1,2,7,8] z) { y = Attention(q, k, v, m) z = Attention<is_causal = 1>(q, k, v, m) }", "approximate", 23, q=_normal(1, 2, 7, 8, dtype="f2"), k=_normal(1, 2, 4, 8, dtype="f2"), v=_normal(1, 2, 4, 8, dtype="f2"), m=LOW_MASK.astype("f2")),
    _case("attention_of_16_bits_with_masks_of_more_digits", "g (float16[1,2,7,8] q, float16[1,2,4,8] k, float16[1,2,4,8] v, float[7,4] m) => (float16[1,2,7,8] y) { y = Attention(q, k, v, m) }", "approximate", 23, q=_normal(1, 2, 7, 8, dtype="f2"), k=_normal(1, 2, 4, 8, dtype="f2"), v=_normal(1, 2, 4, 8, dtype="f2"), m=np.concatenate([LOW_MASK[:3], [[-1e9] * 4, [-1e9, -2e9, -3e9, -np.inf], [-70000, -70003, -70001, -1e30], [0.1, 0.2, -1e9, 0.3]]]).astype("f4")),
    _case("multi_head_attention_with_masks_of_low_numbers", "g (float16[1,7,16] q, float16[1,4,16] k, float16[1,4,16] v, float16[1,1,7,4] m) => (float16[1,7,16] y) { y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v, , , m) }", q=_normal(1, 7, 16, dtype="f2"), k=_normal(1, 4, 16, dtype="f2"), v=_normal(1, 4, 16, dtype="f2"), m=LOW_MASK.astype("f2").reshape(1, 1, 7, 4)),
    _case("attention_with_the_lowest_numbers", "g (float[1,2,3,8] q, float[1,2,4,8] k, float[1,2,4,8] v, float[3,4] m) => (float[1,2,3,8] y) { y = Attention(q, k, v, m) }", "approximate", 23, q=_normal(1, 2, 3, 8), k=_normal(1, 2, 4, 8), v=_normal(1, 2, 4, 8), m=np.array([[-np.inf, -3.4e38, -np.inf, -3.4e38], [-3.4e38, -2e38, -np.inf, -2e38], [-np.inf] * 4], np.float32)),
    _case("parts_of_a_stack", "g (float[3,2,6,32] x) => (float[2,6,32] y, float[2,2,12,8] d, int64[2,1,32] i) { a, b, c = Split<axis = 0, num_outputs = 3>(x) n = Constant<value_ints = [0]>() q = Squeeze(a, n) k = Squeeze(b, n) v = Squeeze(c, n) y = Attention<q_num_heads = 4, kv_num_heads = 4>(q, k, v) e = Constant<value_ints = [2, 6, 8, 4]>() w = Reshape(v, e) f = Constant<value_ints = [2, 8, 6, 4]>() r = Reshape(k, f) d = DepthToSpace<blocksize = 2>(r) i = ArgMax<axis = 1>(v) }", opset=23, x=_normal(3, 2, 6, 32)),
)  # fmt: skip


def _nbits(
    name: str,
    rows: tuple[int, ...],
    inner: int,
    bits: int = 4,
    block: int = 16,
    *,
    dtype: str = "float",
    points: str = "",
    bias: bool = False,
    fits: bool = False,
    columns: int = 21,
) -> GraphCase:
    """A product of weights of few bits whose zero points are bytes, numbers, or not there.

    With ``fits`` each weight is a number of the element type, in which they are written out for many rows.
    """
    blocks = -(-inner // block)
    of_points = {"": (), "bytes": (columns, -(-blocks * bits // 8)), "numbers": (columns, blocks)}[points]
    array = "f2" if dtype == "float16" else "f4"
    feeds = {
        "a": _normal(*rows, inner, dtype=array),
        "b": _bytes("u1", columns, blocks, block * bits // 8),
        "s": (np.abs(_normal(columns, blocks, dtype=array)) + np.array(0.1, array))
        / np.array(16 if bits == 8 else 1, array),
    }
    inputs = [
        f"{dtype}[{','.join(map(str, (*rows, inner)))}] a",
        f"uint8[{columns},{blocks},{block * bits // 8}] b",
        f"{dtype}[{columns},{blocks}] s",
    ]
    if fits:
        feeds["s"] = np.full((columns, blocks), 0.25, array)
    if points:
        feeds["z"] = (
            _bytes("u1", *of_points)
            if points == "bytes"
            else (_normal(*of_points) * 3 + 7).round(0 if fits else 7).astype(array)
        )
        inputs.append(f"{'uint8' if points == 'bytes' else dtype}[{','.join(map(str, of_points))}] z")
    if bias:
        feeds["c"], _ = _normal(columns, dtype=array), inputs.append(f"{dtype}[{columns}] c")
    arguments = f"a, b, s, {'z' if points else ''}, , {'c' if bias else ''}".rstrip(", ")
    shape = ",".join(map(str, (*rows, columns)))
    return _case(
        f"bits_{name}",
        f"g ({', '.join(inputs)}) => ({dtype}[{shape}] y) {{ y = com.microsoft.MatMulNBits<K = {inner}, N = {columns}, bits = {bits}, block_size = {block}>({arguments}) }}",
        **feeds,
    )


_TABLE = "g (uint8[9,{width}] d, int64[2,3] i, float[9,{blocks}] s{more}) => (float[2,3,{long}] y) {{ y = com.microsoft.GatherBlockQuantized<bits = {bits}, block_size = 16, quantize_axis = 1>(d, i, s{z}) }}"
_PLACES = np.array([[0, 8, -1], [3, -9, 3]])
BITS = (
    _nbits("of_one_row", (1,), 40, points="bytes", bias=True), _nbits("of_two", (1, 3), 37, 2, points="bytes"),
    _nbits("of_eight", (2, 1), 300, 8, points="bytes"), _nbits("with_numbers", (5,), 48, points="numbers", bias=True),
    _nbits("of_half", (1,), 64, block=32, dtype="float16", points="bytes", bias=True),
    _nbits("of_many_rows", (2, 20), 37, bias=True), _nbits("of_many_half_rows", (17,), 300, 8, block=64, dtype="float16", points="numbers", fits=True),
    _nbits("of_many_columns", (1,), 40, points="bytes", bias=True, columns=4097), _nbits("of_most_columns", (2,), 24, 8, points="numbers", columns=8195),
    _nbits("of_many_half_columns", (1,), 48, 2, dtype="float16", columns=8194),
    _nbits("of_tiles", (70,), 96, points="bytes", bias=True, dtype="float16", fits=True, columns=130), _nbits("of_tiles_of_two", (2, 33), 64, 2, dtype="float16", fits=True, columns=64),
    _case("bits_of_bfloat", "g (float[20,48] x, uint8[70,3,8] b, float[70,3] t, float[70] d) => (float[20,70] y) { a = Cast<to = 16>(x) s = Cast<to = 16>(t) c = Cast<to = 16>(d) m = com.microsoft.MatMulNBits<K = 48, N = 70, bits = 4, block_size = 16>(a, b, s, , , c) y = Cast<to = 1>(m) }", x=_normal(20, 48), b=_bytes("u1", 70, 3, 8), t=np.full((70, 3), 0.25, "f4"), d=_normal(70)),
    _case("table_of_four_bits", _TABLE.format(width=20, blocks=3, long=40, bits=4, more=", uint8[9,2] z", z=", z"), d=_bytes("u1", 9, 20), i=_PLACES, s=np.abs(_normal(9, 3)), z=_bytes("u1", 9, 2)),
    _case("table_of_eight_bits", _TABLE.format(width=40, blocks=3, long=40, bits=8, more="", z=""), d=_bytes("u1", 9, 40), i=_PLACES, s=np.abs(_normal(9, 3))),
)  # fmt: skip
_FLOATS_OF_8_BITS = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
NARROW = (
    _case("weights_of_four_bits", "g (float[2,8] a, int4[8,5] w, float[5] s, int4[5] z, uint4[8,5] u) => (float[2,5] y, float[8,5] v) { d = DequantizeLinear<axis = 1>(w, s, z) y = MatMul(a, d) v = DequantizeLinear<axis = 1>(u, s) }", a=_normal(2, 8), w=RANDOM.integers(-8, 8, (8, 5)).astype(ml_dtypes.int4), s=np.abs(_normal(5)), z=np.array([-8, 7, 0, 3, -1]).astype(ml_dtypes.int4), u=RANDOM.integers(0, 16, (8, 5)).astype(ml_dtypes.uint4)),
    _case("blocks_of_four_bits", "g (int4[32,3] w, float[2,3] s, uint4[3,32] u, float16[3,2] t, uint4[3,2] z) => (float[32,3] y, float16[3,32] v) { y = DequantizeLinear<axis = 0, block_size = 16>(w, s) v = DequantizeLinear<axis = 1, block_size = 16>(u, t, z) }", "exact", w=RANDOM.integers(-8, 8, (32, 3)).astype(ml_dtypes.int4), s=np.abs(_normal(2, 3)), u=RANDOM.integers(0, 16, (3, 32)).astype(ml_dtypes.uint4), t=np.array([[0.5, 2], [0.25, 1], [4, 1]], "f2"), z=RANDOM.integers(0, 16, (3, 2)).astype(ml_dtypes.uint4)),
    *(_case(f"weights_of_{name}", f"g ({name.replace('_', '')}[256] w, float s) => (float[256] y) {{ y = DequantizeLinear(w, s) }}", "exact", w=np.arange(256, dtype="u1").view(getattr(ml_dtypes, name)), s=np.float32(0.5), truth=lambda w, s: w.astype("f4") * s) for name in _FLOATS_OF_8_BITS),
)  # fmt: skip
DRAWN = tuple(GraphCase(each.name, each.body, each.feeds, opset=each.opset) for each in drawn_attentions())
CASES = (*CASES, *RECURRENT, *SAMPLED, *PARTS, *BITS, *NARROW, *DRAWN)


def chosen_cases(request: pytest.FixtureRequest) -> list[tuple[GraphCase, str]]:
    """Return each case with the libraries it runs with, for the tests of the module that run: a share of the sweep."""
    found = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.module is request.module:
            case, libraries = (item.callspec.params.get(name) for name in ("case", "libraries"))
            found[case.name, libraries] = (case, libraries)
    return list(found.values())
