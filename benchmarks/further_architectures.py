"""More architectures that no fusion was written for: pairs of images and texts, sounds, hybrids, latent attention.

Each is a small seeded configuration of a class of transformers, in the words of `exported_architectures.py`, which
exports them by name.
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
    TINY,
    WORDS,
    Row,
    both_words,
    picture,
    sound,
    words,
)

DETECTOR = {
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_queries": 5,
    "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
}  # fmt: skip
LATENT = {
    **CAUSAL, "num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "n_shared_experts": 1,
}  # fmt: skip
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def spoken() -> dict[str, torch.Tensor]:
    """Return a spectrum and the first ids of its text."""
    return {"input_features": torch.randn(2, 32, 80), "decoder_input_ids": torch.randint(3, 90, (2, 5))}


def page() -> dict[str, torch.Tensor]:
    """Return the words of a page and their boxes."""
    corner = torch.randint(0, 500, (2, 7, 2))
    return {**words(), "bbox": torch.cat([corner, corner + 20], -1)}


def seen_words() -> dict[str, torch.Tensor]:
    """Return texts and images."""
    return {**words(), **picture()}


def resnet() -> dict[str, object]:
    """Return the configuration of a small backbone."""
    import transformers

    settings = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "out_features": ["stage2"]}
    return {"backbone_config": transformers.ResNetConfig(**settings)}


FURTHER: dict[str, Row | tuple] = {
    # encoders of texts
    "nomic_bert": ("NomicBertModel", "NomicBertConfig", {**WORDS, "pad_token_id": 0}, words),
    "gte": ("GteModel", "GteConfig", {**WORDS, "pad_token_id": 0}, words),
    "jina_v3": ("JinaEmbeddingsV3Model", "JinaEmbeddingsV3Config", {**WORDS, "pad_token_id": 1}, words),
    "eurobert": ("EuroBertModel", "EuroBertConfig", {**WORDS, **SPECIAL, "num_key_value_heads": 2}, words),
    "xlnet": ("XLNetModel", "XLNetConfig", {
        "vocab_size": 99, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, "use_mems_eval": False}, words),
    "xlm": ("XLMModel", "XLMConfig", {"vocab_size": 99, "emb_dim": 32, "n_layers": 2, "n_heads": 4,
        "max_position_embeddings": 64, "pad_index": 0}, words),
    "layoutlm": ("LayoutLMModel", "LayoutLMConfig", WORDS, page),
    "layoutlmv3": ("LayoutLMv3Model", "LayoutLMv3Config", {
        **WORDS, "visual_embed": False, "coordinate_size": 4, "shape_size": 8, "has_relative_attention_bias": True,
        "has_spatial_attention_bias": True, "max_2d_position_embeddings": 1024}, page),
    "convbert": ("ConvBertModel", "ConvBertConfig", {**WORDS, "embedding_size": 32, "conv_kernel_size": 3}, words),
    "megatron_bert": ("MegatronBertModel", "MegatronBertConfig", WORDS, words),
    "ibert": ("IBertModel", "IBertConfig", WORDS, words),
    "splinter": ("SplinterModel", "SplinterConfig", WORDS, words),
    "roberta_prelayernorm": ("RobertaPreLayerNormModel", "RobertaPreLayerNormConfig", WORDS, words),
    # decoders
    "gpt_bigcode": ("GPTBigCodeModel", "GPTBigCodeConfig", {
        "vocab_size": 99, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "use_cache": False}, words),
    "openai_gpt": ("OpenAIGPTModel", "OpenAIGPTConfig", {
        "vocab_size": 99, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}, words),
    "ctrl": ("CTRLModel", "CTRLConfig", {
        "vocab_size": 99, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "dff": 64, "use_cache": False},
        words),
    "olmo3": ("Olmo3Model", "Olmo3Config", {**GROUPED, "sliding_window": 4}, words),
    "ernie4_5": ("Ernie4_5Model", "Ernie4_5Config", {**GROUPED, "head_dim": 8}, words),
    "seed_oss": ("SeedOssModel", "SeedOssConfig", {**GROUPED, "head_dim": 8}, words),
    "arcee": ("ArceeModel", "ArceeConfig", GROUPED, words),
    "ministral3": ("Ministral3Model", "Ministral3Config", {**GROUPED, "head_dim": 8}, words),
    "hunyuan": ("HunYuanDenseV1Model", "HunYuanDenseV1Config", {**GROUPED, "head_dim": 8}, words),
    "gemma4": ("Gemma4TextModel", "Gemma4TextConfig", {
        **GROUPED, "head_dim": 8, "global_head_dim": 8, "sliding_window": 4, "vocab_size_per_layer_input": 99,
        "hidden_size_per_layer_input": 8}, words),
    "modernbert_decoder": ("ModernBertDecoderModel", "ModernBertDecoderConfig", {
        **CAUSAL, "local_attention": 4, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
        words),
    "llama4": ("Llama4TextModel", "Llama4TextConfig", {
        **GROUPED, **EXPERTS, "head_dim": 8, "intermediate_size_mlp": 64, "attention_chunk_size": 4}, words),
    "deepseek_v2": ("DeepseekV2Model", "DeepseekV2Config", {**LATENT, "topk_method": "greedy"}, words),
    "deepseek_v3": ("DeepseekV3Model", "DeepseekV3Config", LATENT, words),
    "granitemoe": ("GraniteMoeModel", "GraniteMoeConfig", {**GROUPED, **EXPERTS}, words),
    "phimoe": ("PhimoeModel", "PhimoeConfig", {**GROUPED, **EXPERTS}, words),
    "glm4_moe": ("Glm4MoeModel", "Glm4MoeConfig", {
        **GROUPED, "head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}, words),
    "ernie4_5_moe": ("Ernie4_5_MoeModel", "Ernie4_5_MoeConfig", {
        **GROUPED, "moe_num_experts": 4, "num_experts_per_tok": 2, "moe_k": 2, "moe_intermediate_size": 32,
        "moe_num_shared_experts": 1, "moe_layer_start_index": 1}, words),
    "laguna": ("LagunaModel", "LagunaConfig", {
        **GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 8, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32, "sliding_window": 4}, words),
    "mellum": ("MellumModel", "MellumConfig", {
        **GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 8, "moe_intermediate_size": 32,
        "sliding_window": 4}, words),
    "exaone_moe": ("ExaoneMoeModel", "ExaoneMoeConfig", {
        **GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 8, "moe_intermediate_size": 32,
        "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "sliding_window": 4}, words),
    # hybrids of attention and recurrences
    "lfm2": ("Lfm2Model", "Lfm2Config", {
        **GROUPED, "layer_types": ["conv", "full_attention"], "block_ff_dim": 64, "conv_L_cache": 3}, words),
    "jamba": ("JambaModel", "JambaConfig", {
        **GROUPED, "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
        "num_experts": 4, "num_experts_per_tok": 2, "use_mamba_kernels": False, "mamba_d_state": 4}, words),
    "bamba": ("BambaModel", "BambaConfig", {
        **GROUPED, "attn_layer_indices": [1], "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8}, words),
    "granite_hybrid": ("GraniteMoeHybridModel", "GraniteMoeHybridConfig", {
        **GROUPED, "layer_types": ["mamba", "attention"], "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8,
        "num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 64}, words),
    "qwen3_next": ("Qwen3NextModel", "Qwen3NextConfig", {
        **GROUPED, "head_dim": 8, "layer_types": ["linear_attention", "full_attention"], "linear_num_value_heads": 4,
        "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}, words),
    # images
    "dinov2_registers": ("Dinov2WithRegistersModel", "Dinov2WithRegistersConfig",
        {**PICTURE, "mlp_ratio": 2, "num_register_tokens": 2}, picture),
    "siglip_vision": ("SiglipVisionModel", "SiglipVisionConfig", PICTURE, picture),
    "clip_vision": ("CLIPVisionModel", "CLIPVisionConfig", PICTURE, picture),
    "blip_vision": ("BlipVisionModel", "BlipVisionConfig", PICTURE, picture),
    "internvl_vision": ("InternVLVisionModel", "InternVLVisionConfig",
        {**PICTURE, "image_size": [32, 32], "patch_size": [8, 8]}, picture),
    "videomae": ("VideoMAEModel", "VideoMAEConfig", {**PICTURE, "num_frames": 2, "tubelet_size": 2},
        lambda: {"pixel_values": torch.randn(2, 2, 3, 32, 32)}),
    "donut_swin": ("DonutSwinModel", "DonutSwinConfig", {
        "image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
        picture),
    "sam_vision": ("SamVisionModel", "SamVisionConfig", {
        **TINY, "image_size": 32, "patch_size": 4, "window_size": 3, "global_attn_indexes": [1], "mlp_dim": 64,
        "output_channels": 16}, picture),
    "sam2_vision": ("Sam2VisionModel", "Sam2VisionConfig", lambda: {
        "backbone_config": {
            "model_type": "sam2_hiera_det_model", "hidden_size": 8, "num_attention_heads": 1, "image_size": [64, 64],
            "blocks_per_stage": [1, 2, 2, 1], "embed_dim_per_stage": [8, 16, 32, 64], "num_query_pool_stages": 3,
            "num_attention_heads_per_stage": [1, 2, 4, 8], "window_size_per_stage": [4, 2, 4, 2],
            "global_attention_blocks": [4], "window_positional_embedding_background_size": [4, 4]},
        "backbone_channel_list": [64, 32, 16, 8], "fpn_hidden_size": 16, "num_feature_levels": 3,
        "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]]}, lambda: {"pixel_values": torch.randn(2, 3, 64, 64)}),
    "detr": ("DetrModel", "DetrConfig", lambda: {**DETECTOR, **resnet()}, picture),
    "conditional_detr": ("ConditionalDetrModel", "ConditionalDetrConfig", lambda: {**DETECTOR, **resnet()}, picture),
    "dpt": ("DPTModel", "DPTConfig", {**PICTURE, "is_hybrid": False}, picture),
    "perceiver": ("PerceiverModel", "PerceiverConfig", {
        "num_latents": 8, "d_latents": 32, "d_model": 16, "num_blocks": 1, "num_self_attends_per_block": 2,
        "num_self_attention_heads": 4, "num_cross_attention_heads": 4},
        lambda: {"inputs": torch.randn(2, 9, 16)}),
    # images and texts
    "vilt": ("ViltModel", "ViltConfig", {**WORDS, "image_size": 32, "patch_size": 8, "max_image_length": 16},
        seen_words),
    "blip_text": ("BlipTextModel", "BlipTextConfig", {
        **WORDS, "encoder_hidden_size": 32, "is_decoder": True, "use_cache": False},
        lambda: {**words(), "encoder_hidden_states": torch.randn(2, 9, 32)}),
    "git": ("GitModel", "GitConfig", {**WORDS, "vision_config": PICTURE, "use_cache": False}, seen_words),
    "chinese_clip": ("ChineseCLIPModel", "ChineseCLIPConfig",
        {"text_config": WORDS, "vision_config": PICTURE, "projection_dim": 16}, seen_words, "logits_per_image"),
    "owlv2": ("Owlv2Model", "Owlv2Config",
        {"text_config": WORDS, "vision_config": PICTURE, "projection_dim": 16}, seen_words, "logits_per_image"),
    "clipseg": ("CLIPSegModel", "CLIPSegConfig",
        {"text_config": WORDS, "vision_config": PICTURE, "projection_dim": 16}, seen_words, "logits_per_image"),
    # encoders with decoders
    "led": ("LEDModel", "LEDConfig", {
        **PAIR, "attention_window": 8, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64},
        lambda: {**words(32), "decoder_input_ids": torch.randint(3, 90, (2, 5))}),
    "longt5": ("LongT5Model", "LongT5Config", {
        "vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "use_cache": False,
        "decoder_start_token_id": 0, "local_radius": 4}, both_words),
    "umt5": ("UMT5Model", "UMT5Config", {
        "vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "use_cache": False,
        "decoder_start_token_id": 0}, both_words),
    "trocr": ("TrOCRForCausalLM", "TrOCRConfig", {
        "vocab_size": 99, "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 64,
        "max_position_embeddings": 64, "cross_attention_hidden_size": 32, "use_cache": False},
        lambda: {**words(), "encoder_hidden_states": torch.randn(2, 9, 32)}, "logits"),
    "musicgen": ("MusicgenForCausalLM", "MusicgenDecoderConfig", {
        "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "ffn_dim": 64, "num_attention_heads": 4,
        "num_codebooks": 2, "max_position_embeddings": 64, "use_cache": False},
        lambda: {"input_ids": torch.randint(3, 90, (4, 7)), "encoder_hidden_states": torch.randn(2, 9, 32)}, "logits"),
    # sounds
    "speecht5": ("SpeechT5ForSpeechToText", "SpeechT5Config", {
        **SOUND, **PAIR, "vocab_size": 99, "hidden_size": 32, "encoder_max_relative_position": 8, "num_mel_bins": 16,
        "max_speech_positions": 64, "max_text_positions": 64},
        lambda: {**sound(), "decoder_input_ids": torch.randint(3, 90, (2, 5))}, "logits"),
    "speech2text": ("Speech2TextModel", "Speech2TextConfig", {
        **{key: value for key, value in PAIR.items() if key != "max_position_embeddings"}, "conv_channels": 16,
        "max_source_positions": 64, "max_target_positions": 64}, spoken),
    "moonshine": ("MoonshineModel", "MoonshineConfig", {
        "vocab_size": 99, "hidden_size": 32, "intermediate_size": 64, "encoder_num_hidden_layers": 2,
        "decoder_num_hidden_layers": 2, "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4,
        "use_cache": False},
        lambda: {"input_values": torch.randn(2, 2000), "decoder_input_ids": torch.randint(3, 90, (2, 5))}),
    "wav2vec2_bert": ("Wav2Vec2BertModel", "Wav2Vec2BertConfig", {
        **TINY, "feature_projection_input_dim": 16, "vocab_size": 32, "left_max_position_embeddings": 8,
        "right_max_position_embeddings": 4, "layerdrop": 0.0}, lambda: {"input_features": torch.randn(2, 12, 16)}),
    "wav2vec2_conformer_rotary": ("Wav2Vec2ConformerModel", "Wav2Vec2ConformerConfig",
        {**SOUND, "position_embeddings_type": "rotary"}, sound),
    "parakeet": ("ParakeetEncoder", "ParakeetEncoderConfig", {
        **TINY, "num_mel_bins": 16, "subsampling_conv_channels": 8, "conv_kernel_size": 5},
        lambda: {"input_features": torch.randn(2, 64, 16)}),
    "clap_text": ("ClapTextModel", "ClapTextConfig", WORDS, words),
}  # fmt: skip
