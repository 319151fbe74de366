"""Have transformers (with torch) compute what the tiny checkpoints answer, into expected_answers.json."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
from genai_tiny_models import FAMILIES, PROMPTS, STEPS, write_checkpoint
from transformers import AutoModelForCausalLM


def answers(family: str) -> list[dict[str, object]]:
    """Return greedy tokens, and logits of the prompt's last token, for each prompt."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_checkpoint(Path(folder), family)
        model, report = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, output_loading_info=True, attn_implementation="eager"
        )
        wrong = [*report["missing_keys"], *report["unexpected_keys"], *report["mismatched_keys"]]
        if wrong:
            raise SystemExit(f"{family}: {wrong[:5]}")
        model.eval()
        return [_answer(model, prompt) for prompt in PROMPTS]


def _answer(model: torch.nn.Module, prompt: list[int]) -> dict[str, object]:
    tokens, first = list(prompt), None
    with torch.no_grad():
        for _ in range(STEPS):
            logits = model(torch.tensor([tokens]), use_cache=False).logits[0, -1]
            first = logits if first is None else first
            tokens.append(int(logits.argmax()))
    return {"tokens": tokens[len(prompt) :], "logits": [round(float(each), 6) for each in first[:12]]}


if __name__ == "__main__":
    chosen = sys.argv[1:] or list(FAMILIES)
    file = Path(__file__).with_name("expected_answers.json")
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    found.update({family: answers(family) for family in chosen})
    lines = [f"{json.dumps(name)}: {json.dumps(found[name])}" for name in FAMILIES if name in found]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
