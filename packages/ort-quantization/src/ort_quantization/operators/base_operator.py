"""What a class derives from that writes an operator in the QOperator format, and goes into a registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import NodeProto

if TYPE_CHECKING:
    from ort_quantization.onnx_quantizer import ONNXQuantizer


class QuantOperatorBase:
    """Leaves a node as it is; a class of one's own says more.

    Args:
        onnx_quantizer: whose graph it is.
        onnx_node: to be written.
    """

    def __init__(self, onnx_quantizer: ONNXQuantizer, onnx_node: NodeProto) -> None:
        self.quantizer, self.node = onnx_quantizer, onnx_node

    def should_quantize(self) -> bool:
        """Return whether the node was chosen and its first input has floats."""
        return self.quantizer.should_quantize_node(self.node) and self.quantizer.is_float_tensor(self.node.input[0])

    def quantize(self) -> None:
        """Add what stands for the node; what it reads is given in float before it."""
        self.quantizer.keep(self.node)
