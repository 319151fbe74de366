"""Random configurations of the families that ``genai_numpy_decoder`` knows, with weights: sizes of any kind."""

from __future__ import annotations

import json
import random
from pathlib import Path

import genai_tiny_models
import numpy as np
from genai_tiny_models import write_tokenizer
from safetensors.numpy import save_file

FAMILIES = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM", "phi3": "Phi3ForCausalLM", "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM", "gemma3_text": "Gemma3ForCausalLM", "granite": "GraniteForCausalLM",
    "olmo2": "Olmo2ForCausalLM", "smollm3": "SmolLM3ForCausalLM", "mixtral": "MixtralForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}  # fmt: skip
_SCALINGS = (
    None, {"rope_type": "default"}, {"type": "dynamic", "factor": 2.0}, {"rope_type": "linear", "factor": 7.5},
    {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
)  # fmt: skip
_COMMON = {"bos_token_id": 284, "eos_token_id": 285, "pad_token_id": 286, "torch_dtype": "float32"}


def random_configuration(family: str, seed: int) -> dict[str, object]:
    """Return ``config.json`` of a family with sizes of any kind."""
    source = random.Random(f"{family} {seed}")
    pick, may = source.choice, lambda share: source.random() < share
    shared, layers, size = pick((1, 2, 3)), pick((1, 2, 3)), pick((2, 6, 8, 10, 16, 20, 34, 48, 64, 80, 96))
    is_gemma, window = "gemma" in family, pick((1, 2, 3, 6, 17, 100000))
    config = {
        **_COMMON, "architectures": [FAMILIES[family]], "model_type": family, "num_hidden_layers": layers,
        "num_key_value_heads": shared, "num_attention_heads": shared * pick((1, 2, 3, 5)), "head_dim": size,
        "hidden_size": pick((16, 33, 40, 64, 72, 96, 100)), "intermediate_size": pick((1, 17, 32, 40, 96, 130)),
        "vocab_size": pick((288, 289, 301, 511)), "max_position_embeddings": pick((64, 128, 2048)),
        "rms_norm_eps": pick((1e-5, 1e-6, 0.1)), "rope_theta": pick((500.0, 10000.0, 1e6)), "sliding_window": window,
        "hidden_act": "gelu_pytorch_tanh" if is_gemma else "silu", "tie_word_embeddings": is_gemma or may(0.5),
    }  # fmt: skip
    if family in ("llama", "qwen2", "smollm3", "granite"):
        config["hidden_act"] = pick(("silu", "silu", "gelu", "gelu_pytorch_tanh", "relu", "relu2"))
    if family in ("llama", "qwen2", "qwen3", "granite", "olmo2", "mistral"):
        config["rope_scaling"] = pick(_SCALINGS)
    if family in ("llama", "granite", "smollm3"):
        config.update(attention_bias=may(0.4), mlp_bias=may(0.4))
    if family in ("llama", "phi3") and size % 8 == 0:
        config["partial_rotary_factor"] = pick((1.0, 0.5, 0.25, 0.75))
    if family in ("mistral", "phi3", "mixtral") and may(0.3):
        config["sliding_window"] = None
    return {**config, **_of_family(family, source, layers)}


def _of_family(family: str, source: random.Random, layers: int) -> dict[str, object]:
    pick, experts = source.choice, source.choice((1, 2, 3, 5))
    caps = {"attn_logit_softcapping": pick((None, 5.0)), "final_logit_softcapping": pick((None, 4.0))}
    gemma = {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": pick((16, 24, 256))}
    further: dict[str, dict[str, object]] = {
        "qwen2": {"use_sliding_window": pick((True, False)), "max_window_layers": pick((0, 1, 28))},
        "gemma2": {**gemma, **caps},
        "gemma3_text": {**gemma, "sliding_window_pattern": pick((1, 2, 3)), "rope_local_base_freq": 500.0},
        "granite": {
            "attention_multiplier": pick((0.2, 1.0)), "embedding_multiplier": pick((1.0, 3.0)),
            "residual_multiplier": pick((0.4, 1.0)), "logits_scaling": pick((1.0, 2.0)),
        },
        "smollm3": {"no_rope_layers": [pick((0, 1)) for _ in range(layers)], "use_sliding_window": False},
        "mixtral": {"num_local_experts": experts, "num_experts_per_tok": source.randint(1, experts)},
        "qwen3_moe": {
            "num_experts": experts, "num_experts_per_tok": source.randint(1, experts), "mlp_only_layers": [],
            "moe_intermediate_size": pick((16, 24, 33)), "norm_topk_prob": pick((True, False)),
            "decoder_sparse_step": 1, "use_sliding_window": False,
        },
    }  # fmt: skip
    if family == "gemma3_text":
        further[family].update(attn_logit_softcapping=None, final_logit_softcapping=None)
    return further.get(family, {})


def write_random_checkpoint(folder: Path, config: dict[str, object], seed: int = 0) -> dict[str, np.ndarray]:
    """Write a checkpoint of a configuration, and return its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    source, is_offset = np.random.default_rng(seed), "gemma" in str(config["model_type"])
    weights = {
        name: genai_tiny_models.filled(source, name, shape, is_offset)
        for name, shape in genai_tiny_models.shapes(config)
    }
    save_file(weights, folder / "model.safetensors")
    write_tokenizer(folder)
    return weights
