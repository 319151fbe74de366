"""EmbedLayerNormalization: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_quantization.operators import contributed
from ort_quantization.operators.built_in import WrittenOperator


class EmbedLayerNormalizationQuant(WrittenOperator):
    """Writes QEmbedLayerNormalization."""

    choice = contributed.is_chosen_embedding
    writer = contributed.write_embedding
