"""VaeOnnxModel: Autoencoders of images."""

from __future__ import annotations

from typing import ClassVar

from ort_transformers.onnx_model_unet import UnetOnnxModel


class VaeOnnxModel(UnetOnnxModel):
    """Autoencoders of images. Arguments are those of ``BertOnnxModel``."""

    default_type: ClassVar[str] = "vae"
    counted: ClassVar[tuple[str, ...]] = ("Attention", "GroupNorm", "SkipGroupNorm", "NhwcConv")
