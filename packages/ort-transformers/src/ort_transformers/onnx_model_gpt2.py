"""Gpt2OnnxModel: Causal models of GPT-2's kind."""

from __future__ import annotations

from typing import ClassVar

from ort_transformers.onnx_model_bert import BertOnnxModel


class Gpt2OnnxModel(BertOnnxModel):
    """Causal models of GPT-2's kind. Arguments are those of ``BertOnnxModel``."""

    default_type: ClassVar[str] = "gpt2"
