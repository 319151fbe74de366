"""FusionLpNormalization: a quotient by its own norm becomes LpNormalization."""

from __future__ import annotations

from ort_quantization.execution_providers.qnn.graph_index import GraphIndex
from ort_quantization.execution_providers.qnn.patterns import fuse_lp_normalization
from ort_quantization.fusions.fusion import Fusion
from ort_quantization.onnx_model import ONNXModel


class FusionLpNormalization(Fusion):
    """Fuses ``x / Expand(Clip(ReduceL2(x, axis), epsilon))``; Expand and Clip may be missing.

    Args:
        model: whose graph is changed by ``apply``.
        epsilon: the largest limit of the Clip that still says no more than "not zero".
    """

    def __init__(self, model: ONNXModel, epsilon: float = 1e-12) -> None:
        super().__init__(model, "LpNormalization", "ReduceL2")
        self.epsilon = epsilon

    def fuse_first(self, index: GraphIndex) -> bool:
        """See ``Fusion``."""
        return fuse_lp_normalization(self.model.model.graph, index, self.epsilon)
