"""Operators that move numbers without computing: they run on quantized numbers as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from ort_quantization.quantizers.quantized_tensors import quantized
from ort_quantization.quantizers.quantized_values import QuantizedValue
from ort_quantization.quantizers.scales import Parameters

if TYPE_CHECKING:
    from ort_quantization.onnx_quantizer import ONNXQuantizer


def is_chosen_gather(quantizer: ONNXQuantizer, node: NodeProto) -> bool:
    """Return whether a Gather is quantized: chosen, and from an initializer of floats."""
    return quantizer.should_quantize_node(node) and quantizer.is_valid_quantize_weight(node.input[0])


def write_gather(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Let a Gather read quantized numbers."""
    _write_on(quantizer, node, quantizer.quantized_input(node.input[0]))


def _write_on(quantizer: ONNXQuantizer, node: NodeProto, value: QuantizedValue | None) -> None:
    """Write a node that reads and gives a value's quantized form; without one it stays as it is."""
    if value is None:
        return quantizer.keep(node)
    result = node.output[0]
    stated = QuantizedValue(result, f"{result}_quantized", value.scale_name, value.zp_name, value.value_type)
    node.input[0], node.output[0] = value.q_name, stated.q_name
    for name in node.input[1:]:
        quantizer.dequantize(name)
    quantizer.add(node)
    quantizer.state(result, stated)
    return None


def write_direct(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Let a node read quantized numbers if they are quantized already, or in any case where that is asked for."""
    if not quantizer.force_quantize_no_input_check:
        return _write_on(quantizer, node, quantizer.find_quantized_value(node.input[0]))
    if not quantizer.is_valid_quantize_weight(node.input[0]):
        return quantizer.keep(node)
    return _write_on(quantizer, node, quantizer.quantized_input(node.input[0]))


def write_max_pool(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Let a MaxPool read bytes, which it does from opset 12 on; it has no form for 8 bit floats or 16 bits."""
    is_float8 = quantizer.activation_qType == TensorProto.FLOAT8E4M3FN
    if quantizer.opset_version < 12 or is_float8:
        return quantizer.keep(node)
    return write_direct(quantizer, node)


def write_resize(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Let a Resize read quantized numbers, from opset 11 on."""
    return quantizer.keep(node) if quantizer.opset_version < 11 else write_direct(quantizer, node)


def write_arg_max(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Let an ArgMax read quantized numbers: their order is the same."""
    value = quantizer.find_quantized_value(node.input[0])
    if value is None:
        return quantizer.keep(node)
    node.input[0] = value.q_name
    quantizer.add(node)
    return None


def write_split(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Split quantized numbers."""
    value = quantizer.quantized_input(node.input[0])
    if value is None:
        return quantizer.keep(node)
    results = [f"{name}quantized" for name in node.output]
    name = f"{node.name}_quant" if node.name else ""
    split = helper.make_node("Split", [value.q_name, *node.input[1:]], results, name)
    split.attribute.extend(node.attribute)
    quantizer.add(split)
    for original, result in zip(node.output, results, strict=True):
        quantizer.state(original, QuantizedValue(original, result, value.scale_name, value.zp_name))
    return None


def write_pad(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Pad quantized numbers, by the quantized form of what reals are padded with."""
    value = quantizer.quantized_value_map.get(node.input[0])
    if quantizer.opset_version < 11 or value is None:
        return quantizer.keep(node)
    mode = next((helper.get_attribute_value(each) for each in node.attribute if each.name == "mode"), b"constant")
    if mode == b"constant":
        padding = _padding(quantizer, node, value)
        if padding is None:
            return quantizer.keep(node)
        while len(node.input) < 3:
            node.input.append("")
        node.input[2] = padding
    return _write_on(quantizer, node, value)


def _padding(quantizer: ONNXQuantizer, node: NodeProto, value: QuantizedValue) -> str | None:
    """Return the name of what quantized numbers are padded with; zero is their zero point."""
    name = node.input[2] if len(node.input) > 2 else ""
    if not name:
        return value.zp_name
    scale, point = (quantizer.model.get_initializer(each) for each in (value.scale_name, value.zp_name))
    if scale is None or point is None:
        return None
    result = f"{name}_quantized"
    tensor = quantizer.model.get_initializer(name)
    if tensor is None:
        quantizer.dequantize(name)
        inputs = [name, value.scale_name, value.zp_name]
        quantizer.add(helper.make_node("QuantizeLinear", inputs, [result], f"{name}_QuantizeLinear"))
        return result
    scales, points = (numpy_helper.to_array(each).reshape(-1)[:1].reshape(()) for each in (scale, point))
    parameters = Parameters(scales, points, point.data_type)
    numbers = np.asarray(quantized(numpy_helper.to_array(tensor), parameters))
    if quantizer.is_input_a_initializer(result):  # two nodes pad with one constant, at scales of their own
        result = f"{name}_{node.output[0]}_quantized"
    quantizer.model.add_initializer(numpy_helper.from_array(numbers, result))
    return result
