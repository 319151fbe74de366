"""What a field of ``config.json`` means that a family's files leave out: the values of transformers' own classes.

Sizes are not here: a wrong one does not fit the weights, and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

Fields = dict[str, object]

_OLMO: Fields = {"rms_norm_eps": 1e-5}
_GEMMA_2: Fields = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window": 4096}
_QWEN: Fields = {"sliding_window": 4096}
_GLM: Fields = {"rms_norm_eps": 1.5625e-07, "partial_rotary_factor": 0.5}
_GPT_OSS_ROTATION: Fields = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 4096,
}  # fmt: skip
_DEFAULTS: dict[str, Fields] = {
    "MistralForCausalLM": {"sliding_window": 4096}, "MixtralForCausalLM": {"rope_theta": 1e6, "rms_norm_eps": 1e-5},
    "Phi3ForCausalLM": {"rms_norm_eps": 1e-5}, "Gemma2ForCausalLM": _GEMMA_2,
    "Gemma3ForCausalLM": {"sliding_window": 4096},
    "Qwen2ForCausalLM": _QWEN, "Qwen3ForCausalLM": _QWEN, "Qwen2MoeForCausalLM": _QWEN, "Qwen3MoeForCausalLM": _QWEN,
    "Olmo2ForCausalLM": _OLMO, "Olmo3ForCausalLM": {**_OLMO, "rope_theta": 5e5, "sliding_window": 4096},
    "SmolLM3ForCausalLM": {"rope_theta": 2e6, "tie_word_embeddings": True},
    "NemotronForCausalLM": {"partial_rotary_factor": 0.5, "hidden_act": "relu2"},
    "ArceeForCausalLM": {"hidden_act": "relu2", "rms_norm_eps": 1e-5},
    "Ernie4_5ForCausalLM": {"rms_norm_eps": 1e-5, "rope_theta": 5e5, "tie_word_embeddings": True},
    "HeliumForCausalLM": {"rms_norm_eps": 1e-8, "rope_theta": 1e5}, "GlmForCausalLM": _GLM, "Glm4ForCausalLM": _GLM,
    "GptOssForCausalLM": {
        "rms_norm_eps": 1e-5, "rope_theta": 150000.0, "sliding_window": 128, "rope_scaling": _GPT_OSS_ROTATION,
    },
}  # fmt: skip
_NULLS_WITH_A_MEANING = ("sliding_window", "attn_logit_softcapping", "final_logit_softcapping", "rope_scaling")


def completed(config: Mapping[str, object], family: str) -> Fields:
    """Return a configuration with the fields that it leaves out, and without the nulls that mean the same.

    Args:
        config: of a checkpoint.
        family: the architecture that it names.
    """
    stated = {name: value for name, value in config.items() if value is not None or name in _NULLS_WITH_A_MEANING}
    defaults = dict(_DEFAULTS.get(family, {}))
    if "rope_parameters" in stated:
        defaults.pop("rope_scaling", None)
    return {**defaults, **stated}
