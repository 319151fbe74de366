"""T5's encoder, and what it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ort_transformers.models.gpt2.gpt2_inputs import padding_mask

Tensor = Any  # torch's, as modules, configurations and devices


class T5Encoder(torch.nn.Module):
    """The encoder, which returns its last hidden state alone."""

    def __init__(self, encoder: Any, config: Any) -> None:
        """Keep the encoder of a model of transformers."""
        super().__init__()
        self.encoder = encoder
        self.config = config

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the last hidden state."""
        return self.encoder(input_ids, attention_mask)[0]


@dataclass
class T5EncoderInputs:
    """Tokens and their mask."""

    input_ids: Tensor
    attention_mask: Tensor

    @staticmethod
    def create_dummy(
        batch_size: int, sequence_length: int, vocab_size: int, device: Any, use_int32_inputs: bool = False
    ) -> T5EncoderInputs:
        """Return random sentences, padded on the left by random numbers."""
        dtype = torch.int32 if use_int32_inputs else torch.int64
        ids = torch.randint(0, vocab_size - 1, (batch_size, sequence_length), dtype=dtype, device=device)
        return T5EncoderInputs(ids, padding_mask(batch_size, sequence_length, left=True, dtype=dtype, device=device))

    def to_list(self) -> list[Tensor]:
        """Return the tensors in the order of the model's arguments."""
        return [each for each in (self.input_ids, self.attention_mask) if each is not None]
