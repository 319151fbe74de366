"""Inputs of Whisper's parts, made up at random; caches in the order of the parts' files."""

from __future__ import annotations

from typing import Any

import torch

Tensor = Any  # torch's, as configurations and devices


def get_sample_audio_features(
    config: Any, device: Any, batch_size: int, sequence_length: int | None = None, use_fp16: bool = False
) -> Tensor:
    """Return a spectrum of (batch, bands, frames); by default as many frames as the encoder takes."""
    frames = 2 * config.max_source_positions if sequence_length is None else sequence_length
    return torch.randn((batch_size, config.num_mel_bins, frames), device=device, dtype=_float(use_fp16=use_fp16))


def get_sample_decoder_input_ids(
    config: Any, device: Any, batch_size: int, sequence_length: int, use_int32: bool = True
) -> Tensor:
    """Return tokens."""
    dtype = torch.int32 if use_int32 else torch.int64
    return torch.randint(0, config.vocab_size, (batch_size, sequence_length), device=device, dtype=dtype)


def get_sample_encoder_hidden_states(config: Any, device: Any, batch_size: int, use_fp16: bool = False) -> Tensor:
    """Return what an encoder could have made."""
    shape = (batch_size, config.max_source_positions, config.d_model)
    return torch.randn(shape, device=device, dtype=_float(use_fp16=use_fp16))


def get_sample_past_key_values(
    config: Any, device: Any, batch_size: int, past_seq_len: int, use_fp16: bool = False
) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Return for each layer keys and values of self attention, then of cross attention."""
    heads = config.decoder_attention_heads
    lengths = (past_seq_len, past_seq_len, config.max_source_positions, config.max_source_positions)

    def cache(length: int) -> Tensor:
        shape = (batch_size, heads, length, config.d_model // heads)
        return torch.rand(shape, device=device, dtype=_float(use_fp16=use_fp16))

    return [
        (cache(lengths[0]), cache(lengths[1]), cache(lengths[2]), cache(lengths[3]))
        for _ in range(config.decoder_layers)
    ]


def group_past_key_values(kv_caches: list[tuple[Tensor, Tensor, Tensor, Tensor]]) -> tuple[list[Tensor], list[Tensor]]:
    """Return all caches of self attention, and all of cross attention."""
    return [each for layer in kv_caches for each in layer[:2]], [each for layer in kv_caches for each in layer[2:]]


def _float(*, use_fp16: bool) -> Any:
    return torch.float16 if use_fp16 else torch.float32
