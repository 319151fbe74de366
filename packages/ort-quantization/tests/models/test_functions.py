"""Functions of a model stay a part of it where it is brought to another opset: ONNX's converter drops them."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import ort_core
from ort_core import errors
from ort_quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from ort_quantization.bfloat16 import convert_float_to_bfloat16
from ort_quantization.float16 import convert_float_to_float16
from ort_quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from ort_quantization.models.prepare import quant_pre_process

CALL = """
    <ir_version: 8, opset_import: ["": OPSET, "own": 1]>
    g (float[2, 32] x) => (float[2, 32] y)
    { [product] p = MatMul (x, w)  [call] y = own.Twice (p) }
    <domain: "own", opset_import: ["": INNER]> Twice (a) => (b) { c = Sin (a)  b = Add (a, c) }
"""
X = np.linspace(-2, 2, 64, dtype=np.float32).reshape(2, 32)


def model_of(opset: int, inner: int | None = None) -> onnx.ModelProto:
    model = parser.parse_model(CALL.replace("OPSET", str(opset)).replace("INNER", str(inner or opset)))
    weight = np.random.default_rng(0).uniform(-0.3, 0.3, (32, 32)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


class Reader(CalibrationDataReader):
    def __init__(self) -> None:
        self.left = iter([{"x": X}])

    def get_next(self):
        return next(self.left, None)


def by_blocks(model, path):
    quantizer = MatMulNBitsQuantizer(model, bits=8, block_size=16, quant_format=QuantFormat.QDQ)
    quantizer.process()
    quantizer.model.save_model_to_file(str(path))


WAYS = {
    "prepared": (10, quant_pre_process),
    "by channel": (11, lambda model, path: quantize_static(model, path, Reader(), per_channel=True)),
    "16 bits": (
        17,
        lambda model, path: quantize_static(
            model, path, Reader(), activation_type=QuantType.QInt16, weight_type=QuantType.QInt8
        ),
    ),
    "dynamic": (17, quantize_dynamic),
    "in blocks": (17, by_blocks),
    "float16": (17, lambda model, path: onnx.save(convert_float_to_float16(model, keep_io_types=True), path)),
    "bfloat16": (12, lambda model, path: onnx.save(convert_float_to_bfloat16(model, keep_io_types=True), path)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_model_with_functions_gives_nearly_the_same_behind_every_tool(tmp_path, way):
    opset, tool = WAYS[way]
    tool(model_of(opset), tmp_path / "made.onnx")
    product = X.astype(np.float64) @ numpy_helper.to_array(model_of(opset).graph.initializer[0])
    engines = (ort_core,) if way == "bfloat16" else (ort_core, onnxruntime)  # it multiplies none of these on a CPU
    for engine in engines:
        session = engine.InferenceSession(str(tmp_path / "made.onnx"), providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(None, {"x": X})[0], product + np.sin(product), atol=0.1)


@pytest.mark.parametrize("way", ["prepared", "in blocks", "float16", "bfloat16"])
def test_a_function_that_cannot_be_inlined_is_named(tmp_path, way):
    opset, tool = WAYS[way]
    model = model_of(opset)
    model.opset_import.add(domain="com.microsoft", version=1)
    model.functions[0].opset_import.add(domain="com.microsoft", version=2)
    with pytest.raises(errors.NotImplemented, match=r"own\.Twice cannot be inlined"):
        tool(model, tmp_path / "made.onnx")
    assert not (tmp_path / "made.onnx").exists()
