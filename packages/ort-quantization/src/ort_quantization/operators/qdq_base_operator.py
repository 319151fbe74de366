"""What a class derives from that says which values around an operator are quantized, and goes into a registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import NodeProto

from ort_quantization.operators.boundaries import mark_all

if TYPE_CHECKING:
    from ort_quantization.qdq_quantizer import QDQQuantizer


class QDQOperatorBase:
    """Quantizes everything that a node reads and gives; a class of one's own says what else.

    Args:
        onnx_quantizer: whose model it is.
        onnx_node: of the model.
    """

    def __init__(self, onnx_quantizer: QDQQuantizer, onnx_node: NodeProto) -> None:
        self.quantizer, self.node = onnx_quantizer, onnx_node
        excluded = onnx_quantizer.op_types_to_exclude_output_quantization
        self.disable_qdq_for_node_output = onnx_node.op_type in excluded

    def quantize(self) -> None:
        """Mark the values around the node."""
        mark_all(self.quantizer, self.node)
