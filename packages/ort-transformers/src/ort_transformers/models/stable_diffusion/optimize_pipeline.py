"""Fuse the ONNX models of a Stable Diffusion pipeline, in float16 if asked, into another folder.

python -m ort_transformers.models.stable_diffusion.optimize_pipeline -i FOLDER -o OUT --float16

The folder is one of optimum's exports: ``model_index.json``, and ``model.onnx`` in ``unet`` or ``transformer``,
``vae_decoder``, ``vae_encoder`` and the text encoders. Pipelines of SD 1 and 2, SD XL, SD 3 and Flux are known by them.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import onnx
from onnx import TensorProto

import ort_core
from ort_core.cli.interrupts import run_program
from ort_transformers.fusion_options import FusionOptions
from ort_transformers.onnx_model import OnnxModel
from ort_transformers.onnx_model_bert import BertOnnxModel
from ort_transformers.optimizer import MODEL_TYPES, optimize_by_onnxruntime, optimize_model

log = logging.getLogger("ort_transformers.models.stable_diffusion.optimize_pipeline")  # not __name__: may be __main__

_MODELS = {  # the folders of a pipeline
    "sd": ("text_encoder", "unet", "vae_encoder", "vae_decoder"),
    "sdxl": ("text_encoder", "text_encoder_2", "unet", "vae_encoder", "vae_decoder"),
    "sd3": ("text_encoder", "text_encoder_2", "text_encoder_3", "transformer", "vae_encoder", "vae_decoder"),
    "flux": ("text_encoder", "text_encoder_2", "transformer", "vae_encoder", "vae_decoder"),
}
_OPTIONAL = "safety_checker"
_TYPES = {
    "transformer": "mmdit", "unet": "unet", "vae_encoder": "vae", "vae_decoder": "vae", "text_encoder": "clip",
    "text_encoder_2": "clip", "text_encoder_3": "t5", _OPTIONAL: "unet",
}  # fmt: skip
_COPIED = ("scheduler", "tokenizer", "tokenizer_2", "tokenizer_3", "feature_extractor")
_RMS_NORMS = ("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", "RMSNormalization")
# Values of some layers are beyond float16's range. Which nodes those are differs between exporters and checkpoints, so
# that all operators of their kinds stay wide: sums and norms cost little beside the products.
_WIDE_OF_T5 = (*_RMS_NORMS, "Add")
_WIDE: dict[tuple[str, str], tuple[str, ...]] = {
    ("sd3", "text_encoder_3"): _WIDE_OF_T5,
    ("flux", "text_encoder_2"): _WIDE_OF_T5,
    ("flux", "vae_decoder"): ("Attention", "MultiHeadAttention", "Softmax"),
    ("flux", "transformer"): ("Add", "LayerNormalization", "SkipLayerNormalization", "Shape", "Slice"),
}
_NAN_IN_FLOAT16 = (("sdxl", "vae_decoder"),)  # black pictures
_FIRST_BFLOAT16_OPSET = 13


def has_external_data(onnx_model_path: str | Path) -> bool:
    """Return whether a model has weights in other files."""
    model = onnx.load_model(str(onnx_model_path), load_external_data=False)
    return any(each.data_location == TensorProto.EXTERNAL for each in model.graph.initializer)


def is_sd_3(source_dir: Path) -> bool:
    """Return whether a folder is a pipeline of Stable Diffusion 3: it has three text encoders."""
    return (source_dir / "text_encoder_3").exists()


def is_sdxl(source_dir: Path) -> bool:
    """Return whether a folder is a pipeline of Stable Diffusion XL: two text encoders and a UNet."""
    return _has_two_encoders(source_dir) and not (source_dir / "transformer").exists()


def is_flux(source_dir: Path) -> bool:
    """Return whether a folder is a pipeline of Flux: two text encoders and a transformer."""
    return _has_two_encoders(source_dir) and (source_dir / "transformer").exists()


def _has_two_encoders(source_dir: Path) -> bool:
    return (source_dir / "text_encoder_2").exists() and not is_sd_3(source_dir)


def pipeline_type_of(source_dir: Path) -> str:
    """Return ``"sd3"``, ``"flux"``, ``"sdxl"`` or ``"sd"``."""
    kinds = {"sd3": is_sd_3, "flux": is_flux, "sdxl": is_sdxl}
    return next((name for name, is_kind in kinds.items() if is_kind(source_dir)), "sd")


def wide_operators(force_fp32_ops: Sequence[str] | None) -> dict[str, list[str]]:
    """Return the operators that stay in float32 by folder, from texts as ``unet:Attention``.

    Raises:
        ValueError: a text is not of that form.
    """
    found: dict[str, list[str]] = {name: [] for name in _TYPES}
    for text in force_fp32_ops or ():
        name, _, operator = text.partition(":")
        if name not in found or not operator[:1].isupper():
            raise ValueError(f"--force_fp32_ops takes FOLDER:Operator, as unet:Attention; {text!r} is not of that form")
        found[name].append(operator)
    return found


def _options(args: argparse.Namespace, model_type: str, float16: bool) -> FusionOptions:
    args.model_type = model_type
    options = FusionOptions.parse(args)
    if model_type == "unet" and not float16:  # packed forms are for kernels of float16
        options.enable_packed_kv = options.enable_packed_qkv = False
    return options


def _to_float16(fused: OnnxModel, pipeline_type: str, name: str, forced: Sequence[str], bfloat16: bool) -> None:
    if (pipeline_type, name) in _NAN_IN_FLOAT16:
        log.info("%s stays in float32: in float16 it makes what is not a number", name)
        return
    wide = _WIDE.get((pipeline_type, name), ())
    opset = max((each.version for each in fused.model.opset_import if each.domain in ("", "ai.onnx")), default=0)
    if bfloat16 and wide and opset < _FIRST_BFLOAT16_OPSET:
        log.warning("%s is of opset %d, which has no bfloat16: float32 is taken", name, opset)
    fused.convert_float_to_float16(
        keep_io_types=False,
        op_block_list=[*forced, *wide],
        use_bfloat16_as_blocked_nodes_dtype=bfloat16 and bool(wide) and opset >= _FIRST_BFLOAT16_OPSET,
    )


def by_session(fused: OnnxModel, model_type: str, provider: str | None = None, *, is_external: bool) -> BertOnnxModel:
    """Return a model as a session runs it: of CUDA, or of ``provider``, where it can be used, else of the CPU."""
    has_gpu = "CUDAExecutionProvider" in ort_core.get_available_providers()
    with tempfile.TemporaryDirectory() as folder:
        source, target = str(Path(folder, "model.onnx")), str(Path(folder, "optimized.onnx"))
        fused.save_model_to_file(source, use_external_data_format=is_external)
        written = optimize_by_onnxruntime(
            source, use_gpu=has_gpu or provider is not None, optimized_model_path=target,
            save_as_external_data=is_external, provider=provider,
        )  # fmt: skip
        return MODEL_TYPES[model_type][0](onnx.load(written, load_external_data=True))


def _copy_others(source_dir: Path, target_dir: Path, names: Sequence[str]) -> None:
    """Copy what a pipeline has beside its models.

    Raises:
        FileNotFoundError: the folder is no pipeline.
    """
    index = source_dir / "model_index.json"
    if not index.is_file():
        raise FileNotFoundError(
            f"{index} does not exist: --input is a pipeline, as `optimum-cli export onnx` writes it"
        )
    target_dir.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(index, target_dir / index.name)
    for name in _COPIED:
        if (source_dir / name).exists():
            shutil.copytree(source_dir / name, target_dir / name, dirs_exist_ok=True)
    for name in names:
        config = source_dir / name / "config.json"
        if config.is_file():
            (target_dir / name).mkdir(exist_ok=True)
            shutil.copyfile(config, target_dir / name / "config.json")


def _models_of(source_dir: Path, names: Sequence[str]) -> dict[str, Path]:
    """Return the models of a pipeline by their folders.

    Raises:
        FileNotFoundError: there is none at all.
    """
    paths = {name: source_dir / name / "model.onnx" for name in (*names, _OPTIONAL)}
    found = {name: path for name, path in paths.items() if path.is_file()}
    for name in set(names) - set(found):
        log.warning("%s does not exist", paths[name])
    if not found:
        raise FileNotFoundError(
            f"{source_dir} has no ONNX model: write one by `optimum-cli export onnx --model FOLDER OUT` first"
        )
    return found


def optimize_stable_diffusion_pipeline(
    input_dir: str,
    output_dir: str,
    overwrite: bool,
    use_external_data_format: bool | None,
    float16: bool,
    enable_runtime_optimization: bool,
    args: argparse.Namespace,
) -> dict[str, dict[str, int]]:
    """Fuse the models of a pipeline into another folder, which gets the rest of the pipeline as well.

    Args:
        input_dir: the pipeline, in float32.
        output_dir: the folder to write.
        overwrite: remove the folder first; without, models that it has stay.
        use_external_data_format: write weights beside the models; by default as the source has them.
        float16: convert to float16.
        enable_runtime_optimization: write the models as a session runs them.
        args: the command line, of which the flags of fusions, ``provider``, ``bfloat16`` and ``force_fp32_ops`` count.

    Returns:
        How often each fused operator is in each model.

    Raises:
        FileNotFoundError: the folder is no pipeline, or has no ONNX model.
        ValueError: the folders are the same, or ``force_fp32_ops`` is malformed.
    """
    source_dir, target_dir = Path(input_dir), Path(output_dir)
    if target_dir.resolve() == source_dir.resolve():
        raise ValueError(f"--output is the folder of --input, {input_dir}: give another one")
    forced = wide_operators(args.force_fp32_ops)
    kind = pipeline_type_of(source_dir)
    models = _models_of(source_dir, _MODELS[kind])
    if overwrite and target_dir.exists():
        shutil.rmtree(target_dir)
    _copy_others(source_dir, target_dir, list(models))
    counts: dict[str, dict[str, int]] = {}
    for name, path in models.items():
        written = target_dir / name / "model.onnx"
        if written.exists():
            log.warning("%s is there already and is left as it is", written)
            continue
        model_type = "t5" if (kind, name) == ("flux", "text_encoder_2") else _TYPES[name]
        optimized = optimize_model(
            str(path), model_type=model_type, opt_level=0,
            optimization_options=_options(args, model_type, float16), use_gpu=True, provider=args.provider,
        )  # fmt: skip
        fused = cast("BertOnnxModel", optimized)  # the class of the model type
        if float16:
            _to_float16(fused, kind, name, forced[name], args.bfloat16)
        is_external = has_external_data(path) if use_external_data_format is None else use_external_data_format
        if enable_runtime_optimization:
            fused = by_session(fused, model_type, args.provider, is_external=is_external)
        counts[name] = fused.get_fused_operator_statistics()
        written.parent.mkdir(parents=True, exist_ok=True)
        fused.save_model_to_file(str(written), use_external_data_format=is_external)
        log.info("written: %s", written)
    return counts


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Fuse the ONNX models of a Stable Diffusion pipeline.")
    add = parser.add_argument
    add("-i", "--input", required=True, help="the folder of the pipeline, with models in float32")
    add("-o", "--output", required=True, help="the folder to write")
    flag: dict[str, Any] = {"action": "store_true", "default": False}
    add("--float16", **flag, help="write float16, but for what is beyond its range")
    add("--bfloat16", **flag, help="let bfloat16 be taken there in place of float32")
    add("--force_fp32_ops", nargs="+", help="operators that stay in float32, as unet:Attention")
    add("--inspect", **flag, help="write the models as a session runs them")
    add("--overwrite", **flag, help="write again what is there")
    add("-e", "--use_external_data_format", **{**flag, "default": None}, help="write weights beside the models")
    add("--provider", help="whose session runs, by --inspect")
    FusionOptions.add_arguments(parser)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> Mapping[str, Mapping[str, int]]:
    """Fuse the pipeline that the command line names, and return how often each fused operator is in each model."""
    args = parse_arguments(argv)
    return optimize_stable_diffusion_pipeline(
        args.input, args.output, args.overwrite, args.use_external_data_format, args.float16, args.inspect, args
    )


if __name__ == "__main__":
    logging.basicConfig(format="%(funcName)20s: %(message)s", level=logging.INFO)
    run_program(main)
