"""Whisper's encoder and decoder in a graph of one WhisperBeamSearch."""

from __future__ import annotations

import argparse
import importlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, TensorProto, helper

from ort_transformers.generation.generation_decoders import get_shared_initializers
from ort_transformers.onnx_model import OnnxModel

log = logging.getLogger(__name__)

Value = tuple[int, Sequence[int | str]]  # element type and shape
_SPECIAL = {
    "translate_token_id": "<|translate|>",
    "transcribe_token_id": "<|transcribe|>",
    "start_of_lm_token_id": "<|startoflm|>",
    "no_timestamps_token_id": "<|notimestamps|>",
    "beginning_timestamp_token_id": "<|0.00|>",
}


def chain_model(args: argparse.Namespace) -> None:
    """Write the graph.

    Args:
        args: the options of the command line, where the parts lie (``encoder_path``, ``decoder_path``), and where the
            graph shall lie (``beam_model_output_dir``).

    Raises:
        ValueError: an option has no form that a CPU runs.
    """
    for name in ("collect_cross_qk", "output_cross_qk", "output_no_speech_probs", "extra_decoding_ids"):
        if getattr(args, name, False):
            raise ValueError(
                f"--{name} needs outputs of cross attention, which CUDA's kernels alone have: leave it out"
            )
    if getattr(args, "cross_qk_onnx_model", None):
        raise ValueError("--cross_qk_onnx_model reads outputs of cross attention, which CUDA's kernels alone have")
    transformers = importlib.import_module("transformers")
    config = transformers.WhisperConfig.from_pretrained(args.model_name_or_path, cache_dir=args.cache_dir)
    encoder, decoder = (
        onnx.load_model(path, load_external_data=True) for path in (args.encoder_path, args.decoder_path)
    )
    encoder.graph.name, decoder.graph.name = "encoderdecoderinit subgraph", "decoder subgraph"
    model = build_whisper_search(args, config, special_tokens(args), encoder, decoder)
    path = Path(args.beam_model_output_dir)
    OnnxModel.save(model, str(path), save_as_external_data=args.use_external_data_format)
    onnx.checker.check_model(str(path))


def special_tokens(args: argparse.Namespace) -> dict[str, int]:
    """Return the tokens that rule timestamps, where the model's folder has a tokenizer."""
    helper_module = importlib.import_module("ort_transformers.models.whisper.whisper_helper")
    processor = helper_module.load_processor(args.model_name_or_path, args.cache_dir)
    if processor is None:
        return {}
    return {name: int(processor.tokenizer.convert_tokens_to_ids(token)) for name, token in _SPECIAL.items()}


def build_whisper_search(
    args: argparse.Namespace, config: Any, special: dict[str, int], encoder: ModelProto, decoder: ModelProto
) -> ModelProto:
    """Return the model; names inside of the two parts get prefixes."""
    shared = get_shared_initializers(encoder, decoder)
    inputs, outputs = search_inputs(args, config.vocab_size), search_outputs(args)
    names = [name if value is not None else "" for name, value in inputs.items()]
    while not names[-1]:
        names.pop()
    produced = [name if value is not None else "" for name, value in outputs.items()]
    while not produced[-1]:
        produced.pop()
    node = helper.make_node(
        "WhisperBeamSearch", names, produced, name="BeamSearch", domain="com.microsoft",
        eos_token_id=_first(config.eos_token_id), pad_token_id=_first(config.pad_token_id),
        decoder_start_token_id=config.decoder_start_token_id, no_repeat_ngram_size=args.no_repeat_ngram_size,
        early_stopping=1, model_type=2, decoder=decoder.graph, encoder=encoder.graph,
    )  # fmt: skip
    node.attribute.extend(helper.make_attribute(name, token) for name, token in special.items())
    graph = helper.make_graph(
        [node],
        "WhisperBeamSearch Graph",
        [helper.make_tensor_value_info(name, *value) for name, value in inputs.items() if value is not None],
        [helper.make_tensor_value_info(name, *value) for name, value in outputs.items() if value is not None],
        shared,
    )
    versions = {each.domain: each.version for each in decoder.opset_import} | {"com.microsoft": 1}
    opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    return helper.make_model(
        graph, producer_name="ort-core.transformers", opset_imports=opsets, ir_version=decoder.ir_version
    )


def search_inputs(args: argparse.Namespace, vocab_size: int) -> dict[str, Value | None]:
    """Return the operator's inputs in order; those that are not asked for are ``None``."""
    whole, real = TensorProto.INT32, TensorProto.FLOAT
    optional: dict[str, tuple[bool, Value]] = {
        "vocab_mask": (args.use_vocab_mask, (whole, (vocab_size,))),
        "prefix_vocab_mask": (args.use_prefix_vocab_mask, (whole, ("batch_size", vocab_size))),
        "attention_mask": (False, (whole, ())),
        "decoder_input_ids": (args.use_forced_decoder_ids, (whole, ("batch_size", "initial_sequence_length"))),
        "logits_processor": (args.use_logits_processor, (whole, (1,))),
        "cross_qk_layer_head": (False, (whole, ())),
        "extra_decoding_ids": (False, (whole, ())),
        "temperature": (args.use_temperature, (real, (1,))),
    }
    numbers = dict.fromkeys(("max_length", "min_length", "num_beams", "num_return_sequences"), (whole, (1,)))
    return {
        "input_features": (real, ("batch_size", "feature_size", "sequence_length")),
        **numbers,
        "length_penalty": (real, (1,)),
        "repetition_penalty": (real, (1,)),
        **{name: value if is_there else None for name, (is_there, value) in optional.items()},
    }


def search_outputs(args: argparse.Namespace) -> dict[str, Value | None]:
    """Return the operator's outputs in order; those that are not asked for are ``None``."""
    sequences: Value = (TensorProto.INT32, ("batch_size", "num_return_sequences", "max_length"))
    by_sequence: Value = (TensorProto.FLOAT, ("batch_size", "num_return_sequences"))
    by_token: Value = (TensorProto.FLOAT, ("steps", "batch_size", "num_beams", "vocab_size"))
    return {
        "sequences": sequences,
        "sequence_scores": by_sequence if args.output_sequence_scores else None,
        "scores": by_token if args.output_scores else None,
    }


def _first(token: Any) -> int:
    return int(token[0] if isinstance(token, list) else token)
