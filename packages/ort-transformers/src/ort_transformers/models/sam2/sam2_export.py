"""How each part of SAM2 becomes a file, and how the file is compared with torch."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

import ort_core
from ort_transformers.models.comparisons import as_array, run_session
from ort_transformers.models.sam2.sam2_parts import Sam2Parts
from ort_transformers.models.sam2.sam2_utils import compare_tensors_with_tolerance
from ort_transformers.models.torch_export import Signature, export_torch

log = logging.getLogger(__name__)

Tensor = Any  # torch's, as models and modules


def refuse_nvtx(is_asked: bool) -> None:
    """Raise where a profile of CUDA's tools is asked for.

    Raises:
        ValueError: it is.
    """
    if is_asked:
        raise ValueError("enable_nvtx_profile needs CUDA's tools: use torch.profiler, or `ort profile` on the file")


def random_points(parts: Sam2Parts, num_labels: int, num_points: int) -> tuple[Tensor, Tensor]:
    """Return points in an image, and labels of all kinds."""
    points = torch.rand(num_labels, num_points, 2) * parts.image_size
    return points, torch.randint(-1, 4, (num_labels, num_points), dtype=torch.int32)


def random_masks(parts: Sam2Parts, num_labels: int) -> tuple[Tensor, Tensor]:
    """Return masks of an earlier run, every other one of which counts."""
    masks = torch.randn(num_labels, 1, parts.mask_size, parts.mask_size)
    return masks, (torch.arange(num_labels) % 2 == 0).float()


def export_part(
    module: Any, inputs: Sequence[Tensor], onnx_model_path: str, signature: Signature, *, verbose: bool = False
) -> None:
    """Write a part; torch's remarks on how it traces are shown where ``verbose``."""
    with torch.no_grad(), warnings.catch_warnings():
        if not verbose:
            warnings.simplefilter("ignore", torch.jit.TracerWarning)
            warnings.simplefilter("ignore", UserWarning)
        export_torch(module, inputs, onnx_model_path, signature, verbose=verbose)
    log.info("written: %s", onnx_model_path)


def is_as_torch(
    module: Any,
    inputs: Mapping[str, Tensor],
    output_names: Sequence[str],
    onnx_model_path: str,
    tolerated_percentage: float = 0.1,
) -> bool:
    """Return whether a file has torch's results, but for some elements; what was found is logged."""
    with torch.no_grad():
        wanted = module(*inputs.values())
    session = ort_core.InferenceSession(onnx_model_path, providers=["CPUExecutionProvider"])
    found: list[np.ndarray] = run_session(session, {name: as_array(each) for name, each in inputs.items()})
    same = [
        compare_tensors_with_tolerance(name, one, other, mismatch_percentage_tolerance=tolerated_percentage)
        for name, one, other in zip(output_names, wanted, found, strict=True)
    ]
    if all(same):
        log.info("has torch's results: %s", onnx_model_path)
    else:
        log.error("its results are not close to torch's: %s", onnx_model_path)
    return all(same)
