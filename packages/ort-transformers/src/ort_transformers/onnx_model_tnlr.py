"""TnlrOnnxModel: Models of Turing's kind."""

from __future__ import annotations

from typing import ClassVar

from ort_transformers.onnx_model_bert import BertOnnxModel


class TnlrOnnxModel(BertOnnxModel):
    """Models of Turing's kind. Arguments are those of ``BertOnnxModel``."""

    default_type: ClassVar[str] = "tnlr"
