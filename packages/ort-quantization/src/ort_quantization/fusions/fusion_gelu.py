"""FusionGelu: Erf and what is around it become com.microsoft's Gelu."""

from __future__ import annotations

from ort_quantization.execution_providers.qnn.graph_index import GraphIndex
from ort_quantization.execution_providers.qnn.patterns import fuse_gelu
from ort_quantization.fusions.fusion import Fusion
from ort_quantization.onnx_model import ONNXModel


class FusionGelu(Fusion):
    """Fuses ``x * 0.5 * (1 + Erf(x / sqrt(2)))``, its products in any order."""

    def __init__(self, model: ONNXModel) -> None:
        super().__init__(model, "Gelu", "Erf")

    def fuse_first(self, index: GraphIndex) -> bool:
        """See ``Fusion``."""
        return fuse_gelu(self.model.model.graph, index)
