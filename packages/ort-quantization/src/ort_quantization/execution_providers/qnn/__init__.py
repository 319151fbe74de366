"""Preparation of models for Qualcomm's QNN: patterns that it wants whole, and the choices by which it runs models."""

from ort_quantization.execution_providers.qnn.preprocess import qnn_preprocess_model
from ort_quantization.execution_providers.qnn.quant_config import get_qnn_qdq_config

__all__ = ["get_qnn_qdq_config", "qnn_preprocess_model"]
