"""Which operators are quantised, and by what."""

from __future__ import annotations

from collections.abc import Callable

from onnx import NodeProto

from ort_quantization.onnx_quantizer import ONNXQuantizer
from ort_quantization.operators import contributed, integer_products, movement
from ort_quantization.quantized_types import QuantizationMode

Writer = Callable[[ONNXQuantizer, NodeProto], None]
Choice = Callable[[ONNXQuantizer, NodeProto], bool]


def _is_chosen_float(quantizer: ONNXQuantizer, node: NodeProto) -> bool:
    """Return whether a node was chosen and its first input has floats."""
    return quantizer.should_quantize_node(node) and quantizer.is_float_tensor(node.input[0])


def _is_chosen_float32(quantizer: ONNXQuantizer, node: NodeProto) -> bool:
    return _is_chosen_float(quantizer, node) and integer_products.has_run_time_parameters(quantizer, node)


_COMMON: dict[str, tuple[Choice, Writer]] = {
    "Gather": (movement.is_chosen_gather, movement.write_gather),
    "Transpose": (_is_chosen_float, movement.write_direct),
    "EmbedLayerNormalization": (contributed.is_chosen, contributed.write_embedding),
}

IntegerOpsRegistry: dict[str, tuple[Choice, Writer]] = {
    "Conv": (_is_chosen_float32, integer_products.write_conv),
    "MatMul": (integer_products.is_chosen_run_time_product, integer_products.write_matmul),
    "Attention": (contributed.is_chosen, contributed.write_attention),
    "LSTM": (_is_chosen_float, contributed.write_lstm),
    **_COMMON,
}
"""Operators quantised by parameters that are found while the model runs."""

QLinearOpsRegistry: dict[str, tuple[Choice, Writer]] = {**_COMMON}
"""Operators quantised by parameters that calibration found."""


def find_writer(quantizer: ONNXQuantizer, node: NodeProto) -> Writer | None:
    """Return what quantises a node, ``None`` where it stays as it is."""
    is_dynamic = quantizer.mode is QuantizationMode.IntegerOps
    chosen = (IntegerOpsRegistry if is_dynamic else QLinearOpsRegistry).get(node.op_type)
    return chosen[1] if chosen is not None and chosen[0](quantizer, node) else None
