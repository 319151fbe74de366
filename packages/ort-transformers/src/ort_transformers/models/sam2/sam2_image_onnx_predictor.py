"""SAM2ImageOnnxPredictor: the authors' predictor of masks, on sessions in place of torch's model."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sam2.sam2_image_predictor import SAM2ImagePredictor

import ort_core
from ort_transformers.io_binding_helper import CudaSession
from ort_transformers.models.comparisons import as_array, run_session
from ort_transformers.models.sam2.image_decoder import OUTPUTS as RESULTS
from ort_transformers.models.sam2.image_encoder import OUTPUTS as FEATURES

log = logging.getLogger(__name__)

Tensor = Any  # torch's, as devices and element types
_BOX_LABELS = (2, 3)  # of a box's corners


def create_ort_session(
    onnx_path: str,
    session_options: Any = None,
    provider: str = "CUDAExecutionProvider",
    enable_cuda_graph: bool = False,
    use_tf32: bool = True,
) -> ort_core.InferenceSession:
    """Return a session of a file, on a CPU or on CUDA."""
    providers: list[Any] = ["CPUExecutionProvider"]
    if provider == "CUDAExecutionProvider":
        chosen = CudaSession.get_cuda_provider_options(torch.cuda.current_device(), enable_cuda_graph)
        providers.insert(0, (provider, chosen | {"use_tf32": int(use_tf32)}))
    return ort_core.InferenceSession(onnx_path, session_options, providers=providers)


def create_session(
    onnx_path: str,
    session_options: Any = None,
    provider: str = "CUDAExecutionProvider",
    device: Any = "cuda",
    enable_cuda_graph: bool = False,
) -> CudaSession:
    """Return a session whose inputs and outputs are tensors of torch on a device."""
    session = create_ort_session(onnx_path, session_options, provider, enable_cuda_graph)
    return CudaSession(session, device=torch.device(device), enable_cuda_graph=enable_cuda_graph)


class SAM2ImageOnnxPredictor(SAM2ImagePredictor):
    """The authors' predictor whose encoder and decoders are files of ``convert_to_onnx``.

    Args:
        sam_model: the model, of which the sizes and the device count.
        image_encoder_onnx_path: the encoder of images.
        image_decoder_onnx_path: the decoder with a single mask.
        image_decoder_multi_onnx_path: the decoder with several masks.
        provider: ``"CPUExecutionProvider"`` or ``"CUDAExecutionProvider"``.
        device: where torch's tensors are.
        onnx_dtype: of the files' inputs.
        mask_threshold: of the authors' predictor, as the two that follow.
        max_hole_area: likewise.
        max_sprinkle_area: likewise.
    """

    def __init__(
        self,
        sam_model: Any,
        image_encoder_onnx_path: str = "",
        image_decoder_onnx_path: str = "",
        image_decoder_multi_onnx_path: str = "",
        provider: str = "CUDAExecutionProvider",
        device: Any = "cuda",
        onnx_dtype: Any = torch.float32,
        mask_threshold: float = 0.0,
        max_hole_area: float = 0.0,
        max_sprinkle_area: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            sam_model, mask_threshold=mask_threshold, max_hole_area=max_hole_area, max_sprinkle_area=max_sprinkle_area
        )
        self.onnx_dtype, self.onnx_device = onnx_dtype, torch.device(device)
        self.image_size = int(sam_model.image_size)
        self.encoder_session = create_ort_session(image_encoder_onnx_path, provider=provider)
        self.decoder_session = create_ort_session(image_decoder_onnx_path, provider=provider)
        self.decoder_session_multi_out = create_ort_session(image_decoder_multi_onnx_path, provider=provider)

    @torch.no_grad()  # type: ignore[untyped-decorator]  # torch need not be there where types are checked
    def set_image(self, image: Any) -> None:
        """Encode a picture: an array ``[height, width, 3]`` of RGB, or one of PIL.

        Raises:
            TypeError: it is neither.
        """
        self.reset_predictor()
        if isinstance(image, np.ndarray):
            height, width = image.shape[:2]
        elif hasattr(image, "size") and hasattr(image, "mode"):
            width, height = image.size
        else:
            raise TypeError(f"a picture is an array of numpy or an image of PIL, not {type(image).__name__}")
        self._orig_hw = [(int(height), int(width))]
        pixels = self._transforms(image)[None].to(self.onnx_dtype)
        found = self._run(self.encoder_session, {"image": pixels})
        features = dict(zip(FEATURES, found, strict=True))
        self._features = {
            "image_embed": features["image_embeddings"],
            "high_res_feats": [features["image_features_0"], features["image_features_1"]],
        }
        self._is_image_set = True

    def _run(self, session: ort_core.InferenceSession, feeds: Mapping[str, Tensor]) -> Sequence[Tensor]:
        arrays = run_session(session, {name: as_array(each) for name, each in feeds.items()})
        return [torch.from_numpy(each).to(self.onnx_device) for each in arrays]

    @torch.no_grad()  # type: ignore[untyped-decorator]  # torch need not be there where types are checked
    def _predict(
        self,
        point_coords: Tensor | None,
        point_labels: Tensor | None,
        boxes: Tensor | None = None,
        mask_input: Tensor | None = None,
        multimask_output: bool = True,
        return_logits: bool = False,
        img_idx: int = -1,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return masks, scores, and masks of low resolution; what the authors' public methods call.

        Raises:
            ValueError: logits are asked for, or there is neither a point nor a box.
            RuntimeError: no picture was set.
        """
        if return_logits:
            raise ValueError("the files return masks: export SAM2ImageDecoder with return_logits to have logits")
        if not self._is_image_set:
            raise RuntimeError("no picture was set: call set_image first")
        points, labels = with_boxes(point_coords, point_labels, boxes)
        session = self.decoder_session_multi_out if multimask_output else self.decoder_session
        masks, has_masks = self._masks(mask_input, points.shape[0])
        fine, middle = (each[img_idx].unsqueeze(0) for each in self._features["high_res_feats"])
        feeds = {
            "image_features_0": fine, "image_features_1": middle,
            "image_embeddings": self._features["image_embed"][img_idx].unsqueeze(0), "point_coords": points,
            "input_masks": masks, "has_input_masks": has_masks,
        }  # fmt: skip
        found = self._run(
            session,
            {name: each.to(self.onnx_dtype) for name, each in feeds.items()}
            | {
                "point_labels": labels.to(torch.int32),
                "original_image_size": torch.tensor(self._orig_hw[img_idx], dtype=torch.int32),
            },
        )
        by_name = dict(zip(RESULTS, found, strict=True))
        return by_name["masks"], by_name["iou_predictions"], by_name["low_res_masks"]

    def _masks(self, mask_input: Tensor | None, num_labels: int) -> tuple[Tensor, Tensor]:
        if mask_input is None:
            size = self.image_size // 4
            return torch.zeros(num_labels, 1, size, size), torch.zeros(num_labels)
        return mask_input.expand(num_labels, -1, -1, -1), torch.ones(num_labels)


def with_boxes(points: Tensor | None, labels: Tensor | None, boxes: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return points and labels with the corners of boxes in front.

    Raises:
        ValueError: there is nothing.
    """
    if boxes is None:
        if points is None:
            raise ValueError("a prompt is needed: points or boxes")
        return points, labels
    corners = boxes.reshape(-1, 2, 2)
    kinds = torch.tensor([_BOX_LABELS], dtype=torch.int32, device=boxes.device).repeat(corners.shape[0], 1)
    if points is None:
        return corners, kinds
    return torch.cat([corners, points], 1), torch.cat([kinds, labels], 1)
