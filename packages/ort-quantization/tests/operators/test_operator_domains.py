"""Operators of one name in several domains: only those that are known by the name are quantized."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from beside_onnxruntime import relative_error, run_onnxruntime
from float_models import Builder, feeds_of
from onnx import helper

from ort_quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static


class Reader:
    """Gives one sample of a model."""

    def __init__(self, model):
        self.left = iter([feeds_of(model)])

    def get_next(self):
        return next(self.left, None)


WAYS = {
    "dynamic": lambda model, target: quantize_dynamic(model, target),
    "QDQ": lambda model, target: quantize_static(model, target, Reader(model), activation_type=QuantType.QUInt8),
    "QOperator": lambda model, target: quantize_static(
        model, target, Reader(model), QuantFormat.QOperator, activation_type=QuantType.QUInt8
    ),
    "16 bits": lambda model, target: quantize_static(model, target, Reader(model), activation_type=QuantType.QUInt16),
}


@pytest.mark.parametrize("way", WAYS)
def test_attention_of_onnx_is_not_taken_for_that_of_com_microsoft(tmp_path, way):
    b = Builder(23)
    operands = [b.node("MatMul", ["x", b.weight(each, 8, 8)], f"{each}_x") for each in "qkv"]
    b.node("Attention", operands, "y", q_num_heads=2, kv_num_heads=2)
    model = b.model({"x": (2, 3, 8)}, ["y"])
    model.ir_version = 10
    source, target = tmp_path / "float.onnx", tmp_path / "small.onnx"
    onnx.save(model, source)
    WAYS[way](model, target)  # onnxruntime's tool writes a QAttention of what is not its weight
    kept = [node for node in onnx.load(target).graph.node if node.op_type in ("Attention", "QAttention")]
    assert [(node.domain, node.op_type) for node in kept] == [("", "Attention")]
    feeds = feeds_of(model)
    assert relative_error(run_onnxruntime(target, feeds), run_onnxruntime(source, feeds)) < 0.05


@pytest.mark.parametrize("op_type", ["MatMul", "Conv", "Gemm"])
@pytest.mark.parametrize("way", ["dynamic", "QDQ", "QOperator"])
def test_operators_of_users_stay_whatever_their_names_are(tmp_path, way, op_type, monkeypatch):
    b = Builder(13)
    b.node("Relu", ["x"], "r")
    b.nodes.append(helper.make_node(op_type, ["r", b.weight("w", 4, 4)], ["h"], "own", domain="my.operators"))
    b.node("Relu", ["h"], "y")
    model = b.model({"x": (4, 4)}, ["y"])
    model.opset_import.append(helper.make_opsetid("my.operators", 1))
    model.graph.value_info.append(helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, [4, 4]))
    ranges = _Ranges(["x", "r", "h", "y"])
    monkeypatch.setattr("ort_quantization.quantizers.quantize_statically._calibrated", lambda *_: ranges.data)
    WAYS[way](model, tmp_path / "small.onnx")
    small = onnx.load(tmp_path / "small.onnx")
    own = next(node for node in small.graph.node if node.name == "own")
    assert (own.op_type, own.domain, own.input[1]) == (op_type, "my.operators", "w")


class _Ranges:
    """Ranges of values that no engine can run here."""

    def __init__(self, names):
        from ort_quantization.calibration.tensor_ranges import CalibrationMethod, TensorData, TensorsData

        ends = {"lowest": np.float32(0), "highest": np.float32(2)}
        self.data = TensorsData(CalibrationMethod.MinMax, {name: TensorData(**ends) for name in names})


def test_models_with_operators_that_onnx_does_not_have_are_converted(tmp_path):
    b = Builder(17)
    hidden = b.node("MatMul", ["x", b.weight("w", 8, 8)], "h")
    hidden = b.node("SimplifiedLayerNormalization", [hidden, b.constant("g", np.ones(8, "f"))], "n", axis=-1)
    b.node("MatMul", [hidden, b.weight("v", 8, 4)], "y")
    model = b.model({"x": (2, 8)}, ["y"])
    model.graph.value_info.append(helper.make_tensor_value_info("n", onnx.TensorProto.FLOAT, [2, 8]))
    source, target = tmp_path / "float.onnx", tmp_path / "small.onnx"
    onnx.save(model, source)
    WAYS["16 bits"](model, target)  # in opset 21
    small = onnx.load(target)
    assert [each.version for each in small.opset_import if not each.domain] == [21]
    assert {each.domain for each in small.opset_import} <= {"", "com.microsoft"}
    feeds = feeds_of(model)
    assert relative_error(run_onnxruntime(target, feeds), run_onnxruntime(source, feeds)) < 0.01
