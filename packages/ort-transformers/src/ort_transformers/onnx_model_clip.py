"""ClipOnnxModel: Towers of text and images."""

from __future__ import annotations

from typing import ClassVar

from ort_transformers.onnx_model_bert import BertOnnxModel


class ClipOnnxModel(BertOnnxModel):
    """Towers of text and images. Arguments are those of ``BertOnnxModel``."""

    default_type: ClassVar[str] = "clip"
    counted: ClassVar[tuple[str, ...]] = (
        "Attention", "FastGelu", "Gelu", "LayerNormalization", "QuickGelu", "BiasGelu", "SkipLayerNormalization",
    )  # fmt: skip
