"""Operators that read and give quantized numbers by parameters that calibration found.

Before:  Y = Conv(X, W, B)
After:   Y_quantized = QLinearConv(X_quantized, X_scale, X_zero_point, W_quantized, W_scale, W_zero_point,
                                   Y_scale, Y_zero_point, B_quantized)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnx import NodeProto, TensorProto, helper

from ort_quantization.errors import InvalidQuantization
from ort_quantization.operators.integer_products import axis_of_columns
from ort_quantization.quantized_types import MICROSOFT, QuantizedValueType
from ort_quantization.quantizers.quantized_values import QuantizedValue

if TYPE_CHECKING:
    from ort_quantization.onnx_quantizer import ONNXQuantizer

_NNAPI_SIGMOID = "extra.Sigmoid.nnapi"
_SHARE = 1 / 256  # the scale of what lies between 0 and 1


def _write(
    quantizer: ONNXQuantizer, node: NodeProto, op_type: str, inputs: Sequence[str], parameters: tuple[str, str],
    domain: str = MICROSOFT, without: str = "", kind: QuantizedValueType = QuantizedValueType.Input,
) -> NodeProto:  # fmt: skip
    """Add a quantized operator in a node's place, and say that it gives the node's result.

    Args:
        quantizer: whose graph it is.
        node: what is replaced; its attributes are taken over.
        op_type: of the quantized operator.
        inputs: of the quantized operator.
        parameters: the names of the result's scale and zero point.
        domain: of the quantized operator.
        without: an attribute that it does not have.
        kind: of the result.
    """
    result = node.output[0]
    value = QuantizedValue(result, f"{result}_quantized", *parameters, kind)
    name = f"{node.name}_quant" if node.name else ""
    written = helper.make_node(op_type, list(inputs), [value.q_name], name, domain=domain)
    written.attribute.extend(each for each in node.attribute if each.name != without)
    quantizer.add(written)
    quantizer.state(result, value)
    return written


def _product_inputs(
    quantizer: ONNXQuantizer, node: NodeProto, axis: int | None, kind: int | None = None, is_reduced: bool = True
) -> tuple[QuantizedValue, QuantizedValue] | None:
    """Return the quantized forms of what is multiplied, ``None`` where one was not calibrated.

    Args:
        quantizer: whose graph it is.
        node: the product.
        axis: of the weights' channels, for a scale for each where they are an initializer.
        kind: the type of weights with a scale for each channel, where it is not the chosen one.
        is_reduced: the operator wants one bit less in weights where the caller has allowed it.
    """
    first = quantizer.quantized_input(node.input[0])
    name = node.input[1]
    if kind is not None and quantizer.is_per_channel() and quantizer.is_input_a_initializer(name) and axis is not None:
        second: QuantizedValue | None = quantizer.quantize_channels(name, kind, axis)
    else:
        second = quantizer.quantized_weight(name, is_reduced, axis if kind is None else None)
    return None if first is None or second is None else (first, second)


def write_conv(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Write QLinearConv; weights with a scale for each channel are int8."""
    parameters = quantizer.output_parameters(node.output[0])
    values = _product_inputs(quantizer, node, 0, TensorProto.INT8, quantizer.reduce_range)
    has_bias = len(node.input) == 3 and bool(node.input[2])
    if parameters is None or values is None or (has_bias and not quantizer.is_input_a_initializer(node.input[2])):
        return quantizer.keep(node)
    inputs = [*values[0].inputs, *values[1].inputs, *parameters]
    if has_bias:
        if quantizer.weight_qType == TensorProto.FLOAT8E4M3FN:
            raise InvalidQuantization(f"node {node.name!r} (Conv) has no form for 8 bit floats; exclude Conv")
        inputs.append(quantizer.stored_bias(node.input[2], *values))
    _write(quantizer, node, "QLinearConv", inputs, parameters, domain="")
    return None


def write_matmul(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Write QLinearMatMul: com.microsoft's for 8 bit floats, which ONNX's does not take."""
    values = _product_inputs(quantizer, node, axis_of_columns(quantizer, node))
    parameters = quantizer.output_parameters(node.output[0])
    if parameters is None or values is None:
        return quantizer.keep(node)
    domain = MICROSOFT if quantizer.weight_qType == TensorProto.FLOAT8E4M3FN else ""
    inputs = [*values[0].inputs, *values[1].inputs, *parameters]
    _write(quantizer, node, "QLinearMatMul", inputs, parameters, domain)
    return None


def write_gemm(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Write QGemm; a bias that is computed keeps the node as it is."""
    parameters = quantizer.output_parameters(node.output[0])
    is_transposed = any(each.name == "transB" and each.i for each in node.attribute)
    values = _product_inputs(quantizer, node, 0 if is_transposed else 1, quantizer.weight_qType, quantizer.reduce_range)
    has_bias = len(node.input) == 3 and bool(node.input[2])
    if parameters is None or values is None or (has_bias and not quantizer.is_input_a_initializer(node.input[2])):
        return quantizer.keep(node)
    bias = ""
    if has_bias:
        given = {each.name: each.f for each in node.attribute}
        bias = quantizer.stored_bias(node.input[2], *values, (given.get("alpha", 1.0), given.get("beta", 1.0)))
    inputs = [*values[0].inputs, *values[1].inputs, bias, *parameters]
    _write(quantizer, node, "QGemm", inputs, parameters, without="beta")
    return None


def write_binary(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Write QLinearAdd or QLinearMul."""
    parameters = quantizer.output_parameters(node.output[0])
    values = quantizer.quantized_inputs(node.input[:2])
    if parameters is None or values is None:
        return quantizer.keep(node)
    inputs = [*values[0].inputs, *values[1].inputs, *parameters]
    _write(quantizer, node, f"QLinear{node.op_type}", inputs, parameters)
    return None


def write_activation(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Write a Relu or Clip, or another activation of one input."""
    (write_clip if node.op_type in ("Relu", "Clip") else write_unary)(quantizer, node)


def write_clip(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Leave out a Relu or Clip of a quantized value whose producer's range ends where theirs does.

    With symmetric ranges, and where others read that value, it does not; nor behind a MaxPool or a Reshape, whose
    result has the scale of what went in.
    """
    value = quantizer.quantized_value_map.get(node.input[0])
    if value is None or quantizer.is_activation_symmetric or not quantizer.is_clipped_by_range(node):
        return quantizer.keep(node)
    if value.scale_name != f"{node.input[0]}_scale":
        return quantizer.keep(node)
    quantizer.state(node.output[0], value)
    return None


def write_unary(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Write QLinearSigmoid, QLinearLeakyRelu or QLinearAveragePool."""
    is_nnapi = node.op_type == "Sigmoid" and quantizer.extra_options.get(_NNAPI_SIGMOID, False)
    _write_unary(quantizer, node, (_SHARE, 0) if is_nnapi else None)


def write_softmax(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Write QLinearSoftmax, whose result always lies between 0 and 1."""
    zero_point = 0 if quantizer.activation_qType == TensorProto.UINT8 else -128
    written = _write_unary(quantizer, node, (_SHARE, zero_point))
    if written is not None:
        written.attribute.append(helper.make_attribute("opset", quantizer.opset_version))


def _write_unary(quantizer: ONNXQuantizer, node: NodeProto, given: tuple[float, int] | None) -> NodeProto | None:
    """Write an operator of one input; ``given`` is its result's scale and zero point where calibration's are not."""
    parameters = quantizer.output_parameters(node.output[0], *(given or ()))
    value = quantizer.quantized_input(node.input[0])
    if parameters is None or value is None:
        quantizer.keep(node)
        return None
    return _write(quantizer, node, f"QLinear{node.op_type}", [*value.inputs, *parameters], parameters)


def write_global_pool(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Write QLinearGlobalAveragePool of a value that is quantized already."""
    value = quantizer.quantized_value_map.get(node.input[0])
    if value is None:
        return quantizer.keep(node)
    parameters = quantizer.output_parameters(node.output[0]) or (value.scale_name, value.zp_name)
    pool = _write(quantizer, node, "QLinearGlobalAveragePool", [*value.inputs, *parameters], parameters)
    pool.attribute.append(helper.make_attribute("channels_last", 0))
    return None


def write_concat(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Write QLinearConcat."""
    parameters = quantizer.output_parameters(node.output[0])
    values = quantizer.quantized_inputs(node.input)
    if parameters is None or values is None:
        return quantizer.keep(node)
    inputs = [*parameters, *(name for value in values for name in value.inputs)]
    _write(quantizer, node, "QLinearConcat", inputs, parameters, kind=values[0].value_type)
    return None


def write_where(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Write QLinearWhere, where that is asked for."""
    if not quantizer.force_quantize_no_input_check:
        return quantizer.keep(node)
    parameters = quantizer.output_parameters(node.output[0])
    values = quantizer.quantized_inputs(node.input[1:3])
    if parameters is None or values is None:
        return quantizer.keep(node)
    quantizer.dequantize(node.input[0])
    inputs = [node.input[0], *values[0].inputs, *values[1].inputs, *parameters]
    _write(quantizer, node, "QLinearWhere", inputs, parameters)
    return None
