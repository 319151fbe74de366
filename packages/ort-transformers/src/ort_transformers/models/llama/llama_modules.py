"""A decoder of transformers with caches as tensors, by the names of onnxruntime's and optimum's files."""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache

from ort_transformers.models.gpt2.gpt2_inputs import padding_mask, positions_of
from ort_transformers.models.torch_export import Shape, Signature
from ort_transformers.models.transformers_caches import cache_argument, returned_cache

Tensor = Any  # torch's, as models, configurations and devices


class LlamaWithPast(torch.nn.Module):
    """A causal model with tensors for its caches: keys and values of each layer, or none at all."""

    def __init__(self, model: Any) -> None:
        """Keep a model of transformers."""
        super().__init__()
        self.model = model
        self.config = model.config

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, *past: Tensor
    ) -> tuple[Tensor, ...]:
        """Return logits, and keys and values of each layer with the new tokens."""
        pairs = [(past[at], past[at + 1]) for at in range(0, len(past), 2)]
        given = cache_argument(self.model.forward, DynamicCache(pairs) if pairs else DynamicCache())
        outputs = self.model(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=True, **given
        )
        layers = returned_cache(outputs).layers
        return (outputs.logits, *(each for layer in layers for each in (layer.keys, layer.values)))


def cache_names(config: Any, when: str) -> list[str]:
    """Return the names of caches, ``when`` being ``"past_key_values"`` or ``"present"``."""
    return [f"{when}.{layer}.{part}" for layer in range(config.num_hidden_layers) for part in ("key", "value")]


def head_size(config: Any) -> int:
    """Return the width of a head."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def random_inputs(
    config: Any, batch_size: int, sequence_length: int, past_length: int, *, has_past: bool
) -> list[Tensor]:
    """Return tokens, a mask that hides the beginning of sentences, positions, and caches."""
    length = past_length + sequence_length
    ids = torch.randint(0, config.vocab_size, (batch_size, sequence_length))
    mask = padding_mask(batch_size, length, left=True, dtype=torch.int64, device="cpu")
    shape = (batch_size, config.num_key_value_heads, past_length, head_size(config))
    count = 2 * config.num_hidden_layers if has_past else 0
    return [ids, mask, positions_of(mask, past_length, torch.int64), *(torch.rand(shape) for _ in range(count))]


def decoder_signature(config: Any, form: str) -> Signature:
    """Return names and shapes of a file.

    Args:
        config: the configuration.
        form: ``"decoder"`` without caches, ``"decoder_with_past"`` of one token, ``"decoder_merged"``, which is both.
    """
    length: int | str = 1 if form == "decoder_with_past" else "sequence_length"
    total = {
        "decoder": "sequence_length",
        "decoder_with_past": "past_sequence_length + 1",
        "decoder_merged": "total_sequence_length",
    }[form]
    heads, size = config.num_key_value_heads, head_size(config)
    tokens: Shape = ("batch_size", length)
    inputs: dict[str, Shape] = {"input_ids": tokens, "attention_mask": ("batch_size", total), "position_ids": tokens}
    if form != "decoder":
        past = ("batch_size", heads, "past_sequence_length", size)
        inputs |= dict.fromkeys(cache_names(config, "past_key_values"), past)
    outputs: dict[str, Shape] = {"logits": ("batch_size", length, config.vocab_size)}
    present = ("batch_size", heads, total, size)
    return Signature(inputs, outputs | dict.fromkeys(cache_names(config, "present"), present))
