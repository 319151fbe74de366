"""Convert a SAM2 for images into ONNX models, and compare them with torch.

python -m ort_transformers.models.sam2.convert_to_onnx --sam2_dir FOLDER --output_dir OUT --optimize
"""

from __future__ import annotations

import argparse
import importlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ort_core.cli.interrupts import run_program
from ort_transformers.models.sam2.sam2_utils import (
    COMPONENTS,
    MODEL_TYPES,
    load_sam2_model,
    sam2_onnx_path,
    setup_logger,
)
from ort_transformers.optimizer import optimize_model

log = logging.getLogger("ort_transformers.models.sam2.convert_to_onnx")  # not __name__, which may be __main__

FLAG: dict[str, Any] = {"action": "store_true", "default": False}


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Convert a SAM2 for images into ONNX models.")
    add = parser.add_argument
    add("--model_type", choices=list(MODEL_TYPES), default="sam2_hiera_large", help="which model, as files are called")
    parts = ["image_encoder", "image_decoder"]
    add(
        "--components",
        nargs="+",
        choices=list(COMPONENTS),
        default=parts,
        help="the files; image_decoder has both others",
    )
    add("--output_dir", default="sam2_onnx_models", help="the folder of the files")
    add("--dynamic_batch_axes", **FLAG, help="leave the number of images open")
    add("--multimask_output", **FLAG, help="write decoders with several masks for each prompt")
    no_choice = "--disable_dynamic_multimask_via_stability"
    add(no_choice, **FLAG, help="let mask_decoder return its single mask even where it is not stable")
    add(
        "--sam2_dir", default="./segment-anything-2",
        help="the authors' repository with checkpoints/MODEL_TYPE.pt, or a folder of transformers' Sam2Model",
    )  # fmt: skip
    add("--overwrite", **FLAG, help="export again where files are there")
    add("--demo", **FLAG, help="not available: segment your own picture by SAM2ImageOnnxPredictor")
    add("--optimize", **FLAG, help="fuse the files, into other ones")
    add("--dtype", choices=["fp32", "fp16"], default="fp32", help="of the fused files")
    add("--use_gpu", **FLAG, help="fuse for a GPU")
    add("--dynamo", **FLAG, help="export image_encoder by dynamo; it is fused alike")
    add("--verbose", **FLAG, help="show torch's remarks")
    return parser.parse_args(argv)


def optimize_sam2_model(onnx_model_path: str, optimized_model_path: str, float16: bool, use_gpu: bool) -> None:
    """Fuse a file into another one, in float16 if asked."""
    fused = optimize_model(onnx_model_path, model_type="sam2", opt_level=1, use_gpu=use_gpu)
    if float16:
        fused.convert_float_to_float16(keep_io_types=False)
    fused.save_model_to_file(optimized_model_path)
    log.info("written: %s", optimized_model_path)


def export_component(args: argparse.Namespace, sam2_model: Any, component: str, path: str) -> bool:
    """Write a part, and return whether it has torch's results."""
    several = args.multimask_output
    module = importlib.import_module(f"ort_transformers.models.sam2.{component}")
    if component == "image_encoder":
        module.export_image_encoder_onnx(sam2_model, path, args.dynamic_batch_axes, args.verbose, args.dynamo)
        return bool(module.test_image_encoder_onnx(sam2_model, path, args.dynamic_batch_axes))
    if component == "mask_decoder":
        chosen = not args.disable_dynamic_multimask_via_stability
        module.export_mask_decoder_onnx(sam2_model, path, several, chosen, args.verbose)
        return bool(module.test_mask_decoder_onnx(sam2_model, path, several, chosen))
    if component == "prompt_encoder":
        module.export_prompt_encoder_onnx(sam2_model, path)
        return bool(module.test_prompt_encoder_onnx(sam2_model, path))
    module.export_decoder_onnx(sam2_model, path, several, args.verbose)
    return bool(module.test_decoder_onnx(sam2_model, path, several))


def _refuse(args: argparse.Namespace) -> None:
    if args.demo:
        raise ValueError(
            "--demo is not available: leave it out, and give the files and your picture to SAM2ImageOnnxPredictor of "
            "ort_transformers.models.sam2.sam2_image_onnx_predictor"
        )


def main(argv: Sequence[str] | None = None) -> list[str]:
    """Convert the model that the command line names.

    Returns:
        The paths of the files: each export, then each fused one.

    Raises:
        ValueError: a form is asked for that is not available.
        FileNotFoundError: the model is not there.
        ModuleNotFoundError: torch, or the package that has the model, is not installed.
    """
    args = parse_arguments(argv)
    setup_logger(args.verbose)
    _refuse(args)
    sam2_model = load_sam2_model(args.sam2_dir, args.model_type, device="cpu")
    Path(args.output_dir).mkdir(parents=True, exist_ok=True)

    def path_of(component: str, suffix: str = "") -> str:
        return sam2_onnx_path(args.output_dir, args.model_type, component, args.multimask_output, suffix)

    written = [path_of(component) for component in args.components]
    for component, path in zip(args.components, written, strict=True):
        if Path(path).exists() and not args.overwrite:
            log.info("%s is there already and is taken as it is", path)
        elif not export_component(args, sam2_model, component, path):
            log.warning("%s: results are not close to torch's", path)
    if args.optimize:
        suffix = f"_{args.dtype}_{'gpu' if args.use_gpu else 'cpu'}"
        for component in args.components:
            fused = path_of(component, suffix)
            optimize_sam2_model(path_of(component), fused, args.dtype == "fp16", args.use_gpu)
            written.append(fused)
    return written


if __name__ == "__main__":
    run_program(main)
