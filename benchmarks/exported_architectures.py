"""Architectures of transformers, small and seeded, exported in four styles: {eager, sdpa} x {TorchScript, dynamo}.

    python benchmarks/exported_architectures.py FOLDER [--only NAME ...]

Needs torch, transformers and onnxscript; nothing is downloaded. Each model is written as NAME.STYLE.onnx, its feeds and
torch's results as NAME.STYLE.npz; exports that fail are listed with their reasons in FAILED.json.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from drawn_architectures import DRAWN
from further_architectures import FURTHER
from more_architectures import ROWS

STYLES = tuple((attention, exporter) for attention in ("eager", "sdpa") for exporter in ("torchscript", "dynamo"))
SMALL = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 64}
TEXT = {**SMALL, "vocab_size": 99, "max_position_embeddings": 64}
IMAGE = {**SMALL, "image_size": 32, "patch_size": 8}
CAUSAL = {**TEXT, "use_cache": False, "pad_token_id": 0}
OPSET = 18


@dataclass(frozen=True)
class Architecture:
    """A class, its small configuration, and what it is fed; ``output`` names the one result that is exported."""

    model: str
    config: str
    settings: Mapping[str, Any] | Callable[[], Mapping[str, Any]]  # a call where a part has its own class
    inputs: Callable[[], dict[str, torch.Tensor]]
    output: str = "last_hidden_state"
    seals: tuple[str, ...] = ()  # axes that must keep their size


def tokens(length: int = 7, *, mask: bool = True) -> dict[str, torch.Tensor]:
    """Return ids of two sentences, the second of them padded."""
    ids = torch.randint(3, 90, (2, length))
    allowed = torch.ones(2, length, dtype=torch.int64)
    allowed[1, length - 2 :] = 0
    return {"input_ids": ids, **({"attention_mask": allowed} if mask else {})}


def pixels(size: int = 32) -> dict[str, torch.Tensor]:
    """Return two images."""
    return {"pixel_values": torch.randn(2, 3, size, size)}


def both_tokens() -> dict[str, torch.Tensor]:
    """Return ids for an encoder and a decoder."""
    return {**tokens(), "decoder_input_ids": torch.randint(3, 90, (2, 5))}


def whisper_inputs() -> dict[str, torch.Tensor]:
    """Return a spectrum and the first ids of its text."""
    return {"input_features": torch.randn(2, 80, 32), "decoder_input_ids": torch.randint(3, 90, (2, 5)),
            "decoder_attention_mask": torch.ones(2, 5, dtype=torch.int64)}  # fmt: skip


def waves() -> dict[str, torch.Tensor]:
    """Return two pieces of sound."""
    return {"input_values": torch.randn(2, 400)}


def clip_inputs() -> dict[str, torch.Tensor]:
    """Return images and texts."""
    return {**tokens(), **pixels()}


LLAMA = {**CAUSAL, "num_key_value_heads": 2}
TOWER = {"text_config": TEXT, "vision_config": IMAGE}
SPEECH = {
    **SMALL, "vocab_size": 32, "conv_dim": (16, 16), "conv_stride": (4, 2), "conv_kernel": (8, 4),
    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2,
    "apply_spec_augment": False, "layerdrop": 0.0,
}  # fmt: skip
SEQUENCES = {
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "use_cache": False,
}  # fmt: skip
ARCHITECTURES: dict[str, Architecture] = {
    "bert": Architecture("BertModel", "BertConfig", TEXT, tokens),
    "roberta": Architecture("RobertaModel", "RobertaConfig", TEXT, tokens),
    "distilbert": Architecture(
        "DistilBertModel", "DistilBertConfig",
        {"dim": 32, "n_heads": 4, "n_layers": 2, "hidden_dim": 64, "vocab_size": 99, "max_position_embeddings": 64},
        tokens,
    ),
    "albert": Architecture("AlbertModel", "AlbertConfig", {**TEXT, "embedding_size": 16}, tokens),
    "deberta": Architecture(
        "DebertaV2Model", "DebertaV2Config",
        {**TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}, tokens,
    ),
    "electra": Architecture("ElectraModel", "ElectraConfig", {**TEXT, "embedding_size": 16}, tokens),
    "mpnet": Architecture("MPNetModel", "MPNetConfig", TEXT, tokens),
    "gpt2": Architecture(
        "GPT2Model", "GPT2Config",
        {"vocab_size": 99, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "use_cache": False}, tokens,
    ),
    "gpt_neox": Architecture("GPTNeoXModel", "GPTNeoXConfig", CAUSAL, tokens),
    "opt": Architecture(
        "OPTModel", "OPTConfig",
        {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "ffn_dim": 64, "num_attention_heads": 4,
         "max_position_embeddings": 64, "word_embed_proj_dim": 32, "use_cache": False, "pad_token_id": 1}, tokens,
    ),
    "bart": Architecture("BartModel", "BartConfig", SEQUENCES, both_tokens),
    "t5": Architecture(
        "T5Model", "T5Config",
        {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "use_cache": False,
         "decoder_start_token_id": 0}, both_tokens,
    ),
    "vit": Architecture("ViTModel", "ViTConfig", IMAGE, pixels),
    "deit": Architecture("DeiTModel", "DeiTConfig", IMAGE, pixels),
    "dinov2": Architecture("Dinov2Model", "Dinov2Config", {**IMAGE, "mlp_ratio": 2}, pixels),
    "beit": Architecture("BeitModel", "BeitConfig", {**IMAGE, "use_relative_position_bias": True}, pixels),
    "swin": Architecture(
        "SwinModel", "SwinConfig",
        {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
        pixels,
    ),
    "clip": Architecture(
        "CLIPModel", "CLIPConfig",
        {"text_config": {**TEXT, "eos_token_id": 98}, "vision_config": IMAGE, "projection_dim": 16}, clip_inputs,
        "logits_per_image",
    ),
    "siglip": Architecture("SiglipModel", "SiglipConfig", TOWER, clip_inputs, "logits_per_image"),
    "whisper": Architecture(
        "WhisperModel", "WhisperConfig",
        {**{k: v for k, v in SEQUENCES.items() if k != "max_position_embeddings"}, "num_mel_bins": 80,
         "max_source_positions": 16, "max_target_positions": 64}, whisper_inputs,
    ),
    "wav2vec2": Architecture("Wav2Vec2Model", "Wav2Vec2Config", SPEECH, waves),
    "hubert": Architecture("HubertModel", "HubertConfig", SPEECH, waves),
    "conformer": Architecture(
        "Wav2Vec2ConformerModel", "Wav2Vec2ConformerConfig", {**SPEECH, "position_embeddings_type": "relative"}, waves
    ),
    "llama": Architecture("LlamaModel", "LlamaConfig", LLAMA, tokens),
    "mistral": Architecture("MistralModel", "MistralConfig", {**LLAMA, "sliding_window": 4}, tokens),
    "qwen2": Architecture("Qwen2Model", "Qwen2Config", LLAMA, tokens),
    "qwen3": Architecture("Qwen3Model", "Qwen3Config", {**LLAMA, "head_dim": 8}, tokens),
    "phi": Architecture("PhiModel", "PhiConfig", CAUSAL, tokens),
    "phi3": Architecture("Phi3Model", "Phi3Config", LLAMA, tokens),
    "gemma": Architecture("GemmaModel", "GemmaConfig", {**LLAMA, "head_dim": 8}, tokens),
    "gemma2": Architecture("Gemma2Model", "Gemma2Config", {**LLAMA, "head_dim": 8, "sliding_window": 4}, tokens),
    "gemma3": Architecture(
        "Gemma3TextModel", "Gemma3TextConfig", {**LLAMA, "head_dim": 8, "sliding_window": 4}, tokens
    ),
    "bloom": Architecture(
        "BloomModel", "BloomConfig",
        {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4, "use_cache": False}, tokens,
    ),
}  # fmt: skip

MORE = {name: Architecture(*row) for name, row in (ROWS | FURTHER | DRAWN).items()}


class OneOutput(torch.nn.Module):
    """A model whose named inputs are positions and whose result is one tensor, as exporters want them."""

    def __init__(self, model: torch.nn.Module, names: tuple[str, ...], output: str) -> None:
        super().__init__()
        self.model, self.names, self.output = model, names, output

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Return the one tensor."""
        return getattr(self.model(**dict(zip(self.names, inputs, strict=True))), self.output)


def build(architecture: Architecture, attention: str) -> torch.nn.Module:
    """Return the model with random weights; norms and biases are drawn, too, so that none of them is one or zero."""
    torch.manual_seed(1)
    settings = architecture.settings() if callable(architecture.settings) else architecture.settings
    config = getattr(transformers, architecture.config)(**settings)
    experts = {"experts_implementation": "batched_mm"} if "num_experts_per_tok" in settings else {}
    made = getattr(transformers, architecture.model)
    model = made._from_config(config, attn_implementation=attention, **experts).eval()  # loops over experts are data
    for parameter in model.parameters():
        if parameter.ndim == 1:
            with torch.no_grad():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def export(architecture: Architecture, attention: str, exporter: str, path: Path) -> None:
    """Write one export beside its feeds and torch's result."""
    model = build(architecture, attention)
    torch.manual_seed(2)
    inputs = architecture.inputs()
    names = tuple(inputs)
    wrapped = OneOutput(model, names, architecture.output).eval()
    with torch.no_grad():
        expected = wrapped(*inputs.values())
    arguments: dict[str, Any] = {"input_names": list(names), "output_names": ["result"], "opset_version": OPSET}
    if exporter == "dynamo":
        arguments |= {"dynamo": True, "verbose": False, "optimize": True}
        arguments["dynamic_shapes"] = (tuple(axes_of(name, torch.export.Dim.DYNAMIC) for name in names),)
        arguments["external_data"] = False
    else:
        arguments |= {"dynamo": False}
        arguments["dynamic_axes"] = {name: {axis: f"{name}_{axis}" if axis else "batch" for axis in axes_of(name, 0)}
                                     for name in names}  # fmt: skip
        arguments["dynamic_axes"]["result"] = {0: "batch"}
        for mask, ids in (("attention_mask", "input_ids"), ("decoder_attention_mask", "decoder_input_ids")):
            if mask in names:
                arguments["dynamic_axes"][mask] = {0: "batch", 1: f"{ids}_1"}
    with torch.no_grad():
        torch.onnx.export(wrapped, tuple(inputs.values()), str(path), **arguments)
    feeds = {name: value.numpy() for name, value in inputs.items()}
    np.savez(path.with_suffix(".npz"), expected=expected.numpy(), **feeds)


def axes_of(name: str, marker: Any) -> dict[int, Any]:  # Any: torch's own marker
    """Return the axes of an input whose size may change: the batch, and the length of texts."""
    return {0: marker} if name.startswith(("pixel", "input_f", "input_v")) else {0: marker, 1: marker}


def main() -> None:
    """Export what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--more", action="store_true", help="the architectures that no fusion was written for")
    parser.add_argument("--styles", nargs="*", default=["_".join(each) for each in STYLES])
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    failed_file = asked.folder / "FAILED.json"
    failed = json.loads(failed_file.read_text()) if failed_file.exists() else {}
    known = MORE if asked.more else ARCHITECTURES
    for name in asked.only or known:
        for style in asked.styles:
            attention, exporter = style.split("_")
            path = asked.folder / f"{name}.{style}.onnx"
            try:
                export(known[name], attention, exporter, path)
                failed.pop(f"{name}.{style}", None)
                print(f"{name} {style}: {path.stat().st_size} bytes", flush=True)
            except Exception as error:  # noqa: BLE001 - an exporter's failure is a row of the table, not ours
                failed[f"{name}.{style}"] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
                print(f"{name} {style}: {failed[f'{name}.{style}']}", flush=True)
            failed_file.write_text(json.dumps(failed, indent=1) + "\n")


if __name__ == "__main__":
    main()
