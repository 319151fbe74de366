"""SAM2ImageEncoder: the features of images, which each prompt about them shares."""

from __future__ import annotations

from typing import Any

import torch

from ort_transformers.models.sam2.sam2_export import export_part, is_as_torch, refuse_nvtx
from ort_transformers.models.sam2.sam2_parts import parts_of
from ort_transformers.models.sam2.sam2_utils import random_sam2_input_image
from ort_transformers.models.torch_export import Signature, export_dynamo

Tensor = Any  # torch's, as models
OUTPUTS = ("image_features_0", "image_features_1", "image_embeddings")


class SAM2ImageEncoder(torch.nn.Module):
    """The encoder of images, with the projections of its features that the mask decoder reads."""

    def __init__(self, sam_model: Any) -> None:
        """Keep a model: the authors' ``SAM2Base``, or transformers' ``Sam2Model``."""
        super().__init__()
        self.model = sam_model
        self.parts = parts_of(sam_model)
        self.eval()  # an exporter restores the mode that it finds, in the model as well

    def forward(self, image: Tensor, enable_nvtx_profile: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Return features ``[B, 32, H/4, W/4]`` and ``[B, 64, H/8, W/8]``, and embeddings ``[B, 256, H/16, W/16]``."""
        refuse_nvtx(enable_nvtx_profile)
        return self.parts.encode(image)


def encoded_image(sam2_model: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return the features of an image of noise."""
    encoder = SAM2ImageEncoder(sam2_model).cpu()
    size = encoder.parts.image_size
    with torch.no_grad():
        fine, middle, image = encoder(random_sam2_input_image(1, size, size))
    return fine, middle, image


def export_image_encoder_onnx(
    sam2_model: Any,
    onnx_model_path: str,
    dynamic_batch_axes: bool = False,
    verbose: bool = False,
    dynamo: bool = False,
    clear_dynamo_metadata: bool = False,
) -> None:
    """Write the encoder of images.

    Args:
        sam2_model: the model.
        onnx_model_path: the file to write.
        dynamic_batch_axes: leave the number of images open.
        verbose: show torch's remarks.
        dynamo: export by dynamo, with the weights in a file beside it; needs onnxscript.
        clear_dynamo_metadata: remove what that exporter notes at nodes.
    """
    module = SAM2ImageEncoder(sam2_model).cpu()
    size = module.parts.image_size
    image = random_sam2_input_image(2 if dynamic_batch_axes else 1, size, size)
    batch = "batch_size" if dynamic_batch_axes else 1
    with torch.no_grad():
        features = module(image)
    outputs = {name: (batch, *each.shape[1:]) for name, each in zip(OUTPUTS, features, strict=True)}
    signature = Signature({"image": (batch, 3, size, size)}, outputs)
    if dynamo:
        export_dynamo(module, [image], onnx_model_path, signature, clears_metadata=clear_dynamo_metadata)
    else:
        export_part(module, [image], onnx_model_path, signature, verbose=verbose)


def test_image_encoder_onnx(
    sam2_model: Any,
    onnx_model_path: str,
    dynamic_batch_axes: bool = False,  # noqa: PT028 - the function is onnxruntime's, and no test
) -> bool:
    """Return whether a file has torch's results, of two images as well where their number is open."""
    module = SAM2ImageEncoder(sam2_model).cpu()
    size = module.parts.image_size
    found = True
    for batch_size in (1, 2) if dynamic_batch_axes else (1,):
        image = random_sam2_input_image(batch_size, size, size)
        found &= is_as_torch(module, {"image": image}, OUTPUTS, onnx_model_path, tolerated_percentage=1)
    return found
