"""Masks of Dropout, which are bool from opset 10 on, stay what their readers expect."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import ort_core
from ort_quantization import quantize_dynamic
from ort_quantization.models.model_files import converted_to

X = np.linspace(-2, 2, 64, dtype=np.float32).reshape(2, 32)
MODEL = """
    <ir_version: 7, opset_import: ["" : 9]>
    g (TYPE[2, 32] x) => (TYPE[2, 32] y, TYPE[2, 32] z) {
        h, m = Dropout <ratio = 0.5> (x)
        y, m_truth = Dropout (h)
        READER
    }
"""


@pytest.mark.parametrize("reader", ["z = Add (m, x)", "i = Identity (m)  z = Add (i, x)", "z = Sub (m_truth, x)"])
@pytest.mark.parametrize(
    ("onnx_type", "dtype"), [("float", np.float32), ("float16", np.float16), ("double", np.float64)]
)
def test_masks_are_numbers_to_their_readers(reader, onnx_type, dtype):
    model = parser.parse_model(MODEL.replace("READER", reader).replace("TYPE", onnx_type))
    found = converted_to(onnx.shape_inference.infer_shapes(model), 13)
    onnx.checker.check_model(found, full_check=True)
    feeds = {"x": X.astype(dtype)}
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    for engine in (onnxruntime, ort_core):
        for here, there in zip(
            engine.InferenceSession(found.SerializeToString()).run(None, feeds), expected, strict=True
        ):
            np.testing.assert_array_equal(here, there)


def test_a_mask_that_is_a_result_keeps_its_type(tmp_path):
    model = parser.parse_model(
        '<ir_version: 7, opset_import: ["" : 9]> g (float[2, 32] x) => (float[2, 32] y, float[2, 32] m)'
        " { h = Relu (x)  y, m = Dropout (h) }"
    )
    onnx.save(model, tmp_path / "a.onnx")
    quantize_dynamic(tmp_path / "a.onnx", tmp_path / "b.onnx")
    for engine in (onnxruntime, ort_core):
        _, mask = engine.InferenceSession(str(tmp_path / "b.onnx")).run(None, {"x": X})
        np.testing.assert_array_equal(mask, np.zeros_like(X))
        assert mask.dtype == np.float32


def test_a_mask_that_nobody_reads_goes():
    model = parser.parse_model(
        '<ir_version: 7, opset_import: ["" : 9]> g (float[2] x) => (float[2] y) { y, m = Dropout (x) }'
    )
    found = converted_to(model, 11)
    assert [(node.op_type, list(node.output)) for node in found.graph.node] == [("Dropout", ["y"])]
