"""Seeded checkpoints of models that read pairs of texts: written in a moment.

``record_pairs.py`` has transformers compute their scores.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from genai_media_models import filled
from genai_tiny_models import VOCABULARY, write_tokenizer
from safetensors.numpy import save_file
from tokenizers import Tokenizer, processors

QUERY = "Where is the river?"
TEXTS = (
    "On the other shore of the inn.", "Nowhere.", "There: behind the hill and then on, where the thin man is.",
    "the river " * 12, "",
)  # fmt: skip
_BASE = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "vocab_size": VOCABULARY, "hidden_act": "gelu", "layer_norm_eps": 1e-6,
}  # fmt: skip
PAIRS: dict[str, dict[str, object]] = {
    "bert": {
        **_BASE, "architectures": ["BertForSequenceClassification"], "model_type": "bert", "type_vocab_size": 2,
        "max_position_embeddings": 96, "pad_token_id": 286, "id2label": {"0": "no", "1": "yes"},
    },
    "xlm_roberta": {
        **_BASE, "architectures": ["XLMRobertaForSequenceClassification"], "model_type": "xlm-roberta",
        "type_vocab_size": 1, "max_position_embeddings": 98, "pad_token_id": 1, "id2label": {"0": "LABEL_0"},
    },
}  # fmt: skip


def write_pair_checkpoint(folder: Path, family: str) -> Path:
    """Write config.json, weights and a tokenizer, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(PAIRS[family]), encoding="utf-8")
    random = np.random.default_rng(17)
    shapes = _shapes(PAIRS[family])
    save_file({name: filled(random, name.lower(), shape) for name, shape in shapes}, folder / "model.safetensors")
    write_tokenizer(folder)
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    begin, end = ("<|bos|>", 284), ("<|im_end|>", 285)
    library.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A <|im_end|>", pair="<|bos|> $A <|im_end|> $B:1 <|im_end|>:1", special_tokens=[begin, end]
    )
    library.save(str(folder / "tokenizer.json"))
    return folder


def _shapes(config: dict[str, object]) -> list[tuple[str, tuple[int, ...]]]:
    hidden, inner, is_bert = 32, 48, config["model_type"] == "bert"
    start, labels = "bert" if is_bert else "roberta", len(config["id2label"])
    found: list[tuple[str, tuple[int, ...]]] = []

    def product(name: str, rows: int, columns: int) -> None:
        found.extend([(f"{name}.weight", (rows, columns)), (f"{name}.bias", (rows,))])

    def norm(name: str) -> None:
        found.extend([(f"{name}.weight", (hidden,)), (f"{name}.bias", (hidden,))])

    tables = {
        "word": VOCABULARY, "position": config["max_position_embeddings"], "token_type": config["type_vocab_size"],
    }  # fmt: skip
    found.extend((f"{start}.embeddings.{name}_embeddings.weight", (rows, hidden)) for name, rows in tables.items())
    norm(f"{start}.embeddings.LayerNorm")
    for place in range(2):
        layer = f"{start}.encoder.layer.{place}"
        for part in ("query", "key", "value"):
            product(f"{layer}.attention.self.{part}", hidden, hidden)
        product(f"{layer}.attention.output.dense", hidden, hidden)
        norm(f"{layer}.attention.output.LayerNorm")
        product(f"{layer}.intermediate.dense", inner, hidden)
        product(f"{layer}.output.dense", hidden, inner)
        norm(f"{layer}.output.LayerNorm")
    product("bert.pooler.dense" if is_bert else "classifier.dense", hidden, hidden)
    product("classifier" if is_bert else "classifier.out_proj", labels, hidden)
    return found
