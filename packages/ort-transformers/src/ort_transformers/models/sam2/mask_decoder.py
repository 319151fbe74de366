"""SAM2MaskDecoder: masks of low resolution from the features of an image and the embeddings of prompts."""

from __future__ import annotations

from typing import Any

import torch

from ort_transformers.models.sam2.image_encoder import encoded_image
from ort_transformers.models.sam2.prompt_encoder import SAM2PromptEncoder, random_prompts
from ort_transformers.models.sam2.sam2_export import export_part, is_as_torch
from ort_transformers.models.sam2.sam2_parts import parts_of
from ort_transformers.models.torch_export import Signature

Tensor = Any  # torch's, as models
INPUTS = (
    "image_features_0", "image_features_1", "image_embeddings", "image_pe", "sparse_embeddings", "dense_embeddings",
)  # fmt: skip
OUTPUTS = ("low_res_masks", "iou_predictions")


class SAM2MaskDecoder(torch.nn.Module):
    """The decoder of masks.

    Args:
        sam_model: the authors' ``SAM2Base``, or transformers' ``Sam2Model``.
        multimask_output: return the masks for what a prompt may mean, and not the single one.
        dynamic_multimask_via_stability: take the best of those where the single one is not stable.
    """

    def __init__(self, sam_model: Any, multimask_output: bool, dynamic_multimask_via_stability: bool = True) -> None:
        super().__init__()
        self.model = sam_model
        self.parts = parts_of(sam_model)
        self.eval()  # an exporter restores the mode that it finds, in the model as well
        self.multimask_output = multimask_output
        self.dynamic_multimask_via_stability = dynamic_multimask_via_stability

    def forward(
        self,
        image_features_0: Tensor,
        image_features_1: Tensor,
        image_embeddings: Tensor,
        image_pe: Tensor,
        sparse_embeddings: Tensor,
        dense_embeddings: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return logits ``[L, M, H/4, W/4]`` and scores ``[L, M]`` of masks of one image."""
        logits, scores = self.parts.decode(
            (image_features_0, image_features_1, image_embeddings), (image_pe, sparse_embeddings, dense_embeddings)
        )
        if self.multimask_output:
            return logits[:, 1:], scores[:, 1:]
        if self.dynamic_multimask_via_stability:
            return self.parts.choose(logits, scores)
        return logits[:, :1], scores[:, :1]


def random_embeddings(sam2_model: Any, num_labels: int, num_points: int) -> dict[str, Tensor]:
    """Return what the decoder reads, of an image of noise and of some prompts."""
    encoder = SAM2PromptEncoder(sam2_model).cpu()
    with torch.no_grad():
        points, masks, positions = encoder(*random_prompts(encoder, num_labels, num_points).values())
    return dict(zip(INPUTS, (*encoded_image(sam2_model), positions, points, masks), strict=True))


def export_mask_decoder_onnx(
    sam2_model: Any,
    onnx_model_path: str,
    multimask_output: bool,
    dynamic_multimask_via_stability: bool = True,
    verbose: bool = False,
) -> None:
    """Write the decoder of masks. Arguments are those of :class:`SAM2MaskDecoder`."""
    module = SAM2MaskDecoder(sam2_model, multimask_output, dynamic_multimask_via_stability).cpu()
    given = random_embeddings(sam2_model, 2, 3)
    with torch.no_grad():
        masks, scores = module(*given.values())
    signature = Signature(
        {name: tuple(each.shape) for name, each in given.items()}
        | {
            "sparse_embeddings": ("num_labels", "num_points+1", given["sparse_embeddings"].shape[2]),
            "dense_embeddings": ("num_labels", *given["dense_embeddings"].shape[1:]),
        },
        {"low_res_masks": ("num_labels", *masks.shape[1:]), "iou_predictions": ("num_labels", scores.shape[1])},
    )
    export_part(module, list(given.values()), onnx_model_path, signature, verbose=verbose)


def test_mask_decoder_onnx(
    sam2_model: Any, onnx_model_path: str, multimask_output: bool, dynamic_multimask_via_stability: bool
) -> bool:
    """Return whether a file has torch's results for other numbers of points than those of the export."""
    module = SAM2MaskDecoder(sam2_model, multimask_output, dynamic_multimask_via_stability).cpu()
    given = random_embeddings(sam2_model, 1, 5)
    return is_as_torch(module, given, OUTPUTS, onnx_model_path)
