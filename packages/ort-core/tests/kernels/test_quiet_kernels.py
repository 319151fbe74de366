"""Features that are infinite make neither a warning nor an error of numpy's, whatever a program has set for its own."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from onnx import parser

import ort_core as ort

NODES = {
    "GroupNorm": "(float[2, 3, 3, 4] x, float[4] s) => (float[2, 3, 3, 4] y) "
    "{ y = com.microsoft.GroupNorm <groups = 2, activation = 0> (x, s, s) }",
    "MeanVarianceNormalization": "(float[2, 3, 3, 4] x, float[4] s) => (float[2, 3, 3, 4] y) "
    "{ y = MeanVarianceNormalization (x) }",
    "SkipGroupNorm": "(float[2, 3, 3, 4] x, float[4] s) => (float[2, 3, 3, 4] y) "
    "{ y = com.microsoft.SkipGroupNorm <groups = 2, activation = 0> (x, s, s, x) }",
    "LinearAttention": "(float[2, 3, 3, 4] x, float[4] s) => (float[2, 9, 4] y) <int64[3] flat = {2, 9, 4}> "
    "{ q = Reshape (x, flat) y, p = com.microsoft.LinearAttention <q_num_heads = 1, kv_num_heads = 1, "
    'update_rule = "linear"> (q, q, q) }',
    "RotaryEmbedding": "(float[2, 3, 3, 4] x, float[4] s) => (float[2, 3, 3, 4] y) "
    "<int64[2, 3] p = {0, 1, 2, 0, 1, 2}, float[3, 2] c = {1, 0, 0, 1, 0, 0}> "
    "{ t = Transpose <perm = [0, 2, 1, 3]> (x) y = com.microsoft.RotaryEmbedding (t, p, c, c) }",
    "constants": "(float[2, 3, 3, 4] x, float[4] s) => (float[2, 3, 3, 4] y) "
    "<float[4] a = {1, 0, 3, 4}, float zero = {0}> { e = Div (a, zero) t = Mul (x, e) y = Mul (t, s) }",
}


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("name", list(NODES))
def test_infinite_features_make_no_warning_and_no_error(name: str, provider: str) -> None:
    text = f'<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]> g {NODES[name]}'
    x = np.random.default_rng(0).standard_normal((2, 3, 3, 4)).astype(np.float32)
    x[0, 0, 0, 1], x[1, 2, 1, 3] = np.inf, -np.inf
    for setting in ("warn", "raise"):
        with np.errstate(all=setting):
            session = ort.InferenceSession(parser.parse_model(text).SerializeToString(), providers=[provider])
            [found] = session.run(None, {"x": x, "s": np.ones(4, np.float32)})
        assert np.isnan(found).any()


def test_a_users_function_keeps_the_setting_of_its_program() -> None:
    @ort.custom_op("acme", "Reciprocal")
    def reciprocal(x: np.ndarray) -> np.ndarray:
        return np.float32(1) / x

    imports = '<ir_version: 9, opset_import: ["": 17, "acme": 1]>'
    text = f"{imports} g (float[n] x) => (float[n] y) {{ y = acme.Reciprocal (x) }}"
    options = ort.SessionOptions()
    options.register_custom_ops_library(reciprocal)
    session = ort.InferenceSession(parser.parse_model(text).SerializeToString(), options)
    zero = {"x": np.zeros(1, np.float32)}
    with np.errstate(divide="ignore"):
        assert np.isinf(session.run(None, zero)[0]).all()
    with np.errstate(divide="raise"), pytest.raises(ort.OrtError, match="FloatingPointError"):
        session.run(None, zero)


@pytest.mark.parametrize("node", [
    "LayerNormalization (x, s)", "RMSNormalization (x, s)", "MeanVarianceNormalization <axes = [2]> (x)",
    "com.microsoft.SkipLayerNormalization (x, x, s)", "com.microsoft.SkipSimplifiedLayerNormalization (x, x, s)",
    "InstanceNormalization (x, t, t)", "GroupNormalization <num_groups = 1> (x, t, t)",
])  # fmt: skip
def test_means_of_nothing_make_no_warning(node: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["": 23, "com.microsoft": 1]>
    g (float[2, 3, n] x, float[n] s, float[3] t) => (y) {{ y = {node} }}"""
    feeds = {"x": np.ones((2, 3, 0), np.float32), "s": np.ones(0, np.float32), "t": np.ones(3, np.float32)}
    session = ort.InferenceSession(
        parser.parse_model(text).SerializeToString(), providers=["ReferenceExecutionProvider"]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert session.run(None, feeds)[0].shape == (2, 3, 0)
