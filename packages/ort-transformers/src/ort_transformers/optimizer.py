"""optimize_model(): the models of transformers with fused operators; onnxruntime.transformers.optimizer's functions.

python -m ort_transformers.optimizer --input model.onnx --output fused.onnx --model_type bert
"""

from __future__ import annotations

import copy
import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, TensorProto

import ort_core
from ort_core.cli.interrupts import run_program
from ort_transformers.fusing.optimizer_command import parse
from ort_transformers.fusion_options import FusionOptions
from ort_transformers.onnx_model import OnnxModel
from ort_transformers.onnx_model_bart import BartOnnxModel
from ort_transformers.onnx_model_bert import BertOnnxModel
from ort_transformers.onnx_model_bert_keras import BertOnnxModelKeras
from ort_transformers.onnx_model_bert_tf import BertOnnxModelTF
from ort_transformers.onnx_model_clip import ClipOnnxModel
from ort_transformers.onnx_model_conformer import ConformerOnnxModel
from ort_transformers.onnx_model_gpt2 import Gpt2OnnxModel
from ort_transformers.onnx_model_mmdit import MmditOnnxModel
from ort_transformers.onnx_model_phi import PhiOnnxModel
from ort_transformers.onnx_model_sam2 import Sam2OnnxModel
from ort_transformers.onnx_model_t5 import T5OnnxModel
from ort_transformers.onnx_model_tnlr import TnlrOnnxModel
from ort_transformers.onnx_model_unet import UnetOnnxModel
from ort_transformers.onnx_model_vae import VaeOnnxModel

log = logging.getLogger("ort_transformers.optimizer")  # not __name__, which is __main__ of a command line

MODEL_TYPES: dict[str, tuple[type[BertOnnxModel], str, int]] = {  # class, exporter, level of onnxruntime's own passes
    "bart": (BartOnnxModel, "pytorch", 1),
    "bert": (BertOnnxModel, "pytorch", 1),
    "bert_tf": (BertOnnxModelTF, "tf2onnx", 0),
    "bert_keras": (BertOnnxModelKeras, "keras2onnx", 0),
    "clip": (ClipOnnxModel, "pytorch", 1),
    "conformer": (ConformerOnnxModel, "pytorch", 1),
    "gpt2": (Gpt2OnnxModel, "pytorch", 1),
    "gpt2_tf": (Gpt2OnnxModel, "tf2onnx", 0),
    "gpt_neox": (BertOnnxModel, "pytorch", 0),
    "phi": (PhiOnnxModel, "pytorch", 0),
    "qwen3": (Gpt2OnnxModel, "pytorch", 0),
    "sam2": (Sam2OnnxModel, "pytorch", 1),
    "swin": (BertOnnxModel, "pytorch", 1),
    "tnlr": (TnlrOnnxModel, "pytorch", 1),
    "t5": (T5OnnxModel, "pytorch", 2),
    "unet": (UnetOnnxModel, "pytorch", 1),
    "vae": (VaeOnnxModel, "pytorch", 1),
    "vit": (BertOnnxModel, "pytorch", 1),
    "mmdit": (MmditOnnxModel, "pytorch", 1),
}
GPU_OPERATOR_TYPES = ("unet", "vae")  # their convolutions and group norms have forms for GPUs
LEVELS = (0, 1, 2, 3, 99)
_GRAPH_LEVELS = {1: "ORT_ENABLE_BASIC", 2: "ORT_ENABLE_EXTENDED", 3: "ORT_ENABLE_LAYOUT", 99: "ORT_ENABLE_ALL"}
_KINDS = {TensorProto.FLOAT16: "fp16", TensorProto.FLOAT: "fp32"}


def optimize_by_onnxruntime(
    onnx_model: str | ModelProto | None = None,
    use_gpu: bool = False,
    optimized_model_path: str | None = None,
    opt_level: int | None = 99,
    disabled_optimizers: Sequence[str] = (),
    verbose: bool = False,
    save_as_external_data: bool = False,
    external_data_filename: str = "",
    external_data_file_threshold: int = 1024,
    *,
    provider: str | None = None,
    **deprecated_kwargs: Any,
) -> str:
    """Let a session of ort-core optimize a model and write the result.

    Args:
        onnx_model: a path, or a model.
        use_gpu: run the passes of ``provider``, by default CUDA; where it cannot be used the model stays as it is.
        optimized_model_path: the file to write; by default one beside the model, or in the folder of temporary files.
        opt_level: 1 basic, 2 extended, 3 layout, 99 all passes.
        disabled_optimizers: passes to leave out, by onnxruntime's names.
        verbose: let the session log.
        save_as_external_data: write large weights into another file.
        external_data_filename: its name, by default ``NAME.data``.
        external_data_file_threshold: of weights that go there, in bytes.
        provider: ``"cuda"``, ``"dml"``, or a provider's own name.
        deprecated_kwargs: ``onnx_model_path``, the model's older name.

    Returns:
        The path of the optimized model.

    Raises:
        ValueError: the level is none of those, or no model was given.
        OrtError: the model cannot be loaded.
    """
    onnx_model = deprecated_kwargs.pop("onnx_model_path", onnx_model)
    if deprecated_kwargs:
        raise TypeError(f"optimize_by_onnxruntime has no argument {', '.join(map(repr, deprecated_kwargs))}")
    if onnx_model is None:
        raise ValueError("no model was given: pass a path or a ModelProto as onnx_model")
    if opt_level not in LEVELS[1:]:
        raise ValueError(f"opt_level is {opt_level!r}; the levels of a session are {LEVELS[1:]}")
    names = _providers(use_gpu, provider)
    missing = [name for name in names if name not in ort_core.get_available_providers()]
    if missing:
        log.error("%s cannot be used here: the model is not optimized for it", missing[0])
        if isinstance(onnx_model, str):
            return onnx_model
    path = optimized_model_path or _default_path(onnx_model, opt_level, "gpu" if use_gpu else "cpu")
    options = ort_core.SessionOptions()
    options.graph_optimization_level = getattr(ort_core.GraphOptimizationLevel, _GRAPH_LEVELS[opt_level])
    options.optimized_model_filepath = path
    if save_as_external_data:
        name = external_data_filename or f"{Path(path).name}.data"
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", name)
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_min_size_in_bytes", str(external_data_file_threshold)
        )
    if verbose:
        options.log_severity_level = 0
    source = onnx_model if isinstance(onnx_model, str) else onnx_model.SerializeToString()
    usable = [name for name in names if name not in missing] or ["CPUExecutionProvider"]
    ort_core.InferenceSession(source, options, providers=usable, disabled_optimizers=list(disabled_optimizers))
    log.info("the optimized model was written to %s", path)
    return path


def _providers(use_gpu: bool, provider: str | None) -> list[str]:
    if not use_gpu:
        return ["CPUExecutionProvider"]
    known = {"cuda": "CUDAExecutionProvider", "dml": "DmlExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
    return [known.get(provider or "cuda", provider or ""), "CPUExecutionProvider"]


def _default_path(model: str | ModelProto, level: int, device: str) -> str:
    suffix = f"_o{level}_{device}.onnx"
    if isinstance(model, str):
        return str(Path(model).with_suffix("")) + suffix
    handle, name = tempfile.mkstemp(suffix)
    os.close(handle)
    return name


def optimize_by_fusion(
    model: ModelProto,
    model_type: str = "bert",
    num_heads: int = 0,
    hidden_size: int = 0,
    optimization_options: FusionOptions | None = None,
) -> OnnxModel:
    """Fuse what a model has.

    Args:
        model: not changed.
        model_type: a key of ``MODEL_TYPES``; it decides the default options and the class of the result.
        num_heads: taken for onnxruntime's programs: the number of heads is proven by inferred shapes.
        hidden_size: likewise.
        optimization_options: which fusions run.

    Returns:
        The model; of an unknown type, as it was, with a warning.
    """
    if model_type not in MODEL_TYPES:
        log.warning("Unsupported model type: %s for graph fusion, directly return model.", model_type)
        return OnnxModel(model)
    made, producer, _ = MODEL_TYPES[model_type]
    if model.producer_name and producer != model.producer_name:
        log.info(
            "the model was written by %s, models of type %s mostly by %s", model.producer_name, model_type, producer
        )
    optimizer = made(model, num_heads, hidden_size)
    optimizer.optimize(optimization_options or FusionOptions(model_type))
    optimizer.model.producer_name, optimizer.model.producer_version = "ort-core.transformers", ort_core.__version__
    return optimizer


def optimize_model(
    input: str | ModelProto,
    model_type: str = "bert",
    num_heads: int = 0,
    hidden_size: int = 0,
    optimization_options: FusionOptions | None = None,
    opt_level: int | None = None,
    use_gpu: bool = False,
    only_onnxruntime: bool = False,
    verbose: bool = False,
    *,
    provider: str | None = None,
) -> OnnxModel:
    """Optimize a model: by a session's passes where ``opt_level`` asks for more than fusions need, then by fusions.

    Args:
        input: a path, or a model, which is not changed.
        model_type: a key of ``MODEL_TYPES``.
        num_heads: taken for onnxruntime's programs: the number of heads is proven by inferred shapes.
        hidden_size: likewise.
        optimization_options: which fusions run, by default those of the type.
        opt_level: 0 and 1 both fuse after the basic passes, which fusions always need; 2 and 99 let a session's passes
            of that level run first, with ``only_onnxruntime`` they alone.
        use_gpu: the model is for a GPU: a UNet or a VAE gets operators that onnxruntime runs on GPUs alone.
        only_onnxruntime: no fusions but those of a session.
        verbose: log more.
        provider: of the GPU, for ``opt_level`` above 1.

    Returns:
        The model; of an unknown type, as it was, with a warning.

    Raises:
        ValueError: the level is none of 0, 1, 2, 3, 99.
        OrtError: the model cannot be loaded.
    """
    if opt_level is not None and opt_level not in LEVELS:
        raise ValueError(f"opt_level is {opt_level!r}, it must be one of {LEVELS}")
    if model_type not in MODEL_TYPES:
        log.warning("Unsupported model type: %s for optimization, directly return model.", model_type)
        return OnnxModel(_loaded(input))
    level = MODEL_TYPES[model_type][2] if opt_level is None else opt_level
    level = min(level, 1) if opt_level is None else level  # t5's 2 would leave operators that fusions do not look into
    if only_onnxruntime and level >= 1:
        return _by_session(input, model_type, level, use_gpu, provider, verbose)
    if only_onnxruntime:
        log.warning("nothing to do: only_onnxruntime with opt_level 0")
        return OnnxModel(_loaded(input))
    model = _by_session(input, model_type, level, use_gpu, provider, verbose).model if level > 1 else _loaded(input)
    options = optimization_options
    if use_gpu and model_type in GPU_OPERATOR_TYPES:
        options = copy.copy(options or FusionOptions(model_type))
        options.use_gpu_operators = not options.use_standard_operators
    return optimize_by_fusion(model, model_type, num_heads, hidden_size, options)


def _by_session(
    source: str | ModelProto, model_type: str, level: int, use_gpu: bool, provider: str | None, verbose: bool
) -> OnnxModel:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "optimized.onnx")
        external = isinstance(source, str) or source.ByteSize() > 1 << 30
        written = optimize_by_onnxruntime(
            source, use_gpu, path, level, verbose=verbose, save_as_external_data=external, provider=provider
        )
        return MODEL_TYPES[model_type][0](onnx.load(written), 0, 0)


def _loaded(source: str | ModelProto) -> ModelProto:
    if isinstance(source, ModelProto):
        return source
    return onnx.load(source)


def get_fusion_statistics(optimized_model_path: str) -> dict[str, int]:
    """Return how many of each fused operator an optimized model has."""
    return BertOnnxModel(onnx.load(optimized_model_path, load_external_data=False)).get_fused_operator_statistics()


def main(arguments: Sequence[str] | None = None) -> None:
    """Optimize the model that the command line names, and write it."""
    asked = parse(arguments, MODEL_TYPES, LEVELS)
    logging.basicConfig(format="%(message)s")  # a program for a terminal: nobody else has set logging up
    logging.getLogger("ort_transformers").setLevel(logging.DEBUG if asked.verbose else logging.INFO)
    if os.path.realpath(asked.input) == os.path.realpath(asked.output):
        log.warning("input and output are one file: it is replaced")
    optimized = optimize_model(
        asked.input, asked.model_type, asked.num_heads, asked.hidden_size, FusionOptions.parse(asked), asked.opt_level,
        asked.use_gpu, asked.only_onnxruntime, asked.verbose, provider=asked.provider,
    )  # fmt: skip
    if asked.float16:
        optimized.convert_float_to_float16(keep_io_types=True)
    if isinstance(optimized, BertOnnxModel):
        if asked.input_int32:
            optimized.change_graph_inputs_to_int32()
        if asked.convert_to_packing_mode:
            optimized.convert_to_packing_mode(not asked.disable_symbolic_shape_infer)
        log.info("fused operators: %s", optimized.get_fused_operator_statistics())
    optimized.save_model_to_file(
        asked.output, asked.use_external_data_format, convert_attribute=asked.convert_attribute
    )


if __name__ == "__main__":
    run_program(main)
