"""PhiOnnxModel: Causal models of Phi's kind."""

from __future__ import annotations

from typing import ClassVar

from ort_transformers.onnx_model_bert import BertOnnxModel


class PhiOnnxModel(BertOnnxModel):
    """Causal models of Phi's kind. Arguments are those of ``BertOnnxModel``."""

    default_type: ClassVar[str] = "phi"
