"""Have transformers (with torch) compute what the SmolVLM of ``genai_tiled_models`` answers: expected_tiled.json."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch
from genai_media_models import picture
from genai_tiled_models import CASES, TILES, write_smolvlm_checkpoint
from PIL import Image
from tokenizers import Tokenizer
from transformers import SmolVLMForConditionalGeneration
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

VECTORS, STEPS = 9, 24


def answers() -> list[dict[str, object]]:
    """Return pixels, tokens of the prompt and tokens of the answer of each case."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_smolvlm_checkpoint(Path(folder))
        model, report = SmolVLMForConditionalGeneration.from_pretrained(
            path, dtype=torch.float32, output_loading_info=True, attn_implementation="eager"
        )
        wrong = [*report["missing_keys"], *report["unexpected_keys"], *report["mismatched_keys"]]
        if wrong:
            raise SystemExit(str(wrong[:5]))
        library = Tokenizer.from_file(str(path / "tokenizer.json"))
        return [_seen(model.eval(), library, *case) for case in CASES]


def _seen(model, library, pictures, is_split, question) -> dict[str, object]:
    options = {name: value for name, value in TILES.items() if name != "image_processor_type"}
    see = Idefics3ImageProcessorPil(**{**options, "do_image_splitting": is_split})
    images = [Image.fromarray(picture(*each)) for each in pictures]
    seen = see([images], return_tensors="pt", return_row_col_info=True)
    written = question
    for rows, columns in zip(seen["rows"][0], seen["cols"][0], strict=True):
        names = ("<fake_token_around_image>", "<IMAGE>", "<global-img>")
        written = written.replace("<image>", get_image_prompt_string(rows, columns, VECTORS, *names), 1)
    tokens = library.encode(written.replace("<IMAGE>", "<image>")).ids
    pixels = seen["pixel_values"]
    with torch.no_grad():
        found = model.generate(
            input_ids=torch.tensor([tokens]), pixel_values=pixels, pixel_attention_mask=seen["pixel_attention_mask"],
            do_sample=False, max_new_tokens=STEPS, eos_token_id=285,
        )  # fmt: skip
    return {
        "pictures": pictures, "is_split": is_split, "question": question, "prompt": tokens,
        "pixels": [round(float(each), 4) for each in pixels[0, :, :, ::11, ::7].ravel()],
        "tokens": found[0, len(tokens) :].tolist(),
    }  # fmt: skip


if __name__ == "__main__":
    lines = [json.dumps(each) for each in answers()]
    file = Path(__file__).with_name("expected_tiled.json")
    file.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
