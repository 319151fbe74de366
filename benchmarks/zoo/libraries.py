"""Networks of timm, torchvision and transformers: drawn by name where a library lists them, else by configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import timm
import torch
import torchvision
import transformers
from torch import Tensor, nn

from zoo.drawn import Architecture, Draw, Drawn

MAX_PARAMETERS = 30_000_000
TRIES = 12  # of names of one file of timm, until one is small enough


class Named(nn.Module):
    """A model that takes its inputs by position and gives one or several tensors."""

    def __init__(
        self, model: nn.Module, names: tuple[str, ...], results: tuple[str, ...], more: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.model, self.names, self.results, self.more = model, names, results, dict(more)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the results that were asked for."""
        out = self.model(**dict(zip(self.names, inputs, strict=True)), **self.more)
        if not self.results[0]:  # a tensor alone
            return (out,)
        return tuple(out[each] for each in self.results)


def of_timm(file: str) -> Architecture:
    """Return a small model of one of timm's files."""

    def make(draw: Draw) -> Drawn:
        names = timm.list_models(module=file)
        for name in draw.sample(names, min(TRIES, len(names))):
            with torch.device("meta"):
                size = sum(each.numel() for each in timm.create_model(name).parameters())
            if size <= MAX_PARAMETERS:
                break
        model = timm.create_model(name, exportable=True)
        torch.manual_seed(draw.randrange(1 << 30))
        shape = model.pretrained_cfg["input_size"]
        return Drawn(model, {"picture": torch.randn(1, *shape)}, {"picture": (0,)} if draw.random() < 0.5 else {})

    return Architecture("timm", make)


def of_torchvision(name: str, shape: tuple[int, ...], family: str, result: str = "", **settings: Any) -> Architecture:
    """Return a model of torchvision."""

    def make(draw: Draw) -> Drawn:
        model = torchvision.models.get_model(name, weights=None, **settings)
        is_open = draw.random() < 0.5
        if result:
            wrapped = Named(model, ("x",), (result,), {})
            return Drawn(wrapped, {"x": torch.randn(shape)}, {"x": (0, 2, 3)} if is_open else {})
        return Drawn(model, {"x": torch.randn(shape)}, {"x": (0,)} if is_open else {})

    return Architecture(family, make)


def of_transformers(
    model: str,
    config: str,
    settings: Mapping[str, Any],
    inputs: Callable[[Draw], Mapping[str, Tensor]],
    family: str,
    *results: str,
    open_axes: Mapping[str, tuple[int, ...]] | None = None,
    **more: Any,
) -> Architecture:
    """Return a class of transformers; values of settings that are lists are drawn from."""

    def make(draw: Draw) -> Drawn:
        chosen = {key: draw.choice(value) if isinstance(value, list) else value for key, value in settings.items()}
        made = getattr(transformers, model)._from_config(getattr(transformers, config)(**chosen))
        given = inputs(draw)
        wrapped = Named(made, tuple(given), results or ("last_hidden_state",), more)
        axes = open_axes if open_axes is not None else dict.fromkeys(given, (0,))
        return Drawn(wrapped, given, axes)

    return Architecture(family, make)


def words(length: int = 64, batch: int = 1) -> Callable[[Draw], Mapping[str, Tensor]]:
    """Return a maker of ids with their mask."""
    return lambda _draw: {
        "input_ids": torch.randint(3, 900, (batch, length)),
        "attention_mask": torch.ones(batch, length, dtype=torch.int64),
    }


def values(name: str, *shape: int) -> Callable[[Draw], Mapping[str, Tensor]]:
    """Return a maker of one random input."""
    return lambda _draw: {name: torch.randn(shape)}


TEXT = {"input_ids": (0, 1), "attention_mask": (0, 1)}
BODY = {
    "hidden_size": [128, 192, 256], "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": [256, 512],
    "vocab_size": 1000, "max_position_embeddings": 512, "pad_token_id": 0,
}  # fmt: skip
CAUSAL = {**BODY, "use_cache": False}
LATENT = {
    **CAUSAL, "num_key_value_heads": 4, "kv_lora_rank": 32, "q_lora_rank": 32, "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16, "v_head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1,
    "moe_intermediate_size": 64, "topk_group": 1, "first_k_dense_replace": 1, "n_shared_experts": 1,
    "experts_implementation": "batched_mm",
}  # fmt: skip
PATCHES = {
    "hidden_size": [96, 192], "num_attention_heads": 3, "num_hidden_layers": 3, "intermediate_size": 384,
    "image_size": 128, "patch_size": 16,
}  # fmt: skip
SOUND = {
    "hidden_size": 192, "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 384, "vocab_size": 32,
    "conv_dim": (64, 64, 64), "conv_stride": (5, 4, 4), "conv_kernel": (10, 8, 4), "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": [2, 4], "apply_spec_augment": False,
    "layerdrop": 0.0,
}  # fmt: skip
SERIES = {"context_length": 128, "prediction_length": 24, "num_input_channels": 5, "patch_length": 16}

TRANSFORMERS: dict[str, Architecture] = {
    "modernbert": of_transformers("ModernBertModel", "ModernBertConfig", BODY, words(), "texts", open_axes=TEXT),
    "deberta_v2": of_transformers(
        "DebertaV2Model", "DebertaV2Config",
        {**BODY, "relative_attention": True, "pos_att_type": ["p2c|c2p"], "position_buckets": 32}, words(), "texts",
        open_axes=TEXT,
    ),
    "longformer": of_transformers(
        "LongformerModel", "LongformerConfig", {**BODY, "attention_window": 16}, words(64), "texts"
    ),
    "funnel": of_transformers(
        "FunnelModel", "FunnelConfig",
        {"d_model": 128, "n_head": 4, "d_head": 32, "d_inner": 256, "block_sizes": [[2, 2], [1, 2]],
         "vocab_size": 1000}, words(), "texts",
    ),
    "fnet": of_transformers("FNetModel", "FNetConfig", BODY, lambda d: {"input_ids": words()(d)["input_ids"]}, "texts"),
    "xlnet": of_transformers(
        "XLNetModel", "XLNetConfig", {"d_model": 128, "n_layer": 2, "n_head": 4, "d_inner": 256, "vocab_size": 1000},
        words(), "texts",
    ),
    "canine": of_transformers(
        "CanineModel", "CanineConfig", {**BODY, "downsampling_rate": 4}, words(128), "texts",
    ),
    "mamba": of_transformers(
        "MambaModel", "MambaConfig",
        {"hidden_size": 96, "num_hidden_layers": 2, "state_size": [4, 8], "vocab_size": 1000, "use_cache": False},
        lambda d: {"input_ids": words(24)(d)["input_ids"]}, "texts", open_axes={},
    ),
    "lfm2": of_transformers(
        "Lfm2Model", "Lfm2Config",
        {**CAUSAL, "num_key_value_heads": 2, "layer_types": [["conv", "full_attention", "conv"]]}, words(), "decoders",
    ),
    "deepseek": of_transformers("DeepseekV3Model", "DeepseekV3Config", LATENT, words(), "experts"),
    "qwen3_moe": of_transformers(
        "Qwen3MoeModel", "Qwen3MoeConfig",
        {**CAUSAL, "num_key_value_heads": 2, "num_experts": [4, 8], "num_experts_per_tok": 2, "head_dim": 32,
         "moe_intermediate_size": 64, "decoder_sparse_step": 1, "experts_implementation": "batched_mm"},
        words(), "experts",
    ),
    "gemma2": of_transformers(
        "Gemma2Model", "Gemma2Config", {**CAUSAL, "num_key_value_heads": 2, "head_dim": 32, "sliding_window": 16},
        words(), "decoders",
    ),
    "long_t5": of_transformers(
        "LongT5EncoderModel", "LongT5Config",
        {"d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 2, "num_heads": 4, "vocab_size": 1000,
         "local_radius": 15}, words(), "texts",
    ),
    "big_bird": of_transformers(
        "BigBirdModel", "BigBirdConfig", {**BODY, "attention_type": "original_full"}, words(), "texts", open_axes=TEXT
    ),
    "wav2vec2": of_transformers(
        "Wav2Vec2Model", "Wav2Vec2Config", {**SOUND, "feat_extract_norm": ["group", "layer"]},
        values("input_values", 1, 8000), "speech", open_axes={"input_values": (0, 1)},
    ),
    "wavlm": of_transformers("WavLMModel", "WavLMConfig", SOUND, values("input_values", 1, 8000), "speech"),
    "sew_d": of_transformers(
        "SEWDModel", "SEWDConfig", {**SOUND, "squeeze_factor": 2, "conv_bias": False}, values("input_values", 1, 8000),
        "speech",
    ),
    "w2v_bert": of_transformers(
        "Wav2Vec2BertModel", "Wav2Vec2BertConfig",
        {k: v for k, v in SOUND.items() if not k.startswith(("conv_", "num_conv", "num_feat"))},
        values("input_features", 1, 100, 160), "speech",
    ),
    "parakeet": of_transformers(
        "ParakeetEncoder", "ParakeetEncoderConfig",
        {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256,
         "conv_kernel_size": 9, "subsampling_conv_channels": 32}, values("input_features", 1, 200, 80), "speech",
    ),
    "encodec": of_transformers(
        "EncodecModel", "EncodecConfig",
        {"num_filters": [8, 16], "hidden_size": 64, "upsampling_ratios": (4, 4, 2), "codebook_dim": 64,
         "codebook_size": 128, "normalize": False, "chunk_length_s": None}, values("input_values", 1, 1, 4800),
        "sound", "audio_values", open_axes={},
    ),
    "dac": of_transformers(
        "DacModel", "DacConfig",
        {"encoder_hidden_size": 16, "downsampling_ratios": (2, 4, 4), "decoder_hidden_size": 128, "n_codebooks": 3,
         "codebook_size": 64}, values("input_values", 1, 1, 3200), "sound", "audio_values", open_axes={},
    ),
    "hifigan": of_transformers(
        "SpeechT5HifiGan", "SpeechT5HifiGanConfig",
        {"upsample_initial_channel": [64, 128], "upsample_rates": (4, 4, 4), "upsample_kernel_sizes": (8, 8, 8)},
        values("spectrogram", 60, 80), "sound", "", open_axes={},
    ),
    "ast": of_transformers(
        "ASTModel", "ASTConfig",
        {**{k: v for k, v in PATCHES.items() if k != "image_size"}, "max_length": 256, "num_mel_bins": 64},
        values("input_values", 1, 256, 64), "sound",
    ),
    "patchtst": of_transformers(
        "PatchTSTForPrediction", "PatchTSTConfig", {**SERIES, "patch_stride": 8, "d_model": 64, "num_hidden_layers": 2},
        values("past_values", 2, 128, 5), "series", "prediction_outputs",
    ),
    "patchtsmixer": of_transformers(
        "PatchTSMixerForPrediction", "PatchTSMixerConfig",
        {**SERIES, "patch_stride": 8, "d_model": 48, "num_layers": 3, "mode": ["common_channel", "mix_channel"]},
        values("past_values", 2, 128, 5), "series", "prediction_outputs",
    ),
    "timesformer": of_transformers(
        "TimesformerModel", "TimesformerConfig",
        {**{k: v for k, v in PATCHES.items() if k != "hidden_size"}, "hidden_size": 96, "num_frames": 4},
        values("pixel_values", 1, 4, 3, 128, 128), "video",
    ),
    "vivit": of_transformers(
        "VivitModel", "VivitConfig",
        {"hidden_size": 96, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 192,
         "image_size": 64, "num_frames": 8, "tubelet_size": (2, 16, 16)}, values("pixel_values", 1, 8, 3, 64, 64),
        "video",
    ),
    "swin2sr": of_transformers(
        "Swin2SRForImageSuperResolution", "Swin2SRConfig",
        {"image_size": 32, "embed_dim": [36, 60], "depths": (2, 2), "num_heads": (3, 3), "window_size": 8,
         "upsampler": ["pixelshuffle", "pixelshuffledirect", "nearest+conv"], "upscale": 2},
        values("pixel_values", 1, 3, 48, 48), "super-resolution", "reconstruction",
    ),
    "segformer": of_transformers(
        "SegformerForSemanticSegmentation", "SegformerConfig",
        {"depths": (1, 1, 1, 1), "hidden_sizes": (16, 32, 64, 96), "decoder_hidden_size": [64, 128]},
        values("pixel_values", 1, 3, 192, 256), "segmentation", "logits", open_axes={"pixel_values": (0, 2, 3)},
    ),
    "dpt": of_transformers(
        "DPTForDepthEstimation", "DPTConfig",
        {**PATCHES, "hidden_size": 96, "backbone_out_indices": [[0, 1, 2, 3]], "neck_hidden_sizes": (16, 32, 48, 64),
         "fusion_hidden_size": 48, "is_hybrid": False, "num_hidden_layers": 4}, values("pixel_values", 1, 3, 128, 128),
        "segmentation", "predicted_depth",
    ),
    "glpn": of_transformers(
        "GLPNForDepthEstimation", "GLPNConfig",
        {"depths": (1, 1, 1, 1), "hidden_sizes": (16, 32, 80, 128), "decoder_hidden_size": 32},
        values("pixel_values", 1, 3, 128, 160), "segmentation", "predicted_depth",
    ),
    "textnet": of_transformers(
        "TextNetBackbone", "TextNetConfig", {}, values("pixel_values", 1, 3, 160, 160), "OCR", "feature_maps",
    ),
    "rt_detr": of_transformers(
        "RTDetrForObjectDetection", "RTDetrConfig",
        {"d_model": 64, "encoder_hidden_dim": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "num_queries": 50,
         "decoder_layers": 2, "decoder_attention_heads": 4, "encoder_attention_heads": 4, "anchor_image_size": None,
         "num_denoising": 0, "num_labels": 12,
         "decoder_in_channels": [[64, 64, 64]]}, values("pixel_values", 1, 3, 224, 224),
        "detection", "logits", "pred_boxes", open_axes={},
    ),
    "d_fine": of_transformers(
        "DFineForObjectDetection", "DFineConfig",
        {"d_model": 64, "encoder_hidden_dim": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "num_queries": 50,
         "decoder_layers": 2, "decoder_attention_heads": 4, "encoder_attention_heads": 4, "anchor_image_size": None,
         "num_denoising": 0, "num_labels": 12,
         "decoder_in_channels": [[64, 64, 64]]}, values("pixel_values", 1, 3, 224, 224),
        "detection", "logits", "pred_boxes", open_axes={},
    ),
    "yolos": of_transformers(
        "YolosForObjectDetection", "YolosConfig",
        {**PATCHES, "image_size": (128, 128), "num_detection_tokens": 20}, values("pixel_values", 1, 3, 128, 128),
        "detection", "logits", "pred_boxes",
    ),
    "decision": of_transformers(
        "DecisionTransformerModel", "DecisionTransformerConfig",
        {"hidden_size": 96, "n_layer": 2, "n_head": 2, "state_dim": 17, "act_dim": 4, "max_ep_len": 200},
        lambda _draw: {
            "states": torch.randn(1, 20, 17), "actions": torch.randn(1, 20, 4), "rewards": torch.randn(1, 20, 1),
            "returns_to_go": torch.randn(1, 20, 1), "timesteps": torch.arange(20)[None],
            "attention_mask": torch.ones(1, 20, dtype=torch.int64),
        }, "series", "state_preds", "action_preds",
    ),
    "t5": of_transformers(
        "T5Model", "T5Config",
        {"d_model": 128, "d_kv": 32, "d_ff": [256, 512], "num_layers": 2, "num_heads": 4, "vocab_size": 1000,
         "use_cache": False, "feed_forward_proj": ["relu", "gated-gelu"]},
        lambda draw: {**words()(draw), "decoder_input_ids": torch.randint(3, 900, (1, 16))}, "texts",
    ),
}  # fmt: skip

TORCHVISION: dict[str, Architecture] = {
    "tv_deeplab": of_torchvision(
        "deeplabv3_mobilenet_v3_large", (1, 3, 224, 224), "segmentation", "out", weights_backbone=None
    ),
    "tv_lraspp": of_torchvision(
        "lraspp_mobilenet_v3_large", (1, 3, 256, 256), "segmentation", "out", weights_backbone=None
    ),
    "tv_fcn": of_torchvision("fcn_resnet50", (1, 3, 128, 128), "segmentation", "out", weights_backbone=None),
    "tv_r2plus1d": of_torchvision("r2plus1d_18", (1, 3, 4, 56, 56), "video"),
    "tv_s3d": of_torchvision("s3d", (1, 3, 16, 112, 112), "video"),
    "tv_swin3d": of_torchvision("swin3d_t", (1, 3, 4, 64, 64), "video"),
    "tv_googlenet": of_torchvision("googlenet", (1, 3, 224, 224), "images", init_weights=False, aux_logits=False),
    "tv_shufflenet": of_torchvision("shufflenet_v2_x1_0", (1, 3, 224, 224), "images"),
    "tv_mnasnet": of_torchvision("mnasnet0_75", (1, 3, 224, 224), "images"),
    "tv_squeezenet": of_torchvision("squeezenet1_1", (1, 3, 224, 224), "images"),
    "tv_maxvit": of_torchvision("maxvit_t", (1, 3, 224, 224), "images"),
    "tv_resnext": of_torchvision("resnext50_32x4d", (1, 3, 160, 160), "images"),
}


def timm_files(draw: Draw, count: int) -> dict[str, Architecture]:
    """Return architectures of as many of timm's files, drawn."""
    files = timm.list_modules()
    return {f"timm_{file}": of_timm(file) for file in draw.sample(files, min(count, len(files)))}
