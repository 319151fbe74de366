"""SAM2PromptEncoder: points, boxes and earlier masks as embeddings."""

from __future__ import annotations

from typing import Any

import torch

from ort_transformers.models.sam2.sam2_export import export_part, is_as_torch, random_masks, random_points
from ort_transformers.models.sam2.sam2_parts import parts_of
from ort_transformers.models.torch_export import Signature

Tensor = Any  # torch's, as models
INPUTS = ("point_coords", "point_labels", "input_masks", "has_input_masks")
OUTPUTS = ("sparse_embeddings", "dense_embeddings", "image_pe")


class SAM2PromptEncoder(torch.nn.Module):
    """The encoder of prompts."""

    def __init__(self, sam_model: Any) -> None:
        """Keep a model: the authors' ``SAM2Base``, or transformers' ``Sam2Model``."""
        super().__init__()
        self.model = sam_model
        self.parts = parts_of(sam_model)
        self.eval()  # an exporter restores the mode that it finds, in the model as well

    def forward(
        self, point_coords: Tensor, point_labels: Tensor, input_masks: Tensor, has_input_masks: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return embeddings of points ``[L, P + 1, C]`` and of masks ``[L, C, H, W]``, and positions ``[1, C, H, W]``.

        Args:
            point_coords: ``[L, P, 2]``, pixels of the resized image.
            point_labels: ``[L, P]``: 1 foreground, 0 background, 2 and 3 corners of a box, -1 padding.
            input_masks: ``[L, 1, 4 H, 4 W]``, logits of an earlier run.
            has_input_masks: ``[L]``, or ``[1]`` for all rows: 1 where the mask counts, 0 where it does not.
        """
        counts = has_input_masks.reshape(-1, 1, 1, 1)
        masks = counts * self.parts.embed_masks(input_masks) + (1 - counts) * self.parts.embed_no_mask()
        return self.parts.embed_points(point_coords, point_labels), masks, self.parts.image_positions()


def random_prompts(module: SAM2PromptEncoder, num_labels: int, num_points: int) -> dict[str, Tensor]:
    """Return prompts by the names of the encoder's inputs."""
    given = (*random_points(module.parts, num_labels, num_points), *random_masks(module.parts, num_labels))
    return dict(zip(INPUTS, given, strict=True))


def export_prompt_encoder_onnx(sam2_model: Any, onnx_model_path: str) -> None:
    """Write the encoder of prompts."""
    module = SAM2PromptEncoder(sam2_model).cpu()
    prompts = random_prompts(module, 2, 3)
    with torch.no_grad():
        points, masks, positions = module(*prompts.values())
    size = module.parts.mask_size
    signature = Signature(
        {
            "point_coords": ("num_labels", "num_points", 2), "point_labels": ("num_labels", "num_points"),
            "input_masks": ("num_labels", 1, size, size), "has_input_masks": ("num_labels",),
        },
        {
            "sparse_embeddings": ("num_labels", "num_points+1", points.shape[2]),
            "dense_embeddings": ("num_labels", *masks.shape[1:]), "image_pe": tuple(positions.shape),
        },
    )  # fmt: skip
    export_part(module, list(prompts.values()), onnx_model_path, signature)


def test_prompt_encoder_onnx(sam2_model: Any, onnx_model_path: str) -> bool:
    """Return whether a file has torch's results for other numbers of points than those of the export."""
    module = SAM2PromptEncoder(sam2_model).cpu()
    sizes = ((1, 5), (3, 1))
    return all(
        is_as_torch(module, random_prompts(module, *each), OUTPUTS, onnx_model_path, tolerated_percentage=0.2)
        for each in sizes
    )
