"""Which values of an operator get a QuantizeLinear and a DequantizeLinear around them, in the QDQ format."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
from onnx import NodeProto, TensorProto, helper

if TYPE_CHECKING:
    from ort_quantization.qdq_quantizer import QDQQuantizer

log = logging.getLogger(__name__)


def _marks_results(quantizer: QDQQuantizer, node: NodeProto) -> bool:
    return node.op_type not in quantizer.op_types_to_exclude_output_quantization


def mark_all(quantizer: QDQQuantizer, node: NodeProto) -> None:
    """Quantize everything that a node reads and gives."""
    for name in (*node.input, *(node.output if _marks_results(quantizer, node) else ())):
        quantizer.quantize_activation_tensor(name)


def mark_product(quantizer: QDQQuantizer, node: NodeProto) -> None:
    """Quantize a MatMul: initializers on either side are weights, with their channels along the last axis."""
    for name in (*node.input, *(node.output if _marks_results(quantizer, node) else ())):
        if not quantizer.is_input_a_initializer(name):
            quantizer.quantize_activation_tensor(name)
            continue
        quantizer.mark_weight(name, 1, node.op_type)


def mark_conv(quantizer: QDQQuantizer, node: NodeProto) -> None:
    """Quantize a Conv or ConvTranspose: its channels are those of its result."""
    _mark_with_bias(quantizer, node, 0 if node.op_type == "Conv" else 1)
    if len(node.input) == 3 and node.input[2]:
        quantizer.quantize_bias_tensor(node.name, node.input[2], node.input[0], node.input[1])


def mark_gemm(quantizer: QDQQuantizer, node: NodeProto) -> None:
    """Quantize a Gemm; the factor of its bias goes into the bias, if that is quantized."""
    is_transposed = any(each.name == "transB" and each.i for each in node.attribute)
    _mark_with_bias(quantizer, node, 0 if is_transposed else 1)
    if len(node.input) < 3 or not node.input[2]:
        return
    if not quantizer.is_input_a_initializer(node.input[2]):
        log.warning("the bias of node %r (Gemm) is computed: the node would run faster unquantized", node.name)
        return
    factor = next((each for each in node.attribute if each.name == "beta"), None)
    beta = 1.0 if factor is None else factor.f
    alpha = next((each.f for each in node.attribute if each.name == "alpha"), 1.0)
    is_marked = quantizer.quantize_bias_tensor(node.name, node.input[2], node.input[0], node.input[1], beta, alpha)
    if is_marked and factor is not None:
        factor.f = 1.0


def _mark_with_bias(quantizer: QDQQuantizer, node: NodeProto, axis: int) -> None:
    quantizer.quantize_activation_tensor(node.input[0])
    if _marks_results(quantizer, node):
        quantizer.quantize_activation_tensor(node.output[0])
    quantizer.mark_weight(node.input[1], axis)


def mark_normalization(quantizer: QDQQuantizer, node: NodeProto) -> None:
    """Quantize a normalization: its scale is a weight, its bias a bias."""
    quantizer.quantize_activation_tensor(node.input[0])
    name = node.input[1]
    if quantizer.is_input_a_initializer(name):
        quantizer.mark_weight(name, 1, node.op_type)
    else:
        quantizer.quantize_activation_tensor(name)
    if len(node.input) > 2 and node.input[2]:
        quantizer.quantize_bias_tensor(node.name, node.input[2], node.input[0], name)
    if _marks_results(quantizer, node):
        for result in node.output:
            quantizer.quantize_activation_tensor(result)


def mark_removable(quantizer: QDQQuantizer, node: NodeProto) -> None:
    """Leave out a Relu or Clip whose result is quantized by a range that ends where its own does; else quantize it."""
    name = node.input[0]
    if not quantizer.is_tensor_quantized(name):
        return
    is_kept = quantizer.is_activation_symmetric or quantizer.qdq_keep_removable_activations
    is_rounded = _marks_results(quantizer, node) and quantizer.is_quantizable(node.output[0])
    is_removable = is_rounded and not is_kept and quantizer.is_clipped_by_range(node)
    if is_removable and quantizer.try_replacing_upstream_output(name, node.output[0]):
        quantizer.remove_node(node)
    else:
        quantizer.quantize_activation_tensor(name)
    if _marks_results(quantizer, node):
        quantizer.quantize_activation_tensor(node.output[0])


def mark_direct(quantizer: QDQQuantizer, node: NodeProto) -> None:
    """Give a node that only moves numbers the parameters of what it reads, if that is quantized."""
    if quantizer.force_quantize_no_input_check:
        quantizer.quantize_activation_tensor(node.input[0])
    elif not quantizer.is_tensor_quantized(node.input[0]):
        return
    if _marks_results(quantizer, node):
        quantizer.quantize_output_same_as_input(node.output[0], node.input[0], node.name)


def mark_max_pool(quantizer: QDQQuantizer, node: NodeProto) -> None:
    """Quantize a MaxPool, which takes bytes from opset 12 on."""
    if quantizer.opset_version >= 12 and quantizer.activation_qType != TensorProto.FLOAT8E4M3FN:
        mark_direct(quantizer, node)


def mark_resize(quantizer: QDQQuantizer, node: NodeProto) -> None:
    """Quantize a Resize, from opset 11 on."""
    if quantizer.opset_version >= 11:
        mark_direct(quantizer, node)


def mark_gather(quantizer: QDQQuantizer, node: NodeProto) -> None:
    """Quantize a Gather from an initializer, or from what is quantized."""
    name = node.input[0]
    if quantizer.is_valid_quantize_weight(name) or quantizer.force_quantize_no_input_check:
        quantizer.quantize_activation_tensor(name)
    elif not quantizer.is_tensor_quantized(name):
        return
    quantizer.quantize_output_same_as_input(node.output[0], name, node.name)


def mark_split(quantizer: QDQQuantizer, node: NodeProto) -> None:
    """Give all parts the parameters of the whole."""
    if not quantizer.is_tensor_quantized(node.input[0]):
        quantizer.quantize_activation_tensor(node.input[0])
    if _marks_results(quantizer, node):
        for result in node.output:
            quantizer.quantize_output_same_as_input(result, node.input[0], node.name)


def mark_where(quantizer: QDQQuantizer, node: NodeProto) -> None:
    """Quantize a Where whose both sides are quantized, or any where that is asked for."""
    sides = node.input[1], node.input[2]
    if quantizer.force_quantize_no_input_check:
        for name in sides:
            if not quantizer.is_tensor_quantized(name):
                quantizer.quantize_activation_tensor(name)
    elif not all(quantizer.is_tensor_quantized(name) for name in sides):
        return
    if _marks_results(quantizer, node):
        quantizer.quantize_activation_tensor(node.output[0])


def mark_pad(quantizer: QDQQuantizer, node: NodeProto) -> None:
    """Quantize a Pad; by zeros, or by what the input holds, its result has the input's parameters."""
    for name in node.input:
        if name:
            quantizer.quantize_activation_tensor(name)
    if not _marks_results(quantizer, node):
        return
    if _pads_within_range(quantizer, node):
        quantizer.quantize_output_same_as_input(node.output[0], node.input[0], node.name)
    else:
        quantizer.quantize_activation_tensor(node.output[0])


def _pads_within_range(quantizer: QDQQuantizer, node: NodeProto) -> bool:
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    mode = attributes.get("mode", b"constant")
    if mode != b"constant":
        return mode in (b"reflect", b"edge", b"wrap")
    if quantizer.opset_version < 11:
        return float(attributes.get("value", 0.0)) == 0
    if len(node.input) < 3 or not node.input[2]:
        return True
    constant = quantizer.model.get_constant_value(node.input[2])
    return constant is not None and constant.dtype in (np.float32, np.float16) and float(constant.item()) == 0
