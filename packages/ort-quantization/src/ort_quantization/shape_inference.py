"""onnxruntime's module of this name."""

from ort_quantization.prepare import quant_pre_process

__all__ = ["quant_pre_process"]
