"""A seeded checkpoint of SmolVLM, and what it is shown: written in a moment.

``record_tiled.py`` has transformers compute what it answers.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from genai_media_models import IMAGE_TOKEN, LLAVA, filled, norm_shapes, write_image_tokenizer
from genai_tiny_models import shapes
from safetensors.numpy import save_file

HIDDEN, INNER, LAYERS, SIDE = 48, 80, 2, 24
SMOLVLM = {
    "architectures": ["SmolVLMForConditionalGeneration"], "model_type": "smolvlm", "image_token_id": IMAGE_TOKEN,
    "scale_factor": 2, "tie_word_embeddings": False,
    "text_config": {**LLAVA["text_config"], "max_position_embeddings": 2048},
    "vision_config": {
        "model_type": "smolvlm_vision", "hidden_size": HIDDEN, "intermediate_size": INNER,
        "num_hidden_layers": LAYERS, "num_attention_heads": 4, "image_size": SIDE, "patch_size": 4,
        "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6,
    },
}  # fmt: skip
TILES = {
    "image_processor_type": "SmolVLMImageProcessor", "do_resize": True, "size": {"longest_edge": 4 * SIDE},
    "max_image_size": {"longest_edge": SIDE}, "do_image_splitting": True, "resample": 1, "do_rescale": True,
    "rescale_factor": 0.00392156862745098, "do_normalize": True, "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5], "do_pad": True, "do_convert_rgb": True,
}  # fmt: skip
# seed, height and width of each picture; whether it is split; the question
CASES = (
    (((1, 40, 60),), True, "<image>What is it?"),
    (((2, 33, 32), (3, 90, 25)), True, "One <image> and another <image>: which?"),
    (((4, 20, 24), (5, 70, 50)), False, "<image><image>Whole"),
    (((6, 5, 200),), True, "Wide: <image>"),
)


def write_smolvlm_checkpoint(folder: Path, *, is_split: bool = True) -> Path:
    """Write a SmolVLM of two layers a side, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SMOLVLM), encoding="utf-8")
    tiles = {**TILES, "do_image_splitting": is_split}
    (folder / "preprocessor_config.json").write_text(json.dumps(tiles), encoding="utf-8")
    random = np.random.default_rng(19)
    weights = {name: filled(random, name, shape) for name, shape in smolvlm_shapes()}
    save_file(weights, folder / "model.safetensors")
    write_image_tokenizer(folder)
    return folder


def smolvlm_shapes() -> list[tuple[str, tuple[int, ...]]]:
    """Return names and shapes of the checkpoint."""
    start = "model.vision_model"
    found: list[tuple[str, tuple[int, ...]]] = [
        (f"{start}.embeddings.patch_embedding.weight", (HIDDEN, 3, 4, 4)),
        (f"{start}.embeddings.patch_embedding.bias", (HIDDEN,)),
        (f"{start}.embeddings.position_embedding.weight", (36, HIDDEN)),
        *norm_shapes(f"{start}.post_layernorm", HIDDEN),
        ("model.connector.modality_projection.proj.weight", (64, HIDDEN * 4)),
    ]  # fmt: skip
    for place in range(LAYERS):
        layer = f"{start}.encoder.layers.{place}"
        found += norm_shapes(f"{layer}.layer_norm1", HIDDEN) + norm_shapes(f"{layer}.layer_norm2", HIDDEN)
        for part in ("q", "k", "v", "out"):
            found += [(f"{layer}.self_attn.{part}_proj.weight", (HIDDEN, HIDDEN))]
            found += [(f"{layer}.self_attn.{part}_proj.bias", (HIDDEN,))]
        found += [(f"{layer}.mlp.fc1.weight", (INNER, HIDDEN)), (f"{layer}.mlp.fc1.bias", (INNER,))]
        found += [(f"{layer}.mlp.fc2.weight", (HIDDEN, INNER)), (f"{layer}.mlp.fc2.bias", (HIDDEN,))]
    text = {**LLAVA["text_config"], "model_type": "llama"}
    return found + [(name.replace("model.", "model.text_model.", 1), shape) for name, shape in shapes(text)]
