"""How each family of models states its architecture in ``config.json``: one function a family, over common facts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from ort_core.errors import did_you_mean
from ort_genai.builder.architecture import Architecture, Experts, Gating, LayerNorms, QueryKeyNorm, Rotation
from ort_genai.builder.family_defaults import completed
from ort_genai.errors import InvalidModelFolder

log = logging.getLogger(__name__)
Config = Mapping[str, object]
_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu": "gelu", "relu": "relu", "relu2": "relu2",
}  # fmt: skip
_KINDS = ("full_attention", "sliding_attention")
_GREATEST = 1e30
_HEAD_STEP = 16  # elements; what onnxruntime's GroupQueryAttention takes where it turns heads
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
    made = FAMILIES[name](completed(config, name))
    _check(made)
    return made


def number(config: Config, name: str, default: float | None = None) -> float:
    """Return a number of the configuration, of a size that float32 holds.

    Raises:
        InvalidModelFolder: there is none, and no default; or it is no number.
    """
    found = config.get(name)
    found = default if found is None else found
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) <= _GREATEST:
        raise InvalidModelFolder(f"config.json has {name} = {found!r}, expected a number")
    return float(found)


def positive(config: Config, name: str, default: float | None = None) -> float:
    """Return a number above 0."""
    found = number(config, name, default)
    if found <= 0:
        raise InvalidModelFolder(f"config.json has {name} = {found!r}, expected a number above 0")
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
    context = count(config, "max_position_embeddings", 2048)
    if rotation.scaling.get("rope_type") in ("longrope", "su"):  # what a longer context needs is another table
        original = count(rotation.scaling, "original_max_position_embeddings", context)
        context = min(context, original)
    return Architecture(
        type=_model_type(config), vocab_size=count(config, "vocab_size"), hidden_size=hidden,
        inner_size=count(config, "intermediate_size", 4 * hidden), num_layers=layers, num_heads=heads,
        num_kv_heads=count(config, "num_key_value_heads", heads), head_size=head_size,
        context_length=context,
        norm_epsilon=number(config, "rms_norm_eps", 1e-6), attention_scale=head_size**-0.5, windows=(-1,) * layers,
        rotations=(rotation,), layer_rotations=(0,) * layers, is_tied=bool(config.get("tie_word_embeddings", False)),
        activation=activation(config, "hidden_act"),
    )  # fmt: skip


def _model_type(config: Config) -> str:
    found = config.get("model_type", "llama")
    if not isinstance(found, str) or not found.isascii() or not 1 <= len(found) <= 64:
        raise InvalidModelFolder(f"config.json has model_type = {found!r}, expected a name")
    return found


def activation(config: Config, *names: str) -> str:
    """Return the activation that the first of these names states, ``silu`` where none does."""
    stated = next((config[name] for name in names if config.get(name) is not None), "silu")
    if not isinstance(stated, str) or stated not in _ACTIVATIONS:
        raise InvalidModelFolder(f"the activation {stated!r} cannot be built; known: {', '.join(sorted(_ACTIVATIONS))}")
    return _ACTIVATIONS[stated]


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
    if theta <= 1 or width < 2 or width > head_size or width % 2:
        raise InvalidModelFolder(f"a rotation of {width} of {head_size} elements with base {theta} cannot be built")
    kind_name = str(stated.get("rope_type", stated.get("type", "default")))
    # a dynamic one changes what is behind the context that the model has positions for, and nothing before it
    scaling = {} if kind_name in ("default", "dynamic") else {**stated, "rope_type": kind_name}
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
    if types is None:
        return (size,) * layers
    if not isinstance(types, list) or len(types) != layers or any(kind not in _KINDS for kind in types):
        raise InvalidModelFolder(
            f"config.json has layer_types = {types!r}, expected {layers} of {' and '.join(_KINDS)}"
        )
    return tuple(size if kind == "sliding_attention" else -1 for kind in types)


def _mistral(config: Config) -> Architecture:
    made = common(config)
    return replace(made, windows=windows_of(config, made.num_layers))


def _qwen(config: Config) -> Architecture:
    first = number(config, "max_window_layers", 28)
    return _windowed(config, lambda place: place >= first)


def _windowed(config: Config, has_window: Callable[[int], bool]) -> Architecture:
    """Return a decoder whose windows are only used where ``use_sliding_window`` says so.

    Args:
        config: of the checkpoint.
        has_window: says of which layers, where ``layer_types`` does not.
    """
    made = common(config)
    types = [_KINDS[has_window(place)] for place in range(made.num_layers)]
    windows = windows_of({"layer_types": types, **config}, made.num_layers, bool(config.get("use_sliding_window")))
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


def _qwen_experts(config: Config) -> Experts:
    """Return experts with the layers that have them: every few ones, but for those that are named."""
    parts = ("gate_proj", "up_proj", "down_proj")
    # transformers 5 calls num_experts num_local_experts
    stated = {"norm_topk_prob": False, "num_experts": config.get("num_local_experts"), **config}
    experts = _experts(stated, "mlp", parts, "moe_intermediate_size", "num_experts")
    every, plain = count(config, "decoder_sparse_step", 1), config.get("mlp_only_layers", [])
    if not isinstance(plain, list):
        raise InvalidModelFolder(f"config.json has mlp_only_layers = {plain!r}, expected a list of layers")
    layers = count(config, "num_hidden_layers")
    chosen = (place for place in range(layers) if (place + 1) % every == 0 and place not in plain)
    return replace(experts, layers=frozenset(chosen))


def _qwen3_moe(config: Config) -> Architecture:
    made = _windowed({**config, "layer_types": None}, lambda _: True)  # transformers reads no layer_types here
    return replace(made, query_key_norm=QueryKeyNorm.HEAD, experts=_qwen_experts(config))


def _qwen2_moe(config: Config) -> Architecture:
    shared = count(config, "shared_expert_intermediate_size", 5632)
    last = number(config, "max_window_layers", 28)
    made = _windowed(config, lambda place: place % 2 == 0 and place < last)
    return replace(made, experts=replace(_qwen_experts(config), shared_size=shared))


def _phi3(config: Config) -> Architecture:
    made = common(config)
    return replace(made, type="phi3", windows=windows_of(config, made.num_layers))


def _gemma(config: Config) -> Architecture:
    # "gelu" stands in files that were written before transformers told the two apart
    kind = config.get("hidden_act", "gelu")
    return _gemma_of(config, "gelu_tanh" if kind == "gelu" else activation(config, "hidden_act"))


def _gemma_of(config: Config, kind: str) -> Architecture:
    if config.get("use_bidirectional_attention"):
        raise InvalidModelFolder("config.json states use_bidirectional_attention: an encoder, which cannot be built")
    made = common({"tie_word_embeddings": True, **config})
    return replace(made, norm_offset=1.0, embedding_scale=made.hidden_size**0.5, activation=kind)


def _gemma2(config: Config) -> Architecture:
    stated = {"hidden_activation": "gelu_pytorch_tanh", **config}
    made = _gemma_of({**config, "hidden_act": None}, activation(stated, "hidden_activation"))
    types = [_KINDS[place % 2 == 0] for place in range(made.num_layers)]
    return replace(
        made, norms=_AROUND, attention_scale=positive(config, "query_pre_attn_scalar", 256) ** -0.5,
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
    return replace(  # transformers reads no cap of scores here
        made, type="gemma3_text", attention_softcap=0.0, rotations=(made.rotations[0], local), layer_rotations=places,
        query_key_norm=QueryKeyNorm.HEAD,
    )  # fmt: skip


def _granite(config: Config) -> Architecture:
    made = common(config)
    return replace(
        made, attention_scale=number(config, "attention_multiplier", 1.0),
        embedding_scale=number(config, "embedding_multiplier", 1.0),
        residual_scale=number(config, "residual_multiplier", 1.0),
        logits_scale=1 / positive(config, "logits_scaling", 1.0),
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
    layers, stated = count(config, "num_hidden_layers"), config.get("no_rope_layers")
    every = count(config, "no_rope_layer_interval", 4)
    rotated = stated if isinstance(stated, list) else [(place + 1) % every for place in range(layers)]
    places = tuple(0 if flag else -1 for flag in rotated)
    made = _windowed({"tie_word_embeddings": True, **config}, lambda place: places[place : place + 1] == (-1,))
    return replace(made, layer_rotations=places)


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
    scale = made.attention_scale if config.get("scale_attn_weights", True) else 1.0
    return replace(
        made, attention_scale=scale, is_scale_by_layer=bool(config.get("scale_attn_by_inverse_layer_idx", False)),
        rotations=(), layer_rotations=(-1,) * made.num_layers, has_positions=True, has_mean_norms=True,
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
    if problem:
        raise InvalidModelFolder(f"config.json states {problem}, which cannot be built")
    if made.head_size % _HEAD_STEP:
        log.warning(
            "heads of %d elements: onnxruntime does not run the folder; its GroupQueryAttention takes multiples of %d",
            made.head_size, _HEAD_STEP,
        )  # fmt: skip


_AROUND = LayerNorms(
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
)
FAMILIES: dict[str, Callable[[Config], Architecture]] = {
    "LlamaForCausalLM": common, "MistralForCausalLM": _mistral, "MixtralForCausalLM": _mixtral,
    "Qwen2ForCausalLM": _qwen, "Qwen3ForCausalLM": _qwen3, "Qwen3MoeForCausalLM": _qwen3_moe,
    "Qwen2MoeForCausalLM": _qwen2_moe,
    "Phi3ForCausalLM": _phi3, "GemmaForCausalLM": _gemma, "Gemma2ForCausalLM": _gemma2,
    "Gemma3ForCausalLM": _gemma3, "GraniteForCausalLM": _granite, "OlmoForCausalLM": _olmo,
    "Olmo2ForCausalLM": _olmo2, "SmolLM3ForCausalLM": _smollm3, "GPT2LMHeadModel": _gpt2,
    "Olmo3ForCausalLM": _olmo3, "NemotronForCausalLM": _nemotron, "ArceeForCausalLM": _arcee,
    "Ernie4_5ForCausalLM": _interleaved, "HeliumForCausalLM": _interleaved, "GlmForCausalLM": _glm,
    "Glm4ForCausalLM": _glm4, "SeedOssForCausalLM": common, "GptOssForCausalLM": _gpt_oss,
}  # fmt: skip
"""Architectures by the name in ``config.json``."""
