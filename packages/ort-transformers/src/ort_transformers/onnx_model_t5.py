"""T5OnnxModel: Models with relative position biases."""

from __future__ import annotations

from typing import ClassVar

from ort_transformers.onnx_model_bert import BertOnnxModel


class T5OnnxModel(BertOnnxModel):
    """Models with relative position biases. Arguments are those of ``BertOnnxModel``."""

    default_type: ClassVar[str] = "t5"
