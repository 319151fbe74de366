"""BartOnnxModel: Encoders and decoders with cross attention."""

from __future__ import annotations

from typing import ClassVar

from ort_transformers.onnx_model_bert import BertOnnxModel


class BartOnnxModel(BertOnnxModel):
    """Encoders and decoders with cross attention. Arguments are those of ``BertOnnxModel``."""

    default_type: ClassVar[str] = "bart"
