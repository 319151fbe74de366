"""A Relu or Clip is left out only where the range of what it reads does its work; all else would change results."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from beside_onnxruntime import relative_error, run_onnxruntime
from float_models import FLOAT, Builder, feeds_of
from onnx import helper

from ort_quantization import QuantFormat, QuantType, quantize_static


def relu_beside_others():
    b = Builder()
    hidden = b.node("Conv", ["x", b.weight("w", 4, 4, 1, 1)], "h")
    b.node("Concat", [b.node("Relu", [hidden], "l"), b.node("Sigmoid", [hidden], "r"), hidden], "y", axis=1)
    return b.model({"x": (1, 4, 3, 3)}, ["y"])


def relu_of_a_result():
    b = Builder()
    hidden = b.node("Conv", ["x", b.weight("w", 4, 4, 1, 1)], "h")
    b.node("Relu", [hidden], "y")
    return b.model({"x": (1, 4, 3, 3)}, ["y", "h"])


def clip_without_zero():
    b = Builder()
    hidden = b.node("Conv", ["x", b.weight("w", 4, 4, 1, 1)], "h")
    b.node("Clip", [hidden, b.constant("low", np.float32(0.5)), b.constant("high", np.float32(1.5))], "y")
    return b.model({"x": (1, 4, 3, 3)}, ["y"])


def relu_beside_a_branch():
    """A branch reads what the Relu reads, negative numbers among it."""
    b = Builder()
    hidden = b.node("Conv", ["x", b.weight("w", 4, 4, 1, 1)], "h")
    b.node("Relu", [hidden], "y")

    def branch(name: str):
        node = helper.make_node("Identity", [hidden], [f"{name}_z"])
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(f"{name}_z", FLOAT, [1, 4, 3, 3])])

    b.node("If", [b.constant("flag", True)], "z", then_branch=branch("then"), else_branch=branch("other"))
    return b.model({"x": (1, 4, 3, 3)}, ["y", "z"])


@pytest.mark.parametrize("quant_format", list(QuantFormat), ids=str)
@pytest.mark.parametrize("make", [relu_beside_others, relu_of_a_result, clip_without_zero, relu_beside_a_branch])
def test_a_relu_or_clip_whose_input_others_need_still_works(tmp_path, make, quant_format):
    model, source, target = make(), tmp_path / "float.onnx", tmp_path / "quantized.onnx"
    onnx.save(model, source)
    samples = iter([feeds_of(model, seed) for seed in range(3)])

    class Reader:
        def get_next(self):
            return next(samples, None)

    quantize_static(source, target, Reader(), quant_format, activation_type=QuantType.QUInt8)
    feeds = feeds_of(model, 0)
    assert relative_error(run_onnxruntime(target, feeds), run_onnxruntime(source, feeds)) < 0.03


def relu_before_a_pair():
    """What reads the Relu's result rounds it already, by a scale and a zero point that let negative numbers through."""
    b = Builder()
    hidden = b.node("Conv", ["x", b.weight("w", 4, 4, 1, 1)], "h")
    pair = [b.constant("scale", np.float32(0.02)), b.constant("zero", np.int8(0))]
    rounded = b.node("QuantizeLinear", [b.node("Relu", [hidden], "r"), *pair], "q")
    b.node("DequantizeLinear", [rounded, *pair], "y")
    return b.model({"x": (1, 4, 3, 3)}, ["y"])


def relu_with_a_range(**chosen):
    b = Builder()
    hidden = b.node("Conv", ["x", b.weight("w", 4, 4, 1, 1)], "h")
    b.node("Sigmoid", [b.node("Relu", [hidden], "r")], "y")
    return b.model({"x": (1, 4, 3, 3)}, ["y"]), {"TensorQuantOverrides": {"r": [chosen]}}


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (relu_before_a_pair(), {}),
        (relu_with_a_range()[0], {"OpTypesToExcludeOutputQuantization": ["Relu"]}),
        relu_with_a_range(rmin=np.float32(-2), rmax=np.float32(4)),
        relu_with_a_range(scale=np.float32(0.02), zero_point=np.uint8(128)),
    ],
    ids=["a pair follows", "the result stays in float", "a chosen range", "a chosen scale"],
)
def test_a_relu_whose_result_has_no_range_that_ends_at_zero_stays(tmp_path, model, options):
    source, target = tmp_path / "float.onnx", tmp_path / "quantized.onnx"
    onnx.save(model, source)
    reader = iter([feeds_of(model, seed) for seed in range(3)])

    class Reader:
        def get_next(self):
            return next(reader, None)

    quantize_static(source, target, Reader(), QuantFormat.QDQ, activation_type=QuantType.QUInt8, extra_options=options)
    assert "Relu" in {node.op_type for node in onnx.load(target).graph.node}
    feeds = feeds_of(model, 0)
    assert relative_error(run_onnxruntime(target, feeds), run_onnxruntime(source, feeds)) < 0.03
