"""T5's encoder with what the decoder makes of it once: the caches of cross attention, and in the older form a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import ort_core
from ort_transformers.models.comparisons import as_array, largest_difference, run_session
from ort_transformers.models.t5.t5_decoder import T5DecoderInit
from ort_transformers.models.t5.t5_encoder import T5Encoder, T5EncoderInputs
from ort_transformers.models.torch_export import Shape, Signature, eager_attention, export_torch
from ort_transformers.past_helper import PastKeyValuesHelper

Tensor = Any  # torch's, as modules, configurations and devices
_CASES = ((4, 11), (1, 2), (3, 1), (8, 5))  # batch, length


class T5EncoderDecoderInit(torch.nn.Module):
    """The encoder and the decoder's first step, or of this step the caches of cross attention alone."""

    def __init__(
        self,
        encoder: Any,
        decoder: Any,
        lm_head: Any,
        config: Any,
        decoder_start_token_id: int | None = None,
        output_cross_only: bool = False,
    ) -> None:
        """Keep the parts of a model of transformers."""
        super().__init__()
        self.config = config
        self.t5_encoder = T5Encoder(encoder, config)
        self.t5_decoder_init = T5DecoderInit(decoder, lm_head, config, decoder_start_token_id)
        self.output_cross_only = output_cross_only

    def forward(
        self,
        encoder_input_ids: Tensor,
        encoder_attention_mask: Tensor,
        decoder_input_ids: Tensor | None = None,
    ) -> Any:
        """Return the caches of cross attention, behind logits, hidden states and caches of self attention."""
        hidden = self.t5_encoder(encoder_input_ids, encoder_attention_mask)
        if self.output_cross_only:
            return self._cross_caches(hidden)
        logits, own, cross = self.t5_decoder_init(decoder_input_ids, encoder_attention_mask, hidden)
        return logits, hidden, own, cross

    def _cross_caches(self, hidden: Tensor) -> list[Tensor]:
        caches = []
        for block in self.t5_decoder_init.decoder.block:
            attention = block.layer[1].EncDecAttention
            for project in (attention.k, attention.v):
                heads = project(hidden).unflatten(-1, (self.config.num_heads, self.config.d_kv))
                caches.append(heads.transpose(1, 2))
        return caches


@dataclass
class T5EncoderDecoderInitInputs:
    """Tokens of the encoder with their mask, and the first ones of the decoder where they are an input."""

    encoder_input_ids: Tensor
    encoder_attention_mask: Tensor
    decoder_input_ids: Tensor | None = None

    @staticmethod
    def create_dummy(
        config: Any,
        batch_size: int,
        encode_sequence_length: int,
        use_decoder_input_ids: bool,
        device: Any,
        use_int32_inputs: bool = False,
    ) -> T5EncoderDecoderInitInputs:
        """Return random inputs; the decoder begins with the token of its configuration."""
        encoder = T5EncoderInputs.create_dummy(
            batch_size, encode_sequence_length, config.vocab_size, device, use_int32_inputs
        )
        first = None
        if use_decoder_input_ids:
            dtype = torch.int32 if use_int32_inputs else torch.int64
            first = torch.full((batch_size, 1), config.decoder_start_token_id, dtype=dtype, device=device)
        return T5EncoderDecoderInitInputs(encoder.input_ids, encoder.attention_mask, first)

    def to_list(self) -> list[Tensor]:
        """Return the tensors in the order of the model's arguments."""
        given = (self.encoder_input_ids, self.encoder_attention_mask, self.decoder_input_ids)
        return [each for each in given if each is not None]


class T5EncoderDecoderInitHelper:
    """Exports the encoder and compares the file with it."""

    @staticmethod
    def export_onnx(
        model: T5EncoderDecoderInit,
        device: Any,
        onnx_model_path: str,
        use_decoder_input_ids: bool = True,
        verbose: bool = True,
        use_external_data_format: bool = False,
        use_int32_inputs: bool = False,
    ) -> None:
        """Write the model; ``use_decoder_input_ids`` counts only where the decoder's first step is part of it."""
        has_tokens = use_decoder_input_ids and not model.output_cross_only
        inputs = T5EncoderDecoderInitInputs.create_dummy(
            model.config, 2, 3, has_tokens, device=device, use_int32_inputs=use_int32_inputs
        )
        signature = encoder_signature(model.config, has_tokens=has_tokens, cross_only=model.output_cross_only)
        export_torch(
            model, inputs.to_list(), onnx_model_path, signature,
            use_external_data_format=use_external_data_format, verbose=verbose,
        )  # fmt: skip

    @staticmethod
    def onnxruntime_inference(
        ort_session: ort_core.InferenceSession, inputs: T5EncoderDecoderInitInputs
    ) -> list[np.ndarray]:
        """Return a session's outputs."""
        names = ("encoder_input_ids", "encoder_attention_mask", "decoder_input_ids")
        given = zip(names, inputs.to_list(), strict=False)
        return run_session(ort_session, {name: as_array(each) for name, each in given})

    @staticmethod
    def verify_onnx(
        model: T5EncoderDecoderInit,
        ort_session: ort_core.InferenceSession,
        device: Any,
        use_int32_inputs: bool,
        max_cases: int = 4,
    ) -> float:
        """Return how far the outputs of some batches and lengths lie from torch's at most."""
        has_tokens = any(each.name == "decoder_input_ids" for each in ort_session.get_inputs())
        most = 0.0
        for batch, length in _CASES[:max_cases]:
            inputs = T5EncoderDecoderInitInputs.create_dummy(
                model.config, batch, length, has_tokens, device, use_int32_inputs
            )
            with torch.no_grad(), eager_attention(model):
                wanted = model(*inputs.to_list())
            if not model.output_cross_only:
                wanted = [*wanted[:2], *wanted[2], *wanted[3]]
            found = T5EncoderDecoderInitHelper.onnxruntime_inference(ort_session, inputs)
            most = max(most, largest_difference(wanted, found))
        return most


def encoder_signature(config: Any, *, has_tokens: bool, cross_only: bool) -> Signature:
    """Return names and shapes of the encoder's file."""
    length = "encode_sequence_length"
    inputs: dict[str, Shape] = {
        "encoder_input_ids": ("batch_size", length),
        "encoder_attention_mask": ("batch_size", length),
    }
    if has_tokens:
        inputs["decoder_input_ids"] = ("batch_size", 1)
    outputs: dict[str, Shape] = {}
    if not cross_only:
        outputs["logits"] = ("batch_size", 1, config.vocab_size)
        outputs["encoder_hidden_states"] = ("batch_size", length, config.d_model)
    for name in PastKeyValuesHelper.get_past_names(config.num_decoder_layers, present=True):
        if "cross" in name or not cross_only:
            size = length if "cross" in name else 1
            outputs[name] = ("batch_size", config.num_heads, size, config.d_kv)
    return Signature(inputs, outputs)
