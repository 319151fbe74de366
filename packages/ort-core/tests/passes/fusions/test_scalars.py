"""What passes make of spelled-out activations runs for a scalar, too."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import ort_core as ort

FORMULAS = {
    "gelu by erf": "r = Constant<value = float {1.4142135}>() s = Div(x, r) e = Erf(s) "
    "o = Constant<value = float {1}>() a = Add(e, o) m = Mul(x, a) h = Constant<value = float {0.5}>() y = Mul(m, h)",
    "gelu by tanh": "h = Constant<value = float {0.5}>() o = Constant<value = float {1}>() "
    "t = Constant<value = float {3}>() c = Constant<value = float {0.044715}>() p = Pow(x, t) "
    "k = Constant<value = float {0.7978846}>() q = Mul(c, p) r = Add(x, q) s = Mul(k, r) u = Tanh(s) v = Add(o, u) "
    "w = Mul(h, x) y = Mul(w, v)",
    "quick gelu": "c = Constant<value = float {1.702}>() m = Mul(x, c) s = Sigmoid(m) y = Mul(x, s)",
    "silu": "s = Sigmoid(x) y = Mul(x, s)",
    "mish": "s = Softplus(x) t = Tanh(s) y = Mul(x, t)",
    "hard swish": "s = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x) y = Mul(x, s)",
    "bias and gelu": "b = Constant<value = float {0.25}>() z = Add(x, b) r = Constant<value = float {1.4142135}>() "
    "s = Div(z, r) e = Erf(s) o = Constant<value = float {1}>() a = Add(e, o) m = Mul(z, a) "
    "h = Constant<value = float {0.5}>() y = Mul(m, h)",
}


@pytest.mark.parametrize("opset", [13, 20])
@pytest.mark.parametrize("shape", ["float", "float[1]", "float[0]"])
@pytest.mark.parametrize("formula", FORMULAS)
def test_fused_activations_take_the_least_shapes(formula: str, shape: str, opset: int) -> None:
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g ({shape} x) => (float y) {{ {FORMULAS[formula]} }}'
    content = onnx.parser.parse_model(text.replace("(float y)", f"({shape} y)")).SerializeToString()
    sizes = {"float": (), "float[1]": (1,), "float[0]": (0,)}[shape]
    x = np.full(sizes, 0.75, np.float32)
    found = []
    for level in (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
        for provider in ("CPUExecutionProvider", "ReferenceExecutionProvider"):
            options = ort.SessionOptions()
            options.graph_optimization_level = level
            found.append(ort.InferenceSession(content, options, providers=[provider]).run(None, {"x": x})[0])
    for each in found[1:]:
        assert each.shape == found[0].shape == sizes
        np.testing.assert_allclose(each, found[0], rtol=1e-5)
