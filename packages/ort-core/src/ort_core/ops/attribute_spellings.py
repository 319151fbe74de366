"""Attributes that onnxruntime reads in several spellings: from the load on they have one.

Words in any case, numbers that stand for "not said", and numbers of which all but one mean the same.
"""

from __future__ import annotations

from collections.abc import Callable

from ort_core.ir.attributes import Attribute, AttributeKind, AttributeValue

Spelling = Callable[[AttributeValue], "AttributeValue | None"]


def _upper(value: AttributeValue) -> AttributeValue:
    return value.upper() if isinstance(value, str) else value


def _lower(value: AttributeValue) -> AttributeValue:
    return value.lower() if isinstance(value, str) else value


def _said(value: AttributeValue) -> AttributeValue | None:
    return None if value == -1 else value


def _one_unless_zero(value: AttributeValue) -> AttributeValue:
    return 0 if value == 0 else 1


_CONTRIB: dict[str, dict[str, Spelling]] = {
    "CropAndResize": {"mode": _lower},
    "GroupQueryAttention": {"k_quant_type": _upper, "v_quant_type": _upper},
    "PagedAttention": {
        "k_quant_type": _upper,
        "kv_cache_layout": _upper,
        "v_quant_type": _upper,
    },
    "MatMulFpQ4": {"blk_quant_type": _one_unless_zero},
    "WordConvEmbedding": dict.fromkeys(("char_embedding_size", "conv_window_size", "embedding_size"), _said),
}


def normalize_spellings(domain: str, op_type: str, attributes: dict[str, Attribute]) -> None:
    """Give attributes of an operator the spelling that the rest of the code knows; drop those that say nothing."""
    if domain != "com.microsoft":
        return
    for name, spelling in _CONTRIB.get(op_type, {}).items():
        given = attributes.get(name)
        if given is None or given.value is None or given.kind not in (AttributeKind.INT, AttributeKind.STRING):
            continue
        value = spelling(given.value)
        if value is None:
            del attributes[name]
        elif value != given.value:
            attributes[name] = Attribute(name, given.kind, value)
