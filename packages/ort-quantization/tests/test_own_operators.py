"""Classes of one's own in the registries: how programs teach either format an operator."""

from __future__ import annotations

import onnx
import pytest
from beside_onnxruntime import relative_error, run_onnxruntime
from float_models import Builder, feeds_of

from ort_quantization import QuantFormat, QuantType, quantize_static
from ort_quantization.operators.base_operator import QuantOperatorBase
from ort_quantization.operators.qdq_base_operator import QDQOperatorBase
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
