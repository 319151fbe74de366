"""ConformerOnnxModel: Speech encoders with convolutions."""

from __future__ import annotations

from typing import ClassVar

from ort_transformers.onnx_model_bert import BertOnnxModel


class ConformerOnnxModel(BertOnnxModel):
    """Speech encoders with convolutions. Arguments are those of ``BertOnnxModel``."""

    default_type: ClassVar[str] = "conformer"
