"""Seeded checkpoints of models that hear or see, and what they hear and see: written in a moment.

``record_media.py`` has transformers compute what they answer.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from genai_tiny_models import VOCABULARY, shapes, write_tokenizer
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer

SPECIAL = [
    "<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>", "<|notimestamps|>",
]  # fmt: skip
END, START, EN, DE, TRANSLATE, TRANSCRIBE, NO_TIMES = range(VOCABULARY, VOCABULARY + len(SPECIAL))
WHISPER_VOCABULARY = NO_TIMES + 1 + 1501
WHISPER = {
    "architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper", "vocab_size": WHISPER_VOCABULARY,
    "num_mel_bins": 80, "encoder_layers": 2, "encoder_attention_heads": 4, "decoder_layers": 2,
    "decoder_attention_heads": 4, "decoder_ffn_dim": 48, "encoder_ffn_dim": 48, "d_model": 32,
    "activation_function": "gelu", "max_source_positions": 1500, "max_target_positions": 64, "pad_token_id": END,
    "bos_token_id": END, "eos_token_id": END, "decoder_start_token_id": START, "suppress_tokens": None,
    "begin_suppress_tokens": None, "scale_embedding": False,
}  # fmt: skip
GENERATION = {
    "decoder_start_token_id": START, "bos_token_id": END, "eos_token_id": END, "pad_token_id": END,
    "lang_to_id": {"<|en|>": EN, "<|de|>": DE}, "task_to_id": {"transcribe": TRANSCRIBE, "translate": TRANSLATE},
    "no_timestamps_token_id": NO_TIMES, "is_multilingual": True, "max_initial_timestamp_index": 50,
    "suppress_tokens": [1, 2, 7, 8, 9, START, EN, DE, TRANSLATE, TRANSCRIBE], "begin_suppress_tokens": [220, END],
    "max_length": 64, "return_timestamps": False,
}  # fmt: skip


def sound(seed: int, seconds: float) -> np.ndarray:
    """Return float32 samples: tones that come and go, and noise, as numbers that a WAV file of 16 bits holds."""
    random = np.random.default_rng(seed)
    times = np.arange(int(16000 * seconds)) / 16000
    found = 0.05 * random.standard_normal(len(times))
    for _ in range(6):
        pitch, start, length = random.uniform(100, 4000), random.uniform(0, seconds), random.uniform(0.1, seconds)
        found += 0.1 * np.sin(2 * np.pi * pitch * times) * ((times >= start) & (times < start + length))
    return (np.round(found.clip(-1, 1) * 32767) / 32768).astype(np.float32)


def write_whisper_checkpoint(folder: Path, positions: int = 1500) -> Path:
    """Write a Whisper of two layers a side that hears so many positions of 20 ms, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**WHISPER, "max_source_positions": positions}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps(GENERATION), encoding="utf-8")
    extractor = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 80, "sampling_rate": 16000}
    (folder / "preprocessor_config.json").write_text(json.dumps(extractor), encoding="utf-8")
    random = np.random.default_rng(11)
    weights = {name: filled(random, name, shape) for name, shape in whisper_shapes(positions)}
    save_file(weights, folder / "model.safetensors")
    write_tokenizer(folder)
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    times = [f"<|{place * 0.02:.2f}|>" for place in range(1501)]
    library.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in [*SPECIAL, *times]])
    library.save(str(folder / "tokenizer.json"))
    return folder


def filled(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return seeded weights that keep the size of what they are multiplied with, about."""
    found = random.standard_normal(shape).astype(np.float32)
    if len(shape) == 1:
        return found * np.float32(0.2) + np.float32("norm" in name and name.endswith("weight"))
    if "embed_positions" in name or "position_embedding" in name:
        return found * np.float32(0.3)
    return found * np.float32(1.7 / np.sqrt(np.prod(shape[1:])))


def whisper_shapes(positions: int) -> list[tuple[str, tuple[int, ...]]]:
    """Return names and shapes of the checkpoint."""
    hidden, inner = 32, 48
    found: list[tuple[str, tuple[int, ...]]] = [
        ("model.encoder.conv1.weight", (hidden, 80, 3)), ("model.encoder.conv1.bias", (hidden,)),
        ("model.encoder.conv2.weight", (hidden, hidden, 3)), ("model.encoder.conv2.bias", (hidden,)),
        ("model.encoder.embed_positions.weight", (positions, hidden)),
        ("model.decoder.embed_tokens.weight", (WHISPER_VOCABULARY, hidden)),
        ("model.decoder.embed_positions.weight", (64, hidden)),
    ]  # fmt: skip
    for side in ("encoder", "decoder"):
        for place in range(2):
            start = f"model.{side}.layers.{place}"
            names = ("self_attn", "encoder_attn") if side == "decoder" else ("self_attn",)
            for name in names:
                found += norm_shapes(f"{start}.{name}_layer_norm", hidden)
                for part in ("k", "v", "q", "out"):
                    found.append((f"{start}.{name}.{part}_proj.weight", (hidden, hidden)))
                    found += [] if part == "k" else [(f"{start}.{name}.{part}_proj.bias", (hidden,))]
            found += norm_shapes(f"{start}.final_layer_norm", hidden)
            found += [(f"{start}.fc1.weight", (inner, hidden)), (f"{start}.fc1.bias", (inner,))]
            found += [(f"{start}.fc2.weight", (hidden, inner)), (f"{start}.fc2.bias", (hidden,))]
        found += norm_shapes(f"model.{side}.layer_norm", hidden)
    return found


def norm_shapes(name: str, size: int) -> list[tuple[str, tuple[int, ...]]]:
    """Return names and shapes of a norm with a bias."""
    return [(f"{name}.weight", (size,)), (f"{name}.bias", (size,))]


IMAGE_TOKEN = 283
LLAVA = {
    "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "image_token_index": IMAGE_TOKEN,
    "vision_feature_layer": -2, "vision_feature_select_strategy": "default", "projector_hidden_act": "gelu",
    "tie_word_embeddings": False, "image_seq_length": 16,
    "text_config": {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": VOCABULARY,
        "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": False, "bos_token_id": 284, "eos_token_id": 285, "pad_token_id": 286,
    },
    "vision_config": {
        "model_type": "clip_vision_model", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 32, "patch_size": 8, "projection_dim": 48,
    },
}  # fmt: skip
PIXELS = {
    "image_processor_type": "CLIPImageProcessor", "do_resize": True, "size": {"shortest_edge": 32}, "resample": 3,
    "do_center_crop": True, "crop_size": {"height": 32, "width": 32}, "do_rescale": True,
    "rescale_factor": 0.00392156862745098, "do_normalize": True, "do_convert_rgb": True,
    "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
}  # fmt: skip


def picture(seed: int, height: int, width: int) -> np.ndarray:
    """Return uint8 pixels (height, width, 3): waves of each color, and some noise."""
    random = np.random.default_rng(seed)
    down, right = np.mgrid[:height, :width]
    waves = [
        np.sin(down / random.uniform(2, 30) + right / random.uniform(2, 30) + random.uniform(0, 6)) for _ in range(3)
    ]
    found = 128 + 90 * np.stack(waves, axis=-1) + 20 * random.standard_normal((height, width, 3))
    return found.clip(0, 255).astype(np.uint8)


def write_llava_checkpoint(folder: Path) -> Path:
    """Write a LLaVA of three and two layers, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(LLAVA), encoding="utf-8")
    (folder / "preprocessor_config.json").write_text(json.dumps(PIXELS), encoding="utf-8")
    random = np.random.default_rng(13)
    weights = {name: filled(random, name, shape) for name, shape in llava_shapes()}
    save_file(weights, folder / "model.safetensors")
    write_image_tokenizer(folder)
    return folder


def write_image_tokenizer(folder: Path) -> None:
    """Write a tokenizer with a token for images."""
    write_tokenizer(folder)
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    name = library.id_to_token(IMAGE_TOKEN)
    text = (folder / "tokenizer.json").read_text(encoding="utf-8").replace(json.dumps(name), '"<image>"')
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    library.add_special_tokens([AddedToken("<image>", special=True, normalized=False)])
    library.save(str(folder / "tokenizer.json"))


def llava_shapes() -> list[tuple[str, tuple[int, ...]]]:
    """Return names and shapes of the checkpoint."""
    start, hidden, inner = "vision_tower.vision_model", 48, 80
    found: list[tuple[str, tuple[int, ...]]] = [
        (f"{start}.embeddings.class_embedding", (hidden,)),
        (f"{start}.embeddings.patch_embedding.weight", (hidden, 3, 8, 8)),
        (f"{start}.embeddings.position_embedding.weight", (17, hidden)),
        *norm_shapes(f"{start}.pre_layrnorm", hidden), *norm_shapes(f"{start}.post_layernorm", hidden),
    ]  # fmt: skip
    for place in range(3):
        layer = f"{start}.encoder.layers.{place}"
        found += norm_shapes(f"{layer}.layer_norm1", hidden) + norm_shapes(f"{layer}.layer_norm2", hidden)
        for part in ("q", "k", "v", "out"):
            found += [(f"{layer}.self_attn.{part}_proj.weight", (hidden, hidden))]
            found += [(f"{layer}.self_attn.{part}_proj.bias", (hidden,))]
        found += [(f"{layer}.mlp.fc1.weight", (inner, hidden)), (f"{layer}.mlp.fc1.bias", (inner,))]
        found += [(f"{layer}.mlp.fc2.weight", (hidden, inner)), (f"{layer}.mlp.fc2.bias", (hidden,))]
    for place, size in ((1, 48), (2, 64)):
        name = f"multi_modal_projector.linear_{place}"
        found += [(f"{name}.weight", (64, size)), (f"{name}.bias", (64,))]
    text = {**LLAVA["text_config"], "model_type": "llama"}
    return found + [(f"language_model.{name}", shape) for name, shape in shapes(text)]
