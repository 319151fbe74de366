"""FusionSpaceToDepth: Reshape and Transpose that move blocks into channels become SpaceToDepth."""

from __future__ import annotations

from ort_quantization.execution_providers.qnn.graph_index import GraphIndex
from ort_quantization.execution_providers.qnn.patterns import fuse_space_to_depth
from ort_quantization.fusions.fusion import Fusion
from ort_quantization.onnx_model import ONNXModel


class FusionSpaceToDepth(Fusion):
    """Fuses the longest chain of Reshape and Transpose that moves numbers as SpaceToDepth does."""

    def __init__(self, model: ONNXModel) -> None:
        super().__init__(model, "SpaceToDepth", "Reshape")

    def fuse_first(self, index: GraphIndex) -> bool:
        """See ``Fusion``."""
        return fuse_space_to_depth(self.model.model.graph, index, self.known_shapes())
