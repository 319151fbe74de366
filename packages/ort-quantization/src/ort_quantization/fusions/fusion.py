"""Fusion: puts one operator in all places of a pattern; what the pattern is, a subclass says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from ort_quantization.execution_providers.qnn.graph_index import GraphIndex, known_shapes
from ort_quantization.models.model_files import opset_of
from ort_quantization.onnx_model import ONNXModel


class Fusion(ABC):
    """One pattern and its operator.

    Args:
        model: whose graph is changed by ``apply``.
        fused_op_type: the operator that is put there.
        search_op_type: the operator that the pattern is found by; new nodes are named by both.
    """

    def __init__(self, model: ONNXModel, fused_op_type: str, search_op_type: str) -> None:
        self.model = model
        self.fused_op_type = fused_op_type
        self.search_op_type = search_op_type

    @abstractmethod
    def fuse_first(self, index: GraphIndex) -> bool:
        """Put one node in the first place of the pattern. Returns whether there is one."""

    def apply(self) -> bool:
        """Fuse everywhere, name the new nodes, and drop constants that nothing reads. Returns whether there was one."""
        is_changed = False
        while self.fuse_first(GraphIndex(self.model.model.graph, self.model.folder)):
            is_changed = True
        if is_changed:
            self._name_nodes()
            if any(node.domain == "com.microsoft" for node in self.model.nodes()):
                self.model.set_opset_import("com.microsoft", 1)
            self.model.remove_unused_constant()
        return is_changed

    def opset(self) -> int:
        """Return the version of the standard operators."""
        return opset_of(self.model.model)

    def known_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of values whose sizes are all numbers."""
        return known_shapes(self.model.model.graph)

    def _name_nodes(self) -> None:
        stem = f"{self.fused_op_type}_fused_{self.search_op_type}_"
        number = self.model.get_largest_node_name_suffix(stem) + 1
        for node in self.model.nodes():
            if node.op_type == self.fused_op_type and not node.name:
                node.name = f"{stem}{number}"
                number += 1
