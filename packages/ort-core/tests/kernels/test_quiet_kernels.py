"""Features that are infinite make no warning of numpy's: a program that runs a model asked for none."""

from __future__ import annotations

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
}


@pytest.mark.parametrize("name", list(NODES))
def test_infinite_features_make_no_warning(name: str) -> None:
    text = f'<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]> g {NODES[name]}'
    session = ort.InferenceSession(
        parser.parse_model(text).SerializeToString(), providers=["ReferenceExecutionProvider"]
    )
    x = np.random.default_rng(0).standard_normal((2, 3, 3, 4)).astype(np.float32)
    x[0, 0, 0, 1], x[1, 2, 1, 3] = np.inf, -np.inf
    [found] = session.run(None, {"x": x, "s": np.ones(4, np.float32)})
    assert np.isnan(found).any()
