"""Checkpoints of every family with two or more layers and seeded weights: a few hundred kilobytes, written in a moment.

``record_expected.py`` has transformers compute what they answer.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

VOCABULARY = 288  # bytes, then pairs, then special tokens
PROMPTS = ([5], [7, 101, 33, 250, 12], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2])
STEPS = 8
_BASE = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": VOCABULARY, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 284, "eos_token_id": 285,
    "pad_token_id": 286, "torch_dtype": "float32",
}  # fmt: skip
_LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
_LONG = {"type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.5, 1.9, 2.0, 2.2, 2.5], "long_factor": [4.0] * 8}
FAMILIES: dict[str, dict[str, object]] = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
    "llama_tied": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "tie_word_embeddings": True},
    "llama3": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "rope_scaling": _LLAMA3},
    "llama_linear": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "rope_scaling": {"rope_type": "linear", "factor": 4.0},
        "attention_bias": True, "mlp_bias": True,
    },
    "llama_yarn": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "rope_scaling": _YARN},
    "mistral": {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 6, "head_dim": 32},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 32},
    "phi3": {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "sliding_window": 7},
    "phi3_long": {
        "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "rope_scaling": _LONG, "sliding_window": None,
        "original_max_position_embeddings": 64,
    },
    "gemma": {
        "architectures": ["GemmaForCausalLM"], "model_type": "gemma", "tie_word_embeddings": True, "head_dim": 32,
        "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
    },
    "gemma2": {
        "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "tie_word_embeddings": True, "head_dim": 32,
        "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 6, "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": 5.0, "final_logit_softcapping": 4.0, "num_hidden_layers": 4,
    },
    "gemma3": {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "tie_word_embeddings": True,
        "head_dim": 32,
        "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 6, "query_pre_attn_scalar": 24,
        "sliding_window_pattern": 3, "num_hidden_layers": 4, "rope_local_base_freq": 500.0, "rope_theta": 20000.0,
    },
    "granite": {
        "architectures": ["GraniteForCausalLM"], "model_type": "granite", "attention_multiplier": 0.2,
        "embedding_multiplier": 3.0, "residual_multiplier": 0.4, "logits_scaling": 2.0,
    },
    "olmo": {"architectures": ["OlmoForCausalLM"], "model_type": "olmo", "clip_qkv": 0.8},
    "olmo2": {"architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2"},
    "smollm3": {
        "architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "no_rope_layers": [1, 0, 1, 1],
        "num_hidden_layers": 4, "no_rope_layer_interval": 2,
    },
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 64,
        "n_positions": 128, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "tie_word_embeddings": True,
    },
    "phi4": {
        "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "tie_word_embeddings": True, "head_dim": 64,
        "partial_rotary_factor": 0.75, "sliding_window": None, "original_max_position_embeddings": 128,
    },
    "olmo3": {
        "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "num_hidden_layers": 4, "sliding_window": 6,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"], "rope_scaling": _YARN, "rope_theta": 500000.0,
    },
    "nemotron": {
        "architectures": ["NemotronForCausalLM"], "model_type": "nemotron", "hidden_act": "relu2", "norm_eps": 1e-4,
        "head_dim": 32, "partial_rotary_factor": 0.5,
    },
    "arcee": {"architectures": ["ArceeForCausalLM"], "model_type": "arcee", "hidden_act": "relu2"},
    "ernie": {"architectures": ["Ernie4_5ForCausalLM"], "model_type": "ernie4_5", "head_dim": 32},
    "helium": {"architectures": ["HeliumForCausalLM"], "model_type": "helium", "head_dim": 16},
    "glm": {
        "architectures": ["GlmForCausalLM"], "model_type": "glm", "head_dim": 32, "partial_rotary_factor": 0.5,
        "attention_bias": True,
    },
    "glm4": {
        "architectures": ["Glm4ForCausalLM"], "model_type": "glm4", "head_dim": 32, "partial_rotary_factor": 0.5,
        "attention_bias": True,
    },
    "seed_oss": {
        "architectures": ["SeedOssForCausalLM"], "model_type": "seed_oss", "head_dim": 32, "attention_bias": True,
        "attention_out_bias": False,
    },
    "gpt_oss": {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "head_dim": 32, "num_local_experts": 4,
        "num_experts_per_tok": 2, "sliding_window": 6, "attention_bias": True,
        "layer_types": ["sliding_attention", "full_attention"], "swiglu_limit": 1.0,
        "rope_scaling": {**_YARN, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False},
    },
    "mixtral": {
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": None,
    },
    "qwen3_moe_in_some": {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "head_dim": 16, "num_local_experts": 3,
        "num_experts_per_tok": 2, "moe_intermediate_size": 48, "decoder_sparse_step": 2, "mlp_only_layers": [3],
        "num_hidden_layers": 4, "use_sliding_window": True, "sliding_window": 5,
    },
    "qwen2_moe": {
        "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 48, "shared_expert_intermediate_size": 40,
        "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1,
    },
    "llama_dynamic": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "relu",
        "rope_scaling": {"type": "dynamic", "factor": 4.0},
    },
    "gemma_with_nulls": {
        "architectures": ["GemmaForCausalLM"], "model_type": "gemma", "tie_word_embeddings": True, "head_dim": 32,
        "hidden_act": "gelu", "hidden_activation": None,
    },
    "gpt2_scaled": {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 64,
        "n_positions": 128, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "tie_word_embeddings": True,
        "scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False,
    },
    "smollm3_windows": {
        "architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "no_rope_layers": [1, 0, 1, 0],
        "num_hidden_layers": 4, "use_sliding_window": True, "sliding_window": 5,
    },
    "qwen2_windows": {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 5,
        "max_window_layers": 1, "layer_types": None,
    },
    "qwen3_moe": {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "head_dim": 16, "num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 48, "norm_topk_prob": True, "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
}  # fmt: skip


def configuration(family: str) -> dict[str, object]:
    """Return ``config.json`` of a family."""
    return {**_BASE, **FAMILIES[family]}


def write_checkpoint(folder: Path, family: str) -> Path:
    """Write config.json, weights and a tokenizer, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    config = configuration(family)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    random = np.random.default_rng(7)
    is_offset = "gemma" in family or family == "nemotron"
    save_file(
        {name: filled(random, name, shape, is_offset) for name, shape in shapes(config)}, folder / "model.safetensors"
    )
    write_tokenizer(folder)
    return folder


def filled(random: np.random.Generator, name: str, shape: tuple[int, ...], is_offset: bool) -> np.ndarray:
    """Return random numbers of a tensor; norms are about 1, or about 0 where 1 is added to them."""
    found = random.standard_normal(shape).astype(np.float32)
    if len(shape) == 1:
        is_weight = name.endswith("weight")
        return found * np.float32(0.2) + np.float32(is_weight and not is_offset)
    return found * np.float32(1.6 / np.sqrt(shape[-1]))


def shapes(config: dict[str, object]) -> list[tuple[str, tuple[int, ...]]]:
    """Return names and shapes of a checkpoint."""
    if config["model_type"] == "gpt2":
        return _gpt2_shapes()
    kind = str(config["model_type"])
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    size = config.get("head_dim", hidden // config["num_attention_heads"])
    queries, keys = size * config["num_attention_heads"], size * config["num_key_value_heads"]
    vocabulary = config["vocab_size"]
    found = [("model.embed_tokens.weight", (vocabulary, hidden))]
    for place in range(config["num_hidden_layers"]):
        start = f"model.layers.{place}"
        found += _attention_shapes(kind, f"{start}.self_attn", (hidden, queries, keys, size), config)
        found += _norm_shapes(kind, start, hidden)
        found += _product_shapes("llama" if place in _plain_layers(config) else kind, start, hidden, inner, config)
    if kind != "olmo":
        found.append(("model.norm.weight", (hidden,)))
    if kind == "nemotron":
        found.append(("model.norm.bias", (hidden,)))
    if config["tie_word_embeddings"] is False:
        found.append(("lm_head.weight", (vocabulary, hidden)))
    return found


def _plain_layers(config):
    every = config.get("decoder_sparse_step", 1)
    chosen = [place for place in range(config["num_hidden_layers"]) if (place + 1) % every]
    return [*chosen, *config.get("mlp_only_layers", [])]


def _attention_shapes(kind, start, sizes, config):
    hidden, queries, keys, size = sizes
    if kind == "phi3":
        return [
            (f"{start}.qkv_proj.weight", (queries + 2 * keys, hidden)),
            (f"{start}.o_proj.weight", (hidden, queries)),
        ]
    parts = {"q": (queries, hidden), "k": (keys, hidden), "v": (keys, hidden), "o": (hidden, queries)}
    found = [(f"{start}.{part}_proj.weight", shape) for part, shape in parts.items()]
    if kind in ("qwen2", "qwen2_moe"):
        found += [(f"{start}.{part}_proj.bias", (parts[part][0],)) for part in "qkv"]
    if config.get("attention_bias"):
        biased = "qkv" if kind in ("glm", "glm4", "seed_oss") else "qkvo"
        found += [(f"{start}.{part}_proj.bias", (parts[part][0],)) for part in biased]
    if kind == "gpt_oss":
        found.append((f"{start}.sinks", (config["num_attention_heads"],)))
    if kind in ("qwen3", "qwen3_moe", "gemma3_text"):
        found += [(f"{start}.{part}_norm.weight", (size,)) for part in "qk"]
    if kind in ("olmo2", "olmo3"):
        found += [(f"{start}.q_norm.weight", (queries,)), (f"{start}.k_norm.weight", (keys,))]
    return found


def _norm_shapes(kind, start, hidden):
    names = ["input_layernorm", "post_attention_layernorm"]
    if kind == "olmo":
        names = []
    if kind in ("olmo2", "olmo3"):
        names = ["post_attention_layernorm", "post_feedforward_layernorm"]
    if kind in ("gemma2", "gemma3_text"):
        names += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    if kind == "glm4":
        names += ["post_self_attn_layernorm", "post_mlp_layernorm"]
    parts = ("weight", "bias") if kind == "nemotron" else ("weight",)
    return [(f"{start}.{name}.{part}", (hidden,)) for name in names for part in parts]


def _product_shapes(kind, start, hidden, inner, config):
    if kind == "mixtral":
        found = [(f"{start}.block_sparse_moe.gate.weight", (config["num_local_experts"], hidden))]
        for number in range(config["num_local_experts"]):
            name = f"{start}.block_sparse_moe.experts.{number}"
            found += [
                (f"{name}.w{part}.weight", (hidden, inner) if part == 2 else (inner, hidden)) for part in (1, 2, 3)
            ]
        return found
    if kind in ("qwen3_moe", "qwen2_moe"):
        experts = config.get("num_experts") or config["num_local_experts"]
        found = [(f"{start}.mlp.gate.weight", (experts, hidden))]
        for number in range(experts):
            found += _gated(f"{start}.mlp.experts.{number}", hidden, config["moe_intermediate_size"])
        if kind == "qwen2_moe":
            found += _gated(f"{start}.mlp.shared_expert", hidden, config["shared_expert_intermediate_size"])
            found.append((f"{start}.mlp.shared_expert_gate.weight", (1, hidden)))
        return found
    if kind == "gpt_oss":
        experts, start = config["num_local_experts"], f"{start}.mlp"
        return [
            (f"{start}.router.weight", (experts, hidden)), (f"{start}.router.bias", (experts,)),
            (f"{start}.experts.gate_up_proj", (experts, hidden, 2 * inner)),
            (f"{start}.experts.gate_up_proj_bias", (experts, 2 * inner)),
            (f"{start}.experts.down_proj", (experts, inner, hidden)),
            (f"{start}.experts.down_proj_bias", (experts, hidden)),
        ]  # fmt: skip
    if kind in ("nemotron", "arcee"):
        return [(f"{start}.mlp.up_proj.weight", (inner, hidden)), (f"{start}.mlp.down_proj.weight", (hidden, inner))]
    if kind in ("phi3", "glm", "glm4"):
        shape = (2 * inner, hidden)
        return [(f"{start}.mlp.gate_up_proj.weight", shape), (f"{start}.mlp.down_proj.weight", (hidden, inner))]
    found = _gated(f"{start}.mlp", hidden, inner)
    if config.get("mlp_bias"):
        found += [(name.replace("weight", "bias"), shape[:1]) for name, shape in found]
    return found


def _gated(start, hidden, inner):
    parts = (("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner)))
    return [(f"{start}.{part}_proj.weight", shape) for part, shape in parts]


def _gpt2_shapes():
    found = [("transformer.wte.weight", (VOCABULARY, 64)), ("transformer.wpe.weight", (128, 64))]
    for place in range(2):
        start = f"transformer.h.{place}"
        for name in ("ln_1", "ln_2"):
            found += [(f"{start}.{name}.weight", (64,)), (f"{start}.{name}.bias", (64,))]
        products = {"attn.c_attn": (64, 192), "attn.c_proj": (64, 64), "mlp.c_fc": (64, 256), "mlp.c_proj": (256, 64)}
        for name, shape in products.items():
            found += [(f"{start}.{name}.weight", shape), (f"{start}.{name}.bias", shape[1:])]
    return [*found, ("transformer.ln_f.weight", (64,)), ("transformer.ln_f.bias", (64,))]


TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer of all bytes, a few pairs, and the tokens of a chat."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [("t", "h"), ("th", "e"), ("i", "n"), ("a", "n"), ("Ġ", "the"), ("e", "r"), ("o", "n"), ("r", "e")]
    tokens = alphabet + ["".join(pair) for pair in pairs]
    tokens += [f"<|unused{place}|>" for place in range(VOCABULARY - 4 - len(tokens))]
    special = ["<|bos|>", "<|im_end|>", "<|pad|>", "<|im_start|>"]
    tokens += special
    made = Tokenizer(models.BPE({token: place for place, token in enumerate(tokens)}, pairs))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    made.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "GPT2Tokenizer", "bos_token": "<|bos|>", "eos_token": "<|im_end|>", "pad_token": "<|pad|>",
        "chat_template": TEMPLATE,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
