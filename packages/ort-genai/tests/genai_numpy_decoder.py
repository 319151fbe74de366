"""Decoders of text in plain numpy, float64, by the formulas of transformers: the truth of random architectures.

All tokens are read at once, without caches.
"""

from __future__ import annotations

import math

import numpy as np

Config = dict[str, object]
Weights = dict[str, np.ndarray]
_GEMMAS = ("gemma2", "gemma3_text")
_ACTIVATIONS = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "gelu_pytorch_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def logits_of(config: Config, weights: Weights, tokens: list[int]) -> np.ndarray:
    """Return the logits (n, vocabulary) behind each token."""
    return NumpyDecoder(config, weights).logits(tokens)


class NumpyDecoder:
    """A decoder of a configuration's family."""

    def __init__(self, config: Config, weights: Weights) -> None:
        self.config, self.kind = config, str(config["model_type"])
        self.weights = {name: value.astype(np.float64) for name, value in weights.items()}

    def logits(self, tokens: list[int]) -> np.ndarray:
        config, kind = self.config, self.kind
        table = self.weights["model.embed_tokens.weight"]
        stream = table[tokens] * (math.sqrt(config["hidden_size"]) if "gemma" in kind else 1)
        stream = stream * config.get("embedding_multiplier", 1)
        for place in range(config["num_hidden_layers"]):
            stream = self._layer(stream, place)
        head = table if config["tie_word_embeddings"] else self.weights["lm_head.weight"]
        found = self._norm(stream, "model.norm") @ head.T / config.get("logits_scaling", 1)
        return _capped(found, config.get("final_logit_softcapping") if kind in _GEMMAS else None)

    def _layer(self, stream: np.ndarray, place: int) -> np.ndarray:
        kind, start = self.kind, f"model.layers.{place}"
        scale = self.config.get("residual_multiplier", 1)
        has_norms_behind = kind in (*_GEMMAS, "olmo2")
        before_mlp = "pre_feedforward_layernorm" if kind in _GEMMAS else "post_attention_layernorm"
        for step, before, behind in (
            (self._attention, "input_layernorm", "post_attention_layernorm"),
            (self._mlp, before_mlp, "post_feedforward_layernorm"),
        ):
            given = stream if kind == "olmo2" else self._norm(stream, f"{start}.{before}")
            added = step(given, place)
            stream = stream + scale * (self._norm(added, f"{start}.{behind}") if has_norms_behind else added)
        return stream

    def _norm(self, value: np.ndarray, name: str) -> np.ndarray:
        size = np.sqrt((value * value).mean(-1, keepdims=True) + self.config["rms_norm_eps"])
        return value / size * (self.weights[f"{name}.weight"] + ("gemma" in self.kind))

    def _product(self, value: np.ndarray, name: str) -> np.ndarray:
        return value @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0)

    def _attention(self, value: np.ndarray, place: int) -> np.ndarray:
        config, start = self.config, f"model.layers.{place}.self_attn"
        heads, shared, size = (config[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim"))
        queries, keys, values = self._queries_keys_values(value, start, heads * size, shared * size)
        queries, keys, values = (each.reshape(len(value), -1, size) for each in (queries, keys, values))
        if self.kind in ("qwen3", "qwen3_moe", "gemma3_text"):
            queries, keys = self._norm(queries, f"{start}.q_norm"), self._norm(keys, f"{start}.k_norm")
        queries, keys = self._rotated(queries, place), self._rotated(keys, place)
        keys, values = (np.repeat(each, heads // shared, 1) for each in (keys, values))
        scores = np.einsum("qhd,khd->hqk", queries, keys) * self._scale()
        scores = _capped(scores, config.get("attn_logit_softcapping") if self.kind == "gemma2" else None)
        behind = np.arange(len(value))[:, None] - np.arange(len(value))
        window = self._window(place)
        is_seen = (behind >= 0) & (behind < (len(value) if window is None else window))
        shares = np.exp(np.where(is_seen, scores, -np.inf) - scores.max(-1, keepdims=True, where=is_seen, initial=-1e9))
        shares = shares / shares.sum(-1, keepdims=True)
        return self._product(np.einsum("hqk,khd->qhd", shares, values).reshape(len(value), -1), f"{start}.o_proj")

    def _queries_keys_values(self, value, start, wide, narrow):
        if self.kind == "phi3":
            return np.split(self._product(value, f"{start}.qkv_proj"), [wide, wide + narrow], -1)
        queries, keys, values = (self._product(value, f"{start}.{letter}_proj") for letter in "qkv")
        if self.kind == "olmo2":
            queries, keys = self._norm(queries, f"{start}.q_norm"), self._norm(keys, f"{start}.k_norm")
        return queries, keys, values

    def _scale(self) -> float:
        scalar = self.config["query_pre_attn_scalar"] if self.kind in _GEMMAS else self.config["head_dim"]
        return self.config.get("attention_multiplier", scalar**-0.5)

    def _window(self, place: int) -> int | None:
        config = self.config
        is_windowed = {
            "mistral": True, "phi3": True, "mixtral": True, "gemma2": place % 2 == 0,
            "gemma3_text": (place + 1) % config.get("sliding_window_pattern", 6) != 0,
            "qwen2": bool(config.get("use_sliding_window")) and place >= config.get("max_window_layers", 28),
        }  # fmt: skip
        return config["sliding_window"] if is_windowed.get(self.kind) else None

    def _rotated(self, value: np.ndarray, place: int) -> np.ndarray:
        config = self.config
        is_local = self.kind == "gemma3_text" and self._window(place) is not None
        if not config.get("no_rope_layers", [1] * 99)[place]:
            return value
        width = int(config["head_dim"] * config.get("partial_rotary_factor", 1))
        theta = config["rope_local_base_freq"] if is_local else config["rope_theta"]
        frequencies = theta ** -(np.arange(0, width, 2) / width)
        frequencies = frequencies if is_local else _scaled(frequencies, config.get("rope_scaling") or {})
        angles = np.arange(len(value))[:, None, None] * frequencies
        first, second, rest = value[..., : width // 2], value[..., width // 2 : width], value[..., width:]
        cosine, sine = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cosine - second * sine, second * cosine + first * sine, rest], -1)

    def _mlp(self, value: np.ndarray, place: int) -> np.ndarray:
        start = f"model.layers.{place}.mlp"
        if self.kind in ("mixtral", "qwen3_moe"):
            return self._experts(value, f"model.layers.{place}")
        if self.kind == "phi3":
            gate, product = np.split(self._product(value, f"{start}.gate_up_proj"), 2, -1)
        else:
            gate, product = (self._product(value, f"{start}.{part}_proj") for part in ("gate", "up"))
        return self._product(self._active(gate) * product, f"{start}.down_proj")

    def _active(self, value: np.ndarray) -> np.ndarray:
        return _ACTIVATIONS[self.config["hidden_activation" if self.kind in _GEMMAS else "hidden_act"]](value)

    def _experts(self, value: np.ndarray, start: str) -> np.ndarray:
        is_mixtral = self.kind == "mixtral"
        start = f"{start}.block_sparse_moe" if is_mixtral else f"{start}.mlp"
        names = ("w1", "w3", "w2") if is_mixtral else ("gate_proj", "up_proj", "down_proj")
        scores = self._product(value, f"{start}.gate")
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares = shares / shares.sum(-1, keepdims=True)
        found = np.zeros_like(value)
        for row, own in enumerate(shares):
            best = np.argsort(-own)[: self.config["num_experts_per_tok"]]
            total = own[best].sum() if self.config.get("norm_topk_prob", True) else 1
            for expert in best:
                gate, product, last = (self.weights[f"{start}.experts.{expert}.{name}.weight"] for name in names)
                inner = self._active(gate @ value[row]) * (product @ value[row])
                found[row] += own[expert] / total * (last @ inner)
        return found


def _capped(value: np.ndarray, bound: float | None) -> np.ndarray:
    return value if bound is None else np.tanh(value / bound) * bound


def _scaled(frequencies: np.ndarray, scaling: dict[str, object]) -> np.ndarray:
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "linear":
        return frequencies / scaling["factor"]
    if kind != "llama3":
        return frequencies
    turns = scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    share = np.clip((turns - low) / (high - low), 0, 1)
    return frequencies * (share + (1 - share) / scaling["factor"])
