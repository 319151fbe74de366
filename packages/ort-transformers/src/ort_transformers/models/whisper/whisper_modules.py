"""Whisper in the parts that are exported: the encoder, a step of the decoder, and the encoder with a first step.

For a search in one operator (WhisperBeamSearch) all caches of self attention come first in a file, those of cross
attention behind them. Without it they come layer by layer, and the encoder makes the caches of cross attention alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ort_transformers.models.torch_export import Shape, Signature, export_torch
from ort_transformers.models.transformers_caches import cache_argument, returned_cache
from ort_transformers.models.whisper.whisper_inputs import (
    get_sample_audio_features,
    get_sample_decoder_input_ids,
    get_sample_encoder_hidden_states,
    get_sample_past_key_values,
    group_past_key_values,
)
from ort_transformers.past_helper import PastKeyValuesHelper

Tensor = Any  # torch's, as configurations and devices
_BATCH, _PROMPT = 2, 6  # of examples; 1 would be taken for a size that stays


class _Part(torch.nn.Module):
    """What the parts have in common: shapes by the configuration."""

    def __init__(self, config: Any, model: Any, *, for_search: bool) -> None:
        super().__init__()
        self.config = config
        self.device = model.device
        self.dtype = model.dtype
        self.for_search = for_search

    def cache_shape(self, name: str, length: str) -> Shape:
        heads = self.config.decoder_attention_heads
        size = self.config.max_source_positions if "cross" in name else length
        return ("batch_size", heads, size, self.config.d_model // heads)

    def cache_names(self, *, present: bool) -> list[str]:
        names = PastKeyValuesHelper.get_past_names(self.config.decoder_layers, present=present)
        return names if self.for_search else by_layer(names)

    @property
    def hidden_shape(self) -> Shape:
        return ("batch_size", self.config.max_source_positions, self.config.d_model)

    @property
    def sound_shape(self) -> Shape:
        return ("batch_size", self.config.num_mel_bins, 2 * self.config.max_source_positions)

    def sound(self) -> Tensor:
        is_half = self.dtype == torch.float16
        return get_sample_audio_features(self.config, self.device, _BATCH, use_fp16=is_half)

    def export_onnx(
        self, path: str, verbose: bool = True, use_external_data_format: bool = False, use_int32_inputs: bool = True
    ) -> None:
        """Write this part."""
        export_torch(
            self, self.example(use_int32_inputs=use_int32_inputs), path, self.signature(),
            use_external_data_format=use_external_data_format, verbose=verbose,
        )  # fmt: skip

    def example(self, *, use_int32_inputs: bool) -> list[Tensor]:
        raise NotImplementedError

    def signature(self) -> Signature:
        raise NotImplementedError


def by_layer(items: Sequence[Any]) -> list[Any]:
    """Return what stands in the order of a search's file layer by layer."""
    return [each for layer in PastKeyValuesHelper.back_group_by_layer(items) for each in layer]


def by_kind(items: Sequence[Any]) -> list[Any]:
    """Return what stands layer by layer in the order of a search's file."""
    own = [each for at in range(0, len(items), 4) for each in items[at : at + 2]]
    return own + [each for at in range(0, len(items), 4) for each in items[at + 2 : at + 4]]


class WhisperEncoder(_Part):
    """The encoder."""

    def __init__(self, config: Any, model: Any) -> None:
        """Keep the encoder of a model of transformers."""
        super().__init__(config, model, for_search=False)
        self.encoder = model.model.encoder

    def forward(self, audio_features: Tensor) -> Tensor:
        """Return the last hidden state."""
        return self.encoder(audio_features).last_hidden_state

    def example(self, *, use_int32_inputs: bool) -> list[Tensor]:
        """Return example inputs."""
        return [self.sound()]

    def signature(self) -> Signature:
        """Return names and shapes."""
        return Signature({"audio_features": self.sound_shape}, {"encoder_hidden_states": self.hidden_shape})


class WhisperDecoder(_Part):
    """A step of the decoder: the first one, which makes all caches, or a later one.

    Args:
        config: the configuration.
        model: a model of transformers.
        no_beam_search_op: whether caches come layer by layer, and several tokens may come at once.
        first_pass: whether it is the first step.
    """

    def __init__(self, config: Any, model: Any, no_beam_search_op: bool = False, first_pass: bool = False) -> None:
        super().__init__(config, model, for_search=not no_beam_search_op)
        self.decoder = model.model.decoder
        self.proj_out = model.proj_out
        self.first_pass = first_pass

    def forward(self, decoder_input_ids: Tensor, encoder_hidden_states: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        """Return logits and caches: all of a first step, those of self attention of a later one."""
        given = {}
        if past:
            tensors = list(past) if self.for_search else by_kind(past)
            cache = PastKeyValuesHelper.group_by_layer(tensors, self.config.decoder_layers)
            given = cache_argument(self.decoder.forward, cache)
        outputs = self.decoder(
            input_ids=decoder_input_ids, encoder_hidden_states=encoder_hidden_states, use_cache=True, **given
        )
        own, cross = PastKeyValuesHelper.group_by_self_or_cross(returned_cache(outputs))
        logits = self.proj_out(outputs.last_hidden_state)
        if past:
            return (logits, *own)
        return (logits, *(own + cross if self.for_search else by_layer(own + cross)))

    def example(self, *, use_int32_inputs: bool) -> list[Tensor]:
        """Return example inputs."""
        is_half = self.dtype == torch.float16
        length = _PROMPT if self.first_pass else 1 if self.for_search else 2
        ids = get_sample_decoder_input_ids(self.config, self.device, _BATCH, length, use_int32_inputs)
        hidden = get_sample_encoder_hidden_states(self.config, self.device, _BATCH, is_half)
        if self.first_pass:
            return [ids, hidden]
        layers = get_sample_past_key_values(self.config, self.device, _BATCH, _PROMPT, is_half)
        own, cross = group_past_key_values(layers)
        return [ids, hidden, *(own + cross if self.for_search else by_layer(own + cross))]

    def signature(self) -> Signature:
        """Return names and shapes."""
        length: int | str = 1 if self.for_search and not self.first_pass else "sequence_length"
        inputs: dict[str, Shape] = {
            "input_ids": ("batch_size", length),
            "encoder_hidden_states": self.hidden_shape,
        }
        outputs: dict[str, Shape] = {"logits": ("batch_size", length, self.config.vocab_size)}
        present = self.cache_names(present=True)
        if not self.first_pass:
            past = self.cache_names(present=False)
            inputs |= {name: self.cache_shape(name, "past_sequence_length") for name in past}
            present = [name for name in present if "self" in name]
        return Signature(inputs, outputs | {name: self.cache_shape(name, "total_sequence_length") for name in present})


class WhisperEncoderDecoderInit(_Part):
    """The encoder with the decoder's first step, or with the caches of cross attention alone."""

    def __init__(self, config: Any, model: Any, no_beam_search_op: bool = False) -> None:
        """Keep the parts of a model of transformers."""
        super().__init__(config, model, for_search=not no_beam_search_op)
        self.encoder = WhisperEncoder(config, model)
        self.decoder = WhisperDecoder(config, model, no_beam_search_op, first_pass=True)

    def forward(self, audio_features: Tensor, decoder_input_ids: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return logits, hidden state and caches; without a search hidden state and caches of cross attention."""
        hidden = self.encoder(audio_features)
        if not self.for_search:
            return (hidden, *self._cross_caches(hidden))
        logits, *caches = self.decoder(decoder_input_ids, hidden)
        return (logits, hidden, *caches)

    def _cross_caches(self, hidden: Tensor) -> list[Tensor]:
        heads = self.config.decoder_attention_heads
        projections = [
            project
            for layer in self.decoder.decoder.layers
            for project in (layer.encoder_attn.k_proj, layer.encoder_attn.v_proj)
        ]
        size = self.config.d_model // heads
        return [project(hidden).unflatten(-1, (heads, size)).transpose(1, 2) for project in projections]

    def example(self, *, use_int32_inputs: bool) -> list[Tensor]:
        """Return example inputs."""
        if not self.for_search:
            return [self.sound()]
        return [
            self.sound(),
            get_sample_decoder_input_ids(self.config, self.device, _BATCH, _PROMPT, use_int32_inputs),
        ]

    def signature(self) -> Signature:
        """Return names and shapes."""
        present = self.cache_names(present=True)
        if not self.for_search:
            cross = {name: self.cache_shape(name, "") for name in present if "cross" in name}
            return Signature(
                {"audio_features": self.sound_shape}, {"encoder_hidden_states": self.hidden_shape, **cross}
            )
        length = "sequence_length"
        inputs: dict[str, Shape] = {
            "encoder_input_ids": self.sound_shape,
            "decoder_input_ids": ("batch_size", length),
        }
        outputs: dict[str, Shape] = {
            "logits": ("batch_size", length, self.config.vocab_size),
            "encoder_hidden_states": self.hidden_shape,
        }
        return Signature(inputs, outputs | {name: self.cache_shape(name, length) for name in present})
