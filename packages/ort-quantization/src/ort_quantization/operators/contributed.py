"""Operators of com.microsoft that read quantized weights: attention, embeddings, LSTM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from ort_quantization.errors import InvalidQuantization
from ort_quantization.operators.integer_products import has_run_time_parameters
from ort_quantization.quantized_types import MICROSOFT, QuantizedValueType
from ort_quantization.quantizers.quantized_tensors import parameter_tensors, quantized
from ort_quantization.quantizers.quantized_values import QuantizedValue
from ort_quantization.quantizers.scales import Parameters

if TYPE_CHECKING:
    from ort_quantization.onnx_quantizer import ONNXQuantizer


def is_chosen(quantizer: ONNXQuantizer, node: NodeProto) -> bool:
    """Return whether a node was chosen, whatever its first input is."""
    return quantizer.should_quantize_node(node)


def is_chosen_at_run_time(quantizer: ONNXQuantizer, node: NodeProto) -> bool:
    """Return whether a node was chosen, and what it reads can be quantized while the model runs."""
    return is_chosen(quantizer, node) and has_run_time_parameters(quantizer, node)


def is_chosen_embedding(quantizer: ONNXQuantizer, node: NodeProto) -> bool:
    """Return whether a node was chosen, and its tables are of float32: the quantized operator has no other form."""
    tables = [name for name in node.input[2:7] if name]
    return is_chosen(quantizer, node) and all(quantizer.element_type(name) != TensorProto.FLOAT16 for name in tables)


def _name(node: NodeProto) -> str:
    return f"{node.name}_quant" if node.name else ""


def _input(node: NodeProto, place: int) -> str:
    return node.input[place] if place < len(node.input) else ""


def write_attention(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Write QAttention; an Attention whose three hidden sizes differ has no quantized form."""
    if any(each.name == "qkv_hidden_sizes" for each in node.attribute):
        return quantizer.keep(node)
    first = quantizer.quantized_input(node.input[0])
    second = quantizer.quantized_weight(node.input[1], is_reduced=True, axis=-1)
    if first is None or second is None:
        return quantizer.keep(node)
    quantizer.dequantize(node.input[2])
    inputs = [
        first.q_name, second.q_name, node.input[2], first.scale_name, second.scale_name, _input(node, 3),
        first.zp_name, second.zp_name, _input(node, 4),
    ]  # fmt: skip
    attention = helper.make_node("QAttention", inputs, list(node.output), _name(node), domain=MICROSOFT)
    attention.attribute.extend(node.attribute)
    quantizer.add(attention)
    return None


def write_embedding(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Write QEmbedLayerNormalization: indices stay as they are, tables, gamma and beta are quantized.

    Its second result has a name whether it is read or not: only EmbedLayerNormalization may leave it out.
    """
    values = quantizer.quantized_inputs(node.input[2:7]) if len(node.output) <= 2 else None
    if values is None:
        return quantizer.keep(node)
    inputs = [
        node.input[0], node.input[1], *(each.q_name for each in values), _input(node, 7),
        *(each.scale_name for each in values), *(each.zp_name for each in values),
    ]  # fmt: skip
    outputs = [node.output[0], "".join(node.output[1:2]) or f"{node.output[0]}_mask_index"]
    embedding = helper.make_node("QEmbedLayerNormalization", inputs, outputs, _name(node), domain=MICROSOFT)
    embedding.attribute.extend(node.attribute)
    quantizer.add(embedding)
    return None


def write_lstm(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Write DynamicQuantizeLSTM; its weights are transposed: (directions, inputs, 4 * hidden)."""
    names = node.input[1], node.input[2]
    if not all(quantizer.is_valid_quantize_weight(name) and quantizer.rank_of(name) == 3 for name in names):
        return quantizer.keep(node)
    if not all(quantizer.is_input_a_initializer(name) for name in names):
        return quantizer.keep(node)  # weights of a graph around this would get another layout there
    weights = [_lstm_weight(quantizer, name) for name in names]
    inputs = [
        node.input[0], *(each.q_name for each in weights), *(_input(node, place) for place in range(3, 8)),
        *(name for each in weights for name in (each.scale_name, each.zp_name)),
    ]  # fmt: skip
    for name in inputs:
        quantizer.dequantize(name)
    layer = helper.make_node("DynamicQuantizeLSTM", inputs, list(node.output), _name(node), domain=MICROSOFT)
    layer.attribute.extend(each for each in node.attribute if each.name != "layout")
    quantizer.add(layer)
    return None


def _lstm_weight(quantizer: ONNXQuantizer, name: str) -> QuantizedValue:
    """Return weights (directions, 4 * hidden, inputs) quantized: a scale for each direction, or for each row of it."""
    if name in quantizer.quantized_value_map:
        return quantizer.quantized_value_map[name]
    values = quantizer.array_of(name)
    directions, rows, columns = values.shape
    flat = values.reshape(-1, columns) if quantizer.is_per_channel() else values
    found = quantizer.channel_parameters_of(name, flat, TensorProto.INT8, 0, quantizer.reduce_range)
    turned = quantized(flat, found).reshape(directions, rows, columns).transpose(0, 2, 1)
    shape = (directions, rows) if quantizer.is_per_channel() else (directions,)
    stored = Parameters(found.scale.reshape(shape), found.zero_point.reshape(shape), found.tensor_type, 0)
    value = QuantizedValue(
        name, f"{name}_quantized", f"{name}_scale", f"{name}_zero_point", QuantizedValueType.Initializer, 0
    )
    tensors = [numpy_helper.from_array(np.ascontiguousarray(turned), value.q_name)]
    for tensor in (*parameter_tensors(stored, value.scale_name, value.zp_name), *tensors):
        if quantizer.is_input_a_initializer(tensor.name):
            raise InvalidQuantization(f"the model has a tensor of the name {tensor.name!r} already")
        quantizer.model.add_initializer(tensor)
    return value
