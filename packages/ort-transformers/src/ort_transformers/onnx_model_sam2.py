"""Sam2OnnxModel: Segmenting models."""

from __future__ import annotations

from typing import ClassVar

from ort_transformers.onnx_model_bert import BertOnnxModel


class Sam2OnnxModel(BertOnnxModel):
    """Segmenting models. Arguments are those of ``BertOnnxModel``."""

    default_type: ClassVar[str] = "sam2"
    counted: ClassVar[tuple[str, ...]] = (
        "FastGelu", "MultiHeadAttention", "LayerNormalization", "SkipLayerNormalization",
        "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", "RMSNormalization", "RotaryEmbedding",
    )  # fmt: skip
