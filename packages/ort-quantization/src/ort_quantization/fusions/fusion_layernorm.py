"""FusionLayerNormalization: means, differences and a root become LayerNormalization, from opset 17 on."""

from __future__ import annotations

from ort_quantization.execution_providers.qnn.graph_index import GraphIndex
from ort_quantization.execution_providers.qnn.patterns import fuse_layer_normalization
from ort_quantization.fusions.fusion import Fusion
from ort_quantization.onnx_model import ONNXModel


class FusionLayerNormalization(Fusion):
    """Fuses ``(x - mean) / Sqrt(mean of squares + epsilon) * gain + shift`` over the last axis."""

    def __init__(self, model: ONNXModel) -> None:
        super().__init__(model, "LayerNormalization", "ReduceMean")

    def fuse_first(self, index: GraphIndex) -> bool:
        """See ``Fusion``."""
        return fuse_layer_normalization(self.model.model.graph, index, self.opset())
