"""Further classes of torchvision and transformers, which no fusion and no kernel was tuned on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from zoo.drawn import Architecture, Draw
from zoo.libraries import BODY, CAUSAL, SOUND, TEXT, of_torchvision, of_transformers, values, words

PAIR = {
    "d_model": [128, 192], "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256, "vocab_size": 1000,
    "max_position_embeddings": 256, "use_cache": False, "pad_token_id": 0,
}  # fmt: skip
PICTURE = {"pixel_values": (0,)}


def both(length: int = 48, target: int = 16) -> Callable[[Draw], Mapping[str, Tensor]]:
    """Return a maker of ids for an encoder and a decoder."""
    return lambda draw: {**words(length)(draw), "decoder_input_ids": torch.randint(3, 900, (1, target))}


def picture(size: int) -> Callable[[Draw], Mapping[str, Tensor]]:
    """Return a maker of one picture."""
    return values("pixel_values", 1, 3, size, size)


FRESH: dict[str, Architecture] = {
    # torchvision
    "tv_r3d": of_torchvision("r3d_18", (1, 3, 4, 56, 56), "video"),
    "tv_mc3": of_torchvision("mc3_18", (1, 3, 4, 56, 56), "video"),
    "tv_efficientnet_v2": of_torchvision("efficientnet_v2_s", (1, 3, 128, 128), "images"),
    "tv_efficientnet": of_torchvision("efficientnet_b1", (1, 3, 160, 160), "images"),
    "tv_regnet_x": of_torchvision("regnet_x_800mf", (1, 3, 160, 160), "images"),
    "tv_regnet_y": of_torchvision("regnet_y_1_6gf", (1, 3, 128, 128), "images"),
    "tv_inception": of_torchvision("inception_v3", (1, 3, 299, 299), "images", init_weights=False, aux_logits=False),
    "tv_swin_v2": of_torchvision("swin_v2_t", (1, 3, 128, 128), "images"),
    "tv_wide_resnet": of_torchvision("wide_resnet50_2", (1, 3, 96, 96), "images"),
    "tv_vgg": of_torchvision("vgg11_bn", (1, 3, 64, 64), "images"),
    "tv_alexnet": of_torchvision("alexnet", (1, 3, 128, 128), "images"),
    # vision of transformers
    "focalnet": of_transformers(
        "FocalNetModel", "FocalNetConfig", {"image_size": 128, "embed_dim": [48, 64], "depths": (1, 1, 2, 1)},
        picture(128), "images", open_axes=PICTURE,
    ),
    "swiftformer": of_transformers(
        "SwiftFormerModel", "SwiftFormerConfig", {"image_size": 160, "depths": (2, 2, 2, 2)}, picture(160), "images",
        open_axes=PICTURE,
    ),
    "mobilevit_v2": of_transformers(
        "MobileViTV2Model", "MobileViTV2Config", {"image_size": 128, "width_multiplier": [0.5, 1.0]}, picture(128),
        "images", open_axes=PICTURE,
    ),
    "bit": of_transformers(
        "BitModel", "BitConfig",
        {"embedding_size": 32, "hidden_sizes": (64, 128, 192), "depths": (2, 2, 2), "num_groups": 8},
        picture(128), "images", open_axes=PICTURE,
    ),
    "depth_anything": of_transformers(
        "DepthAnythingForDepthEstimation", "DepthAnythingConfig",
        {"reassemble_hidden_size": 384, "patch_size": 14, "neck_hidden_sizes": (24, 48, 96, 96),
         "fusion_hidden_size": [32, 48]}, picture(126), "segmentation", "predicted_depth", open_axes={},
    ),
    "upernet": of_transformers(
        "UperNetForSemanticSegmentation", "UperNetConfig", {"hidden_size": [64, 128], "use_auxiliary_head": False},
        picture(128), "segmentation", "logits", open_axes=PICTURE,
    ),
    "detr": of_transformers(
        "DetrForObjectDetection", "DetrConfig",
        {**{k: v for k, v in PAIR.items() if k not in ("vocab_size", "max_position_embeddings", "use_cache",
                                                       "pad_token_id")}, "num_queries": 30, "num_labels": 11,
         "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
         "backbone_config": {"model_type": "resnet", "embedding_size": 32, "hidden_sizes": [64, 96, 128, 160],
                             "depths": [1, 1, 1, 1], "layer_type": "basic", "out_features": ["stage4"]}},
        picture(160), "detection", "logits", "pred_boxes", open_axes={},
    ),
    "vitpose": of_transformers(
        "VitPoseForPoseEstimation", "VitPoseConfig",
        {"backbone_config": {"model_type": "vitpose_backbone", "image_size": [128, 96], "hidden_size": 96,
                             "num_hidden_layers": 3, "num_attention_heads": 3, "out_features": ["stage3"]},
         "num_labels": 17, "use_simple_decoder": [True, False]},
        values("pixel_values", 1, 3, 128, 96), "detection", "heatmaps", open_axes={},
    ),
    "superpoint": of_transformers(
        "SuperPointForKeypointDetection", "SuperPointConfig",
        {"encoder_hidden_sizes": [[32, 32, 64, 64]], "decoder_hidden_size": 64, "descriptor_decoder_dim": 64,
         "keypoint_decoder_dim": 65}, picture(96), "detection", "keypoints", "scores", open_axes={},
    ),
    "mgp_str": of_transformers(
        "MgpstrForSceneTextRecognition", "MgpstrConfig",
        {"hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 3, "num_bpe_labels": 400,
         "num_wordpiece_labels": 300}, values("pixel_values", 1, 3, 32, 128), "OCR", "logits", open_axes=PICTURE,
    ),
    "trocr": of_transformers(
        "TrOCRForCausalLM", "TrOCRConfig",
        {"d_model": 128, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 256, "vocab_size": 500,
         "use_cache": False, "cross_attention_hidden_size": 96},
        lambda _draw: {"input_ids": torch.randint(3, 400, (1, 20)), "encoder_hidden_states": torch.randn(1, 50, 96)},
        "OCR", "logits", open_axes={"input_ids": (0, 1), "encoder_hidden_states": (0, 1)},
    ),
    # texts and decoders
    "flaubert": of_transformers(
        "FlaubertModel", "FlaubertConfig",
        {"emb_dim": 128, "n_layers": 3, "n_heads": 4, "vocab_size": 1000, "pre_norm": [True, False]}, words(), "texts",
        open_axes=TEXT,
    ),
    "lilt": of_transformers("LiltModel", "LiltConfig", {**BODY, "hidden_size": 192}, words(), "texts", open_axes=TEXT),
    "bros": of_transformers(
        "BrosModel", "BrosConfig", BODY,
        lambda draw: {**words()(draw), "bbox": torch.rand(1, 64, 8)}, "texts", open_axes={},
    ),
    "yoso": of_transformers("YosoModel", "YosoConfig", {**BODY, "use_expectation": True}, words(), "texts"),
    "roc_bert": of_transformers("RoCBertModel", "RoCBertConfig", {**BODY, "concat_input": True}, words(), "texts"),
    "opt": of_transformers(
        "OPTModel", "OPTConfig", {**CAUSAL, "ffn_dim": 256, "word_embed_proj_dim": 64, "do_layer_norm_before": False},
        words(), "decoders", open_axes=TEXT,
    ),
    "bloom": of_transformers(
        "BloomModel", "BloomConfig", {"hidden_size": 128, "n_layer": 3, "n_head": 4, "vocab_size": 1000,
                                      "use_cache": False}, words(), "decoders", open_axes=TEXT,
    ),
    "mpt": of_transformers(
        "MptModel", "MptConfig", {"d_model": 128, "n_heads": 4, "n_layers": 2, "vocab_size": 1000, "use_cache": False},
        words(), "decoders", open_axes=TEXT,
    ),
    "minimax": of_transformers(
        "MiniMaxModel", "MiniMaxConfig",
        {**CAUSAL, "num_key_value_heads": 2, "head_dim": 32, "num_local_experts": 4,
         "experts_implementation": "batched_mm"}, words(), "experts", open_axes=TEXT,
    ),
    "led": of_transformers(
        "LEDModel", "LEDConfig",
        {**{k: v for k, v in PAIR.items() if k != "max_position_embeddings"}, "attention_window": 16,
         "max_encoder_position_embeddings": 256, "max_decoder_position_embeddings": 64}, both(64), "texts",
        open_axes={},
    ),
    "marian": of_transformers(
        "MarianModel", "MarianConfig", {**PAIR, "decoder_start_token_id": 0}, both(), "texts",
        open_axes={"input_ids": (0, 1), "attention_mask": (0, 1), "decoder_input_ids": (0, 1)},
    ),
    "switch": of_transformers(
        "SwitchTransformersEncoderModel", "SwitchTransformersConfig",
        {"d_model": 96, "d_kv": 24, "d_ff": 192, "num_layers": 2, "num_heads": 4, "num_experts": 4, "vocab_size": 1000,
         "num_sparse_encoder_layers": 1}, words(), "experts", open_axes={},
    ),
    "umt5": of_transformers(
        "UMT5EncoderModel", "UMT5Config",
        {"d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 3, "num_heads": 4, "vocab_size": 1000}, words(),
        "texts", open_axes=TEXT,
    ),
    # sound and series
    "hubert": of_transformers(
        "HubertModel", "HubertConfig", {**SOUND, "feat_extract_norm": "group"}, values("input_values", 1, 8000),
        "speech", open_axes={"input_values": (0, 1)},
    ),
    "clap_audio": of_transformers(
        "ClapAudioModel", "ClapAudioConfig",
        {"hidden_size": 192, "patch_embeds_hidden_size": 24, "depths": (1, 1, 2, 1),
         "num_attention_heads": (2, 2, 4, 8),
         "spec_size": 128, "window_size": 4, "num_mel_bins": 32, "enable_fusion": False},
        lambda _draw: {"input_features": torch.randn(1, 1, 400, 32), "is_longer": torch.zeros(1, 1, dtype=torch.bool)},
        "sound", open_axes={},
    ),
    "fastspeech": of_transformers(
        "FastSpeech2ConformerModel", "FastSpeech2ConformerConfig",
        {"hidden_size": 96, "encoder_layers": 2, "decoder_layers": 2, "encoder_linear_units": 192,
         "decoder_linear_units": 192, "vocab_size": 60, "speech_decoder_postnet_units": 64,
         "encoder_num_attention_heads": 2, "decoder_num_attention_heads": 2},
        lambda _draw: {"input_ids": torch.randint(1, 50, (1, 30))}, "speech", "spectrogram", open_axes={},
    ),
    "conformer_relative": of_transformers(
        "Wav2Vec2ConformerModel", "Wav2Vec2ConformerConfig", {**SOUND, "position_embeddings_type": "relative"},
        values("input_values", 1, 8000), "speech", open_axes={"input_values": (0, 1)},
    ),
    "sew": of_transformers(
        "SEWModel", "SEWConfig", SOUND, values("input_values", 1, 8000), "speech", open_axes={"input_values": (0, 1)},
    ),
    "univnet": of_transformers(
        "UnivNetModel", "UnivNetConfig",
        {"model_in_channels": 32, "model_hidden_channels": 16, "kernel_predictor_hidden_channels": 32,
         "resblock_stride_sizes": (4, 4, 4)},
        lambda _draw: {"input_features": torch.randn(1, 40, 100), "noise_sequence": torch.randn(1, 40, 32)}, "sound",
        "waveforms", open_axes={},
    ),
    "vits": of_transformers(
        "VitsModel", "VitsConfig",
        {"hidden_size": 96, "num_hidden_layers": 2, "ffn_dim": 192, "flow_size": 96, "spectrogram_bins": 129,
         "upsample_initial_channel": 64, "upsample_rates": (4, 4), "upsample_kernel_sizes": (8, 8), "vocab_size": 40,
         "use_stochastic_duration_prediction": False, "noise_scale": 0.0},
        lambda _draw: {"input_ids": torch.randint(1, 38, (1, 24))}, "speech", "spectrogram", open_axes={},
    ),
    "moonshine": of_transformers(
        "MoonshineModel", "MoonshineConfig",
        {"hidden_size": 96, "intermediate_size": 192, "encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 2,
         "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4, "vocab_size": 500, "use_cache": False},
        lambda _draw: {"input_values": torch.randn(1, 6000), "decoder_input_ids": torch.randint(3, 400, (1, 12))},
        "speech", open_axes={},
    ),
    "series_transformer": of_transformers(
        "TimeSeriesTransformerModel", "TimeSeriesTransformerConfig",
        {"prediction_length": 12, "context_length": 36, "d_model": 48, "encoder_layers": 2, "decoder_layers": 2,
         "lags_sequence": [[1, 2, 3]], "num_time_features": 2, "use_cache": False},
        lambda _draw: {
            "past_values": torch.rand(2, 39), "past_time_features": torch.rand(2, 39, 2),
            "past_observed_mask": torch.ones(2, 39), "future_values": torch.rand(2, 12),
            "future_time_features": torch.rand(2, 12, 2),
        }, "series", "last_hidden_state", open_axes={},
    ),
}  # fmt: skip
