"""WhisperHelper: loads a Whisper in its parts, exports them, optimizes them, and compares them with torch."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

import ort_core
from ort_core.whole_files import replace_text
from ort_transformers.fusion_options import FusionOptions
from ort_transformers.models.comparisons import as_array, largest_difference, run_session
from ort_transformers.models.torch_export import eager_attention
from ort_transformers.models.whisper.names import PRETRAINED_WHISPER_MODELS
from ort_transformers.models.whisper.processing import audio_processing, genai_configuration
from ort_transformers.models.whisper.whisper_modules import (
    WhisperDecoder,
    WhisperEncoder,
    WhisperEncoderDecoderInit,
)
from ort_transformers.optimizer import optimize_model

__all__ = [
    "PRETRAINED_WHISPER_MODELS", "WhisperDecoder", "WhisperEncoder", "WhisperEncoderDecoderInit", "WhisperHelper",
]  # fmt: skip

log = logging.getLogger(__name__)

Part = WhisperEncoder | WhisperEncoderDecoderInit | WhisperDecoder
_STEPS = 12  # tokens that are generated in a comparison


class WhisperHelper:
    """What the conversion of a Whisper is made of."""

    @staticmethod
    def get_onnx_path(output_dir: str, model_name_or_path: str, suffix: str = "", new_folder: bool = False) -> str:
        """Return where a file lies: the last part of the model's name, and the suffix."""
        name = Path(model_name_or_path).name + suffix
        return str(Path(output_dir, name, f"{name}.onnx") if new_folder else Path(output_dir, f"{name}.onnx"))

    @staticmethod
    def save_processing(
        model_name_or_path: str,
        provider: str,
        separate_encoder_and_decoder_init: bool,
        use_decoder_masked_mha: bool,
        output_qk: bool,
        encoder_path: str,
        decoder_path: str,
        output_dir: str,
        cache_dir: str | None,
    ) -> None:
        """Write what lies beside the parts: configuration and tokenizer, and the files that ort-genai reads.

        A folder without a tokenizer has none to write, which is logged.
        """
        config = WhisperConfig.from_pretrained(model_name_or_path, cache_dir=cache_dir)
        config.save_pretrained(output_dir)
        processor = load_processor(model_name_or_path, cache_dir)
        if processor is not None:
            processor.save_pretrained(output_dir)
        if separate_encoder_and_decoder_init:
            return
        files = {
            "audio_processor_config.json": audio_processing(config.num_mel_bins),
            "genai_config.json": genai_configuration(
                config, encoder=Path(encoder_path).name, decoder=Path(decoder_path).name, provider=provider
            ),
        }
        for name, content in files.items():
            replace_text(Path(output_dir, name), json.dumps(content, indent=4))

    @staticmethod
    def load_model(
        model_name_or_path: str,
        model_impl: str,
        cache_dir: str | None,
        device: Any,
        dtype: Any,
        merge_encoder_and_decoder_init: bool = True,
        no_beam_search_op: bool = False,
        output_qk: bool = False,
    ) -> dict[str, Part]:
        """Return the parts by the names that their files get.

        Args:
            model_name_or_path: a folder, or a name on the hub.
            model_impl: ``"hf"``.
            cache_dir: where models of the hub are kept.
            device: torch's.
            dtype: torch's element type of weights.
            merge_encoder_and_decoder_init: let the encoder's file have the decoder's first step.
            no_beam_search_op: caches layer by layer, for a search outside of the file.
            output_qk: not available.

        Raises:
            ValueError: OpenAI's own form, or the weights of cross attention are asked for.
        """
        if model_impl != "hf":
            raise ValueError(
                f"--model_impl {model_impl} is not available: convert the checkpoint to transformers' form"
            )
        if output_qk:
            raise ValueError("weights of cross attention are not an output that these exports have")
        model = WhisperForConditionalGeneration.from_pretrained(model_name_or_path, cache_dir=cache_dir)
        model.eval().to(device=device, dtype=dtype)
        config = model.config
        parts: dict[str, Part] = {"decoder": WhisperDecoder(config, model, no_beam_search_op)}
        if merge_encoder_and_decoder_init:
            parts["encoder"] = WhisperEncoderDecoderInit(config, model, no_beam_search_op)
        else:
            parts["encoder"] = WhisperEncoder(config, model)
            parts["decoder_init"] = WhisperDecoder(config, model, no_beam_search_op, first_pass=True)
        return {name: part.eval() for name, part in parts.items()}

    @staticmethod
    def export_onnx(
        model: Part,
        onnx_model_path: str,
        provider: str = "CPUExecutionProvider",
        verbose: bool = False,
        use_external_data_format: bool = False,
        use_fp16_inputs: bool = False,
        use_int32_inputs: bool = True,
        use_encoder_hidden_states: bool = False,
        use_kv_cache_inputs: bool = True,
    ) -> None:
        """Write a part; whether it has caches and which element type it has, it knows itself."""
        model.export_onnx(onnx_model_path, verbose, use_external_data_format, use_int32_inputs)

    @staticmethod
    def optimize_onnx(
        onnx_model_path: str,
        optimized_model_path: str,
        is_float16: bool,
        num_attention_heads: int,
        hidden_size: int,
        num_decoder_layers: int,
        use_external_data_format: bool = False,
        use_gpu: bool = False,
        provider: str = "cpu",
        is_decoder: bool = False,
        no_beam_search_op: bool = False,
        use_decoder_masked_mha: bool = False,
        output_qk: bool = False,
    ) -> None:
        """Fuse a part and write it.

        Raises:
            ValueError: an attention is asked for that GPU kernels alone have.
        """
        if use_decoder_masked_mha or output_qk:
            raise ValueError("use_decoder_masked_mha and output_qk are for kernels of CUDA: leave them out")
        options = FusionOptions("bart")
        options.use_multi_head_attention = True
        optimized = optimize_model(
            onnx_model_path, "bart", num_attention_heads, hidden_size, options, opt_level=0, use_gpu=use_gpu
        )
        optimized.save_model_to_file(optimized_model_path, use_external_data_format, all_tensors_to_one_file=True)

    @staticmethod
    def verify_part(model: Part, onnx_model_path: str, use_int32_inputs: bool = True) -> float:
        """Return how far a file's outputs lie from torch's at most."""
        session = ort_core.InferenceSession(onnx_model_path, providers=["CPUExecutionProvider"])
        inputs = model.example(use_int32_inputs=use_int32_inputs)
        with torch.no_grad(), eager_attention(model):
            wanted = model(*inputs)
        given = zip(model.signature().inputs, inputs, strict=True)
        found = run_session(session, {name: as_array(each) for name, each in given})
        return largest_difference([wanted] if isinstance(wanted, torch.Tensor) else wanted, found)

    @staticmethod
    def verify_onnx(
        model_name_or_path: str,
        cache_dir: str | None,
        ort_session: ort_core.InferenceSession,
        device: Any,
        batch_size: int = 1,
        prompt_mode: bool = False,
    ) -> float:
        """Let a search's file and torch write some tokens on random sound; return how many differ at most.

        Both take the best token at each step. ``prompt_mode`` gives both a first token of the tokenizer's choice, which
        is the configuration's.
        """
        model = WhisperForConditionalGeneration.from_pretrained(model_name_or_path, cache_dir=cache_dir)
        model.eval().to(device)
        features = torch.randn((batch_size, model.config.num_mel_bins, 2 * model.config.max_source_positions))
        wanted = greedy_tokens(model, features.to(device), _STEPS)
        one = np.ones(1, np.int32)
        feeds: dict[str, Any] = {
            "input_features": as_array(features), "max_length": one * wanted.shape[1], "min_length": one * 0,
            "num_beams": one, "num_return_sequences": one, "length_penalty": one.astype(np.float32),
            "repetition_penalty": one.astype(np.float32), "decoder_input_ids": wanted[:, :1].astype(np.int32),
            "logits_processor": one * 0, "temperature": one.astype(np.float32),
            "vocab_mask": np.ones(model.config.vocab_size, np.int32),
            "prefix_vocab_mask": np.ones((batch_size, model.config.vocab_size), np.int32),
        }  # fmt: skip
        found = run_session(ort_session, feeds)[0][:, 0]
        ends = (model.config.eos_token_id, model.config.pad_token_id)
        pairs = zip(found.tolist(), wanted.tolist(), strict=True)
        return float(max(_differing(one, other, ends) for one, other in pairs))


def load_processor(model_name_or_path: str, cache_dir: str | None) -> Any:
    """Return the processor of a model, ``None`` where its folder has no tokenizer, which is logged."""
    folder = Path(model_name_or_path)
    if folder.is_dir() and not any(folder.glob("*token*")):
        log.info("%s has no tokenizer", folder)
        return None
    from transformers import WhisperProcessor  # it wants more packages than the models do

    return WhisperProcessor.from_pretrained(model_name_or_path, cache_dir=cache_dir)


def greedy_tokens(model: Any, features: Any, steps: int) -> np.ndarray:
    """Return what a model of transformers writes if it takes the best token at each step, from its first token on."""
    first = torch.full((len(features), 1), model.config.decoder_start_token_id, device=features.device)
    with torch.no_grad():
        hidden = model.model.encoder(features).last_hidden_state
        for _ in range(steps):
            states = model.model.decoder(input_ids=first, encoder_hidden_states=hidden).last_hidden_state
            first = torch.cat((first, model.proj_out(states)[:, -1:].argmax(-1)), 1)
    return as_array(first)


def _differing(found: list[int], wanted: list[int], ends: tuple[int, ...]) -> int:
    """Return how many tokens differ up to the end of the text that torch wrote."""
    end = next((place for place, token in enumerate(wanted) if place and token in ends), len(wanted))
    return sum(one != other for one, other in zip(found[:end], wanted[:end], strict=True))
