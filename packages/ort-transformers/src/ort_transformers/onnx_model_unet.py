"""UnetOnnxModel: Denoisers of diffusion."""

from __future__ import annotations

from typing import ClassVar

from ort_transformers.onnx_model_bert import BertOnnxModel


class UnetOnnxModel(BertOnnxModel):
    """Denoisers of diffusion. Arguments are those of ``BertOnnxModel``."""

    default_type: ClassVar[str] = "unet"
    counted: ClassVar[tuple[str, ...]] = (
        "Attention", "MultiHeadAttention", "LayerNormalization", "SkipLayerNormalization", "BiasSplitGelu", "GroupNorm",
        "SkipGroupNorm", "NhwcConv", "BiasAdd",
    )  # fmt: skip
