"""Rows of a few vectors, which stay in registers, beside the numpy kernels and onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import ort_core as ort

LENGTHS = (1, 9, 16, 33, 63, 65)  # of one vector or a few, in part or whole, of 8 or 16 lanes
NODES = {
    "Softmax": "y = Softmax(x)",
    "LogSoftmax": "y = LogSoftmax(x)",
    "scaled": "a = Mul(x, c) y = Softmax(a)",
    "LayerNormalization": "y, mean, deviation = LayerNormalization(x, s, b)",
    "RMSNormalization": "y = RMSNormalization(x, s)",
    "ReduceMax": "y = ReduceMax<keepdims = 0>(x, axes)",
    "ReduceLogSumExp": "y = ReduceLogSumExp<keepdims = 0>(x, axes)",
}


def session_of(name: str, length: int, provider: str = "CPUExecutionProvider") -> ort.InferenceSession:
    return ort.InferenceSession(model(name, length), providers=[provider])


def model(name: str, length: int) -> bytes:
    outputs = "float[?, ?] y" if not name.startswith("Reduce") else "float[?] y"
    if name == "LayerNormalization":
        outputs += ", float[?, ?] mean, float[?, ?] deviation"
    numbers = ", ".join(["0.5", "-2.0", "1.25"] * length).split(", ")
    scale, bias = (f"{{{', '.join(numbers[first : first + length])}}}" for first in (0, 1))
    constants = f"float[{length}] s = {scale}, float[{length}] b = {bias}, float c = {{0.125}}, int64[1] axes = {{-1}}"
    text = f'<ir_version: 10, opset_import: ["": 23]> g (float[N, {length}] x) => ({outputs}) <{constants}>'
    return parser.parse_model(f"{text} {{ {NODES[name]} }}").SerializeToString()


@pytest.mark.parametrize("name", NODES)
def test_short_rows_are_computed_as_by_the_kernels_and_onnxruntime(name: str) -> None:
    for length in LENGTHS:
        x = np.random.default_rng(length).standard_normal((9, length)).astype(np.float32) * 4
        x[1], x[2, -1], x[3, 0], x[4, length // 2], x[5] = 0, np.nan, np.inf, -np.inf, -0.0
        with np.errstate(all="ignore"):
            found = session_of(name, length).run(None, {"x": x})
            wanted = session_of(name, length, "ReferenceExecutionProvider").run(None, {"x": x})
        finite = np.isfinite(x).all(axis=1)
        peer = onnxruntime.InferenceSession(model(name, length), providers=["CPUExecutionProvider"])
        others = peer.run(None, {"x": x[finite]})
        for mine, oracle, other in zip(found, wanted, others, strict=True):
            np.testing.assert_allclose(mine, oracle, rtol=2e-5, atol=2e-5, err_msg=f"{length}")
            np.testing.assert_allclose(mine[finite], other, rtol=2e-4, atol=2e-4, err_msg=f"{length}")


def test_no_rows_and_many_rows_of_a_few_elements() -> None:
    session = session_of("Softmax", 5)
    for rows in (0, 1, 1000):
        x = np.random.default_rng(rows).standard_normal((rows, 5)).astype(np.float32)
        (found,) = session.run(None, {"x": x})
        np.testing.assert_allclose(found.sum(axis=1), np.ones(rows), rtol=1e-5)
