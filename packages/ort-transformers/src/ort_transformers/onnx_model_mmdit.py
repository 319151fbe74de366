"""MmditOnnxModel: Diffusion transformers of two streams."""

from __future__ import annotations

from typing import ClassVar

from ort_transformers.onnx_model_bert import BertOnnxModel


class MmditOnnxModel(BertOnnxModel):
    """Diffusion transformers of two streams. Arguments are those of ``BertOnnxModel``."""

    default_type: ClassVar[str] = "mmdit"
    counted: ClassVar[tuple[str, ...]] = (
        "FastGelu", "MultiHeadAttention", "LayerNormalization", "SkipLayerNormalization",
        "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", "RMSNormalization", "RotaryEmbedding",
    )  # fmt: skip
