"""Attributes that say yes by 1 and no by every other number, as onnxruntime reads them.

From the load on they are 0 or 1. Schemas know no other number, which is a fault of the writer; kernels, compiled code
and providers would each read it in their own way. Where onnxruntime refuses it, so do the rules of attributes.
"""

from __future__ import annotations

from ort_core.ir.attributes import Attribute, AttributeKind

_KEPT = ("keepdims",)
_REDUCED = ("keepdims", "noop_with_empty_axes")
_WINDOWED = ("ceil_mode",)
_EXPERTS = ("normalize_routing_weights", "use_sparse_mixer")
_STANDARD: dict[str, tuple[str, ...]] = {
    "ArgMax": _KEPT, "ArgMin": _KEPT, "Attention": ("is_causal",), "Unique": ("sorted",),
    "BatchNormalization": ("spatial",), "Reshape": ("allowzero",),
    "AveragePool": _WINDOWED, "LpPool": _WINDOWED, "MaxPool": _WINDOWED,
    "ReduceL1": _REDUCED, "ReduceL2": _REDUCED, "ReduceLogSum": _REDUCED,
    "ReduceLogSumExp": _REDUCED, "ReduceMax": _REDUCED, "ReduceMean": _REDUCED, "ReduceMin": _REDUCED,
    "ReduceProd": _REDUCED, "ReduceSum": _REDUCED, "ReduceSumSquare": _REDUCED, "RotaryEmbedding": ("interleaved",),
    "TopK": ("largest",),
}  # fmt: skip
_CONTRIB: dict[str, tuple[str, ...]] = {
    "Attention": ("do_rotary", "unidirectional"),
    "GroupQueryAttention": ("do_rotary", "rotary_interleaved", "sliding_window_cache"),
    "MoE": _EXPERTS, "MRotaryEmbedding": ("interleaved",), "MultiHeadAttention": ("unidirectional",),
    "MurmurHash3": ("positive",), "PagedAttention": ("do_rotary", "is_causal", "rotary_interleaved"),
    "QAttention": ("do_rotary", "unidirectional"), "QMoE": _EXPERTS, "QLinearAveragePool": _WINDOWED,
    "RotaryEmbedding": ("interleaved",),
}  # fmt: skip
_FLAGS: dict[str, dict[str, tuple[str, ...]]] = {"": _STANDARD, "ai.onnx": _STANDARD, "com.microsoft": _CONTRIB}
_NONE: dict[str, tuple[str, ...]] = {}


def normalize_flags(domain: str, op_type: str, attributes: dict[str, Attribute]) -> None:
    """Make 0 of each flag of an operator that is neither 0 nor 1."""
    for name in _FLAGS.get(domain, _NONE).get(op_type, ()):
        given = attributes.get(name)
        if given is not None and given.kind is AttributeKind.INT and given.value not in (None, 0, 1):
            attributes[name] = Attribute(name, AttributeKind.INT, 0)
