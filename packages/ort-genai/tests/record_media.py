"""Have transformers (with torch) compute what the models that hear and see answer, into expected_media.json."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch
from genai_media_models import (
    DE,
    EN,
    END,
    GENERATION,
    NO_TIMES,
    START,
    TRANSCRIBE,
    TRANSLATE,
    picture,
    sound,
    write_llava_checkpoint,
    write_whisper_checkpoint,
)
from PIL import Image
from tokenizers import Tokenizer
from transformers import (
    CLIPImageProcessor,
    GenerationConfig,
    GenerationMixin,
    LlavaForConditionalGeneration,
    LogitsProcessorList,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTimeStampLogitsProcessor,
)

SOUNDS = ((1, 3.0), (2, 11.5), (3, 0.4), (4, 30.0))
STARTS = (
    ("plain", [START, EN, TRANSCRIBE, NO_TIMES], False), ("german", [START, DE, TRANSLATE, NO_TIMES], False),
    ("times", [START, EN, TRANSCRIBE], True),
)  # fmt: skip


def whisper() -> list[dict[str, object]]:
    """Return features and tokens of each sound, without and with times."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_whisper_checkpoint(Path(folder))
        model, report = WhisperForConditionalGeneration.from_pretrained(
            path, dtype=torch.float32, output_loading_info=True, attn_implementation="eager"
        )
        wrong = [*report["unexpected_keys"], *report["mismatched_keys"]]
        if wrong:
            raise SystemExit(str(wrong[:5]))
        return [_heard(model.eval(), *each) for each in SOUNDS]


def _heard(model: WhisperForConditionalGeneration, seed: int, seconds: float) -> dict[str, object]:
    features = WhisperFeatureExtractor()(sound(seed, seconds), sampling_rate=16000, return_tensors="pt").input_features
    found: dict[str, object] = {
        "seed": seed, "seconds": seconds,
        "features": [round(float(each), 5) for each in features[0, ::9, ::601].ravel()],
    }  # fmt: skip
    with torch.no_grad():
        for name, start, has_times in STARTS:
            rules = [SuppressTokensLogitsProcessor(GENERATION["suppress_tokens"])]
            rules.append(SuppressTokensAtBeginLogitsProcessor(GENERATION["begin_suppress_tokens"], len(start)))
            if has_times:
                rules.append(WhisperTimeStampLogitsProcessor(model.generation_config, begin_index=len(start)))
            given = torch.tensor([start])
            tokens = GenerationMixin.generate(  # Whisper's own goes on behind each time, window by window
                model, features, decoder_input_ids=given, logits_processor=LogitsProcessorList(rules),
                generation_config=GenerationConfig(max_length=64, do_sample=False, eos_token_id=END, pad_token_id=END),
            )  # fmt: skip
            found[name] = tokens[0, len(start) :].tolist()
        spoken = model(features, decoder_input_ids=torch.tensor([[START]])).logits[0, -1]
        found["language"] = "en" if spoken[EN] > spoken[DE] else "de"
    return found


def short_frames() -> list[float]:
    """Return some of the features of a Whisper that hears two seconds."""
    extractor = WhisperFeatureExtractor(chunk_length=2)
    features = extractor(sound(1, 3.0), sampling_rate=16000, return_tensors="pt").input_features
    return [round(float(each), 5) for each in features[0, ::9, ::41].ravel()]


PICTURES = (((1, 40, 60),), ((2, 33, 32), (3, 90, 50)), ((4, 20, 24),))
QUESTIONS = ("<image>What is it?", "One <image> and another <image>: which?", "Small: <image>")


def llava() -> list[dict[str, object]]:
    """Return pixels and tokens of each prompt."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_llava_checkpoint(Path(folder))
        model, report = LlavaForConditionalGeneration.from_pretrained(
            path, dtype=torch.float32, output_loading_info=True, attn_implementation="eager"
        )
        wrong = [*report["missing_keys"], *report["unexpected_keys"], *report["mismatched_keys"]]
        if wrong:
            raise SystemExit(str(wrong[:5]))
        library = Tokenizer.from_file(str(path / "tokenizer.json"))
        see = CLIPImageProcessor.from_pretrained(path)
        return [_seen(model.eval(), library, see, *each) for each in zip(PICTURES, QUESTIONS, strict=True)]


def _seen(model, library, see, pictures, question) -> dict[str, object]:
    images = [Image.fromarray(picture(*each)) for each in pictures]
    pixels = see(images, return_tensors="pt").pixel_values
    tokens = library.encode(question.replace("<image>", "<image>" * 16)).ids
    with torch.no_grad():
        found = model.generate(
            input_ids=torch.tensor([tokens]), pixel_values=pixels, do_sample=False, max_new_tokens=24, eos_token_id=285
        )
    return {
        "pictures": pictures, "question": question,
        "pixels": [round(float(each), 4) for each in pixels[:, :, ::7, ::5].ravel()],
        "tokens": found[0, len(tokens) :].tolist(),
    }  # fmt: skip


if __name__ == "__main__":
    answers = {"whisper": whisper(), "short_frames": short_frames(), "llava": llava()}
    lines = [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in answers.items()]
    Path(__file__).with_name("expected_media.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
