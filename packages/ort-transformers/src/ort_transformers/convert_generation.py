"""Put a GPT-2, T5 or mT5 into a graph of one BeamSearch, GreedySearch or Sampling, which generates text by itself.

python -m ort_transformers.convert_generation -m FOLDER --model_type gpt2 --output OUT/beam_search.onnx

torch and transformers are needed for exports and for the comparison: not where the bodies' files are given
(``--decoder_onnx``, ``--encoder_decoder_init_onnx``) with ``--disable_parity``.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import onnx
from onnx import GraphProto, ModelProto, TensorProto

from ort_core.cli.interrupts import run_program
from ort_core.model_types import infer_proto
from ort_transformers.benchmark_helper import Precision, setup_logger
from ort_transformers.generation.generation_arguments import parse_arguments
from ort_transformers.generation.generation_comparison import (
    create_attention_mask,
    create_ort_session,
    test_gpt_model,
    test_t5_model,
    test_torch_performance,
)
from ort_transformers.generation.generation_decoders import (
    generate_gpt2_init_decoder,
    get_shared_initializers,
    keep_last_place,
    move_initializers,
    pad_head,
    pad_weights_of_logits_matmul,
    remove_shared_initializers,
    take_one_token,
    update_input_shapes_for_gpt2_decoder_model,
    verify_gpt2_subgraph,
    verify_t5_decoder_subgraph,
    verify_t5_encoder_decoder_init_subgraph,
)
from ort_transformers.generation.generation_graphs import Search, build_search
from ort_transformers.generation.generation_tokens import tokens_of
from ort_transformers.models.gpt2 import convert_to_onnx as gpt2_conversion
from ort_transformers.models.t5.convert_to_onnx import export_onnx_models as export_t5_onnx_models
from ort_transformers.onnx_model import OnnxModel

__all__ = [
    "GenerationType", "convert_generation_model", "create_attention_mask", "create_ort_session",
    "generate_gpt2_init_decoder", "get_shared_initializers", "gpt2_to_onnx", "main", "move_initializers",
    "pad_weights_of_logits_matmul", "parse_arguments", "remove_shared_initializers", "shape_inference", "t5_to_onnx",
    "test_gpt_model", "test_t5_model", "test_torch_performance", "update_input_shapes_for_gpt2_decoder_model",
    "verify_gpt2_subgraph", "verify_t5_decoder_subgraph", "verify_t5_encoder_decoder_init_subgraph",
]  # fmt: skip

log = logging.getLogger("ort_transformers.convert_generation")  # not __name__, which is __main__ of a command line

_SEEDLESS_TOP_P = 0.01  # below it Sampling takes the best token practically always, as GreedySearch does
_GPT2_IN_FLOAT32 = ("Add", "LayerNormalization", "SkipLayerNormalization", "FastGelu")


class GenerationType(Enum):
    """How the next token is chosen."""

    BEAMSEARCH = "beam_search"
    GREEDYSEARCH = "greedy_search"
    SAMPLING = "sampling"

    def __str__(self) -> str:
        return self.value


def gpt2_to_onnx(args: argparse.Namespace) -> None:
    """Export and fuse the decoder of a GPT-2 into ``args.decoder_onnx``."""
    given = {
        "--model_name_or_path": args.model_name_or_path, "--output": args.decoder_onnx, "--precision": args.precision,
        "--test_runs": "1", "--test_cases": "10", "--cache_dir": args.cache_dir,
    }  # fmt: skip
    argv = [part for name, value in given.items() if value for part in (name, value)]
    argv += ["--optimize_onnx", "--overwrite"]
    argv += ["--use_gpu"] if args.use_gpu else []
    argv += ["--use_external_data_format"] if args.use_external_data_format else []
    argv += ["--op_block_list", *args.op_block_list] if args.op_block_list else []
    table = Path(args.decoder_onnx).with_suffix(".csv")
    gpt2_conversion.main(argv, csv_filename=str(table))


def t5_to_onnx(args: argparse.Namespace) -> None:
    """Export and fuse encoder and decoder of a T5, and write their paths into ``args``."""
    is_float16 = args.precision == Precision.FLOAT16.value
    args.encoder_decoder_init_onnx, args.decoder_onnx = export_t5_onnx_models(
        args.model_name_or_path, args.cache_dir, Path(args.output).parent, use_gpu=args.use_gpu,
        use_external_data_format=args.use_external_data_format, optimize_onnx=True, precision=args.precision,
        overwrite=True, model_type=args.model_type, encoder_decoder_init=args.encoder_decoder_init,
        force_fp16_io=is_float16,
    )  # fmt: skip


def shape_inference(onnx_path: str, use_external_data_format: bool = True) -> None:
    """Write the inferred types of values into a model's file."""
    typed = infer_proto(onnx.load_model(onnx_path, load_external_data=True)).model
    OnnxModel.save(typed, onnx_path, save_as_external_data=use_external_data_format)


def convert_generation_model(
    args: argparse.Namespace, generation_type: GenerationType = GenerationType.BEAMSEARCH
) -> None:
    """Write the graph that a command line asks for.

    Args:
        args: from ``parse_arguments``; paths of files that are exported on the way are written into it.
        generation_type: how the next token is chosen.

    Raises:
        NotImplementedError: this search has no such output, or cannot run such a model.
        ValueError: an option is for GPUs, or a body cannot be run by the search.
        ModuleNotFoundError: torch or transformers is needed, and not installed.
    """
    _refuse(args, generation_type)
    if list(args.op_block_list) == ["auto"]:
        is_half_gpt2 = args.model_type == "gpt2" and args.precision == Precision.FLOAT16.value
        args.op_block_list = list(_GPT2_IN_FLOAT32) if is_half_gpt2 else []
    facts = tokens_of(args)
    parts = _gpt2_bodies(args) if args.model_type == "gpt2" else _t5_bodies(args)
    search = Search(
        kind=str(generation_type),
        model_type=args.model_type,
        vocab_size=facts["vocab_size"],
        optional=frozenset(_optional_inputs(args, generation_type)),
        scores=(args.output_sequences_scores, args.output_token_scores),
        attributes=_attributes(args, generation_type, facts, is_padded=parts.is_padded),
        bodies=parts.bodies,
        initializers=parts.shared,
    )
    model = build_search(search, like=parts.like)
    OnnxModel.save(model, args.output, save_as_external_data=args.use_external_data_format)
    log.info("written: %s", args.output)


def _refuse(args: argparse.Namespace, generation_type: GenerationType) -> None:
    if generation_type is not GenerationType.BEAMSEARCH:
        if args.model_type != "gpt2":
            raise NotImplementedError(f"{generation_type} has a GPT-2 alone: take --num_beams above 1 for a T5")
        if args.output_sequences_scores or args.output_token_scores:
            raise NotImplementedError(f"{generation_type} has no outputs of scores: take --num_beams above 1")
    if args.output_token_scores and not args.output_sequences_scores:
        raise ValueError("--output_token_scores needs --output_sequences_scores")
    for name in ("past_present_share_buffer", "use_decoder_masked_attention"):
        if getattr(args, name):
            raise ValueError(f"--{name} is for kernels of CUDA, which are not part of ort-core: leave it out")


def _optional_inputs(args: argparse.Namespace, generation_type: GenerationType) -> list[str]:
    given = {"vocab_mask": args.vocab_mask, "prefix_vocab_mask": args.prefix_vocab_mask,
             "attention_mask": args.custom_attention_mask}  # fmt: skip
    if generation_type is GenerationType.SAMPLING:
        given |= {"presence_mask": args.custom and args.presence_mask, "seed": args.seed}
    return [name for name, is_given in given.items() if is_given]


def _attributes(
    args: argparse.Namespace, generation_type: GenerationType, facts: Mapping[str, int], *, is_padded: bool
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "eos_token_id": facts["eos_token_id"],
        "pad_token_id": facts["pad_token_id"],
        "no_repeat_ngram_size": args.no_repeat_ngram_size,
        "model_type": 0 if args.model_type == "gpt2" else 1,
    }
    if generation_type is GenerationType.BEAMSEARCH:
        found["early_stopping"] = int(args.early_stopping)
    if generation_type is GenerationType.SAMPLING:
        names = ("temperature", "top_p", "filter_value", "min_tokens_to_keep", "custom", "presence_penalty")
        found |= {name: getattr(args, name) for name in names}
    if args.model_type != "gpt2":
        found["decoder_start_token_id"] = facts["decoder_start_token_id"]
    return found | ({"vocab_size": facts["vocab_size"]} if is_padded else {})  # how many tokens are no padding


# ------------------------------------------------------------------ bodies
@dataclass(frozen=True)
class _Bodies:
    bodies: Mapping[str, GraphProto]
    shared: Sequence[TensorProto]
    like: ModelProto
    is_padded: bool = False


def _gpt2_bodies(args: argparse.Namespace) -> _Bodies:
    folder = Path(args.output).parent
    if not (args.decoder_onnx and Path(args.decoder_onnx).exists()):
        name = Path(args.model_name_or_path).name
        args.decoder_onnx = args.decoder_onnx or str(folder / f"{name}_past_{args.precision}.onnx")
        gpt2_to_onnx(args)
    decoder = _load(args.decoder_onnx, "gpt2 decoder")
    is_half = args.precision == Precision.FLOAT16.value
    is_padded = is_half and not args.disable_pad_vocab_size and pad_head(decoder)
    init = ModelProto()
    init.CopyFrom(decoder)
    has_first = not args.disable_separate_gpt2_decoder_for_init_run and keep_last_place(init)
    if has_first:
        path = str(folder / f"gpt2_init_past_{args.precision}.onnx")
        OnnxModel.save(init, path, save_as_external_data=args.use_external_data_format)
        take_one_token(decoder)
    if is_padded or args.run_shape_inference or has_first:
        decoder, init = infer_proto(decoder).model, infer_proto(init).model
    verify_gpt2_subgraph(decoder.graph, args.precision)
    if not has_first:
        return _Bodies({"decoder": decoder.graph}, move_initializers(decoder.graph), decoder, is_padded)
    init.graph.name = "gpt2 init decoder"
    verify_gpt2_subgraph(init.graph, args.precision)
    shared = [] if args.disable_shared_initializers else get_shared_initializers(init, decoder)
    return _Bodies({"init_decoder": init.graph, "decoder": decoder.graph}, shared, decoder, is_padded)


def _t5_bodies(args: argparse.Namespace) -> _Bodies:
    if not (args.decoder_onnx and args.encoder_decoder_init_onnx):
        t5_to_onnx(args)
    if args.run_shape_inference:
        for path in (args.encoder_decoder_init_onnx, args.decoder_onnx):
            shape_inference(path, args.use_external_data_format)
    decoder = _load(args.decoder_onnx, f"{args.model_type} decoder")
    encoder = _load(args.encoder_decoder_init_onnx, f"{args.model_type} encoder")
    verify_t5_decoder_subgraph(decoder.graph, args.precision)
    verify_t5_encoder_decoder_init_subgraph(encoder.graph, args.precision)
    shared = [] if args.disable_shared_initializers else get_shared_initializers(encoder, decoder)
    return _Bodies({"encoder": encoder.graph, "decoder": decoder.graph}, shared, decoder)


def _load(path: str, name: str) -> ModelProto:
    proto = onnx.load_model(path, load_external_data=True)
    proto.graph.name = name
    return proto


# ------------------------------------------------------------------ the command
def main(argv: Sequence[str] | None = None, sentences: Sequence[str] | None = None) -> dict[str, Any] | None:
    """Convert the model that a command line names, and compare what the graph generates with torch.

    Args:
        argv: the command line.
        sentences: what is continued, or given to the encoder, in the comparison.

    Returns:
        Latencies and whether both generate the same (``"parity"``); ``None`` where nothing is compared.

    Raises:
        ValueError: a path does not exist, or one of two is missing.
    """
    args = parse_arguments(argv)
    setup_logger(args.verbose)
    Path(args.output).parent.mkdir(parents=True, exist_ok=True)
    if args.model_type == "gpt2":
        return _convert_gpt2(args, sentences)
    paths = {"--encoder_decoder_init_onnx": args.encoder_decoder_init_onnx, "--decoder_onnx": args.decoder_onnx}
    for option, path in paths.items():
        if path and not Path(path).exists():
            raise ValueError(f"{option} {path}: there is no such file")
    if sum(map(bool, paths.values())) == 1:
        raise ValueError("--decoder_onnx and --encoder_decoder_init_onnx belong together: give both, or none")
    convert_generation_model(args)
    return test_t5_model(args, sentences)


def _convert_gpt2(args: argparse.Namespace, sentences: Sequence[str] | None) -> dict[str, Any] | None:
    if args.num_beams != 1 or args.num_return_sequences != 1:
        convert_generation_model(args)
        return test_gpt_model(args, sentences)
    is_sampling = 0.0 < args.top_p < 1.0
    convert_generation_model(args, GenerationType.SAMPLING if is_sampling else GenerationType.GREEDYSEARCH)
    if is_sampling and (args.top_p > _SEEDLESS_TOP_P or args.custom or args.seed):
        log.info("torch draws other tokens: nothing is compared")
        return None
    return test_gpt_model(args, sentences, is_greedy=True)


if __name__ == "__main__":
    run_program(main)
