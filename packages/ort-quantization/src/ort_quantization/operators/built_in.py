"""The package's own entries of the registries as classes, from which programs derive theirs.

A class says which function of this folder writes its operator, or marks the values around it, and for which nodes.
Modules with onnxruntime's names, such as ``operators.conv``, give the classes to programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from onnx import NodeProto

from ort_quantization.operators.base_operator import QuantOperatorBase
from ort_quantization.operators.qdq_base_operator import QDQOperatorBase
from ort_quantization.quantized_types import MICROSOFT

if TYPE_CHECKING:
    from ort_quantization.onnx_quantizer import ONNXQuantizer
    from ort_quantization.qdq_quantizer import QDQQuantizer

Writer = Callable[["ONNXQuantizer", NodeProto], None]
Choice = Callable[["ONNXQuantizer", NodeProto], bool]
Marker = Callable[["QDQQuantizer", NodeProto], None]

_CONTRIBUTED = frozenset({"Attention", "EmbedLayerNormalization"})
"""Names that mean operators of com.microsoft; the others mean ONNX's own."""


def is_meant(node: NodeProto) -> bool:
    """Return whether a node's operator is the one that is known by its name: ONNX has an Attention, too."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    return domain == (MICROSOFT if node.op_type in _CONTRIBUTED else "")


class WrittenOperator(QuantOperatorBase):
    """Writes a node as a function of this folder does."""

    writer: ClassVar[Writer]
    choice: ClassVar[Choice | None] = None

    def should_quantize(self) -> bool:
        """Return whether the node was chosen, is the known operator, and reads what its writer takes."""
        if not is_meant(self.node):
            return False
        choice = type(self).choice
        return super().should_quantize() if choice is None else choice(self.quantizer, self.node)

    def quantize(self) -> None:
        """Add what stands for the node."""
        type(self).writer(self.quantizer, self.node)


class MarkedOperator(QDQOperatorBase):
    """Marks the values around a node as a function of this folder does."""

    marker: ClassVar[Marker]

    def quantize(self) -> None:
        """Mark the values around the node; those of another domain's operator stay as they are."""
        if is_meant(self.node):
            type(self).marker(self.quantizer, self.node)
