"""The list of all inference rules of this project."""

from __future__ import annotations

from types import ModuleType

from ort_core.ops.infer import (
    attention,
    contrib_attention,
    contrib_decoding,
    contrib_layers,
    contrib_quantization,
    contrib_tensors,
    control_flow,
    convolution,
    elementwise,
    generators,
    images,
    indexing,
    machine_learning,
    matrix,
    normalization,
    quantization,
    recurrent,
    reductions,
    sequences,
    shaping,
    signals,
    texts,
    training,
)
from ort_core.ops.infer_rule import InferenceRules

MODULES: tuple[ModuleType, ...] = (
    attention,
    contrib_attention,
    contrib_decoding,
    contrib_layers,
    contrib_quantization,
    contrib_tensors,
    control_flow,
    convolution,
    elementwise,
    generators,
    images,
    indexing,
    machine_learning,
    matrix,
    normalization,
    quantization,
    recurrent,
    reductions,
    sequences,
    shaping,
    signals,
    texts,
    training,
)


def build_rules() -> InferenceRules:
    """Return a registry with every rule of this project."""
    return InferenceRules.of(MODULES)
