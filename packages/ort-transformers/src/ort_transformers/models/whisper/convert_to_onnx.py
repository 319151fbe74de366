"""Convert a Whisper of transformers into ONNX models: one that transcribes by itself, or encoder and decoder.

python -m ort_transformers.models.whisper.convert_to_onnx -m FOLDER --output OUT -o
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import onnx

from ort_core.cli.interrupts import run_program
from ort_transformers.benchmark_helper import Precision, create_onnxruntime_session, prepare_environment, setup_logger
from ort_transformers.models.whisper.names import PRETRAINED_WHISPER_MODELS
from ort_transformers.onnx_model import OnnxModel

log = logging.getLogger("ort_transformers.models.whisper.convert_to_onnx")  # not __name__, which may be __main__

FLAG: dict[str, Any] = {"action": "store_true"}

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_CLOSE = 1e-4  # float32 of small models differs by some 1e-6, a wrong mask by 1e-2 and more
_MAX_LAYERS_IN_ONE_FILE = 24  # large models have 32 layers and 3 GB in their encoder alone
_BLOCK = 32
_SENSITIVE = ("q_proj", "k_proj", "v_proj", "out_proj", "fc2")


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Convert a Whisper into ONNX models.")
    _add_conversion(parser)
    _add_search(parser)
    quantized = parser.add_argument_group("int8 and int4")
    quantized.add_argument("--accuracy_level", type=int, default=0, help="of products of a GPU; a CPU has 4")
    quantized.add_argument("--quantize_symmetric", action="store_true", help="no zero points")
    methods = ["k_quant", "k_quant_mixed"]
    quantized.add_argument("--quant_method", default="k_quant", choices=methods, help="mixed: some weights keep 8 bits")
    args = parser.parse_args(argv)
    args.collect_cross_qk = args.collect_cross_qk or args.output_cross_qk
    args.use_decoder_masked_mha = args.use_decoder_masked_mha and args.provider == "cuda"
    return args


def _add_conversion(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("the conversion").add_argument
    known = ", ".join(PRETRAINED_WHISPER_MODELS)
    add("-m", "--model_name_or_path", default=PRETRAINED_WHISPER_MODELS[0], help=f"a folder, or a name as {known}")
    add("--model_impl", default="hf", choices=["hf", "openai"], help="whose form of the model it is")
    add("--cache_dir", default=os.path.join(".", "cache_models"), help="where models of the hub are kept")
    add("--output", default=os.path.join(".", "onnx_models"), help="the folder of the files")
    add("-o", "--optimize_onnx", **FLAG, help="fuse the models")
    add("--use_gpu", **FLAG, help="run on a GPU")
    kinds = [Precision.FLOAT32, Precision.FLOAT16, Precision.INT8, Precision.INT4]
    add("-p", "--precision", type=Precision, default=Precision.FLOAT32, choices=kinds, help="of the weights")
    add("--use_int64_inputs", **FLAG, help="int64 for tokens; int32 without")
    add("-r", "--provider", default="cpu", choices=list(PROVIDERS), help="who runs the files")
    add("--verbose", **FLAG)
    add("-e", "--use_external_data_format", **FLAG, help="write weights beside the models")
    add("-w", "--overwrite", **FLAG, help="export again where files are there")
    add("--separate_encoder_and_decoder_init", **FLAG, help="three files: encoder, first step, later steps")
    add("--no_beam_search_op", **FLAG, help="no file that transcribes by itself")
    add("--use_decoder_masked_mha", **FLAG, help="an attention that CUDA's kernels alone have")


def _add_search(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("inputs of the search").add_argument
    add("-v", "--use_vocab_mask", **FLAG, help="tokens that may occur")
    add("-u", "--use_prefix_vocab_mask", **FLAG, help="tokens that may come first, by sentence")
    add("-f", "--use_forced_decoder_ids", **FLAG, help="tokens that each text begins with")
    add("-l", "--use_logits_processor", **FLAG, help="1 for the rules of timestamps")
    add("--collect_cross_qk", **FLAG, help="which heads of cross attention are an output")
    add("--extra_decoding_ids", **FLAG, help="more tokens that each text begins with")
    add("-t", "--use_temperature", **FLAG, help="the temperature")
    add("--no_repeat_ngram_size", type=int, default=0, help="n-grams of this size do not occur twice")
    add = parser.add_argument_group("outputs of the search").add_argument
    add("--output_sequence_scores", **FLAG, help="the score of each text")
    add("--output_scores", **FLAG, help="all scores at each step")
    add("--output_cross_qk", **FLAG, help="weights of cross attention")
    add("--cross_qk_onnx_model", default=None, help="a model that reads them")
    add("--output_no_speech_probs", **FLAG, help="the probability that there is no speech")


# ------------------------------------------------------------------ weights of few bits
def get_sensitive_node_names(matmul_nodes: Iterable[str], encoder_layers: int, decoder_layers: int) -> list[str]:
    """Return names of products that keep 8 bits: the head, projections of some layers, and what lies in no layer.

    These layers are the first and last eighth, and every third between them.
    """
    kept = {"encoder": _sensitive_layers(encoder_layers), "decoder": _sensitive_layers(decoder_layers)}
    return [name for name in matmul_nodes if _is_sensitive(name, kept)]


def _sensitive_layers(count: int) -> set[int]:
    first = round(count / 8)
    return {each for each in range(count) if not count / 8 <= each < 7 * count / 8 or (each - first) % 3 == 2}


def _is_sensitive(name: str, kept: dict[str, set[int]]) -> bool:
    if "proj_out" in name:
        return True
    layer = re.search(r"layers\.(\d+)", name)
    if layer is None:
        return "k_proj" in name or "v_proj" in name
    parts = [part for part in kept if f"/{part}/" in name]
    return any(int(layer[1]) in kept[part] for part in parts) and any(f"/{each}/" in name for each in _SENSITIVE)


def make_quant_algo_config(
    precision: Precision,
    quant_method: str,
    matmul_nodes: Sequence[str] = (),
    encoder_layers: int = 0,
    decoder_layers: int = 0,
) -> Any:
    """Return the configuration of the quantizer: which products have 8 bits in place of 4.

    Raises:
        ModuleNotFoundError: ort-quantization is not installed.
    """
    kept: Iterable[str] = ()
    if precision is Precision.INT8:
        kept = matmul_nodes
    elif precision is Precision.INT4 and quant_method == "k_quant_mixed":
        kept = get_sensitive_node_names(matmul_nodes, encoder_layers, decoder_layers)
    quantizer = importlib.import_module("ort_core.quantization.matmul_nbits_quantizer")
    return quantizer.KQuantWeightOnlyQuantConfig(customized_weight_config={name: {"bits": 8} for name in kept})


def _quantize(source: str, target: str, args: argparse.Namespace, config: Any) -> None:
    proto = onnx.load(source, load_external_data=True)
    names = [node.name for node in proto.graph.node if node.op_type == "MatMul"]
    algorithm = make_quant_algo_config(
        args.precision, args.quant_method, names, config.encoder_layers, config.decoder_layers
    )
    quantizer = importlib.import_module("ort_core.quantization.matmul_nbits_quantizer")
    found = quantizer.MatMulNBitsQuantizer(
        model=proto, block_size=_BLOCK, is_symmetric=args.quantize_symmetric, accuracy_level=args.accuracy_level,
        op_types_to_quantize=("MatMul",), algo_config=algorithm,
    )  # fmt: skip
    found.process()
    OnnxModel.save(found.model.model, target, save_as_external_data=True)


# ------------------------------------------------------------------ the parts
def export_onnx_models(
    model_name_or_path: str,
    model_impl: str,
    cache_dir: str | None,
    output_dir: str,
    use_gpu: bool,
    use_external_data_format: bool,
    optimize_onnx: bool,
    precision: Precision,
    verbose: bool,
    use_forced_decoder_ids: bool = False,
    merge_encoder_and_decoder_init: bool = True,
    no_beam_search_op: bool = False,
    use_decoder_masked_mha: bool = False,
    output_qk: bool = False,
    overwrite: bool = False,
    use_int32_inputs: bool = True,
    accuracy_level: int = 0,
    quantize_symmetric: bool = False,
    provider: str = "cpu",
    quant_method: str = "k_quant",
) -> list[str]:
    """Write the parts, compare each with torch, and return their paths; arguments are those of the command line.

    Raises:
        ValueError: a form is asked for that a CPU does not run.
        ModuleNotFoundError: torch or transformers is not installed.
    """
    torch = importlib.import_module("torch")
    helper = importlib.import_module("ort_transformers.models.whisper.whisper_helper").WhisperHelper
    is_few_bits = precision in (Precision.INT8, Precision.INT4)
    is_half = precision is Precision.FLOAT16 or (is_few_bits and use_gpu)
    device = torch.device("cuda" if use_gpu else "cpu")
    parts = helper.load_model(
        model_name_or_path, model_impl, cache_dir, device, torch.float16 if is_half else torch.float32,
        merge_encoder_and_decoder_init, no_beam_search_op, output_qk,
    )  # fmt: skip
    config = parts["decoder"].config
    if config.num_hidden_layers > _MAX_LAYERS_IN_ONE_FILE and not use_external_data_format:
        raise ValueError("the model is above 2 GB: give --use_external_data_format")
    options = argparse.Namespace(
        precision=precision, quant_method=quant_method, quantize_symmetric=quantize_symmetric,
        accuracy_level=accuracy_level if use_gpu else 4,
    )  # fmt: skip
    paths = []
    for name, part in parts.items():

        def place(suffix: str = "", name: str = name) -> str:
            return str(helper.get_onnx_path(output_dir, model_name_or_path, suffix=f"_{name}{suffix}"))

        path = place()
        if overwrite or not Path(path).exists():
            helper.export_onnx(part, path, PROVIDERS[provider], verbose, use_external_data_format, is_half,
                               use_int32_inputs)  # fmt: skip
        if optimize_onnx:
            source, path = path, place(f"_{precision}")
            helper.optimize_onnx(
                source, path, is_half, config.encoder_attention_heads, config.d_model, config.decoder_layers,
                use_external_data_format, use_gpu, provider, name == "decoder", no_beam_search_op,
                use_decoder_masked_mha, output_qk,
            )  # fmt: skip
            for old in (source, f"{source}.data"):
                Path(old).unlink(missing_ok=True)
        most = helper.verify_part(part, path, use_int32_inputs)
        log.info("%s: results differ from torch's by up to %.3g", path, most)
        if precision is Precision.FLOAT32 and most > _CLOSE:
            log.warning("%s: results are not close to torch's", path)
        if is_few_bits:
            _quantize(path, place(f"_{precision}"), options, config)
            path = place(f"_{precision}")
        paths.append(path)
    return paths


def main(argv: Sequence[str] | None = None) -> float:
    """Convert the model that the command line names.

    Returns:
        How many tokens the file that transcribes by itself writes otherwise than torch; 0 without such a file.

    Raises:
        ValueError: a form is asked for that a CPU does not run.
        ModuleNotFoundError: torch or transformers is not installed.
    """
    args = parse_arguments(argv)
    setup_logger(args.verbose)
    if args.precision is Precision.FLOAT16 and not args.use_gpu:
        raise ValueError("--precision fp16 needs --use_gpu; export_onnx_models() writes it for a CPU, too")
    folder = os.path.dirname(args.output) if args.output.endswith(".onnx") else args.output
    prepare_environment(args.cache_dir, folder, args.use_gpu)
    if not args.no_beam_search_op and args.separate_encoder_and_decoder_init:
        raise ValueError("--separate_encoder_and_decoder_init needs --no_beam_search_op: a search reads two files")
    paths = export_onnx_models(
        args.model_name_or_path, args.model_impl, args.cache_dir, folder, args.use_gpu, args.use_external_data_format,
        args.optimize_onnx, args.precision, args.verbose, args.use_forced_decoder_ids,
        not args.separate_encoder_and_decoder_init, args.no_beam_search_op, args.use_decoder_masked_mha,
        args.output_cross_qk, args.overwrite, not args.use_int64_inputs, args.accuracy_level, args.quantize_symmetric,
        args.provider, args.quant_method,
    )  # fmt: skip
    most = _save_processing(args, paths, folder) if args.no_beam_search_op else _chain(args, paths, folder)
    log.info("written: %s", ", ".join(paths))
    return most


def _save_processing(args: argparse.Namespace, paths: list[str], folder: str) -> float:
    helper = importlib.import_module("ort_transformers.models.whisper.whisper_helper").WhisperHelper
    decoder, encoder = paths[:2]
    helper.save_processing(
        args.model_name_or_path, args.provider, args.separate_encoder_and_decoder_init, args.use_decoder_masked_mha,
        args.output_cross_qk, encoder, decoder, folder, args.cache_dir,
    )  # fmt: skip
    return 0.0


def _chain(args: argparse.Namespace, paths: list[str], folder: str) -> float:
    """Write the file that transcribes by itself, remove its parts, and compare it with torch."""
    torch = importlib.import_module("torch")
    helper = importlib.import_module("ort_transformers.models.whisper.whisper_helper").WhisperHelper
    chain = importlib.import_module("ort_transformers.models.whisper.whisper_chain")
    args.decoder_path, args.encoder_path = paths
    args.beam_model_output_dir = helper.get_onnx_path(folder, args.model_name_or_path, suffix="_beamsearch")
    chain.chain_model(args)
    for part in paths:
        for old in (part, f"{part}.data"):
            Path(old).unlink(missing_ok=True)
    paths[:] = [args.beam_model_output_dir]
    session = create_onnxruntime_session(paths[0], args.use_gpu, provider=args.provider)
    if session is None:
        return float("nan")
    device = torch.device("cuda" if args.use_gpu else "cpu")
    most = float(helper.verify_onnx(args.model_name_or_path, args.cache_dir, session, device, batch_size=2))
    log.info("%s: %d tokens differ from torch's", paths[0], most)
    return most


if __name__ == "__main__":
    run_program(main)
