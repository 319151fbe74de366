"""What the scripts of SAM2 share: where a model is read from, what its files are called, and how results compare."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ort_transformers.benchmark_helper import setup_logger
from ort_transformers.models.comparisons import as_array

__all__ = [
    "COMPONENTS", "MODEL_TYPES", "compare_tensors_with_tolerance", "decoder_shape_dict", "encoder_shape_dict",
    "load_sam2_model", "random_sam2_input_image", "sam2_onnx_path", "setup_logger",
]  # fmt: skip

log = logging.getLogger(__name__)

MODEL_TYPES = {  # the authors' names of configurations
    "sam2_hiera_tiny": "sam2_hiera_t.yaml",
    "sam2_hiera_small": "sam2_hiera_s.yaml",
    "sam2_hiera_large": "sam2_hiera_l.yaml",
    "sam2_hiera_base_plus": "sam2_hiera_b+.yaml",
}
COMPONENTS = ("image_encoder", "mask_decoder", "prompt_encoder", "image_decoder")
_SIZE = 1024  # of an image, each way, in all of the authors' configurations


def load_sam2_model(sam2_dir: str, model_type: str, device: Any = "cpu") -> Any:
    """Return a model.

    Args:
        sam2_dir: the authors' repository with its folder ``checkpoints``, or a folder (or a name on the hub) of
            transformers' ``Sam2Model``, which has a ``config.json``.
        model_type: a key of ``MODEL_TYPES``; a folder of transformers says this itself.
        device: where its weights go.

    Raises:
        FileNotFoundError: the folder or the checkpoint is not there.
        ModuleNotFoundError: the package that has the model is not installed.
        ValueError: the model type is unknown, or the folder is of another model.
    """
    if model_type not in MODEL_TYPES:
        raise ValueError(f"{model_type!r} is no SAM2; known: {', '.join(MODEL_TYPES)}")
    folder = Path(sam2_dir)
    if not folder.is_dir():
        raise FileNotFoundError(f"{sam2_dir} does not exist: --sam2_dir is the folder of the model")
    if (folder / "config.json").is_file():
        return _from_transformers(folder, device)
    checkpoint = folder / "checkpoints" / f"{model_type}.pt"
    if not checkpoint.is_file():
        raise FileNotFoundError(
            f"{checkpoint} does not exist: download it there, or let --sam2_dir be a folder of transformers' Sam2Model"
        )
    if importlib.util.find_spec("sam2") is None:
        sys.path.append(str(folder))
    try:
        build_sam2 = importlib.import_module("sam2.build_sam").build_sam2
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the authors' package is needed to read {checkpoint.name}: install it from {sam2_dir}, or let --sam2_dir "
            f"be a folder of transformers' Sam2Model ({error})"
        ) from error
    return build_sam2(MODEL_TYPES[model_type], str(checkpoint), device=device)


def _from_transformers(folder: Path, device: Any) -> Any:
    kind = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
    if kind not in ("sam2", "sam2_video"):
        raise ValueError(f"{folder} is of a model of type {kind!r}, and not of sam2")
    return importlib.import_module("transformers").Sam2Model.from_pretrained(str(folder)).eval().to(device)


def sam2_onnx_path(
    output_dir: str, model_type: str, component: str, multimask_output: bool = False, suffix: str = ""
) -> str:
    """Return where the file of a part lies; that of the image decoder is another one for several masks."""
    several = "_multi" if component == "image_decoder" and multimask_output else ""
    return str(Path(output_dir, f"{model_type}_{component}{several}{suffix}.onnx"))


def encoder_shape_dict(batch_size: int, height: int, width: int) -> Mapping[str, list[int]]:
    """Return the shapes of the image encoder's inputs and outputs.

    Raises:
        ValueError: images are not of 1024 by 1024 pixels.
    """
    if (height, width) != (_SIZE, _SIZE):
        raise ValueError(f"images are {_SIZE} by {_SIZE} pixels, not {height} by {width}: resize them first")
    return {"image": [batch_size, 3, height, width], **_feature_shapes(batch_size)}


def decoder_shape_dict(
    original_image_height: int,
    original_image_width: int,
    num_labels: int = 1,
    max_points: int = 16,
    num_masks: int = 1,
) -> dict[str, list[int]]:
    """Return the shapes of the image decoder's inputs and outputs."""
    low = _SIZE // 4
    return {
        **_feature_shapes(1),
        "point_coords": [num_labels, max_points, 2],
        "point_labels": [num_labels, max_points],
        "input_masks": [num_labels, 1, low, low],
        "has_input_masks": [num_labels],
        "original_image_size": [2],
        "masks": [num_labels, num_masks, original_image_height, original_image_width],
        "iou_predictions": [num_labels, num_masks],
        "low_res_masks": [num_labels, num_masks, low, low],
    }


def _feature_shapes(batch_size: int) -> dict[str, list[int]]:
    return {
        "image_features_0": [batch_size, 32, _SIZE // 4, _SIZE // 4],
        "image_features_1": [batch_size, 64, _SIZE // 8, _SIZE // 8],
        "image_embeddings": [batch_size, 256, _SIZE // 16, _SIZE // 16],
    }


def compare_tensors_with_tolerance(
    name: str,
    tensor1: Any,
    tensor2: Any,
    atol: float = 5e-3,
    rtol: float = 1e-4,
    mismatch_percentage_tolerance: float = 0.1,
) -> bool:
    """Return whether few enough elements of two tensors, or arrays, of one shape differ; the share is logged.

    Raises:
        ValueError: the shapes differ.
    """
    first, second = (as_array(each).astype(np.float32) for each in (tensor1, tensor2))
    if first.shape != second.shape:
        raise ValueError(f"{name}: the shapes {first.shape} and {second.shape} differ")
    limit = rtol * np.maximum(np.abs(first), np.abs(second)) + atol
    is_far = ~(np.abs(first - second) <= limit)  # what is not a number is far, too
    share = 100 * np.count_nonzero(is_far) / max(is_far.size, 1)
    passed = bool(share < mismatch_percentage_tolerance)
    log.log(
        logging.INFO if passed else logging.ERROR,
        "%s: %.2f %% of %d elements differ, less than %.2f %% may",
        name, share, is_far.size, mismatch_percentage_tolerance,
    )  # fmt: skip
    return passed


def random_sam2_input_image(batch_size: int = 1, image_height: int = _SIZE, image_width: int = _SIZE) -> Any:
    """Return images of noise as a tensor of torch."""
    torch = importlib.import_module("torch")
    return torch.randn(batch_size, 3, image_height, image_width, dtype=torch.float32)
