"""Operators of rows over values that are one constant of an open size: every element is written."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import ort_core as ort
from ort_core.tolerances import compare

HEADER = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1, "ai.onnx.ml" : 3]>\n'
CONSTANTS = {
    "filled": "c = ConstantOfShape <value = float[1] {0.5}> (s)",
    "computed": "c0 = ConstantOfShape <value = float[1] {0.25}> (s)\n c = Add(c0, c0)",
    "chosen": "c1 = ConstantOfShape <value = float[1] {-0.5}> (s)\n c = Abs(c1)",
}
NODES = {
    "softmax": "y = Softmax(c)",
    "log_softmax": "y = LogSoftmax(c)",
    "first_axis": "y = Softmax <axis = 0> (c)",
    "lp": "y = LpNormalization <axis = -1> (c)",
    "layer_norm": "y, mean, inverse = LayerNormalization(c, w)",
    "rms_norm": "y = SimplifiedLayerNormalization(c, w)",
    "skip": "y = com.microsoft.SkipLayerNormalization(c, c, w)",
    "normalizer": 'y = ai.onnx.ml.Normalizer <norm = "L2"> (c)',
    "sum": "y = ReduceSum <keepdims = 0> (c, last)",
    "mean_behind": "d = Softmax(c)\n y = ReduceMean(d, last)",
    "behind_a_sum": "d = Add(c, c)\n e = Softmax(d)\n y = Tanh(e)",
    "read_twice": "d = Softmax(c)\n y = Add(d, c)",
}
WEIGHT = ", ".join(f"{value:.2f}" for value in np.linspace(-1, 1, 8))


@pytest.mark.sweep
@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("node", NODES)
def test_rows_of_one_constant_are_written_whole(node: str, constant: str) -> None:
    outputs = "y, mean, inverse" if node == "layer_norm" else "y"
    shape, last = ("[N, 8]", "8") if "w)" in NODES[node] else ("[N, S]", "S")
    declared = ", ".join(f"{name}" for name in outputs.split(", "))
    text = f"""{HEADER}
    g (uint8{shape} x) => ({declared}) <float[8] w = {{{WEIGHT}}}, int64[1] last = {{1}}> {{
        s = Shape(x)
        {CONSTANTS[constant]}
        {NODES[node]}
    }}"""
    model = parser.parse_model(text).SerializeToString()
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    reference = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"])
    peer = onnxruntime.InferenceSession(model)
    for rows, columns in ((1, 2), (3, 17), (2, 40), (5, 1)):
        feeds = {"x": np.ones((rows, 8 if last == "8" else columns), np.uint8)}
        for _ in range(2):  # the ordinary run, then the direct call
            for found, *truths in zip(session.run(None, feeds), reference.run(None, feeds), peer.run(None, feeds)):
                for truth in truths:
                    assert found.shape == truth.shape
                    outcome = compare(found, truth, "approximate")
                    assert outcome.passes, f"{rows} x {columns}: {outcome}"
