"""Products of integers whose parameters are found while the model runs.

Before:  Y = MatMul(A, B)
After:   A_quantized, A_scale, A_zero_point = DynamicQuantizeLinear(A)
         Y_output_quantized = MatMulInteger(A_quantized, B_quantized, A_zero_point, B_zero_point)
         Y = Mul(Cast(Y_output_quantized), Mul(A_scale, B_scale))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from ort_quantization.errors import InvalidQuantization
from ort_quantization.quantizers.quantized_values import QuantizedValue

if TYPE_CHECKING:
    from ort_quantization.onnx_quantizer import ONNXQuantizer

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)


def is_chosen_product(quantizer: ONNXQuantizer, node: NodeProto) -> bool:
    """Return whether a product is quantized: chosen, of floats, and with constant weights where that is asked."""
    if not quantizer.should_quantize_node(node):
        return False
    if not (quantizer.is_float_tensor(node.input[1]) or quantizer.is_float_tensor(node.input[0])):
        return False
    return not quantizer.q_matmul_const_b_only or quantizer.find_initializer_in_path(node.input[1])


def is_chosen_run_time_product(quantizer: ONNXQuantizer, node: NodeProto) -> bool:
    """Return whether a MatMul is quantized while the model runs."""
    return is_chosen_product(quantizer, node) and has_run_time_parameters(quantizer, node)


def is_chosen_at_run_time(quantizer: ONNXQuantizer, node: NodeProto) -> bool:
    """Return whether a node is quantized while the model runs: chosen, and of float32."""
    is_chosen = quantizer.should_quantize_node(node) and quantizer.is_float_tensor(node.input[0])
    return is_chosen and has_run_time_parameters(quantizer, node)


def has_run_time_parameters(quantizer: ONNXQuantizer, node: NodeProto) -> bool:
    """Return whether what a node reads can be quantized while the model runs: that is done in float32 only.

    Weights tell the type of a value that nothing else tells it of.
    """
    return all(quantizer.element_type(name) != TensorProto.FLOAT16 for name in node.input[:2])


def write_matmul(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Write MatMulInteger."""
    first = quantizer.quantized_input(node.input[0])
    second = quantizer.quantized_weight(node.input[1], is_reduced=True, axis=axis_of_columns(quantizer, node))
    _write_product(quantizer, node, "MatMulInteger", _both(first, second), node.output[0])


def axis_of_columns(quantizer: ONNXQuantizer, node: NodeProto) -> int | None:
    """Return the axis along which the weights of a MatMul may have scales, ``None`` where one is for all.

    A vector has no columns, and of stacked matrices onnxruntime's products take no scale for each column.
    """
    return -1 if quantizer.rank_of(node.input[1]) == 2 else None


def write_conv(quantizer: ONNXQuantizer, node: NodeProto) -> None:
    """Write ConvInteger, and its bias as a sum of reals."""
    first = quantizer.quantized_input(node.input[0])
    second = quantizer.quantized_weight(node.input[1], is_reduced=quantizer.reduce_range)
    has_bias = len(node.input) == 3 and bool(node.input[2])
    product = f"{node.output[0]}quant_scaled_output" if has_bias else node.output[0]
    _write_product(quantizer, node, "ConvInteger", _both(first, second), product)
    if has_bias:
        _add_bias(quantizer, node, product)


def _both(first: QuantizedValue | None, second: QuantizedValue | None) -> tuple[QuantizedValue, QuantizedValue]:
    if first is None or second is None:
        raise InvalidQuantization("a value that is quantized while the model runs has no quantized form")
    return first, second


def _write_product(
    quantizer: ONNXQuantizer, node: NodeProto, op_type: str, inputs: tuple[QuantizedValue, QuantizedValue], result: str
) -> None:
    first, second = inputs
    name = f"{node.name}_quant" if node.name else ""
    whole = f"{node.output[0]}_output_quantized"
    product = helper.make_node(op_type, [first.q_name, second.q_name, first.zp_name, second.zp_name], [whole], name)
    product.attribute.extend(node.attribute)
    reals = f"{whole}_cast_output"
    cast = helper.make_node("Cast", [whole], [reals], f"{whole}_cast", to=_result_type(quantizer, node))
    quantizer.add(product, cast)
    scales = f"{name}_scales_mul" if name else f"{first.scale_name}_{second.scale_name}_mul"
    if f"{scales}:0" not in quantizer.generated_value_names:
        quantizer.add(helper.make_node("Mul", [first.scale_name, second.scale_name], [f"{scales}:0"], scales))
    last = f"{name}_output_scale_mul" if name else ""
    quantizer.add(helper.make_node("Mul", [reals, f"{scales}:0"], [result], last))


def _result_type(quantizer: ONNXQuantizer, node: NodeProto) -> int:
    """Return the float type of a product: as far as nothing tells it, that of an input."""
    known = (quantizer.element_type(name) for name in (node.output[0], node.input[1], node.input[0]))
    found = next((each for each in known if each in _FLOATS), None)
    found = found if found is not None else quantizer.extra_options.get("DefaultTensorType")
    if found is None:
        raise InvalidQuantization(
            f"the type of what node {node.name!r} ({node.op_type}) gives, {node.output[0]!r}, is not known; prepare "
            "the model with quant_pre_process, or name the type in extra_options['DefaultTensorType']"
        )
    return found


def _add_bias(quantizer: ONNXQuantizer, node: NodeProto, product: str) -> None:
    rank = quantizer.rank_of(node.input[1])
    if rank is None:
        raise InvalidQuantization(
            f"the rank of the weights {node.input[1]!r} of node {node.name!r} (Conv) is not known, so that its bias "
            "cannot be added; exclude the node, or give the model shapes with quant_pre_process"
        )
    result = node.output[0]
    shape, reshaped = f"{result}_bias_reshape_shape", f"{result}_bias_reshape_output"
    sizes = np.ones(rank, np.int64)
    sizes[1] = -1
    quantizer.model.add_initializer(numpy_helper.from_array(sizes, shape))
    quantizer.dequantize(node.input[2])
    quantizer.add(
        helper.make_node("Reshape", [node.input[2], shape], [reshaped]),
        helper.make_node("Add", [product, reshaped], [result], f"{result}_bias_add"),
    )
