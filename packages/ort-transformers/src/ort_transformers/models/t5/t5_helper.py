"""T5Helper: loads a T5 or mT5 in the two parts that are exported, exports them, optimizes them, and compares them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from transformers import MT5ForConditionalGeneration, T5ForConditionalGeneration

import ort_core
from ort_transformers.fusion_options import FusionOptions
from ort_transformers.models.mixed_precision import auto_mixed_precision
from ort_transformers.models.t5.names import PRETRAINED_MT5_MODELS, PRETRAINED_T5_MODELS
from ort_transformers.models.t5.t5_decoder import T5Decoder, T5DecoderHelper
from ort_transformers.models.t5.t5_encoder_decoder_init import T5EncoderDecoderInit, T5EncoderDecoderInitHelper
from ort_transformers.onnx_model import OnnxModel
from ort_transformers.optimizer import optimize_model

__all__ = ["PRETRAINED_MT5_MODELS", "PRETRAINED_T5_MODELS", "T5Helper"]

_CLASSES = {"t5": T5ForConditionalGeneration, "mt5": MT5ForConditionalGeneration}
_IN_FLOAT32 = ("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", "Relu", "Add")


class T5Helper:
    """What the conversion of a T5 is made of."""

    @staticmethod
    def get_onnx_path(output_dir: str, model_name_or_path: str, suffix: str = "", new_folder: bool = False) -> str:
        """Return where a file lies: the name of the model's folder, or of the model on the hub, and the suffix."""
        given = Path(model_name_or_path)
        name = (given.name if given.is_dir() else model_name_or_path) + suffix
        return str(Path(output_dir, name, f"{name}.onnx") if new_folder else Path(output_dir, f"{name}.onnx"))

    @staticmethod
    def load_model(
        model_name_or_path: str,
        cache_dir: str,
        device: Any,
        model_type: str = "t5",
        state_dict_path: str = "",
        encoder_decoder_init: bool = False,
    ) -> dict[str, T5EncoderDecoderInit | T5Decoder]:
        """Return the encoder and the decoder by the names that their files get.

        Args:
            model_name_or_path: a folder, or a name on the hub.
            cache_dir: where models of the hub are kept.
            device: torch's.
            model_type: ``"t5"`` or ``"mt5"``.
            state_dict_path: a file of torch with other weights.
            encoder_decoder_init: let the decoder's first step be part of the encoder, as older graphs have it.

        Raises:
            ValueError: ``model_type`` is not known.
        """
        if model_type not in _CLASSES:
            raise ValueError(f"model_type {model_type!r} is not known; known are {', '.join(_CLASSES)}")
        model = _CLASSES[model_type].from_pretrained(model_name_or_path, cache_dir=cache_dir)
        if state_dict_path:
            model.load_state_dict(torch.load(state_dict_path, weights_only=True))
        encoder = T5EncoderDecoderInit(
            model.encoder, model.decoder, model.lm_head, model.config, output_cross_only=not encoder_decoder_init
        )
        decoder = T5Decoder(model.decoder, model.lm_head, model.config)
        name = "encoder_decoder_init" if encoder_decoder_init else "encoder"
        return {name: encoder.eval().to(device), "decoder": decoder.eval().to(device)}

    @staticmethod
    def export_onnx(
        model: T5Decoder | T5EncoderDecoderInit,
        device: Any,
        onnx_model_path: str,
        verbose: bool = True,
        use_external_data_format: bool = False,
        use_decoder_input_ids: bool = True,
        use_int32_inputs: bool = False,
    ) -> None:
        """Write one of the two parts."""
        rest = (verbose, use_external_data_format, use_int32_inputs)
        if isinstance(model, T5EncoderDecoderInit):
            T5EncoderDecoderInitHelper.export_onnx(model, device, onnx_model_path, use_decoder_input_ids, *rest)
        else:
            T5DecoderHelper.export_onnx(model, device, onnx_model_path, *rest)

    @staticmethod
    def auto_mixed_precision(
        onnx_model: OnnxModel,
        op_block_list: Iterable[str] | None = None,
        force_fp16_logits: bool = False,
        use_symbolic_shape_infer: bool = True,
    ) -> dict[str, Any]:
        """Convert a model to float16 in place, but for operators that lose much by it; return the arguments."""
        return auto_mixed_precision(
            onnx_model,
            _IN_FLOAT32 if op_block_list is None else op_block_list,
            force_fp16_logits=force_fp16_logits,
            use_symbolic_shape_infer=use_symbolic_shape_infer,
        )

    @staticmethod
    def optimize_onnx(
        onnx_model_path: str,
        optimized_model_path: str,
        is_float16: bool,
        num_attention_heads: int,
        hidden_size: int,
        use_external_data_format: bool = False,
        auto_mixed_precision: bool = True,
        use_gpu: bool = False,
        force_fp16_io: bool = False,
    ) -> None:
        """Fuse a model, convert it to float16 if that is asked for, and write it."""
        options = FusionOptions("t5")
        if is_float16:  # the sum of a skip would be rounded to float16
            options.enable_skip_layer_norm = not auto_mixed_precision
        optimized = optimize_model(
            onnx_model_path, "t5", num_attention_heads, hidden_size, options, opt_level=0, use_gpu=use_gpu
        )
        if is_float16 and auto_mixed_precision:
            T5Helper.auto_mixed_precision(optimized, force_fp16_logits=force_fp16_io)
        elif is_float16:
            optimized.convert_model_float32_to_float16(cast_input_output=force_fp16_io)
        optimized.save_model_to_file(optimized_model_path, use_external_data_format, all_tensors_to_one_file=True)

    @staticmethod
    def verify_onnx(
        model: T5Decoder | T5EncoderDecoderInit,
        ort_session: ort_core.InferenceSession,
        device: Any,
        use_int32_inputs: bool,
    ) -> float:
        """Return how far a session's outputs lie from torch's at most."""
        if isinstance(model, T5EncoderDecoderInit):
            return T5EncoderDecoderInitHelper.verify_onnx(model, ort_session, device, use_int32_inputs)
        return T5DecoderHelper.verify_onnx(model, ort_session, device, use_int32_inputs)
