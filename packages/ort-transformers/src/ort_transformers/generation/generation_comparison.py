"""What a graph of text generation writes, beside what transformers' ``generate`` writes."""

from __future__ import annotations

import argparse
import importlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ort_core
from ort_core.errors import ProviderUnavailable
from ort_transformers.benchmark_helper import get_latency_result
from ort_transformers.bert_test_data import output_test_data
from ort_transformers.generation.generation_tokens import tokens_of
from ort_transformers.models.comparisons import run_session

log = logging.getLogger("ort_transformers.convert_generation")

Tensor = Any  # torch's, which need not be installed
_GPT2_SENTENCES = ("The river rises in", "She opened the old box and", "Prices of wheat")
_T5_SENTENCES = (
    "translate English to German: The river rises in the hills.",
    "summarize: Wheat became dearer this year, as two harvests in a row were lost to rain and the stores are empty.",
)
_BAD_WORDS = "old river"
_OF_BEAMS = ("num_beams", "num_return_sequences", "length_penalty")
_MADE_UP_TOKENS = 6  # of each sentence where a model's folder has no tokenizer


def create_ort_session(model_path: str, use_gpu: bool, use_sln_strict_mode: bool) -> ort_core.InferenceSession:
    """Return a session that runs a graph as it is.

    Raises:
        ProviderUnavailable: a GPU is asked for that cannot be used.
    """
    options = ort_core.SessionOptions()
    options.graph_optimization_level = ort_core.GraphOptimizationLevel.ORT_DISABLE_ALL
    if not use_gpu:
        return ort_core.InferenceSession(model_path, options, providers=["CPUExecutionProvider"])
    if "CUDAExecutionProvider" not in ort_core.get_available_providers():
        raise ProviderUnavailable("CUDAExecutionProvider cannot be used here; `ort providers` says what it needs")
    strict: dict[str, Any] = {"enable_skip_layer_norm_strict_mode": True} if use_sln_strict_mode else {}
    providers: list[str | tuple[str, dict[str, Any]]] = [("CUDAExecutionProvider", strict), "CPUExecutionProvider"]
    return ort_core.InferenceSession(model_path, options, providers=providers)


def create_attention_mask(input_ids: Any, pad_token_id: int) -> np.ndarray:
    """Return 1 for each token behind the padding that a sentence begins with."""
    ids = np.asarray(input_ids)
    return (np.cumsum(ids != pad_token_id, axis=1) > 0).astype(np.int32)


@dataclass(frozen=True)
class Prompts:
    """Sentences as tokens, and how tokens are read; without a tokenizer, tokens are their own text."""

    input_ids: np.ndarray
    attention_mask: np.ndarray
    bad_words: list[list[int]]
    decode: Callable[[Sequence[int]], str]


def made_up_prompts(vocab_size: int, pad_token_id: int, end_token_id: int | None = None) -> Prompts:
    """Return two sentences of random tokens, the second of them shorter."""
    random = np.random.default_rng(7)
    allowed = [each for each in range(vocab_size) if each not in (pad_token_id, end_token_id)]
    ids = random.choice(allowed, (2, _MADE_UP_TOKENS)).astype(np.int32)
    ids[1, :2] = pad_token_id
    bad = [[int(each)] for each in random.choice(allowed, 2, replace=False)]
    return Prompts(ids, create_attention_mask(ids, pad_token_id), bad, lambda ids: " ".join(map(str, ids)))


def tokenized_prompts(tokenizer: Any, sentences: Sequence[str], vocab_size: int) -> Prompts:
    """Return sentences of text as a tokenizer splits them, padded on the left."""
    tokenizer.padding_side = "left"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    found = tokenizer(list(sentences), return_tensors="np", padding=True)
    ids, mask = found["input_ids"].astype(np.int32), found["attention_mask"].astype(np.int32)
    known = ids if tokenizer.unk_token_id is None else np.where(ids < vocab_size, ids, tokenizer.unk_token_id)
    bad = tokenizer.encode(_BAD_WORDS, add_special_tokens=False)
    words = [[int(each)] for each in bad if each < vocab_size]
    return Prompts(known, mask, words, lambda ids: str(tokenizer.decode(ids, skip_special_tokens=True)))


def search_inputs(args: argparse.Namespace, prompts: Prompts, vocab_size: int, pad_token_id: int) -> dict[str, Any]:
    """Return what a graph is given, by the options of the command line."""
    ids = prompts.input_ids
    feeds: dict[str, Any] = {
        "input_ids": ids,
        "max_length": np.array([args.max_length], np.int32),
        "min_length": np.array([args.min_length], np.int32),
        "num_beams": np.array([args.num_beams], np.int32),
        "num_return_sequences": np.array([args.num_return_sequences], np.int32),
        "length_penalty": np.array([args.length_penalty], np.float32),
        "repetition_penalty": np.array([args.repetition_penalty], np.float32),
    }
    if args.vocab_mask:
        mask = np.ones(vocab_size, np.int32)
        mask[[each for words in prompts.bad_words for each in words]] = 0
        feeds["vocab_mask"] = mask
    if args.prefix_vocab_mask:
        feeds["prefix_vocab_mask"] = np.ones((len(ids), vocab_size), np.int32)
    if args.custom_attention_mask:
        feeds["attention_mask"] = create_attention_mask(ids, pad_token_id)
    return feeds


def test_gpt_model(
    args: argparse.Namespace,
    sentences: Sequence[str] | None = None,  # noqa: PT028 - onnxruntime's name; this is no test
    is_greedy: bool = False,  # noqa: PT028 - as above
) -> dict[str, Any] | None:
    """Run a GPT-2's graph, and compare what it writes with torch.

    Returns:
        Latencies, and ``"parity"``; ``None`` with ``--disable_perf_test``.
    """
    return _test(args, "GPT2LMHeadModel", sentences or _GPT2_SENTENCES, is_greedy=is_greedy)


def test_t5_model(
    args: argparse.Namespace,
    sentences: Sequence[str] | None = None,  # noqa: PT028 - onnxruntime's name; this is no test
) -> dict[str, Any] | None:
    """Run a T5's graph, and compare what it writes with torch.

    Returns:
        Latencies, and ``"parity"``; ``None`` with ``--prefix_vocab_mask``, which torch does not have.
    """
    if args.prefix_vocab_mask:
        log.info("torch has no mask of first tokens: nothing is compared")
        return None
    name = {"t5": "T5ForConditionalGeneration", "mt5": "MT5ForConditionalGeneration"}[args.model_type]
    return _test(args, name, sentences or _T5_SENTENCES, is_greedy=False)


def _test(
    args: argparse.Namespace, class_name: str, sentences: Sequence[str], *, is_greedy: bool
) -> dict[str, Any] | None:
    tokens = tokens_of(args)
    prompts = _prompts(args, sentences, tokens)
    feeds = search_inputs(args, prompts, tokens["vocab_size"], tokens["pad_token_id"])
    if is_greedy:
        feeds = {name: value for name, value in feeds.items() if name not in _OF_BEAMS}
    if args.save_test_data:
        output_test_data(str(Path(args.output).parent / "test_data_set_0"), feeds)
    if args.disable_perf_test:
        return None
    session = create_ort_session(args.output, args.use_gpu, args.use_sln_strict_mode)
    results, seconds = _measured(lambda: run_session(session, feeds), args.total_runs)
    output: dict[str, Any] = get_latency_result(seconds, len(prompts.input_ids))
    found = [list(map(int, each)) for each in results[0].reshape(-1, results[0].shape[-1])]
    _log("ort-core", found, prompts)
    if args.disable_parity and not args.torch_performance:
        return output
    transformers = importlib.import_module("transformers")
    model = getattr(transformers, class_name).from_pretrained(args.model_name_or_path, cache_dir=args.cache_dir)
    if not args.disable_parity:
        wanted = [list(map(int, each)) for each in generate(args, model.eval(), prompts, tokens).sequences]
        _log("torch", wanted, prompts)
        begin = prompts.input_ids.shape[1] if args.model_type == "gpt2" else 1
        ends = (tokens["eos_token_id"], tokens["pad_token_id"])
        output["parity"] = [_content(each, begin, ends) for each in found] == [
            _content(each, begin, ends) for each in wanted
        ]
        log.info("both generate %s", "the same" if output["parity"] else "DIFFERENT texts")
    if args.torch_performance:
        _, seconds = _measured(lambda: generate(args, model, prompts, tokens), args.total_runs)
        log.info("torch: %s", get_latency_result(seconds, len(prompts.input_ids)))
    return output


def _prompts(args: argparse.Namespace, sentences: Sequence[str], tokens: dict[str, int]) -> Prompts:
    folder = Path(args.model_name_or_path)
    if folder.is_dir() and not any(folder.glob("*token*")) and not any(folder.glob("*.model")):
        log.info("%s has no tokenizer: the comparison is on made-up tokens", folder)
        return made_up_prompts(tokens["vocab_size"], tokens["pad_token_id"], tokens["eos_token_id"])
    auto = importlib.import_module("transformers").AutoTokenizer
    tokenizer = auto.from_pretrained(args.model_name_or_path, cache_dir=args.cache_dir)
    return tokenized_prompts(tokenizer, sentences, tokens["vocab_size"])


def generate(args: argparse.Namespace, model: Any, prompts: Prompts, tokens: dict[str, int]) -> Any:
    """Return what transformers generates with the options of the command line."""
    torch = importlib.import_module("torch")
    return model.generate(
        input_ids=torch.from_numpy(prompts.input_ids).long(),
        attention_mask=torch.from_numpy(prompts.attention_mask).long(),
        max_length=args.max_length,
        min_length=args.min_length,
        num_beams=args.num_beams,
        do_sample=False,
        early_stopping=args.early_stopping,
        no_repeat_ngram_size=args.no_repeat_ngram_size,
        eos_token_id=tokens["eos_token_id"],
        pad_token_id=tokens["pad_token_id"],
        num_return_sequences=args.num_return_sequences,
        length_penalty=args.length_penalty,
        repetition_penalty=args.repetition_penalty,
        bad_words_ids=prompts.bad_words if args.vocab_mask else None,
        return_dict_in_generate=True,
        output_scores=args.output_sequences_scores or args.output_token_scores,
    )


def test_torch_performance(
    args: argparse.Namespace,
    model: Any,
    input_ids: Tensor,
    attention_mask: Tensor,
    eos_token_id: int,
    pad_token_id: int,
    bad_words_ids: list[list[int]],
) -> dict[str, Any]:
    """Return how long transformers takes to generate."""
    ids, mask = (each.cpu().numpy().astype(np.int32) for each in (input_ids, attention_mask))
    prompts = Prompts(ids, mask, bad_words_ids, lambda ids: " ".join(map(str, ids)))
    tokens = {"eos_token_id": eos_token_id, "pad_token_id": pad_token_id}
    _, seconds = _measured(lambda: generate(args, model, prompts, tokens), args.total_runs)
    return get_latency_result(seconds, len(ids))


def _content(tokens: Sequence[int], begin: int, ends: Sequence[int]) -> list[int]:
    """Return what was generated: the two engines pad to different lengths."""
    own = list(tokens[begin:])
    return own[: next((place for place, each in enumerate(own) if each in ends), len(own))]


def _measured(run: Callable[[], Any], total_runs: int) -> tuple[Any, list[float]]:
    result, seconds = None, []
    for _ in range(max(total_runs, 1)):
        begin = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - begin)
    return result, seconds


def _log(name: str, sequences: Sequence[Sequence[int]], prompts: Prompts) -> None:
    for place, each in enumerate(sequences):
        log.info("%s, sequence %d: %s", name, place, prompts.decode(each))
