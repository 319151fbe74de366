"""Classes of one's own in the registries: how programs teach either format an operator."""

from __future__ import annotations

import importlib

import onnx
import pytest
from beside_onnxruntime import relative_error, run_onnxruntime
from float_models import Builder, feeds_of

from ort_quantization import QuantFormat, QuantizationMode, QuantType, quantize_static
from ort_quantization.operators.base_operator import QuantOperatorBase
from ort_quantization.operators.conv import QDQConv
from ort_quantization.operators.qdq_base_operator import QDQOperatorBase
from ort_quantization.quant_utils import TENSOR_NAME_QUANT_SUFFIX, QuantizedValue, QuantizedValueType
from ort_quantization.registry import (
    CreateDefaultOpQuantizer,
    CreateOpQuantizer,
    CreateQDQQuantizer,
    QDQRegistry,
    QLinearOpsRegistry,
)


def tanh_between_products():
    b = Builder()
    hidden = b.node("MatMul", ["x", b.weight("w", 8, 8)], "h")
    b.node("MatMul", [b.node("Tanh", [hidden], "t"), b.weight("v", 8, 4)], "y")
    return b.model({"x": (3, 8)}, ["y"])


class InputOnly(QDQOperatorBase):
    """Quantizes what an operator reads, and leaves its result to its readers."""

    def quantize(self) -> None:
        assert not self.disable_qdq_for_node_output
        self.quantizer.quantize_activation_tensor(self.node.input[0])


class Marked(QuantOperatorBase):
    """Leaves an operator as it is, under another name."""

    def quantize(self) -> None:
        self.node.name = "marked"
        super().quantize()


@pytest.mark.parametrize("quant_format", list(QuantFormat), ids=str)
def test_a_class_in_a_registry_is_asked_for_its_operator(tmp_path, monkeypatch, quant_format):
    monkeypatch.setitem(QDQRegistry, "Tanh", InputOnly)
    monkeypatch.setitem(QLinearOpsRegistry, "Tanh", Marked)
    model, source, target = tanh_between_products(), tmp_path / "float.onnx", tmp_path / "quantized.onnx"
    onnx.save(model, source)
    samples = iter([feeds_of(model, seed) for seed in range(3)])
    reader = type("Reader", (), {"get_next": lambda self: next(samples, None)})()
    chosen = ["Tanh"] if quant_format is QuantFormat.QDQ else ["MatMul", "Tanh"]
    quantize_static(source, target, reader, quant_format, activation_type=QuantType.QUInt8, op_types_to_quantize=chosen)
    nodes = onnx.load(target).graph.node
    if quant_format is QuantFormat.QDQ:
        assert [node.name for node in nodes if node.op_type == "QuantizeLinear"] == ["h_QuantizeLinear"]
    else:
        assert [node.op_type for node in nodes if node.name == "marked"] == ["Tanh"]
    feeds = feeds_of(model, 0)
    assert relative_error(run_onnxruntime(target, feeds), run_onnxruntime(source, feeds)) < 0.05


class Recorder:
    """A quantizer that notes what it is asked for."""

    op_types_to_exclude_output_quantization = ()
    mode = QuantizationMode.QLinearOps

    def __init__(self):
        self.asked = []

    def quantize_activation_tensor(self, name):
        self.asked.append(name)

    def keep(self, node):
        self.asked.append(node.op_type)


def test_functions_that_make_writers_do_what_the_registries_say():
    node = onnx.helper.make_node("Tanh", ["a"], ["b"])
    for make, expected in ((CreateQDQQuantizer, ["a", "b"]), (CreateDefaultOpQuantizer, ["Tanh"])):
        recorder = Recorder()
        make(recorder, node).quantize()
        assert recorder.asked == expected
    assert isinstance(CreateOpQuantizer(Recorder(), node), QuantOperatorBase)


class Pool(QuantOperatorBase):
    """Writes a global pool by the calls of onnxruntime's own operator classes."""

    def quantize(self) -> None:
        node, quantizer = self.node, self.quantizer
        is_found, scale, zero_point, _, _ = quantizer._get_quantization_params(node.output[0])
        names, zero_points, scales, nodes = quantizer.quantize_activation(node, [0])
        if not is_found or names is None:
            super().quantize()
            return
        result = node.output[0] + TENSOR_NAME_QUANT_SUFFIX
        inputs = [names[0], scales[0], zero_points[0], scale, zero_point]
        written = onnx.helper.make_node(
            "QLinearGlobalAveragePool", inputs, [result], "pool_quant", domain="com.microsoft", channels_last=0
        )
        quantizer.new_nodes += [*nodes, written]
        quantizer.quantized_value_map[node.output[0]] = QuantizedValue(
            node.output[0], result, scale, zero_point, QuantizedValueType.Input
        )


class Product(QuantOperatorBase):
    """Writes a MatMul with constant weights by the calls of onnxruntime's own operator classes."""

    def quantize(self) -> None:
        node, quantizer = self.node, self.quantizer
        first = quantizer.quantize_activation(node, [0])
        second = quantizer.quantize_weight(node, [1], reduce_range=True, op_level_per_channel=True, axis=1)
        is_found, scale, zero_point, _, _ = quantizer._get_quantization_params(node.output[0])
        assert is_found
        result = node.output[0] + TENSOR_NAME_QUANT_SUFFIX
        inputs = [each[0] for names, zeros, scales, _ in (first, second) for each in (names, scales, zeros)]
        quantizer.add_new_nodes(
            [onnx.helper.make_node("QLinearMatMul", [*inputs, scale, zero_point], [result], node.name)]
        )
        quantizer.quantized_value_map[node.output[0]] = QuantizedValue(
            node.output[0], result, scale, zero_point, QuantizedValueType.Input
        )


def images():
    b = Builder()
    hidden = b.node("Conv", ["x", b.weight("w", 4, 2, 3, 3)], "h", pads=[1] * 4)
    pooled = b.node("Flatten", [b.node("GlobalAveragePool", [hidden], "p")], "f")
    b.node("MatMul", [pooled, b.weight("v", 4, 3)], "y")
    return b.model({"x": (2, 2, 6, 6)}, ["y"])


def written(tmp_path, quant_format):
    """Quantize images by channel, check that numbers stay near, and return the nodes."""
    model, source, target = images(), tmp_path / "float.onnx", tmp_path / "quantized.onnx"
    onnx.save(model, source)
    samples = [feeds_of(model, seed) for seed in range(3)]
    quantize_static(source, target, samples, quant_format, activation_type=QuantType.QUInt8, per_channel=True)
    feeds = feeds_of(model, 0)
    assert relative_error(run_onnxruntime(target, feeds), run_onnxruntime(source, feeds)) < 0.05
    return list(onnx.load(target).graph.node)


def test_a_class_in_the_style_of_onnxruntimes_own_writes_what_they_write(tmp_path, monkeypatch):
    expected = [(node.op_type, *node.input) for node in written(tmp_path, QuantFormat.QOperator)]
    monkeypatch.setitem(QLinearOpsRegistry, "GlobalAveragePool", Pool)
    monkeypatch.setitem(QLinearOpsRegistry, "MatMul", Product)
    nodes = written(tmp_path, QuantFormat.QOperator)
    assert [(node.op_type, *node.input) for node in nodes] == expected
    assert "pool_quant" in {node.name for node in nodes}


def test_a_class_may_derive_from_that_of_an_operator(tmp_path, monkeypatch):
    seen = []

    class Named(QDQConv):
        def quantize(self):
            seen.append(self.node.op_type)
            super().quantize()

    expected = [(node.op_type, *node.input) for node in written(tmp_path, QuantFormat.QDQ)]
    monkeypatch.setitem(QDQRegistry, "Conv", Named)
    assert [(node.op_type, *node.input) for node in written(tmp_path, QuantFormat.QDQ)] == expected
    assert seen == ["Conv"]


def test_the_registries_are_those_of_onnxruntime():
    theirs = importlib.import_module("onnxruntime.quantization.registry")
    ours = importlib.import_module("ort_quantization.registry")
    for name in ("QDQRegistry", "QLinearOpsRegistry", "IntegerOpsRegistry", "CommonOpsRegistry"):
        found, expected = (
            {op_type: (each.__module__.rpartition(".")[2], each.__name__) for op_type, each in registry.items()}
            for registry in (getattr(ours, name), getattr(theirs, name))
        )
        assert found == expected
