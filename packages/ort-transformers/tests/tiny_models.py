"""Small seeded models of transformers, saved as folders, and the installed onnxruntime as their second judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from ort_core.tolerances import ToleranceName, tolerance

REASON = "conversions need torch and transformers, which are large: `nox -s exports` runs these"
GPT2 = {"vocab_size": 51, "n_positions": 48, "n_embd": 16, "n_layer": 2, "n_head": 2, "bos_token_id": 0,
        "eos_token_id": 50, "initializer_range": 0.4}  # fmt: skip
T5 = {"vocab_size": 48, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2,
      "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}  # fmt: skip
WHISPER = {
    "vocab_size": 60, "d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "num_mel_bins": 8,
    "max_source_positions": 12, "max_target_positions": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 3, "init_std": 0.4, "begin_suppress_tokens": None, "suppress_tokens": None,
}  # fmt: skip
LLAMA = {"vocab_size": 51, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
         "num_hidden_layers": 2, "intermediate_size": 32, "max_position_embeddings": 64}  # fmt: skip
PHI = {"vocab_size": 51, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48,
       "max_position_embeddings": 64, "partial_rotary_factor": 0.5}  # fmt: skip
KINDS = {
    "phi": ("PhiForCausalLM", "PhiConfig", PHI),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT2),
    "t5": ("T5ForConditionalGeneration", "T5Config", T5),
    "mt5": ("MT5ForConditionalGeneration", "MT5Config", T5 | {"feed_forward_proj": "gated-gelu"}),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", WHISPER),
    "llama": ("LlamaForCausalLM", "LlamaConfig", LLAMA),
}


def save_tiny(kind: str, folder: Path) -> str:
    """Save a model and return its folder, which is called ``tiny-KIND``."""
    import torch
    import transformers

    model, config, settings = KINDS[kind]
    torch.manual_seed(len(kind))
    made = getattr(transformers, model)(getattr(transformers, config)(**settings))
    made.eval().save_pretrained(folder / f"tiny-{kind}")
    return str(folder / f"tiny-{kind}")


def onnxruntime_results(path: str | Path, feeds: dict[str, Any]) -> list[np.ndarray]:
    """Return what onnxruntime makes of the feeds that a file has inputs for."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1  # more would wait by spinning
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()}
    return session.run(None, {name: each for name, each in feeds.items() if name in names})


def shapes_of(values: Any) -> dict[str, list[int | str]]:
    """Return the declared shapes of a graph's inputs or outputs, by name."""
    return {each.name: [dim.dim_param or dim.dim_value for dim in each.type.tensor_type.shape.dim] for each in values}


def assert_close(found: np.ndarray, wanted: np.ndarray, name: ToleranceName) -> None:
    """Compare results of one element type by the table of tolerances."""
    limits = tolerance(name, str(wanted.dtype) if wanted.dtype.kind == "f" else "float32")
    np.testing.assert_allclose(found, wanted, limits.relative, limits.absolute)


def save_tiny_sam2(folder: Path, size: int) -> str:
    """Save a SAM2 for images of ``size`` pixels each way, and return its folder."""
    import torch
    import transformers

    backbone = transformers.Sam2HieraDetConfig(
        hidden_size=8, num_attention_heads=1, image_size=[size, size], blocks_per_stage=[1, 2, 2, 1],
        embed_dim_per_stage=[8, 16, 32, 64], num_attention_heads_per_stage=[1, 2, 4, 8],
        window_size_per_stage=[4, 2, 4, 2], global_attention_blocks=[4],
        window_positional_embedding_background_size=[4, 4],
    )  # fmt: skip
    fine = size // 4
    vision = transformers.Sam2VisionConfig(
        backbone_config=backbone, backbone_channel_list=[64, 32, 16, 8], fpn_hidden_size=16,
        backbone_feature_sizes=[[fine, fine], [fine // 2, fine // 2], [fine // 4, fine // 4]],
    )  # fmt: skip
    prompts = transformers.Sam2PromptEncoderConfig(hidden_size=16, image_size=size)
    masks = transformers.Sam2MaskDecoderConfig(
        hidden_size=16, mlp_dim=32, num_attention_heads=2, iou_head_hidden_dim=16
    )
    torch.manual_seed(5)
    config = transformers.Sam2Config(vision_config=vision, prompt_encoder_config=prompts, mask_decoder_config=masks)
    made = transformers.Sam2Model(config).eval()
    with torch.no_grad():
        for each in made.parameters():
            if each.dim() > 1:
                each.normal_(std=0.2)
    made.save_pretrained(folder / "tiny-sam2")
    return str(folder / "tiny-sam2")
