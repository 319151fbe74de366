"""Fusions that programs apply by themselves leave the nodes that onnxruntime's leave, and the same results."""

from __future__ import annotations

import importlib

import numpy as np
import onnx
import onnxruntime.quantization
import pytest
from beside_onnxruntime import run_onnxruntime
from onnx import parser

import ort_quantization

GELUS = {
    "halved first": "a = Mul(x, half)  b = Div(x, root)  c = Erf(b)  d = Add(c, one)  y = Mul(d, a)",
    "halved last": "b = Div(x, root)  c = Erf(b)  d = Add(c, one)  e = Mul(d, x)  y = Mul(e, half)",
    "halved before": "b = Div(x, root)  c = Erf(b)  d = Add(c, one)  e = Mul(d, half)  y = Mul(e, x)",
    "scaled": "b = Mul(x, scale)  c = Erf(b)  d = Add(c, one)  e = Mul(d, half)  y = Mul(e, x)",
    "none": "b = Div(x, root)  c = Erf(b)  y = Mul(c, x)",
}
NORMS = {
    "norm": "m = ReduceMean(x, axes) s = Sub(x, m) p = Pow(s, two) v = ReduceMean(p, axes) w = Add(v, little) "
    "r = Sqrt(w) q = Div(s, r) g = Mul(q, gain) y = Add(g, shift)",
    "none": "m = ReduceMean(x, axes) y = Sub(x, m)",
}
LENGTHS = {
    "quotient": "l = ReduceL2<keepdims = 1>(x, axes) c = Clip(l, tiny) e = Expand(c, shape) y = Div(x, e)",
    "none": "l = ReduceL2<keepdims = 1>(x, axes) c = Clip(l, one) e = Expand(c, shape) y = Div(x, e)",
}
FUSIONS = {
    "FusionGelu": ("fusions", GELUS),
    "FusionLayerNormalization": ("fusions", NORMS),
    "FusionLpNormalization": ("execution_providers.qnn.fusion_lpnorm", LENGTHS),
}


def model_of(nodes: str) -> onnx.ModelProto:
    graph = parser.parse_graph(f"""
        fused (float[1, 2, 3] x) => (float[1, 2, 3] y)
        <float half = {{0.5}}, float root = {{1.4142135}}, float one = {{1}}, float scale = {{0.70710677}},
         float two = {{2}}, float little = {{0.00001}}, float tiny = {{0.000000000001}}, int64[1] axes = {{-1}},
         float[3] gain = {{1, 2, 3}}, float[3] shift = {{0.5, 0, -1}}, int64[3] shape = {{1, 2, 3}}>
        {{ {nodes} }}""")
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize(
    ("fusion", "form"), [(name, form) for name, (_, forms) in FUSIONS.items() for form in forms], ids=str
)
def test_a_fusion_leaves_the_nodes_that_onnxruntimes_leaves(tmp_path, fusion, form):
    module, forms = FUSIONS[fusion]
    fused = []
    for library in (ort_quantization, onnxruntime.quantization):
        model = importlib.import_module(f"{library.__name__}.onnx_model").ONNXModel(model_of(forms[form]))
        is_changed = getattr(importlib.import_module(f"{library.__name__}.{module}"), fusion)(model).apply()
        nodes = [(node.op_type, node.domain, node.name, *node.input, *node.output) for node in model.nodes()]
        constants = sorted(each.name for each in model.model.graph.initializer) if is_changed else []
        fused.append((is_changed, nodes, constants, {each.domain for each in model.model.opset_import}))
        x = np.random.default_rng(3).normal(size=(1, 2, 3)).astype(np.float32)
        results = []
        for name, each in (("plain", model_of(forms[form])), ("fused", model.model)):
            onnx.save(each, tmp_path / name)
            results += run_onnxruntime(tmp_path / name, {"x": x})
        expected, found = results
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert fused[0] == fused[1]
