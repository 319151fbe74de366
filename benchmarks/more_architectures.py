"""Architectures that no fusion was written for: what fusions make of them shows what the next export will meet.

Each is a small seeded configuration of a class of transformers, in the words of `exported_architectures.py`, which
exports them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

TINY = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 64}
WORDS = {**TINY, "vocab_size": 99, "max_position_embeddings": 64}
CAUSAL = {**WORDS, "use_cache": False, "pad_token_id": 0}
GROUPED = {**CAUSAL, "num_key_value_heads": 2}
PICTURE = {**TINY, "image_size": 32, "patch_size": 8}
PAIR = {
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "use_cache": False,
}  # fmt: skip
SOUND = {
    **TINY, "vocab_size": 32, "conv_dim": (16, 16), "conv_stride": (4, 2), "conv_kernel": (8, 4),
    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2,
    "apply_spec_augment": False, "layerdrop": 0.0,
}  # fmt: skip
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
FEW = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 1}


def words(length: int = 7) -> dict[str, torch.Tensor]:
    """Return ids of two sentences, the second of them padded."""
    allowed = torch.ones(2, length, dtype=torch.int64)
    allowed[1, length - 2 :] = 0
    return {"input_ids": torch.randint(3, 90, (2, length)), "attention_mask": allowed}


def many_words() -> dict[str, torch.Tensor]:
    """Return sentences of a length that windows and blocks divide."""
    return words(32)


def both_words() -> dict[str, torch.Tensor]:
    """Return ids for an encoder and a decoder."""
    return {**words(), "decoder_input_ids": torch.randint(3, 90, (2, 5))}


def picture() -> dict[str, torch.Tensor]:
    """Return two images."""
    return {"pixel_values": torch.randn(2, 3, 32, 32)}


def sound() -> dict[str, torch.Tensor]:
    """Return two pieces of sound."""
    return {"input_values": torch.randn(2, 400)}


def series() -> dict[str, torch.Tensor]:
    """Return two series of numbers."""
    return {"past_values": torch.randn(2, 32, 3)}


Row = tuple[str, str, Mapping[str, Any], Callable[[], dict[str, torch.Tensor]]]
ROWS: dict[str, Row | tuple[str, str, Mapping[str, Any], Callable[[], dict[str, torch.Tensor]], str]] = {
    "falcon": ("FalconModel", "FalconConfig", {
        "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "use_cache": False}, words),
    "mpt": ("MptModel", "MptConfig", {
        "vocab_size": 99, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64, "use_cache": False}, words),
    "stablelm": ("StableLmModel", "StableLmConfig", GROUPED, words),
    "cohere": ("CohereModel", "CohereConfig", GROUPED, words),
    "cohere2": ("Cohere2Model", "Cohere2Config", {**GROUPED, "sliding_window": 4}, words),
    "granite": ("GraniteModel", "GraniteConfig", {**GROUPED, "attention_multiplier": 0.3}, words),
    "olmo": ("OlmoModel", "OlmoConfig", GROUPED, words),
    "olmo2": ("Olmo2Model", "Olmo2Config", GROUPED, words),
    "starcoder2": ("Starcoder2Model", "Starcoder2Config", GROUPED, words),
    "nemotron": ("NemotronModel", "NemotronConfig", {**GROUPED, "head_dim": 8}, words),
    "glm": ("GlmModel", "GlmConfig", {**GROUPED, "head_dim": 8}, words),
    "glm4": ("Glm4Model", "Glm4Config", {**GROUPED, "head_dim": 8}, words),
    "gptj": ("GPTJModel", "GPTJConfig", {
        "vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "rotary_dim": 4,
        "use_cache": False}, words),
    "gpt_neo": ("GPTNeoModel", "GPTNeoConfig", {
        "vocab_size": 99, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 64,
        "attention_types": [[["global", "local"], 1]], "window_size": 4, "use_cache": False}, words),
    "codegen": ("CodeGenModel", "CodeGenConfig", {
        "vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "rotary_dim": 4,
        "use_cache": False}, words),
    "smollm3": ("SmolLM3Model", "SmolLM3Config", GROUPED, words),
    "gpt_oss": ("GptOssModel", "GptOssConfig", {**GROUPED, **EXPERTS, "head_dim": 8, "sliding_window": 4}, words),
    "qwen2_moe": (
        "Qwen2MoeModel", "Qwen2MoeConfig", {**GROUPED, **FEW, "shared_expert_intermediate_size": 32}, words,
    ),
    "qwen3_moe": ("Qwen3MoeModel", "Qwen3MoeConfig", {**GROUPED, **FEW, "head_dim": 8}, words),
    "olmoe": ("OlmoeModel", "OlmoeConfig", {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2}, words),
    "mixtral": ("MixtralModel", "MixtralConfig", {**GROUPED, **EXPERTS}, words),
    "helium": ("HeliumModel", "HeliumConfig", {**GROUPED, "head_dim": 8}, words),
    "persimmon": ("PersimmonModel", "PersimmonConfig", CAUSAL, words),
    "exaone4": ("Exaone4Model", "Exaone4Config", {**GROUPED, "sliding_window": 4}, words),
    "biogpt": ("BioGptModel", "BioGptConfig", CAUSAL, words),
    "xglm": ("XGLMModel", "XGLMConfig", {
        "vocab_size": 99, "d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 64,
        "max_position_embeddings": 64, "use_cache": False}, words),
    "mobilebert": ("MobileBertModel", "MobileBertConfig", {
        **WORDS, "embedding_size": 16, "intra_bottleneck_size": 32, "num_feedforward_networks": 2}, words),
    "squeezebert": ("SqueezeBertModel", "SqueezeBertConfig", {**WORDS, "embedding_size": 32}, words),
    "xlm_roberta": ("XLMRobertaModel", "XLMRobertaConfig", WORDS, words),
    "camembert": ("CamembertModel", "CamembertConfig", WORDS, words),
    "deberta1": ("DebertaModel", "DebertaConfig", {
        **WORDS, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, words),
    "longformer": ("LongformerModel", "LongformerConfig", {**WORDS, "attention_window": 8}, many_words),
    "big_bird": ("BigBirdModel", "BigBirdConfig", {**WORDS, "attention_type": "original_full"}, many_words),
    "modernbert": ("ModernBertModel", "ModernBertConfig", {
        **WORDS, "local_attention": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1,
        "sep_token_id": 2, "reference_compile": False}, words),
    "data2vec_text": ("Data2VecTextModel", "Data2VecTextConfig", WORDS, words),
    "ernie": ("ErnieModel", "ErnieConfig", WORDS, words),
    "esm": ("EsmModel", "EsmConfig", {
        **WORDS, "position_embedding_type": "rotary", "pad_token_id": 1, "mask_token_id": 2}, words),
    "roformer": ("RoFormerModel", "RoFormerConfig", WORDS, words),
    "nystromformer": ("NystromformerModel", "NystromformerConfig",
        {**WORDS, "num_landmarks": 4, "segment_means_seq_len": 32}, many_words),
    "fnet": ("FNetModel", "FNetConfig", WORDS, lambda: {"input_ids": torch.randint(3, 90, (2, 8))}),
    "funnel": ("FunnelBaseModel", "FunnelConfig", {
        "vocab_size": 99, "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64, "block_sizes": [1, 1]}, words),
    "rembert": ("RemBertModel", "RemBertConfig", {
        **WORDS, "input_embedding_size": 16, "output_embedding_size": 16}, words),
    "data2vec_vision": ("Data2VecVisionModel", "Data2VecVisionConfig",
        {**PICTURE, "use_relative_position_bias": True}, picture),
    "convnext": ("ConvNextModel", "ConvNextConfig",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}, picture),
    "convnextv2": ("ConvNextV2Model", "ConvNextV2Config",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}, picture),
    "segformer": ("SegformerModel", "SegformerConfig", {
        "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [16, 32], "patch_sizes": [3, 3],
        "strides": [2, 2], "num_attention_heads": [2, 4], "mlp_ratios": [2, 2]}, picture),
    "pvt": ("PvtModel", "PvtConfig", {
        "image_size": 32, "num_encoder_blocks": 2, "depths": [1, 1], "sequence_reduction_ratios": [2, 1],
        "hidden_sizes": [16, 32], "patch_sizes": [4, 2], "strides": [4, 2], "num_attention_heads": [2, 4],
        "mlp_ratios": [2, 2]}, picture),
    "dinov3": ("DINOv3ViTModel", "DINOv3ViTConfig", {**PICTURE, "num_register_tokens": 2}, picture),
    "vit_mae": ("ViTMAEModel", "ViTMAEConfig", {**PICTURE, "mask_ratio": 0.0}, picture),
    "levit": ("LevitModel", "LevitConfig", {
        "image_size": 32, "hidden_sizes": [16, 24, 32], "num_attention_heads": [2, 3, 4], "depths": [1, 1, 1],
        "key_dim": [8, 8, 8]}, picture),
    "mobilevit": ("MobileViTModel", "MobileViTConfig", {
        "image_size": 32, "hidden_sizes": [16, 16, 16], "neck_hidden_sizes": [8, 8, 8, 16, 16, 16, 32]}, picture),
    "poolformer": ("PoolFormerModel", "PoolFormerConfig",
        {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}, picture),
    "swinv2": ("Swinv2Model", "Swinv2Config", {
        "image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
        picture),
    "ijepa": ("IJepaModel", "IJepaConfig", PICTURE, picture),
    "yolos": ("YolosModel", "YolosConfig", {**PICTURE, "image_size": [32, 32], "num_detection_tokens": 4}, picture),
    "hiera": ("HieraModel", "HieraConfig", {
        "image_size": [32, 32], "patch_size": [7, 7], "embed_dim": 16, "depths": [1, 1], "num_heads": [1, 2],
        "masked_unit_size": [2, 2], "query_stride": [2, 2], "num_query_pool": 1, "mlp_ratio": 2.0}, picture),
    "pegasus": ("PegasusModel", "PegasusConfig", PAIR, both_words),
    "mbart": ("MBartModel", "MBartConfig", PAIR, both_words),
    "marian": ("MarianModel", "MarianConfig", PAIR, both_words),
    "m2m_100": ("M2M100Model", "M2M100Config", PAIR, both_words),
    "blenderbot": ("BlenderbotModel", "BlenderbotConfig", PAIR, both_words),
    "prophetnet": ("ProphetNetModel", "ProphetNetConfig", {
        "vocab_size": 99, "hidden_size": 32, "num_encoder_layers": 2, "num_decoder_layers": 2,
        "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4, "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64, "max_position_embeddings": 64, "use_cache": False, "pad_token_id": 0}, both_words),
    "mt5": ("MT5Model", "MT5Config", {
        "vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "use_cache": False,
        "decoder_start_token_id": 0}, both_words),
    "wavlm": ("WavLMModel", "WavLMConfig", SOUND, sound),
    "unispeech": ("UniSpeechModel", "UniSpeechConfig", SOUND, sound),
    "sew": ("SEWModel", "SEWConfig", {**SOUND, "squeeze_factor": 2}, sound),
    "data2vec_audio": ("Data2VecAudioModel", "Data2VecAudioConfig", SOUND, sound),
    "audio_spectrogram": ("ASTModel", "ASTConfig", {
        **TINY, "patch_size": 4, "frequency_stride": 4, "time_stride": 4, "max_length": 16, "num_mel_bins": 16},
        lambda: {"input_values": torch.randn(2, 16, 16)}),
    "patchtst": ("PatchTSTModel", "PatchTSTConfig", {
        "num_input_channels": 3, "context_length": 32, "d_model": 32, "num_attention_heads": 4, "ffn_dim": 64,
        "num_hidden_layers": 2, "patch_length": 4, "patch_stride": 4}, series),
    "mamba": ("MambaModel", "MambaConfig", {
        "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "use_cache": False},
        lambda: {"input_ids": torch.randint(3, 90, (2, 7))}),
    "rwkv": ("RwkvModel", "RwkvConfig", {
        "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "use_cache": False},
        lambda: {"input_ids": torch.randint(3, 90, (2, 7))}),
    "recurrent_gemma": ("RecurrentGemmaModel", "RecurrentGemmaConfig",
        {**GROUPED, "lru_width": 32, "attention_window_size": 4}, words),
}  # fmt: skip
