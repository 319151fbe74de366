"""Group norms: left by default with a reason, the standard's operator or GroupNorm where that is asked for."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from exported_graphs import random_weights
from onnx import parser

import ort_core
from ort_core.tolerances import tolerance
from ort_transformers import FusionOptions, fuse_model

EXPORTED = """
<ir_version: 10, opset_import: ["": 21]>
norm (float[B,8,4,6] x) => (float[B,8,4,6] y)
<int64[3] groups = {0, 4, -1}, float[4] ones = {1, 1, 1, 1}, float[4] zeros = {0, 0, 0, 0}>
{
  g = Reshape(x, groups)  n = InstanceNormalization<epsilon = 0.001>(g, ones, zeros)  shape = Shape(x)
  r = Reshape(n, shape)  m = Mul(r, w0_8_1_1)  a = Add(m, w1_8_1_1)
  ACTIVATED
}
"""
SILU = "s = Sigmoid(a)  y = Mul(a, s)"


def _model(activated: str) -> onnx.ModelProto:
    return random_weights(parser.parse_model(EXPORTED.replace("ACTIVATED", activated)))


def _run(engine: object, model: onnx.ModelProto) -> np.ndarray:
    session = engine.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.random.default_rng(5).standard_normal((2, 8, 4, 6)).astype(np.float32) * 3 + 1})[
        0
    ]


def _assert_equal(found: np.ndarray, model: onnx.ModelProto) -> None:
    limits = tolerance("approximate", "float32")
    np.testing.assert_allclose(found, _run(onnxruntime, model), limits.relative, limits.absolute)


def test_a_group_norm_stays_and_the_report_says_who_writes_one() -> None:
    model = _model(SILU)
    fused, report = fuse_model(model)
    (left,) = report.unfused
    assert left.kind == "group norm"
    assert "use_gpu_operators" in left.reason
    _assert_equal(_run(ort_core, fused), model)


@pytest.mark.parametrize("activated", [SILU, "y = Identity(a)", "y = Relu(a)"])
def test_a_group_norm_becomes_the_standards_operator(activated: str) -> None:
    model = _model(activated)
    options = FusionOptions("vae")
    options.use_standard_operators = True
    fused, report = fuse_model(model, options)
    assert report.fused == {"GroupNormalization": 1}
    assert not report.unfused
    for engine in (onnxruntime, ort_core):
        _assert_equal(_run(engine, fused), model)


@pytest.mark.parametrize(
    ("activated", "is_silu"),
    [(SILU, True), ("y = Identity(a)", False), ("s = Sigmoid(a)  z = Mul(a, s)  y = Add(z, a)", False)],
)
def test_a_group_norm_for_gpus_has_silu_in_it_where_nothing_else_reads_the_norm(activated: str, is_silu: bool) -> None:
    model = _model(activated)
    options = FusionOptions("unet")
    options.use_gpu_operators = True
    fused, report = fuse_model(model, options)
    (node,) = (each for each in fused.graph.node if each.op_type == "GroupNorm")
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    assert (attributes["activation"], attributes["groups"], attributes["channels_last"]) == (int(is_silu), 4, 1)
    assert not report.unfused
    _assert_equal(_run(ort_core, fused), model)


def test_group_norms_that_the_options_switch_off_stay() -> None:
    options = FusionOptions("unet")
    options.use_gpu_operators, options.enable_group_norm = True, False
    fused, _ = fuse_model(_model(SILU), options)
    assert "GroupNorm" not in {node.op_type for node in fused.graph.node}


ROWS = """
<ir_version: 10, opset_import: ["": 21]>
norm (float[B,8,4,6] x) => (float[B,24,8] y)
<int64[3] groups = {0, 4, -1}, float[4] ones = {1, 1, 1, 1}, float[4] zeros = {0, 0, 0, 0}, int64[3] rows = {0, 8, 24}>
{
  p = Reshape(x, rows)  g = Reshape(p, groups)  n = InstanceNormalization(g, ones, zeros)  shape = Shape(p)
  r = Reshape(n, shape)  m = Mul(r, w0_8_1)  a = Add(m, w1_8_1)  y = Transpose<perm = [0, 2, 1]>(a)
}
"""
STANDARD = """
<ir_version: 10, opset_import: ["": 21]>
norm (float[B,8,4,6] x) => (float[B,8,4,6] y)
{
  a = GroupNormalization<num_groups = 4, epsilon = 0.001>(x, w0_8, w1_8)  ACTIVATED
}
"""


@pytest.mark.parametrize("text", [ROWS, STANDARD.replace("ACTIVATED", SILU)], ids=["rows", "standard"])
@pytest.mark.parametrize("is_last", [True, False], ids=["channels last", "channels first"])
def test_other_forms_become_a_group_norm_for_gpus(text: str, is_last: bool) -> None:
    model = random_weights(parser.parse_model(text))
    options = FusionOptions("vae")
    options.use_gpu_operators, options.group_norm_channels_last = True, is_last
    fused, report = fuse_model(model, options, checks=True)
    assert report.fused == {"GroupNorm": 1}
    assert not report.unfused
    assert sum(node.op_type == "Transpose" for node in fused.graph.node) <= (2 if "num_groups" in text else 1)
    _assert_equal(_run(ort_core, fused), model)


def test_a_group_norm_of_three_axes_is_one_of_images_of_one_row() -> None:
    text = ROWS.replace("float[B,8,4,6] x", "float[B,8,24] p").replace("p = Reshape(x, rows)", "")
    model = random_weights(parser.parse_model(text.replace(", int64[3] rows = {0, 8, 24}", "")))
    options = FusionOptions("vae")
    options.use_gpu_operators = True
    fused, report = fuse_model(model, options, checks=True)
    assert report.fused == {"GroupNorm": 1}
    feeds = {"p": np.random.default_rng(1).standard_normal((2, 8, 24)).astype(np.float32)}
    found, expected = (
        engine.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        for engine, each in ((ort_core, fused), (onnxruntime, model))
    )
    limits = tolerance("approximate", "float32")
    np.testing.assert_allclose(found, expected, limits.relative, limits.absolute)
