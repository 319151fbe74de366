"""Small seeded models of transformers, saved as folders, and the installed onnxruntime as their second judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from ort_core.tolerances import ToleranceName, tolerance

REASON = "conversions need torch and transformers, which are large: `nox -s exports` runs these"
GPT2 = {"vocab_size": 51, "n_positions": 48, "n_embd": 16, "n_layer": 2, "n_head": 2, "bos_token_id": 0,
        "eos_token_id": 50, "initializer_range": 0.4}  # fmt: skip
T5 = {"vocab_size": 48, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2,
      "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}  # fmt: skip
WHISPER = {
    "vocab_size": 60, "d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "num_mel_bins": 8,
    "max_source_positions": 12, "max_target_positions": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 3, "init_std": 0.4, "begin_suppress_tokens": None, "suppress_tokens": None,
}  # fmt: skip
LLAMA = {"vocab_size": 51, "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
         "num_hidden_layers": 2, "intermediate_size": 32, "max_position_embeddings": 64}  # fmt: skip
KINDS = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT2),
    "t5": ("T5ForConditionalGeneration", "T5Config", T5),
    "mt5": ("MT5ForConditionalGeneration", "MT5Config", T5 | {"feed_forward_proj": "gated-gelu"}),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", WHISPER),
    "llama": ("LlamaForCausalLM", "LlamaConfig", LLAMA),
}


def save_tiny(kind: str, folder: Path) -> str:
    """Save a model and return its folder, which is called ``tiny-KIND``."""
    import torch
    import transformers

    model, config, settings = KINDS[kind]
    torch.manual_seed(len(kind))
    made = getattr(transformers, model)(getattr(transformers, config)(**settings))
    made.eval().save_pretrained(folder / f"tiny-{kind}")
    return str(folder / f"tiny-{kind}")


def onnxruntime_results(path: str | Path, feeds: dict[str, Any]) -> list[np.ndarray]:
    """Return what onnxruntime makes of the feeds that a file has inputs for."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()}
    return session.run(None, {name: each for name, each in feeds.items() if name in names})


def shapes_of(values: Any) -> dict[str, list[int | str]]:
    """Return the declared shapes of a graph's inputs or outputs, by name."""
    return {each.name: [dim.dim_param or dim.dim_value for dim in each.type.tensor_type.shape.dim] for each in values}


def assert_close(found: np.ndarray, wanted: np.ndarray, name: ToleranceName) -> None:
    """Compare results of one element type by the table of tolerances."""
    limits = tolerance(name, str(wanted.dtype) if wanted.dtype.kind == "f" else "float32")
    np.testing.assert_allclose(found, wanted, limits.relative, limits.absolute)
