"""Have transformers (with torch) score the pairs of ``genai_pair_models``, into expected_pairs.json."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch
from genai_pair_models import PAIRS, QUERY, TEXTS, write_pair_checkpoint
from tokenizers import Tokenizer
from transformers import AutoModelForSequenceClassification

LONGEST = 96  # of a pair; RoBERTa's first position is the third


def scores(family: str) -> list[float]:
    """Return the logistic function of each pair's logits, alone; pairs that are too long lose the text's end."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_pair_checkpoint(Path(folder), family)
        model, report = AutoModelForSequenceClassification.from_pretrained(
            path, dtype=torch.float32, output_loading_info=True, attn_implementation="eager"
        )
        wrong = [*report["unexpected_keys"], *report["mismatched_keys"], *report["missing_keys"]]
        if wrong:
            raise SystemExit(str(wrong[:5]))
        library = Tokenizer.from_file(str(path / "tokenizer.json"))
        library.enable_truncation(LONGEST, strategy="only_second")
        return [_score(model.eval(), library, text) for text in TEXTS]


def _score(model: torch.nn.Module, library: Tokenizer, text: str) -> float:
    pair = library.encode(QUERY, text)
    given = {"input_ids": torch.tensor([pair.ids]), "attention_mask": torch.ones(1, len(pair.ids), dtype=torch.long)}
    if model.config.type_vocab_size > 1:
        given["token_type_ids"] = torch.tensor([pair.type_ids])
    with torch.no_grad():
        logits = model(**given).logits[0]
    margin = logits[0] if len(logits) == 1 else logits[1] - logits[0]
    return float(torch.sigmoid(margin))


if __name__ == "__main__":
    found = {family: scores(family) for family in PAIRS}
    Path(__file__).with_name("expected_pairs.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
