"""The special tokens of a model and their number, from a command line or the model's configuration."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any


def tokens_of(args: argparse.Namespace) -> dict[str, int]:
    """Return the tokens and their number, from the command line, else from the model's configuration.

    Raises:
        ValueError: none of them says it.
    """
    config = _configuration(args)
    found = {name: config.get(name) for name in ("eos_token_id", "vocab_size", "decoder_start_token_id")}
    found["pad_token_id"] = config.get("eos_token_id" if args.model_type == "gpt2" else "pad_token_id")
    found |= {
        name: getattr(args, name)
        for name in ("eos_token_id", "pad_token_id", "vocab_size")
        if getattr(args, name) != -1
    }
    for name, value in found.items():
        if not isinstance(value, int) and not (name == "decoder_start_token_id" and args.model_type == "gpt2"):
            raise ValueError(f"the configuration of {args.model_name_or_path} has no {name}; --{name} gives one")
    return {name: int(value) for name, value in found.items() if value is not None}


def _configuration(args: argparse.Namespace) -> dict[str, Any]:
    """Return the configuration: by transformers, which knows what a file leaves out, else from the file."""
    names = {"gpt2": "GPT2Config", "t5": "T5Config", "mt5": "MT5Config"}
    try:
        transformers = importlib.import_module("transformers")
    except ModuleNotFoundError:
        file = Path(args.model_name_or_path, "config.json")
        if not file.is_file():
            raise
        return dict(json.loads(file.read_text(encoding="utf-8")))
    kind = getattr(transformers, names[args.model_type])
    return dict(kind.from_pretrained(args.model_name_or_path, cache_dir=args.cache_dir).to_dict())
