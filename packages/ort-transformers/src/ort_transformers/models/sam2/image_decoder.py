"""SAM2ImageDecoder: masks of an image's own size from its features and prompts about it."""

from __future__ import annotations

from typing import Any

import torch

from ort_transformers.models.sam2.image_encoder import OUTPUTS as FEATURES
from ort_transformers.models.sam2.image_encoder import encoded_image
from ort_transformers.models.sam2.mask_decoder import SAM2MaskDecoder
from ort_transformers.models.sam2.prompt_encoder import SAM2PromptEncoder, random_prompts
from ort_transformers.models.sam2.sam2_export import export_part, is_as_torch, refuse_nvtx
from ort_transformers.models.torch_export import Signature

Tensor = Any  # torch's, as models
OUTPUTS = ("masks", "iou_predictions", "low_res_masks")
_LOGIT_LIMIT = 32.0  # of masks that a later run reads


class SAM2ImageDecoder(torch.nn.Module):
    """The encoder of prompts and the decoder of masks in one, for one image.

    Args:
        sam_model: the authors' ``SAM2Base``, or transformers' ``Sam2Model``.
        multimask_output: return the masks for what a prompt may mean, and not the single one.
        dynamic_multimask_via_stability: take the best of those where the single one is not stable.
        return_logits: return logits of masks in place of yes and no.
        mask_threshold: from which logit on a pixel belongs to a mask.
    """

    def __init__(
        self,
        sam_model: Any,
        multimask_output: bool,
        dynamic_multimask_via_stability: bool = True,
        return_logits: bool = False,
        mask_threshold: float = 0.0,
    ) -> None:
        super().__init__()
        self.prompt_encoder = SAM2PromptEncoder(sam_model)
        self.mask_decoder = SAM2MaskDecoder(sam_model, multimask_output, dynamic_multimask_via_stability)
        self.return_logits = return_logits
        self.mask_threshold = mask_threshold
        self.eval()  # an exporter restores the mode that it finds, in the model as well

    def forward(
        self,
        image_features_0: Tensor,
        image_features_1: Tensor,
        image_embeddings: Tensor,
        point_coords: Tensor,
        point_labels: Tensor,
        input_masks: Tensor,
        has_input_masks: Tensor,
        original_image_size: Tensor,
        enable_nvtx_profile: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return masks ``[L, M, height, width]``, their scores ``[L, M]``, and logits ``[L, M, H/4, W/4]``.

        Features are those of the image encoder, prompts those of the prompt encoder; the size is height and width.
        """
        refuse_nvtx(enable_nvtx_profile)
        points, dense, positions = self.prompt_encoder(point_coords, point_labels, input_masks, has_input_masks)
        logits, scores = self.mask_decoder(
            image_features_0, image_features_1, image_embeddings, positions, points, dense
        )
        size = (original_image_size[0], original_image_size[1])
        masks = torch.nn.functional.interpolate(logits, size, mode="bilinear", align_corners=False)
        low = torch.clamp(logits, -_LOGIT_LIMIT, _LOGIT_LIMIT)
        return (masks if self.return_logits else masks > self.mask_threshold), scores, low


def random_decoder_inputs(
    sam2_model: Any, num_labels: int, num_points: int, image_size: tuple[int, int]
) -> dict[str, Tensor]:
    """Return what the decoder reads, of an image of noise and of some prompts."""
    features = dict(zip(FEATURES, encoded_image(sam2_model), strict=True))
    prompts = random_prompts(SAM2PromptEncoder(sam2_model).cpu(), num_labels, num_points)
    return features | prompts | {"original_image_size": torch.tensor(image_size, dtype=torch.int32)}


def export_decoder_onnx(
    sam2_model: Any, onnx_model_path: str, multimask_output: bool = False, verbose: bool = False
) -> None:
    """Write the decoder, with one mask for each row of points or with several."""
    module = SAM2ImageDecoder(sam2_model, multimask_output).cpu()
    given = random_decoder_inputs(sam2_model, 2, 3, (72, 108))
    with torch.no_grad():
        _, scores, low = module(*given.values())
    count, size = scores.shape[1], module.prompt_encoder.parts.mask_size
    signature = Signature(
        {name: tuple(each.shape) for name, each in given.items()}
        | {
            "point_coords": ("num_labels", "num_points", 2), "point_labels": ("num_labels", "num_points"),
            "input_masks": ("num_labels", 1, size, size), "has_input_masks": ("num_labels",),
        },
        {
            "masks": ("num_labels", count, "original_image_height", "original_image_width"),
            "iou_predictions": ("num_labels", count), "low_res_masks": ("num_labels", *low.shape[1:]),
        },
    )  # fmt: skip
    export_part(module, list(given.values()), onnx_model_path, signature, verbose=verbose)


def test_decoder_onnx(
    sam2_model: Any,
    onnx_model_path: str,
    multimask_output: bool = False,  # noqa: PT028 - the function is onnxruntime's, and no test
) -> bool:
    """Return whether a file has torch's results for another image size, and other numbers of points."""
    module = SAM2ImageDecoder(sam2_model, multimask_output).cpu()
    given = random_decoder_inputs(sam2_model, 1, 5, (150, 90))
    return is_as_torch(module, given, OUTPUTS, onnx_model_path)
