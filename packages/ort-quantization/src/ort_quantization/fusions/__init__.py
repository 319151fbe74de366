"""Fusions that a program applies by itself, each a class over an ONNXModel: ``FusionGelu(model).apply()``."""

from ort_quantization.fusions.fusion import Fusion as Fusion
from ort_quantization.fusions.fusion_gelu import FusionGelu as FusionGelu
from ort_quantization.fusions.fusion_layernorm import FusionLayerNormalization as FusionLayerNormalization
