"""BertOnnxModelKeras: BERT as keras2onnx wrote it."""

from __future__ import annotations

from typing import ClassVar

from ort_transformers.onnx_model_bert_tf import BertOnnxModelTF


class BertOnnxModelKeras(BertOnnxModelTF):
    """BERT as keras2onnx wrote it. Arguments are those of ``BertOnnxModel``."""

    default_type: ClassVar[str] = "bert_keras"
