"""Preparation of models for Qualcomm's QNN: the choices by which it runs quantized models."""

from ort_quantization.execution_providers.qnn.quant_config import get_qnn_qdq_config

__all__ = ["get_qnn_qdq_config"]
