"""BertOnnxModelTF: BERT as tf2onnx writes it."""

from __future__ import annotations

from typing import ClassVar

from ort_transformers.onnx_model_bert import BertOnnxModel


class BertOnnxModelTF(BertOnnxModel):
    """BERT as tf2onnx writes it. Arguments are those of ``BertOnnxModel``."""

    default_type: ClassVar[str] = "bert_tf"
