"""Convert a LLaMA, or a decoder like it, into an ONNX model with caches, and compare it with torch.

python -m ort_transformers.models.llama.convert_to_onnx -m NAME -i FOLDER -o OUT
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import ort_core
from ort_core.cli.interrupts import run_program
from ort_transformers.benchmark_helper import Precision, prepare_environment, setup_logger
from ort_transformers.fusion_options import AttentionOpType, FusionOptions
from ort_transformers.onnx_model import OnnxModel
from ort_transformers.optimizer import optimize_model

log = logging.getLogger("ort_transformers.models.llama.convert_to_onnx")  # not __name__, which may be __main__

FLAG: dict[str, Any] = {"action": "store_true"}

_CASES = ((2, 5, 3), (1, 1, 4), (3, 4, 1))  # batch, tokens, past
_CLOSE = 1e-3  # float32 of deep models differs by some 1e-5, a wrong mask by 1e-2 and more


def get_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Convert a LLaMA into an ONNX model with caches.")
    add = parser.add_argument
    add("-m", "--model_name", required=True, help="its name on the hub, whose last part the files have")
    add("-i", "--input", default=".", help="the folder of the model; the hub is asked without")
    add("-o", "--output", default=os.path.join(".", "llama_onnx_models"), help="the folder of the files")
    kinds = [Precision.FLOAT32, Precision.FLOAT16, Precision.INT8, Precision.INT4]
    add("-p", "--precision", type=Precision, default=Precision.FLOAT32, choices=kinds, help="of the weights")
    add("-e", "--execution_provider", default="cpu", choices=["cpu", "cuda"], help="who is compared with torch")
    add("-r", "--reexport", **FLAG, help="export again where files are there")
    add("--use_gqa", **FLAG, help="caches inside of GroupQueryAttention")
    add("--no_merged", **FLAG, help="two files: without caches, and of one token with caches")
    methods = ["blockwise", "smooth_quant", "quantize_dynamic"]
    add("-q", "--quantization_method", default="", choices=methods, help="how int4 or int8 is made")
    add("-v", "--verbose", **FLAG)
    add("-d", "--use_dynamo_export", **FLAG, help="not available: what is fused is the same by TorchScript")
    add("--cache_dir", default="./model_cache", help="where models of the hub are kept")
    add("--optimize_optimum", **FLAG, help="take optimum's files in --input, and export nothing")
    add("--small_gpu", **FLAG, help="has no meaning here")
    add = parser.add_argument_group("blockwise").add_argument
    add("--bits", default=4, type=int, help="of a weight")
    add("--block_size", default=32, type=int, help="how many weights have one factor")
    add("--int4_accuracy_level", type=int, help="of products: 4 is by whole numbers")
    add = parser.add_argument_group("smooth_quant").add_argument
    add("--smooth_quant_alpha", default=0.8, type=float, help="how much of the range goes from values to weights")
    add("--smooth_quant_dataset", default="NeelNanda/pile-10k", help="sentences to calibrate with")
    add("--pad_max", default=196, type=int, help="tokens of a sentence")
    add("--calibration_sampling_size", type=int, default=8, help="sentences")
    add("--nc_workspace", default=os.path.join(".", "nc_workspace"), help="where files on the way are kept")
    add = parser.add_argument_group("quantize_dynamic").add_argument
    add("--quantize_embedding_layer", **FLAG, help="the table of tokens, too")
    add("--quantize_per_channel", **FLAG, help="a factor for each column")
    add("--quantize_reduce_range", **FLAG, help="7 bits")
    return parser.parse_args(argv)


def _refuse(args: argparse.Namespace) -> None:
    if args.use_dynamo_export:
        raise ValueError("--use_dynamo_export is not available: leave it out, fusions give the same model")
    if args.quantization_method == "smooth_quant":
        raise ValueError("smooth_quant needs sentences: take `ort quantize` on the files of --no_merged")
    if args.precision is Precision.INT8 and args.quantization_method != "quantize_dynamic":
        raise ValueError("--precision int8 needs --quantization_method quantize_dynamic")
    if args.precision is Precision.INT4 and args.quantization_method not in ("", "blockwise"):
        raise ValueError("--precision int4 has the --quantization_method blockwise alone")


def optimize_export(
    args: argparse.Namespace,
    config: Any,
    input_path: str,
    output_path: str,
    remove_model: bool = True,
    world_size: int = 1,
    window_size: int = -1,
) -> None:
    """Fuse a file into another one, its weights beside it.

    Args:
        args: of which ``use_gqa`` counts.
        config: the configuration.
        input_path: the export.
        output_path: the fused model.
        remove_model: remove the export.
        world_size: 1.
        window_size: ignored: a window is in the mask of the export.

    Raises:
        ValueError: parts of several processes are asked for.
    """
    if world_size != 1:
        raise ValueError("a model in several processes' parts is for GPUs: world_size is 1 here")
    options = FusionOptions("gpt2")
    if args.use_gqa:
        options.set_attention_op_type(AttentionOpType.GroupQueryAttention)
    fused = optimize_model(input_path, "gpt2", config.num_attention_heads, config.hidden_size, options, opt_level=0)
    fused.save_model_to_file(output_path, use_external_data_format=True)
    if remove_model:
        remove_existing_model(input_path)


def remove_existing_model(model_path: str) -> None:
    """Remove a file and the weights beside it."""
    for old in (model_path, f"{model_path}.data"):
        Path(old).unlink(missing_ok=True)


def convert_to_precision(args: argparse.Namespace, source: str, target: str) -> None:
    """Write a fused file with weights of fewer bits, and remove it."""
    if args.precision is Precision.FLOAT16:
        half = OnnxModel(onnx.load_model(source, load_external_data=True))
        half.convert_float_to_float16(keep_io_types=False)
        half.save_model_to_file(target, use_external_data_format=True)
    elif args.precision is Precision.INT8:
        kinds = ["MatMul", "Gemm", "Gather"] if args.quantize_embedding_layer else ["MatMul", "Gemm"]
        importlib.import_module("ort_core.quantization").quantize_dynamic(
            source, target, op_types_to_quantize=kinds, per_channel=args.quantize_per_channel,
            reduce_range=args.quantize_reduce_range, use_external_data_format=True,
            extra_options={"MatMulConstBOnly": True},
        )  # fmt: skip
    else:
        quantizer = importlib.import_module("ort_core.quantization.matmul_nbits_quantizer")
        found = quantizer.MatMulNBitsQuantizer(
            model=onnx.load_model(source, load_external_data=True), bits=args.bits, block_size=args.block_size,
            is_symmetric=True, accuracy_level=args.int4_accuracy_level, nodes_to_exclude=[],
        )  # fmt: skip
        found.process()
        OnnxModel.save(found.model.model, target, save_as_external_data=True)
    remove_existing_model(source)


def export_decoders(args: argparse.Namespace, model: Any, name: str) -> dict[str, str]:
    """Write the exports that the command line asks for, and return where they lie, by form."""
    modules = importlib.import_module("ort_transformers.models.llama.llama_modules")
    export_torch = importlib.import_module("ort_transformers.models.torch_export").export_torch
    config, paths = model.config, {}
    for form in ("decoder", "decoder_with_past") if args.no_merged else ("decoder_merged",):
        path = str(Path(args.output, f"rank_0_{name}_{form}_model_fp32.onnx"))
        paths[form] = path
        if Path(path).exists() and not args.reexport:
            log.info("%s is there already and is taken as it is", path)
            continue
        length, past = {"decoder": (8, 0), "decoder_with_past": (1, 8), "decoder_merged": (8, 3)}[form]
        inputs = modules.random_inputs(config, 2, length, past, has_past=form != "decoder")
        export_torch(
            model, inputs, path, modules.decoder_signature(config, form), use_external_data_format=True,
            verbose=args.verbose,
        )  # fmt: skip
    return paths


def largest_difference_of(
    model: Any, path: str, form: str, provider: str = "cpu", cases: Sequence[tuple[int, int, int]] = _CASES
) -> float:
    """Return how far a file's outputs lie from torch's at most, for some batches, lengths and lengths of caches.

    Outputs of padding are not compared: what a token of which the mask hides all keys becomes is another thing in
    float16 than in float32, and nobody reads it.
    """
    torch = importlib.import_module("torch")
    modules = importlib.import_module("ort_transformers.models.llama.llama_modules")
    comparisons = importlib.import_module("ort_transformers.models.comparisons")
    eager_attention = importlib.import_module("ort_transformers.models.torch_export").eager_attention
    names = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
    session = ort_core.InferenceSession(path, providers=[names[provider]])
    most = 0.0
    for batch, length, past in cases:
        tokens, before = {"decoder": (length, 0), "decoder_with_past": (1, past)}.get(form, (length, past))
        inputs = modules.random_inputs(model.config, batch, tokens, before, has_past=form != "decoder")
        with torch.no_grad(), eager_attention(model):
            wanted = model(*inputs)
        given = zip(modules.decoder_signature(model.config, form).inputs, inputs, strict=True)
        feeds = {name: comparisons.as_array(each) for name, each in given}
        is_half = any(each.type == "tensor(float16)" for each in session.get_inputs())
        if is_half:
            feeds = {name: each.astype("float16") if each.dtype == "float32" else each for name, each in feeds.items()}
        seen = feeds["attention_mask"] != 0
        found = [_without_padding(each, seen) for each in comparisons.run_session(session, feeds)]
        wanted = [_without_padding(comparisons.as_array(each), seen) for each in wanted]
        most = max(most, comparisons.largest_difference(wanted, found))
    return most


def _without_padding(array: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Return logits ``[B, L, V]``, or a cache ``[B, H, L, D]``, with zeros for tokens that the mask does not show."""
    axis = array.ndim - 2
    kept = seen[:, seen.shape[1] - array.shape[axis] :]
    return np.where(kept.reshape(kept.shape[0], *(1,) * (axis - 1), kept.shape[1], 1), array, 0)


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Convert the model that the command line names.

    Returns:
        How far each file's outputs lie from torch's at most, by path.

    Raises:
        ValueError: a form is asked for that is not available.
        ModuleNotFoundError: torch or transformers is not installed.
    """
    args = get_args(argv)
    setup_logger(args.verbose)
    _refuse(args)
    prepare_environment(None, args.output, args.execution_provider != "cpu")
    name = args.model_name.split("/")[-1]
    location = args.model_name if args.input == "." else args.input
    transformers = importlib.import_module("transformers")
    if args.optimize_optimum:
        config = transformers.AutoConfig.from_pretrained(args.model_name, cache_dir=args.cache_dir)
        return _optimize_folder(args, config)
    modules = importlib.import_module("ort_transformers.models.llama.llama_modules")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(location, cache_dir=args.cache_dir)
    model = modules.LlamaWithPast(loaded.float().eval())
    found = {}
    for form, path in export_decoders(args, model, name).items():
        written = path.replace("_fp32.onnx", "_fp32_opt.onnx")
        optimize_export(args, model.config, path, written)
        if args.precision is not Precision.FLOAT32:
            source, written = written, path.replace("_fp32.onnx", f"_{args.precision}.onnx")
            convert_to_precision(args, source, written)
        found[written] = largest_difference_of(model, written, form, args.execution_provider)
        log.info("%s: results differ from torch's by up to %.3g", written, found[written])
        if args.precision is Precision.FLOAT32 and found[written] > _CLOSE:
            log.warning("%s: results are not close to torch's", written)
    return found


def _optimize_folder(args: argparse.Namespace, config: Any) -> dict[str, float]:
    """Fuse the files of optimum in a folder; nothing is compared."""
    for source in sorted(Path(args.input).glob("*.onnx")):
        target = Path(args.output, f"{source.stem}_fp32_opt.onnx")
        optimize_export(args, config, str(source), str(target), remove_model=False)
        if args.precision is not Precision.FLOAT32:
            convert_to_precision(args, str(target), str(Path(args.output, f"{source.stem}_{args.precision}.onnx")))
    return {}


if __name__ == "__main__":
    run_program(main)
