"""T5's decoder with its head and caches: its first step, and every later one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import ort_core
from ort_transformers.io_binding_helper import TypeHelper
from ort_transformers.models.comparisons import as_array, largest_difference, run_session
from ort_transformers.models.t5.t5_encoder import T5EncoderInputs
from ort_transformers.models.torch_export import Shape, Signature, eager_attention, export_torch
from ort_transformers.models.transformers_caches import cache_argument, returned_cache
from ort_transformers.past_helper import PastKeyValuesHelper

Tensor = Any  # torch's, as modules, configurations and devices
_CASES = ((4, 11, 3), (1, 2, 5), (3, 1, 1), (8, 5, 2))  # batch, encoder's length, past


class _DecoderWithHead(torch.nn.Module):
    def __init__(self, decoder: Any, lm_head: Any, config: Any) -> None:
        super().__init__()
        self.decoder = decoder
        self.lm_head = lm_head
        self.config = config
        self.scale = head_scale(config)

    def logits_and_caches(self, **given: Any) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        outputs = self.decoder(**given, use_cache=True, return_dict=True)
        hidden = outputs.last_hidden_state
        logits = self.lm_head(hidden if self.scale is None else hidden * self.scale)
        own, cross = PastKeyValuesHelper.group_by_self_or_cross(returned_cache(outputs))
        return logits, own, cross


def head_scale(config: Any) -> float | None:
    """Return what a model multiplies hidden states with before its head, ``None`` where it does not.

    T5 1.1 and mT5 do not; what of T5 does, configurations of transformers 5 say apart from tied embeddings.
    """
    if hasattr(config, "scale_decoder_outputs"):
        scales = config.scale_decoder_outputs
    else:
        scales = config.model_type == "t5" and config.tie_word_embeddings
    return config.d_model**-0.5 if scales else None


class T5DecoderInit(_DecoderWithHead):
    """The first step, which makes the caches."""

    def __init__(self, decoder: Any, lm_head: Any, config: Any, decoder_start_token_id: int | None = None) -> None:
        """Keep the parts of a model of transformers; the first token comes from its configuration if none is given."""
        super().__init__(decoder, lm_head, config)
        given = decoder_start_token_id
        self.decoder_start_token_id = config.decoder_start_token_id if given is None else given

    def forward(
        self, decoder_input_ids: Tensor | None, encoder_attention_mask: Tensor, encoder_hidden_states: Tensor
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Return logits and the caches of self attention and of cross attention."""
        if decoder_input_ids is None:
            first = encoder_attention_mask[:, :1].long()
            decoder_input_ids = torch.zeros_like(first) + self.decoder_start_token_id
        return self.logits_and_caches(
            input_ids=decoder_input_ids,
            encoder_hidden_states=encoder_hidden_states,
            encoder_attention_mask=encoder_attention_mask,
        )


class T5Decoder(_DecoderWithHead):
    """A later step, which is given all caches and returns those of self attention."""

    def forward(
        self, decoder_input_ids: Tensor, encoder_attention_mask: Tensor, *past: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Return logits and the caches of self attention; those of cross attention do not change."""
        cache = PastKeyValuesHelper.group_by_layer(past, self.config.num_decoder_layers)
        # Keys and values of the encoder are in the caches: of its hidden states only the sizes count.
        hidden = encoder_attention_mask.unsqueeze(2).to(self.lm_head.weight.dtype)
        logits, own, _ = self.logits_and_caches(
            input_ids=decoder_input_ids,
            **cache_argument(self.decoder.forward, cache),
            encoder_hidden_states=hidden,
            encoder_attention_mask=encoder_attention_mask,
        )
        return logits, own


@dataclass
class T5DecoderInputs:
    """One token of each sentence, the mask of the encoder's tokens, and the caches of a later step."""

    decoder_input_ids: Tensor
    encoder_attention_mask: Tensor
    past_key_values: list[Tensor] | None = None

    @staticmethod
    def create_dummy(
        config: Any,
        batch_size: int,
        encode_sequence_length: int,
        past_decode_sequence_length: int,
        device: Any,
        float16: bool = False,
        use_int32_inputs: bool = False,
    ) -> T5DecoderInputs:
        """Return random inputs; without a past there are no caches."""
        dtype = torch.int32 if use_int32_inputs else torch.int64
        ids = torch.randint(0, config.vocab_size - 1, (batch_size, 1), dtype=dtype, device=device)
        encoder = T5EncoderInputs.create_dummy(
            batch_size, encode_sequence_length, config.vocab_size, device, use_int32_inputs
        )
        if past_decode_sequence_length <= 0:
            return T5DecoderInputs(ids, encoder.attention_mask)
        lengths = [past_decode_sequence_length, encode_sequence_length]
        kind = torch.float16 if float16 else torch.float32
        past = [
            torch.rand((batch_size, config.num_heads, length, config.d_kv), dtype=kind, device=device)
            for length in lengths
            for _ in range(2 * config.num_decoder_layers)
        ]
        return T5DecoderInputs(ids, encoder.attention_mask, past)

    def to_list(self) -> list[Tensor]:
        """Return the tensors in the order of the model's arguments."""
        return [self.decoder_input_ids, self.encoder_attention_mask, *(self.past_key_values or ())]

    def to_fp32(self) -> T5DecoderInputs:
        """Return the same with caches of float32."""
        past = None if self.past_key_values is None else [each.to(torch.float32) for each in self.past_key_values]
        return T5DecoderInputs(self.decoder_input_ids.clone(), self.encoder_attention_mask.clone(), past)


class T5DecoderHelper:
    """Exports the decoder and compares the file with it."""

    @staticmethod
    def export_onnx(
        decoder: T5Decoder | T5DecoderInit,
        device: Any,
        onnx_model_path: str,
        verbose: bool = True,
        use_external_data_format: bool = False,
        use_int32_inputs: bool = False,
    ) -> None:
        """Write a later step, whose inputs are input_ids, encoder_attention_mask and the caches.

        Raises:
            ValueError: the decoder is the first step, which is part of the encoder's file.
        """
        if not isinstance(decoder, T5Decoder):
            raise ValueError("the first step is exported with the encoder: take T5EncoderDecoderInitHelper")
        inputs = T5DecoderInputs.create_dummy(decoder.config, 2, 3, 5, device=device, use_int32_inputs=use_int32_inputs)
        export_torch(
            decoder, inputs.to_list(), onnx_model_path, decoder_signature(decoder.config),
            use_external_data_format=use_external_data_format, verbose=verbose,
        )  # fmt: skip

    @staticmethod
    def onnxruntime_inference(ort_session: ort_core.InferenceSession, inputs: T5DecoderInputs) -> list[np.ndarray]:
        """Return a session's outputs."""
        past = inputs.past_key_values or []
        names = ["input_ids", "encoder_attention_mask", *PastKeyValuesHelper.get_past_names(len(past) // 4)]
        feeds = {name: as_array(each) for name, each in zip(names, inputs.to_list(), strict=True)}
        return run_session(ort_session, feeds)

    @staticmethod
    def verify_onnx(
        model: T5Decoder,
        ort_session: ort_core.InferenceSession,
        device: Any,
        use_int32_inputs: bool,
        max_cases: int = 4,
    ) -> float:
        """Return how far the outputs of some batches and lengths lie from torch's at most."""
        is_float16 = TypeHelper.get_input_type(ort_session, "past_key_self_0") == "tensor(float16)"
        most = 0.0
        for batch, length, past in _CASES[:max_cases]:
            inputs = T5DecoderInputs.create_dummy(
                model.config, batch, length, past, device, is_float16, use_int32_inputs
            )
            with torch.no_grad(), eager_attention(model):
                logits, own = model(*inputs.to_fp32().to_list())
            found = T5DecoderHelper.onnxruntime_inference(ort_session, inputs)
            most = max(most, largest_difference([logits, *own], found))
        return most


def decoder_signature(config: Any) -> Signature:
    """Return names and shapes of a later step."""
    names = PastKeyValuesHelper.get_past_names
    layers = config.num_decoder_layers
    inputs: dict[str, Shape] = {
        "input_ids": ("batch_size", 1),
        "encoder_attention_mask": ("batch_size", "encode_sequence_length"),
    }
    for name in names(layers):
        length = "past_decode_sequence_length" if "self" in name else "encode_sequence_length"
        inputs[name] = ("batch_size", config.num_heads, length, config.d_kv)
    longer = ("batch_size", config.num_heads, "past_decode_sequence_length + 1", config.d_kv)
    outputs: dict[str, Shape] = {"logits": ("batch_size", 1, config.vocab_size)}
    return Signature(inputs, outputs | dict.fromkeys(names(layers, present=True)[: 2 * layers], longer))
