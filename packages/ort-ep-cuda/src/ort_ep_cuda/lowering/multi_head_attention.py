"""MultiHeadAttention of com.microsoft, as fusions write it: heads in one axis, an addend for the scores, a cache."""

from __future__ import annotations

import math

from ort_core.plugin.ir import Node
from ort_ep_cuda.lowering.attention import AttentionForm, attend, split_heads
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.products import PRODUCT_TYPES
from ort_ep_cuda.lowering.tensors import LazyTensor
from ort_ep_cuda.lowering.views import TensorView

_QUERY, _KEY, _VALUE, _BIAS, _PADDING, _ADDEND, _PAST = 0, 1, 2, 3, 4, 5, 6
_KNOWN = frozenset({"num_heads", "scale"})


def refuse_multi_head_attention(node: Node) -> str | None:
    """Return why a node is not generated: packed operands, a bias of projections, a padding mask, other attributes."""
    query = node.input(_QUERY)
    assert query is not None
    if element_type(query) not in PRODUCT_TYPES:
        return f"MultiHeadAttention of {element_type(query).text} is not generated"
    if len(query.shape or ()) != 3 or node.input(_KEY) is None or node.input(_VALUE) is None:
        return "MultiHeadAttention with packed operands, or of unknown rank, is not generated"
    if node.input(_BIAS) is not None or node.input(_PADDING) is not None or len(node.inputs) > _PAST + 2:
        return "MultiHeadAttention with a bias of its projections, a padding mask or shared buffers is not generated"
    if (node.input(_PAST) is None) != (len(list(node.present_outputs())) == 1) or len(node.outputs) > 3:
        return "MultiHeadAttention with one of past and present, or with its scores as output, is not generated"
    unknown = sorted(
        name for name in set(node.attributes) - _KNOWN if node.attributes[name].value not in (0, 0.0, -10000.0)
    )
    return f"MultiHeadAttention with the attribute {unknown[0]!r} is not generated" if unknown else None


def lower_multi_head_attention(facts: LoweredNode) -> None:
    """Store the attention with its heads merged; keys and values behind their cache are outputs, too."""
    heads = facts.node.int_attribute("num_heads", 0)
    q = split_heads(facts, _QUERY, heads)
    k, v = (
        _behind_cache(facts, number, split_heads(facts, index, heads)) for number, index in enumerate((_KEY, _VALUE))
    )
    scale = facts.node.float_attribute("scale", 0.0) or 1 / math.sqrt(max(q.shape[3], 1))
    addend = facts.tensor(_ADDEND) if facts.has(_ADDEND) else None
    attend(facts, AttentionForm(q, k, v, scale, addend), is_merged=True)


def _behind_cache(facts: LoweredNode, number: int, new: TensorView) -> TensorView:
    """Return keys or values with the cached ones in front; both are stored in the node's output."""
    if not facts.has(_PAST + number):
        return new
    builder, past = facts.builder, facts.tensor(_PAST + number)
    before, added = past.shape[2], new.shape[2]
    value = facts.node.outputs[1 + number]
    assert value is not None
    joined = builder.result(value, (*new.shape[:2], before + added, new.shape[3]))
    builder.stored(past, joined.sliced(2, 0, 1, before))
    builder.stored(LazyTensor.of(new), joined.sliced(2, before, 1, added))
    return joined
