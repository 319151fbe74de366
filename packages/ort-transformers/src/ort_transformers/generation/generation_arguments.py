"""The command line of convert_generation, which has onnxruntime's names and defaults."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from ort_transformers.benchmark_helper import Precision
from ort_transformers.models.gpt2.names import PRETRAINED_GPT2_MODELS
from ort_transformers.models.t5.names import PRETRAINED_MT5_MODELS, PRETRAINED_T5_MODELS

FLAG: dict[str, Any] = {"action": "store_true"}


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Put a GPT-2, T5 or mT5 into a graph that generates text by itself.")
    parser.add_argument("--verbose", action="store_true", help="log more")
    _add_input(parser)
    _add_output(parser)
    _add_stored(parser)
    _add_tried(parser)
    _add_comparison(parser)
    return parser.parse_args(argv)


def _add_input(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("the model").add_argument
    known = ", ".join(PRETRAINED_GPT2_MODELS + PRETRAINED_T5_MODELS + PRETRAINED_MT5_MODELS)
    add("-m", "--model_name_or_path", required=True, help=f"a folder, or a name on the hub, as {known}")
    add("--model_type", default="gpt2", choices=["gpt2", "t5", "mt5"], help="what it is")
    add("--cache_dir", default=os.path.join(".", "cache_models"), help="where models of the hub are kept")
    add("--decoder_onnx", default="", help="the decoder's file, where it was exported before")
    add("--encoder_decoder_init_onnx", default="", help="the encoder's file, where it was exported before")


def _add_output(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what is written").add_argument
    add("--output", required=True, help="the file to write")
    precisions = [Precision.FLOAT32.value, Precision.FLOAT16.value]
    add("-p", "--precision", default=Precision.FLOAT32.value, choices=precisions, help="of the weights")
    add("-b", "--op_block_list", nargs="*", default=["auto"], help="operators that stay in float32")
    add("-e", "--use_external_data_format", **FLAG, help="write weights beside the model")
    add("-s", "--run_shape_inference", **FLAG, help="write the inferred shapes of bodies, too")
    add("-dpvs", "--disable_pad_vocab_size", **FLAG, help="do not pad a float16 head to a multiple of 8 tokens")
    add("-dsgd", "--disable_separate_gpt2_decoder_for_init_run", **FLAG, help="one body for all steps of a GPT-2")
    add("-i", "--disable_shared_initializers", **FLAG, help="let each body keep its weights")
    add("--encoder_decoder_init", **FLAG, help="let T5's encoder have the decoder's first step, the older form")


def _add_stored(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("the search, in the file").add_argument
    add("--output_sequences_scores", **FLAG, help="an output of the score of each sequence")
    add("--output_token_scores", **FLAG, help="an output of all scores at each step")
    add("--early_stopping", **FLAG, help="end when there are as many finished sentences as beams")
    add("--no_repeat_ngram_size", type=int, default=0, help="n-grams of this size do not occur twice")
    add("--vocab_mask", **FLAG, help="an input of tokens that may occur")
    add("--past_present_share_buffer", **FLAG, help="caches in one buffer, which only GPU kernels do")
    add("--use_decoder_masked_attention", **FLAG, help="another attention, which only GPU kernels have")
    add("--prefix_vocab_mask", **FLAG, help="an input of tokens that may come first, by sentence")
    add("--custom_attention_mask", **FLAG, help="an input that says which tokens count")
    add("--presence_mask", **FLAG, help="with --custom 1, an input of tokens that are there already")
    add("--seed", **FLAG, help="an input of Sampling's seed")


def _add_tried(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("the search, for the comparison").add_argument
    add("--min_length", type=int, default=1)
    add("--max_length", type=int, default=50)
    add("--num_beams", type=int, default=4, help="1 for GreedySearch, with --top_p below 1 for Sampling")
    add("--num_return_sequences", type=int, default=1)
    add("--length_penalty", type=float, default=1, help="above 1 for long sentences, below for short ones")
    add("--repetition_penalty", type=float, default=1, help="above 1 against repetitions")
    add("--temperature", type=float, default=1.0, help="Sampling's, in the file")
    add("--top_p", type=float, default=1.0, help="Sampling's, in the file")
    add("--filter_value", type=float, default=-float("inf"), help="the score of tokens that Sampling leaves out")
    add("--min_tokens_to_keep", type=int, default=1, help="how many tokens Sampling keeps at least")
    add("--presence_penalty", type=float, default=0.0, help="with --custom 1, against tokens that are there already")
    add("--custom", type=int, default=0, help="1 for another order of Sampling's rules")
    add("--vocab_size", type=int, default=-1, help="the width of masks, if not the configuration's")
    add("--eos_token_id", type=int, default=-1, help="the last token, if not the configuration's")
    add("--pad_token_id", type=int, default=-1, help="the padding, if not the configuration's")


def _add_comparison(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("comparison and speed").add_argument
    add("--use_sln_strict_mode", **FLAG, help="CUDA's more exact SkipLayerNormalization")
    add("--use_gpu", **FLAG, help="run on a GPU, which float16 needs")
    add("--disable_parity", **FLAG, help="do not let torch generate, too")
    add("--disable_perf_test", **FLAG, help="do not run the file")
    add("--torch_performance", **FLAG, help="measure torch, too")
    add("--total_runs", type=int, default=1, help="how many runs are measured")
    add("--save_test_data", **FLAG, help="write the inputs into test_data_set_0")
