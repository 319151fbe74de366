"""Models of all opsets from 7 to 28 are quantized, older and newer ones refused in a sentence."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from beside_onnxruntime import relative_error
from float_models import Builder
from onnx import helper

import ort_core
from ort_core.errors import OrtError
from ort_quantization import QuantFormat, QuantType, quant_pre_process, quantize_dynamic, quantize_static
from ort_quantization.errors import InvalidQuantization
from ort_quantization.float16 import convert_float_to_float16
from ort_quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

UINT8, INT8 = QuantType.QUInt8, QuantType.QInt8
SAMPLE = {"x": np.random.default_rng(3).normal(size=(1, 3, 8, 8)).astype(np.float32)}


class Reader:
    """Gives the one sample."""

    def __init__(self):
        self.left = iter([SAMPLE])

    def get_next(self):
        return next(self.left, None)


def network(opset: int) -> onnx.ModelProto:
    """A Conv, a mean of what a Relu gives (nothing of which is negative), a Gemm and a MatMul."""
    b = Builder(opset)
    value = b.node("Conv", ["x", b.weight("w", 16, 3, 3, 3), b.weight("b", 16)], "c", pads=[1, 1, 1, 1])
    value = b.node("GlobalAveragePool", [b.node("Relu", [value], "r")], "g")
    value = b.node("Gemm", [b.node("Flatten", [value], "f"), b.weight("v", 32, 16), b.weight("d", 32)], "h", transB=1)
    b.node("MatMul", [value, b.weight("u", 32, 5)], "y")
    model = b.model({"x": (1, 3, 8, 8)}, ["y"])
    model.ir_version = 13 if opset > 21 else 8
    return model


def by_blocks(source, target, **arguments):
    quantizer = MatMulNBitsQuantizer(onnx.load(source), 8, 16, **arguments)
    quantizer.process()
    quantizer.model.save_model_to_file(target)


WAYS = {
    "dynamic": lambda source, target: quantize_dynamic(source, target),
    "QDQ": lambda source, target: quantize_static(source, target, Reader(), activation_type=UINT8, per_channel=True),
    "QOperator": lambda source, target: quantize_static(
        source, target, Reader(), QuantFormat.QOperator, activation_type=UINT8
    ),
    "16 bits": lambda source, target: quantize_static(source, target, Reader(), activation_type=QuantType.QUInt16),
    "blocks": by_blocks,
    "pairs of blocks": lambda source, target: by_blocks(source, target, quant_format=QuantFormat.QDQ),
    "prepared": lambda source, target: quant_pre_process(source, target),
    "float16": lambda source, target: onnx.save(convert_float_to_float16(source, keep_io_types=True), target),
}


def run(path):
    return ort_core.InferenceSession(str(path), providers=["ReferenceExecutionProvider"]).run(None, SAMPLE)


@pytest.mark.sweep
@pytest.mark.parametrize("opset", [7, 8, 9, 10, 11, 12, 13, 17, 19, 21, 23, 25, 26, 27, 28])
@pytest.mark.parametrize("way", WAYS)
def test_models_are_quantized(tmp_path, opset, way):
    source, target = tmp_path / "float.onnx", tmp_path / "small.onnx"
    onnx.save(network(opset), source)
    WAYS[way](source, target)
    assert relative_error(run(target), run(source)) < 0.05


@pytest.mark.parametrize("way", ["dynamic", "QDQ", "QOperator", "16 bits"])
@pytest.mark.parametrize("opset", [6, 29])
def test_other_opsets_are_refused_in_a_sentence(tmp_path, opset, way):
    source = tmp_path / "float.onnx"
    model = network(13)
    model.opset_import[0].version = opset
    onnx.save(model, source)
    with pytest.raises(OrtError, match=r"opset 6 is too old|[Oo]pset 29"):
        WAYS[way](source, tmp_path / "small.onnx")


@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [("ImageScaler", {"scale": 0.5, "bias": [0.1, -0.2, 0.3]}), ("Affine", {"alpha": 0.5, "beta": 0.25})],
)
@pytest.mark.parametrize("way", ["dynamic", "QDQ", "prepared"])
def test_operators_that_onnx_has_no_more_are_quantized_around(tmp_path, way, op_type, attributes):
    model = network(7)
    model.graph.node.insert(0, helper.make_node(op_type, ["x"], ["scaled"], "early", **attributes))
    model.graph.node[1].input[0] = "scaled"
    source, target = tmp_path / "float.onnx", tmp_path / "small.onnx"
    onnx.save(model, source)
    WAYS[way](source, target)
    plain = network(13)
    bias = np.asarray(attributes.get("bias", attributes.get("beta")), np.float32).reshape(-1, 1, 1)
    scale = attributes.get("scale", attributes.get("alpha"))
    feeds = {"x": (SAMPLE["x"] * np.float32(scale) + bias).astype(np.float32)}
    expected = ort_core.InferenceSession(plain.SerializeToString(), providers=["ReferenceExecutionProvider"])
    assert relative_error(run(target), expected.run(None, feeds)) < 0.05


def test_what_the_converter_refuses_is_told_of_with_both_opsets(tmp_path):
    model = network(8)
    model.graph.node.insert(0, helper.make_node("Upsample", ["x", "no such value"], ["z"]))
    with pytest.raises(InvalidQuantization, match="cannot convert the model from opset 8 to 11"):
        quantize_dynamic(model, tmp_path / "small.onnx")


@pytest.mark.parametrize("is_symmetric", [False, True])
def test_values_without_a_range_keep_their_zeros_in_opset_10(tmp_path, is_symmetric):
    source, target = tmp_path / "float.onnx", tmp_path / "small.onnx"
    onnx.save(network(10), source)
    quantize_dynamic(source, target, extra_options={"ActivationSymmetric": is_symmetric})
    zeros = {"x": np.zeros_like(SAMPLE["x"])}
    results = [
        ort_core.InferenceSession(str(path), providers=["ReferenceExecutionProvider"]).run(None, zeros)
        for path in (target, source)
    ]
    assert relative_error(*results) < 0.05
