"""How each family of models states its architecture in ``config.json``: one function a family, over common facts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from ort_core.errors import did_you_mean
from ort_genai.builder.architecture import Architecture, Experts, Gating, LayerNorms, QueryKeyNorm, Rotation
from ort_genai.errors import InvalidModelFolder

Config = Mapping[str, object]
_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu": "gelu", "relu2": "relu2",
}  # fmt: skip
_MOST = {"num_hidden_layers": 1024, "vocab_size": 1 << 22, "hidden_size": 1 << 18}  # far above any model that is known


def architecture_of(config: Config) -> Architecture:
    """Return the architecture that a configuration states.

    Raises:
        InvalidModelFolder: it is none that is known, or a number is missing or impossible.
    """
    named = config.get("architectures")
    name = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else None
    if name not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        hint = did_you_mean(name, list(FAMILIES)) if name else ""
        raise InvalidModelFolder(
            f"config.json names the architecture {name!r}, which cannot be built.{hint} Known: {known}"
        )
    made = FAMILIES[name](config)
    _check(made)
    return made


def number(config: Config, name: str, default: float | None = None) -> float:
    """Return a finite number of the configuration.

    Raises:
        InvalidModelFolder: there is none, and no default; or it is no number.
    """
    found = config.get(name)
    found = default if found is None else found
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise InvalidModelFolder(f"config.json has {name} = {found!r}, expected a number")
    return found


def count(config: Config, name: str, default: int | None = None) -> int:
    """Return a whole number from 1 on."""
    found = number(config, name, default)
    if found != int(found) or not 1 <= found <= _MOST.get(name, 1 << 31):
        raise InvalidModelFolder(
            f"config.json has {name} = {found!r}, expected a whole number from 1 to {_MOST.get(name, 1 << 31)}"
        )
    return int(found)


def common(config: Config) -> Architecture:
    """Return what LLaMA's configuration means, which most families share."""
    layers, heads, hidden = (
        count(config, each) for each in ("num_hidden_layers", "num_attention_heads", "hidden_size")
    )
    head_size = count(config, "head_dim", hidden // heads)
    rotation = rotation_of(config, head_size)
    return Architecture(
        type=str(config.get("model_type", "llama")), vocab_size=count(config, "vocab_size"), hidden_size=hidden,
        inner_size=count(config, "intermediate_size", 4 * hidden), num_layers=layers, num_heads=heads,
        num_kv_heads=count(config, "num_key_value_heads", heads), head_size=head_size,
        context_length=count(config, "max_position_embeddings", 2048),
        norm_epsilon=number(config, "rms_norm_eps", 1e-6), attention_scale=head_size**-0.5, windows=(-1,) * layers,
        rotations=(rotation,), layer_rotations=(0,) * layers, is_tied=bool(config.get("tie_word_embeddings", False)),
        activation=activation(config, "hidden_act"),
    )  # fmt: skip


def activation(config: Config, *names: str) -> str:
    """Return the activation that the first of these names states, ``silu`` where none does."""
    stated = next((config[name] for name in names if config.get(name) is not None), "silu")
    if stated not in _ACTIVATIONS:
        raise InvalidModelFolder(f"the activation {stated!r} cannot be built; known: {', '.join(sorted(_ACTIVATIONS))}")
    return _ACTIVATIONS[str(stated)]


def rotation_of(config: Config, head_size: int, kind: str = "full_attention") -> Rotation:
    """Return a rotation as older (``rope_theta``, ``rope_scaling``) and newer (``rope_parameters``) files state it."""
    stated = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if isinstance(stated, dict) and isinstance(stated.get(kind), dict):
        stated = stated[kind]
    if not isinstance(stated, dict):
        raise InvalidModelFolder(f"config.json has rope_scaling = {stated!r}, expected an object")
    theta = number({**config, **stated}, "rope_theta", 10000.0)
    share = number({**config, **stated}, "partial_rotary_factor", 1.0)
    width = int(head_size * share)
    if theta <= 0 or width < 2 or width > head_size or width % 2:
        raise InvalidModelFolder(f"a rotation of {width} of {head_size} elements with base {theta} cannot be built")
    kind_name = str(stated.get("rope_type", stated.get("type", "default")))
    scaling = {} if kind_name == "default" else {**stated, "rope_type": kind_name}
    if scaling:
        for name in ("original_max_position_embeddings", "max_position_embeddings"):
            scaling.setdefault(name, config.get(name))
    return Rotation(theta, width, scaling)


def windows_of(config: Config, layers: int, is_all: bool = True) -> tuple[int, ...]:
    """Return the window of each layer: by ``layer_types`` where there are any, else one for all."""
    window = config.get("sliding_window")
    if window is None or not is_all:
        return (-1,) * layers
    size = count(config, "sliding_window")
    types = config.get("layer_types")
    if isinstance(types, list) and len(types) == layers:
        return tuple(size if kind == "sliding_attention" else -1 for kind in types)
    return (size,) * layers


def _mistral(config: Config) -> Architecture:
    made = common(config)
    return replace(made, windows=windows_of(config, made.num_layers))


def _qwen(config: Config) -> Architecture:
    made = common(config)
    is_windowed = bool(config.get("use_sliding_window", False))
    windows = windows_of(config, made.num_layers, is_windowed)
    if is_windowed and not isinstance(config.get("layer_types"), list):
        first = count(config, "max_window_layers", made.num_layers)
        windows = tuple(size if place >= first else -1 for place, size in enumerate(windows))
    return replace(made, windows=windows)


def _qwen3(config: Config) -> Architecture:
    return replace(_qwen(config), query_key_norm=QueryKeyNorm.HEAD)


def _experts(config: Config, prefix: str, parts: tuple[str, str, str], size: str, experts: str) -> Experts:
    return Experts(
        count(config, experts), count(config, "num_experts_per_tok"), count(config, size),
        bool(config.get("norm_topk_prob", True)), f"{prefix}.gate", f"{prefix}.experts.{{}}", parts,
    )  # fmt: skip


def _mixtral(config: Config) -> Architecture:
    experts = _experts(config, "block_sparse_moe", ("w1", "w3", "w2"), "intermediate_size", "num_local_experts")
    return replace(_mistral(config), experts=experts)


def _qwen3_moe(config: Config) -> Architecture:
    if config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1:
        raise InvalidModelFolder(
            "Qwen3 with experts in some layers only (mlp_only_layers, decoder_sparse_step) cannot be built"
        )
    parts = ("gate_proj", "up_proj", "down_proj")
    experts = _experts({"norm_topk_prob": False, **config}, "mlp", parts, "moe_intermediate_size", "num_experts")
    return replace(_qwen3(config), experts=experts)


def _phi3(config: Config) -> Architecture:
    made = common(config)
    kind = made.rotations[0].scaling.get("rope_type")
    if kind in ("longrope", "su", "yarn"):  # factors for short contexts: what a longer one needs is another table
        made = replace(made, context_length=count(config, "original_max_position_embeddings", made.context_length))
    return replace(made, type="phi3", windows=windows_of(config, made.num_layers))


def _gemma(config: Config) -> Architecture:
    tied = {"tie_word_embeddings": True, **config}
    made = common(tied)
    kind = activation({"hidden_activation": "gelu_pytorch_tanh", **config}, "hidden_activation")
    return replace(made, norm_offset=1.0, embedding_scale=made.hidden_size**0.5, activation=kind)


def _gemma2(config: Config) -> Architecture:
    made = _gemma(config)
    types = [("sliding_attention", "full_attention")[place % 2] for place in range(made.num_layers)]
    return replace(
        made, norms=_AROUND, attention_scale=number(config, "query_pre_attn_scalar", 256) ** -0.5,
        attention_softcap=_bound(config, "attn_logit_softcapping"),
        logits_softcap=_bound(config, "final_logit_softcapping"),
        windows=windows_of({"layer_types": types, **config}, made.num_layers),
    )  # fmt: skip


def _gemma3(config: Config) -> Architecture:
    every = count(config, "sliding_window_pattern", 6)
    layers = count(config, "num_hidden_layers")
    types = ["full_attention" if (place + 1) % every == 0 else "sliding_attention" for place in range(layers)]
    full = {"layer_types": types, "rope_theta": 1e6, **config}
    made = _gemma2(full)
    local = rotation_of(config, made.head_size, "sliding_attention")
    if not isinstance(config.get("rope_parameters"), dict):
        local = Rotation(number(config, "rope_local_base_freq", 10000.0), made.rotations[0].width)
    places = tuple(0 if window == -1 else 1 for window in made.windows)
    return replace(
        made, type="gemma3_text", rotations=(made.rotations[0], local), layer_rotations=places,
        query_key_norm=QueryKeyNorm.HEAD,
    )  # fmt: skip


def _granite(config: Config) -> Architecture:
    made = common(config)
    return replace(
        made, attention_scale=number(config, "attention_multiplier", 1.0),
        embedding_scale=number(config, "embedding_multiplier", 1.0),
        residual_scale=number(config, "residual_multiplier", 1.0),
        logits_scale=1 / number(config, "logits_scaling", 1.0),
    )  # fmt: skip


def _olmo(config: Config) -> Architecture:
    made = common(config)
    clip = 0.0 if config.get("clip_qkv") is None else number(config, "clip_qkv")
    return replace(made, has_mean_norms=True, are_norms_plain=True, norm_epsilon=1e-5, clip=clip)


def _olmo2(config: Config) -> Architecture:
    norms = LayerNorms(None, "post_attention_layernorm", None, "post_feedforward_layernorm")
    return replace(common(config), norms=norms, query_key_norm=QueryKeyNorm.WHOLE)


def _olmo3(config: Config) -> Architecture:
    """As OLMo 2; layers with a window rotate without the scaling that makes contexts longer."""
    made = _olmo2(config)
    types = ["full_attention" if (place + 1) % 4 == 0 else "sliding_attention" for place in range(made.num_layers)]
    windows = windows_of({"layer_types": types, **config}, made.num_layers)
    full = made.rotations[0]
    is_stated = isinstance(config.get("rope_parameters"), dict)
    local = rotation_of(config, made.head_size, "sliding_attention") if is_stated else Rotation(full.theta, full.width)
    places = tuple(0 if window == -1 else 1 for window in windows)
    return replace(made, windows=windows, rotations=(full, local), layer_rotations=places)


def _nemotron(config: Config) -> Architecture:
    made = common({"partial_rotary_factor": 0.5, "hidden_act": "relu2", **config})
    return replace(
        made, has_mean_norms=True, norm_offset=1.0, is_gated=False, norm_epsilon=number(config, "norm_eps", 1e-5)
    )


def _arcee(config: Config) -> Architecture:
    return replace(common({"hidden_act": "relu2", **config}), is_gated=False)


def _interleaved(config: Config) -> Architecture:
    return replace(common(config), is_rotation_interleaved=True)


def _glm(config: Config) -> Architecture:
    return _interleaved({"partial_rotary_factor": 0.5, **config})


def _glm4(config: Config) -> Architecture:
    norms = LayerNorms("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm")
    return replace(_glm(config), norms=norms)


def _gpt_oss(config: Config) -> Architecture:
    layers = count(config, "num_hidden_layers")
    types = ["sliding_attention" if place % 2 == 0 else "full_attention" for place in range(layers)]
    full = {"layer_types": types, "num_local_experts": 128, **config}
    gating = Gating(number(config, "swiglu_alpha", 1.702), 1.0, number(config, "swiglu_limit", 7.0))
    experts = Experts(
        count(full, "num_local_experts"), count(config, "num_experts_per_tok", 4), count(config, "intermediate_size"),
        True, "mlp.router", "", ("mlp.experts.gate_up_proj", "", "mlp.experts.down_proj"), gating, True,
    )  # fmt: skip
    return replace(common(full), windows=windows_of(full, layers), has_sinks=True, experts=experts, type="gptoss")


def _smollm3(config: Config) -> Architecture:
    made = _qwen({"tie_word_embeddings": True, **config})
    stated = config.get("no_rope_layers")
    every = count(config, "no_rope_layer_interval", 4)
    rotated = stated if isinstance(stated, list) else [(place + 1) % every for place in range(made.num_layers)]
    return replace(made, layer_rotations=tuple(0 if flag else -1 for flag in rotated))


def _gpt2(config: Config) -> Architecture:
    names = {
        "num_hidden_layers": "n_layer", "num_attention_heads": "n_head", "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
    }  # fmt: skip
    known = {name: config.get(old) for name, old in names.items()}
    hidden = count(known, "hidden_size")
    inner = count(config, "n_inner", 4 * hidden)
    fixed = {"intermediate_size": inner, "hidden_act": "gelu_new", "num_key_value_heads": None, "head_dim": None}
    made = common({"tie_word_embeddings": True, **config, **known, **fixed})
    return replace(
        made, rotations=(), layer_rotations=(-1,) * made.num_layers, has_positions=True, has_mean_norms=True,
        is_gated=False, activation=activation({"activation_function": "gelu_new", **config}, "activation_function"),
        norm_epsilon=number(config, "layer_norm_epsilon", 1e-5), norms=LayerNorms("ln_1", None, "ln_2", None),
    )  # fmt: skip


def _bound(config: Config, name: str) -> float:
    return 0.0 if config.get(name) is None else number(config, name)


def _check(made: Architecture) -> None:
    problem = ""
    if made.num_heads % made.num_kv_heads:
        problem = f"{made.num_heads} heads of queries for {made.num_kv_heads} of keys"
    elif len(made.layer_rotations) != made.num_layers:
        problem = f"{len(made.layer_rotations)} rotations for {made.num_layers} layers"
    elif made.experts is not None and made.experts.chosen > made.experts.count:
        problem = f"{made.experts.chosen} of {made.experts.count} experts a token"
    elif made.head_size % 16:
        problem = f"heads of {made.head_size} elements; GroupQueryAttention takes multiples of 16 in onnxruntime"
    if problem:
        raise InvalidModelFolder(f"config.json states {problem}, which cannot be built")


_AROUND = LayerNorms(
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
)
FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "LlamaForCausalLM": common, "MistralForCausalLM": _mistral, "MixtralForCausalLM": _mixtral,
    "Qwen2ForCausalLM": _qwen, "Qwen3ForCausalLM": _qwen3, "Qwen3MoeForCausalLM": _qwen3_moe,
    "Phi3ForCausalLM": _phi3, "GemmaForCausalLM": _gemma, "Gemma2ForCausalLM": _gemma2,
    "Gemma3ForCausalLM": _gemma3, "GraniteForCausalLM": _granite, "OlmoForCausalLM": _olmo,
    "Olmo2ForCausalLM": _olmo2, "SmolLM3ForCausalLM": _smollm3, "GPT2LMHeadModel": _gpt2,
    "Olmo3ForCausalLM": _olmo3, "NemotronForCausalLM": _nemotron, "ArceeForCausalLM": _arcee,
    "Ernie4_5ForCausalLM": _interleaved, "HeliumForCausalLM": _interleaved, "GlmForCausalLM": _glm,
    "Glm4ForCausalLM": _glm4, "SeedOssForCausalLM": common, "GptOssForCausalLM": _gpt_oss,
}  # fmt: skip
"""Architectures by the name in ``config.json``."""
