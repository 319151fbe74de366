"""Factors of scores that differ from head to head or from query to query are moved to the queries."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import ort_core
from ort_core.tolerances import tolerance
from ort_transformers import FusionOptions, fuse_model

HEADS, LENGTH, SIZE = 2, 3, 4


def _model(scaled: str, factor: str) -> onnx.ModelProto:
    four = f"B,{HEADS},{LENGTH},{SIZE}"
    return parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[{four}] q, float[{four}] k, float[{four}] v, float[{factor}] s, float[{HEADS},{LENGTH},{LENGTH}] bias)
    => (float[{four}] y) {{
      kt = Transpose <perm = [0,1,3,2]> (k)   m = MatMul(q, kt)   c = {scaled}   a = Add(c, bias)
      p = Softmax <axis = -1> (a)   y = MatMul(p, v)
    }}""")


def _fused(model: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    fused, report = fuse_model(model, FusionOptions("bert"))
    return fused, report.num_attentions


@pytest.mark.parametrize("scaled", ["Mul(m, s)", "Mul(s, m)", "Div(m, s)"])
@pytest.mark.parametrize("factor", ["2,1,1", "1,2,1,1", "2,3,1", "B,1,1,1"])
def test_a_factor_of_each_head_or_query_scales_queries(scaled: str, factor: str) -> None:
    model = _model(scaled, factor)
    random = np.random.default_rng(5)
    feeds = {name: random.standard_normal((2, HEADS, LENGTH, SIZE)).astype(np.float32) for name in "qkv"}
    feeds["s"] = random.uniform(0.5, 3, [int(each) for each in factor.replace("B", "2").split(",")]).astype(np.float32)
    feeds["bias"] = random.standard_normal((HEADS, LENGTH, LENGTH)).astype(np.float32)
    fused, count = _fused(model)
    assert count == 1
    limits = tolerance("approximate", "float32")
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)[0]
    for engine in (onnxruntime, ort_core):
        got = engine.InferenceSession(fused.SerializeToString()).run(None, feeds)[0]
        np.testing.assert_allclose(got, wanted, limits.relative, limits.absolute)


@pytest.mark.parametrize("factor", ["2,1,3", "2,3,3", "5,1,2,1,1"])
def test_a_factor_of_each_key_stays(factor: str) -> None:
    model = _model("Mul(m, s)", factor)
    if factor.startswith("5"):
        model.graph.output[0].type.tensor_type.ClearField("shape")
    assert _fused(model)[1] == 0
