"""A third draw of architectures that no fusion was written for: classes of transformers taken at random from its list.

Each is a small seeded configuration in the words of `exported_architectures.py`, which exports them by name.
"""

from __future__ import annotations

import torch
from more_architectures import (
    CAUSAL,
    EXPERTS,
    GROUPED,
    PAIR,
    PICTURE,
    SOUND,
    WORDS,
    Row,
    both_words,
    picture,
    sound,
    words,
)

ODD = {"hidden_size": 36, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 40}  # heads of 12
HEADS_OF_8 = {**GROUPED, "head_dim": 8}
FEW_SHARED = {
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1, "n_group": 2,
    "topk_group": 1, "first_k_dense_replace": 1,
}  # fmt: skip
VIDEO = {**PICTURE, "num_frames": 2}


def film() -> dict[str, torch.Tensor]:
    """Return two films of two images."""
    return {"pixel_values": torch.randn(2, 2, 3, 32, 32)}


def characters() -> dict[str, torch.Tensor]:
    """Return ids of characters, of a length that local attention divides."""
    return {"input_ids": torch.randint(3, 90, (2, 16)), "attention_mask": torch.ones(2, 16, dtype=torch.int64)}


DRAWN: dict[str, Row | tuple] = {
    # encoders of texts
    "luke": ("LukeModel", "LukeConfig", {**WORDS, "use_entity_aware_attention": False, "entity_vocab_size": 9,
        "entity_emb_size": 16}, words),
    "markuplm": ("MarkupLMModel", "MarkupLMConfig", {**WORDS, "max_depth": 4, "xpath_unit_hidden_size": 8}, words),
    "xlm_roberta_xl": ("XLMRobertaXLModel", "XLMRobertaXLConfig", {**WORDS, **ODD}, words),
    "xmod": ("XmodModel", "XmodConfig", {**WORDS, **ODD, "default_language": "en_XX"}, words),
    "visual_bert": ("VisualBertModel", "VisualBertConfig", {**WORDS, "visual_embedding_dim": 16}, words),
    "tapas": ("TapasModel", "TapasConfig", {**WORDS, "type_vocab_sizes": [3, 16, 16, 2, 16, 16, 5]}, words),
    "bert_generation": ("BertGenerationEncoder", "BertGenerationConfig", {**WORDS, **ODD}, words),
    "mra": ("MraModel", "MraConfig", {**WORDS, "max_position_embeddings": 64}, words),
    "altclip_text": ("AltCLIPTextModel", "AltCLIPTextConfig", {**WORDS, "project_dim": 16}, words),
    "canine": ("CanineModel", "CanineConfig", {**WORDS, "downsampling_rate": 2, "num_hash_buckets": 64,
        "local_transformer_stride": 4, "upsampling_kernel_size": 2}, characters),
    # decoders
    "apertus": ("ApertusModel", "ApertusConfig", GROUPED, words),
    "bitnet": ("BitNetModel", "BitNetConfig", GROUPED, words),
    "doge": ("DogeModel", "DogeConfig", GROUPED, words),
    "gpt_neox_japanese": ("GPTNeoXJapaneseModel", "GPTNeoXJapaneseConfig", {**CAUSAL, "intermediate_multiple_size": 2},
        words),
    "nanochat": ("NanoChatModel", "NanoChatConfig", HEADS_OF_8, words),
    "vaultgemma": ("VaultGemmaModel", "VaultGemmaConfig", {**HEADS_OF_8, "sliding_window": 4}, words),
    "cwm": ("CwmModel", "CwmConfig", {**HEADS_OF_8, "sliding_window": 4}, words),
    "dots1": ("Dots1Model", "Dots1Config", {**HEADS_OF_8, **FEW_SHARED}, words),
    "flex_olmo": ("FlexOlmoModel", "FlexOlmoConfig", {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2}, words),
    "jetmoe": ("JetMoeModel", "JetMoeConfig", {
        "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_key_value_heads": 2, "kv_channels": 8,
        "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 64, "use_cache": False}, words),
    "minimax": ("MiniMaxModel", "MiniMaxConfig", {**HEADS_OF_8, **EXPERTS, "block_size": 4,
        "layer_types": ["full_attention", "full_attention"]}, words),
    "lfm2_moe": ("Lfm2MoeModel", "Lfm2MoeConfig", {**GROUPED, "layer_types": ["conv", "full_attention"],
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "num_dense_layers": 1}, words),
    # both
    "plbart": ("PLBartModel", "PLBartConfig", PAIR, both_words),
    "mvp": ("MvpModel", "MvpConfig", PAIR, both_words),
    "blenderbot_small": ("BlenderbotSmallModel", "BlenderbotSmallConfig", PAIR, both_words),
    "nllb_moe": ("NllbMoeModel", "NllbMoeConfig", {**PAIR, "num_experts": 4, "encoder_sparse_step": 2,
        "decoder_sparse_step": 2}, both_words),
    # images
    "aimv2": ("Aimv2VisionModel", "Aimv2VisionConfig", PICTURE, picture),
    "vit_msn": ("ViTMSNModel", "ViTMSNConfig", {**PICTURE, **ODD}, picture),
    "groupvit": ("GroupViTVisionModel", "GroupViTVisionConfig", {**PICTURE, "depths": [1, 1],
        "num_group_tokens": [4, 0], "num_output_groups": [4, 4], "num_hidden_layers": 2}, picture),
    "pvt_v2": ("PvtV2Model", "PvtV2Config", {"image_size": 32, "hidden_sizes": [16, 32], "num_encoder_blocks": 2,
        "depths": [1, 1], "sr_ratios": [2, 1], "num_attention_heads": [2, 4], "mlp_ratios": [2, 2],
        "patch_sizes": [3, 3], "strides": [4, 2]}, picture),
    "cvt": ("CvtModel", "CvtConfig", {"embed_dim": [8, 16], "num_heads": [1, 2], "depth": [1, 1], "patch_sizes": [7, 3],
        "patch_stride": [4, 2], "patch_padding": [2, 1], "mlp_ratio": [2.0, 2.0], "attention_drop_rate": [0.0, 0.0],
        "drop_rate": [0.0, 0.0], "drop_path_rate": [0.0, 0.0], "qkv_bias": [True, True], "cls_token": [False, True],
        "qkv_projection_method": ["dw_bn", "dw_bn"], "kernel_qkv": [3, 3], "padding_kv": [1, 1], "stride_kv": [2, 2],
        "padding_q": [1, 1], "stride_q": [1, 1]}, picture),
    "timesformer": ("TimesformerModel", "TimesformerConfig", VIDEO, film),
    "vivit": ("VivitModel", "VivitConfig", {**VIDEO, "tubelet_size": [2, 8, 8]}, film),
    # sounds
    "unispeech_sat": ("UniSpeechSatModel", "UniSpeechSatConfig", SOUND, sound),
    "sew_d": ("SEWDModel", "SEWDConfig", {**SOUND, "squeeze_factor": 2, "position_buckets": 8,
        "max_position_embeddings": 32}, sound),
}  # fmt: skip
