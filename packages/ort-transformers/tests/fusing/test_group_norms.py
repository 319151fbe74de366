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
