"""Operators that onnxruntime runs on GPUs alone: written for UNets and VAEs where a GPU is asked for, and right."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
from exported_graphs import random_weights
from onnx import parser

import ort_core
from ort_core.tolerances import tolerance
from ort_transformers import FusionOptions, fuse_model
from ort_transformers.onnx_model import OnnxModel
from ort_transformers.optimizer import optimize_model

OPERATORS = ("NhwcConv", "SkipGroupNorm", "GroupNorm", "BiasSplitGelu", "BiasAdd")
BLOCK = """
<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1]>
block (float[B,4,6,5] x, float[B,8] time) => (float[B,8,3,3] y)
<int64[3] groups = {0, 4, -1}, float[4] ones = {1, 1, 1, 1}, float[4] zeros = {0, 0, 0, 0}, int64[2] axes = {2, 3},
 int64[3] rows = {0, 9, 8}, int64[4] image = {0, 3, 3, 8}>
{
  c = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w0_8_4_3_3, w1_8)
  t = Unsqueeze(time, axes)  s = Add(c, t)
  g = Reshape(s, groups)  n = InstanceNormalization(g, ones, zeros)  shape = Shape(s)  r = Reshape(n, shape)
  m = Mul(r, w2_8_1_1)  a = Add(m, w3_8_1_1)  z = Sigmoid(a)  q = Mul(a, z)
  d = Conv<group = 2, dilations = [1, 1], auto_pad = "SAME_UPPER">(q, w4_8_4_3_3)
  last = Transpose<perm = [0, 2, 3, 1]>(s)  f = Reshape(last, rows)
  p = MatMul(f, w5_8_8)  b = Add(p, w6_8)  k = Reshape(b, image)  back = Transpose<perm = [0, 3, 1, 2]>(k)
  u = Add(back, d)
  gg = Reshape(u, groups)  nn = InstanceNormalization(gg, ones, zeros)  shape2 = Shape(u)  rr = Reshape(nn, shape2)
  mm = Mul(rr, w7_8_1_1)  aa = Add(mm, w8_8_1_1)
  y = Add(aa, u)
}
"""
SPLIT = "value, gate = Split<axis = -1, num_outputs = 2>(h)"
SLICED = "value = Slice(h, nought, half, last)  gate = Slice(h, half, whole, last)"
FEED_FORWARD = """
<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1]>
feed (float[B,T,16] x, float[B,T,320] skip) => (float[B,T,320] y)
<int64[1] nought = {0}, int64[1] half = {WIDTH}, int64[1] whole = {9223372036854775807}, int64[1] last = {2}>
{
  p = MatMul(x, w0_16_DOUBLE)  h = Add(w1_DOUBLE, p)
  HALVES
  e = Gelu(gate)  g = Mul(value, e)
  q = MatMul(g, w2_WIDTH_320)  b = Add(q, w3_320)
  y = Add(b, skip)
}
"""
ATTENTIONS = """
<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1]>
attend (float[B,T,16] x, float[B,S,12] words) => (float[B,T,16] y)
{
  q = MatMul(x, w0_16_16)  k = MatMul(x, w1_16_16)  v = MatMul(x, w2_16_16)
  s = com.microsoft.MultiHeadAttention<num_heads = 2, scale = 0.2>(q, k, v)
  cq = MatMul(s, w3_16_16)  ck = MatMul(words, w4_12_16)  cv = MatMul(words, w5_12_16)
  y = com.microsoft.MultiHeadAttention<num_heads = 2>(cq, ck, cv)
}
"""
FEEDS = {
    "block": {"x": (2, 4, 6, 5), "time": (2, 8)},
    "feed": {"x": (2, 3, 16), "skip": (2, 3, 320)},
    "attend": {"x": (2, 5, 16), "words": (2, 3, 12)},
}


def _feed_forward(halves: str = SPLIT, width: int = 1280) -> str:
    text = FEED_FORWARD.replace("HALVES", halves).replace("WIDTH", str(width))
    return text.replace("DOUBLE", str(2 * width))


def _model(text: str) -> onnx.ModelProto:
    return random_weights(parser.parse_model(text))


def _options(**switches: bool) -> FusionOptions:
    options = FusionOptions("unet")
    options.use_gpu_operators = True
    for name, value in switches.items():
        setattr(options, name, value)
    return options


def _counts(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def _run(engine: object, model: onnx.ModelProto) -> np.ndarray:
    session = engine.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    numbers = np.random.default_rng(7)
    feeds = {name: numbers.standard_normal(shape) for name, shape in FEEDS[model.graph.name].items()}
    return session.run(None, {name: array.astype(np.float32) for name, array in feeds.items()})[0]


def _assert_same(fused: onnx.ModelProto, model: onnx.ModelProto) -> None:
    limits = tolerance("approximate", "float32")
    np.testing.assert_allclose(_run(ort_core, fused), _run(onnxruntime, model), limits.relative, limits.absolute * 10)


def test_convolutions_and_sums_in_front_of_group_norms_become_operators_for_gpus() -> None:
    model = _model(BLOCK)
    fused, report = fuse_model(model, _options(), checks=True)
    counts = _counts(fused)
    assert (counts["NhwcConv"], counts["SkipGroupNorm"], counts["GroupNorm"]) == (2, 2, 0)
    assert counts["InstanceNormalization"] == counts["Conv"] == 0
    with_bias = [len(node.input) for node in fused.graph.node if node.op_type == "SkipGroupNorm"]
    assert with_bias == [4, 5], "the second one takes the bias of the product in front of it"
    assert not report.unfused
    _assert_same(fused, model)


@pytest.mark.parametrize("halves", [SPLIT, SLICED], ids=["split", "sliced"])
def test_gated_gelus_and_biases_become_operators_for_gpus(halves: str) -> None:
    model = _model(_feed_forward(halves))
    fused, report = fuse_model(model, _options(), checks=True)
    assert _counts(fused) == {"MatMul": 2, "BiasSplitGelu": 1, "BiasAdd": 1}
    assert not report.unfused
    _assert_same(fused, model)


def test_a_width_that_the_kernel_for_gpus_refuses_stays_and_is_told() -> None:
    fused, report = fuse_model(_model(_feed_forward(width=48)), _options())
    assert "BiasSplitGelu" not in _counts(fused)
    (left,) = report.unfused_of("gated GELU")
    assert "2560, 5120" in left.reason


def test_the_gelu_of_the_first_half_stays() -> None:
    swapped = "gate, value = Split<axis = -1, num_outputs = 2>(h)"
    model = _model(_feed_forward(swapped))
    fused, _ = fuse_model(model, _options())
    assert "BiasSplitGelu" not in _counts(fused)
    _assert_same(fused, model)


def test_projections_are_packed_for_gpus() -> None:
    model = _model(ATTENTIONS)
    fused, _ = fuse_model(model, _options(), checks=True)
    inputs = [len(node.input) for node in fused.graph.node if node.op_type == "MultiHeadAttention"]
    assert inputs == [1, 2], "all three of the first one, keys and values of the second one"
    _assert_same(fused, model)


@pytest.mark.parametrize(
    ("text", "switch", "operator"),
    [
        (BLOCK, "enable_nhwc_conv", "NhwcConv"),
        (BLOCK, "enable_skip_group_norm", "SkipGroupNorm"),
        (_feed_forward(), "enable_bias_splitgelu", "BiasSplitGelu"),
        (_feed_forward(), "enable_bias_add", "BiasAdd"),
        (ATTENTIONS, "enable_packed_qkv", "Reshape"),
        (ATTENTIONS, "enable_packed_kv", "Reshape"),
    ],
)
def test_each_switch_leaves_its_operator_out(text: str, switch: str, operator: str) -> None:
    model = _model(text)
    fused, _ = fuse_model(model, _options(**{switch: False}))
    everything, _ = fuse_model(model, _options())
    assert _counts(fused)[operator] < _counts(everything)[operator]
    _assert_same(fused, model)


def test_channels_stay_first_where_that_is_asked_for() -> None:
    model = _model(BLOCK)
    fused, _ = fuse_model(model, _options(group_norm_channels_last=False))
    norms = [node for node in fused.graph.node if node.op_type == "GroupNorm"]
    layouts = {each.i for node in norms for each in node.attribute if each.name == "channels_last"}
    assert (len(norms), layouts) == (2, {0})
    _assert_same(fused, model)


def test_the_optimizer_writes_them_for_a_gpu_and_what_a_cpu_runs_otherwise() -> None:
    model = _model(BLOCK)
    for_cpu = optimize_model(model, "unet", opt_level=0)
    assert _counts(for_cpu.model)["NhwcConv"] == 0
    _run(onnxruntime, for_cpu.model)
    for_gpu = optimize_model(model, "unet", opt_level=0, use_gpu=True)
    statistics = for_gpu.get_fused_operator_statistics()
    assert (statistics["NhwcConv"], statistics["SkipGroupNorm"]) == (2, 2)
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented):
        _run(onnxruntime, for_gpu.model)


@pytest.mark.parametrize("text", [BLOCK, _feed_forward()], ids=["block", "feed-forward"])
def test_half_precision_is_fused_before_and_behind_the_conversion(text: str) -> None:
    model = _model(text)
    behind = OnnxModel(fuse_model(model, _options())[0])
    behind.convert_float_to_float16(keep_io_types=True)
    half = OnnxModel(model)
    half.convert_float_to_float16(keep_io_types=True)
    before, _ = fuse_model(half.model, _options())
    fused = [name for name in _counts(before) if name in OPERATORS]
    assert fused
    assert {name: _counts(before)[name] for name in fused} == {name: _counts(behind.model)[name] for name in fused}
    expected = _run(onnxruntime, model)
    for each in (before, behind.model):
        np.testing.assert_allclose(_run(ort_core, each), expected, 0, 0.01 * np.abs(expected).max())


@pytest.mark.parametrize("text", [_feed_forward(), ATTENTIONS], ids=["BiasSplitGelu", "packed"])
def test_onnxruntime_refuses_them_on_a_cpu(text: str) -> None:
    fused, _ = fuse_model(_model(text), _options())
    with pytest.raises(Exception, match=r"(?i)implement|packed|dimension"):
        _run(onnxruntime, fused)
