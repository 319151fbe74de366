"""transformers' GPT-2 with caches as tensors: (2, batch, heads, length, head size) for each layer."""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache, GPT2LMHeadModel, GPT2Model

from ort_transformers.models.transformers_caches import cache_argument, returned_cache

Tensor = Any  # torch's


def cache_of(past: tuple[Tensor, ...]) -> DynamicCache:
    """Return transformers' cache of stacked keys and values."""
    return DynamicCache([(layer[0], layer[1]) for layer in past])


def stacked(cache: DynamicCache) -> tuple[Tensor, ...]:
    """Return keys and values of each layer in one tensor."""
    return tuple(torch.stack((layer.keys, layer.values)) for layer in cache.layers)


class GPT2ModelNoPastState(GPT2Model):
    """GPT-2 without a head and without caches."""

    def forward(self, input_ids: Tensor) -> tuple[Tensor, ...]:
        """Return the last hidden state."""
        return (super().forward(input_ids, use_cache=False).last_hidden_state,)


class MyGPT2Model(GPT2Model):
    """GPT-2 without a head."""

    @staticmethod
    def post_process(result: Any, num_layer: int) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the first result, and the caches stacked.

        Raises:
            ValueError: the caches are not of ``num_layer`` layers.
        """
        present = stacked(result[1])
        if len(present) != num_layer:
            raise ValueError(f"the model has caches of {len(present)} layers, {num_layer} are expected")
        return result[0], present

    def forward(
        self, input_ids: Tensor, position_ids: Tensor, attention_mask: Tensor, *past: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the last hidden state, and the caches with the new tokens."""
        result = super().forward(
            input_ids, position_ids=position_ids, attention_mask=attention_mask,
            **cache_argument(super().forward, cache_of(past)),
        )  # fmt: skip
        return MyGPT2Model.post_process((result.last_hidden_state, returned_cache(result)), self.config.n_layer)


class MyGPT2LMHeadModel(GPT2LMHeadModel):
    """GPT-2 with its head."""

    def forward(
        self, input_ids: Tensor, position_ids: Tensor, attention_mask: Tensor, *past: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the logits, and the caches with the new tokens."""
        result = super().forward(
            input_ids, position_ids=position_ids, attention_mask=attention_mask,
            **cache_argument(super().forward, cache_of(past)),
        )  # fmt: skip
        return MyGPT2Model.post_process((result.logits, returned_cache(result)), self.config.n_layer)


class MyGPT2LMHeadModel_NoPadding(GPT2LMHeadModel):  # noqa: N801 - onnxruntime's name
    """GPT-2 with its head for one sentence, or sentences of one length: there is no mask."""

    def forward(self, input_ids: Tensor, *past: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the logits, and the caches with the new tokens."""
        result = super().forward(input_ids, **cache_argument(super().forward, cache_of(past)))
        return MyGPT2Model.post_process((result.logits, returned_cache(result)), self.config.n_layer)


MODEL_CLASSES = {  # the class, its first output, whether it has a mask and positions
    "GPT2LMHeadModel": (MyGPT2LMHeadModel, "logits", True),
    "GPT2LMHeadModel_NoPadding": (MyGPT2LMHeadModel_NoPadding, "logits", False),
    "GPT2Model": (MyGPT2Model, "last_state", True),
}
