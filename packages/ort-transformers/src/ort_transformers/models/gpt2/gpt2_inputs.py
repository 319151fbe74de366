"""Inputs of a GPT-2 with caches, made up at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

Tensor = Any  # torch's


@dataclass
class Gpt2Inputs:
    """What a GPT-2 is given; ``None`` is what it does not have."""

    input_ids: Tensor
    position_ids: Tensor | None
    attention_mask: Tensor | None
    past: list[Tensor]

    def to_list(self) -> list[Tensor]:
        """Return all tensors in the order of the model's arguments."""
        given = (self.input_ids, self.position_ids, self.attention_mask)
        return [*(each for each in given if each is not None), *(self.past or ())]

    def to_tuple(self) -> tuple[Any, ...]:
        """Return the same, the caches as one list."""
        given = (self.input_ids, self.position_ids, self.attention_mask, self.past)
        return tuple(each for each in given if each is not None)

    def to_fp32(self) -> Gpt2Inputs:
        """Return the same with float32 for float16."""
        mask = self.attention_mask
        if mask is not None and mask.dtype == torch.float16:
            mask = mask.to(torch.float32)
        return Gpt2Inputs(self.input_ids, self.position_ids, mask, [each.to(torch.float32) for each in self.past])


def padding_mask(batch_size: int, length: int, *, left: bool, dtype: Any, device: Any) -> Tensor:
    """Return a mask that hides a random number of places of each sentence, never all."""
    hidden = torch.randint(0, max(length, 1), (batch_size, 1), device=device)
    places = torch.arange(length, device=device).expand(batch_size, length)
    allowed = places >= hidden if left else places < length - hidden
    return allowed.to(dtype)


def positions_of(attention_mask: Tensor, past_length: int, dtype: Any) -> Tensor:
    """Return each token's place among those that its mask shows."""
    places = (attention_mask.long().cumsum(-1) - 1).clamp(min=0)
    return places[:, past_length:].to(dtype)
