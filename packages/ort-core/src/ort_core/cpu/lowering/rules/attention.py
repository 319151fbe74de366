"""Attention of com.microsoft: MultiHeadAttention as the fusions write it and as models bring it."""

from __future__ import annotations

import math

from ort_core.cpu.codegen.attention import AttentionFacts
from ort_core.cpu.lowering.attention_steps import Heads, append, copy_into, emit_attention, split_heads
from ort_core.cpu.lowering.lowering import Lowering, tensor_type
from ort_core.cpu.lowering.pending import PendingReshape
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.views import View
from ort_core.plugin.ir import KnownDim, Node, Value

_KEY, _VALUE, _BIAS, _PADDING, _ADDEND, _PAST_KEY, _PAST_VALUE = 1, 2, 3, 4, 5, 6, 7


def multi_head_attention(lowering: Lowering, node: Node) -> None:
    """MultiHeadAttention with separate queries, keys and values of three axes, or keys and values of four."""
    for index, name in ((_BIAS, "a bias"), (_PADDING, "a padding mask"), (8, "a buffer length"), (9, "beams")):
        if node.input(index) is not None:
            raise NotLowered(f"MultiHeadAttention with {name}")
    if len(node.outputs) > 3 and node.outputs[3] is not None:
        raise NotLowered("the scores are asked for")
    num_heads = node.int_attribute("num_heads", 0)
    if node.input(_KEY) is None or node.input(_VALUE) is None:
        raise NotLowered("queries, keys and values are packed")
    query = split_heads(_rank(lowering, node.input(0), 3), num_heads)
    key, value = (_heads(lowering, node.input(index), num_heads) for index in (_KEY, _VALUE))
    offset: KnownDim = 0
    if node.input(_PAST_KEY) is not None:
        key, value, offset = _with_past(lowering, node, key, value)
    elif any(present is not None for present in node.outputs[1:3]):
        for present, new in zip(node.outputs[1:3], (key, value)):
            if present is not None:
                target = lowering.result_view(present)
                copy_into(lowering, new, target, (node,))
                lowering.set(present, target)
    mask = None if node.input(_ADDEND) is None else lowering.view(node.input(_ADDEND))
    if mask is not None and len(mask.shape) != 4:
        raise NotLowered("the addend of the scores has not four axes")
    facts = AttentionFacts(_scale(node, query), is_causal=bool(node.int_attribute("unidirectional", 0)))
    target = lowering.result_view(node.output)
    out = split_heads(target, num_heads)
    emit_attention(lowering, Heads(query, key, value, out, mask, None, offset), facts, (node,))
    lowering.set(node.output, target)


def _with_past(lowering: Lowering, node: Node, key: View, value: View) -> tuple[View, View, KnownDim]:
    """Return keys and values behind their caches, and the length of the caches; the presents are set to them."""
    joined = []
    length: KnownDim = 0
    for index, new in ((_PAST_KEY, key), (_PAST_VALUE, value)):
        past = _rank(lowering, node.input(index), 4)
        present = node.outputs[index - 5] if len(node.outputs) > index - 5 else None
        shape = (new.shape[0], new.shape[1], past.shape[2] + new.shape[2], new.shape[3])
        if present is None:
            target = lowering.new_view(new.dtype, shape)
        else:
            target = lowering.result_view(present)
            lowering.set(present, target)
        append(lowering, past, new, target, (node,))
        joined.append(target)
        length = past.shape[2]
    return joined[0], joined[1], length


def _scale(node: Node, query: View) -> float:
    """Return the factor of the scores."""
    scale = node.float_attribute("scale", 0.0)
    if scale:
        return scale
    size = query.shape[3]
    if not isinstance(size, int):
        raise NotLowered("the size of the heads is not known")
    return 1.0 / math.sqrt(size)


def _heads(lowering: Lowering, value: Value | None, num_heads: int) -> View:
    """Return keys or values of three or four axes as (batch, heads, length, size).

    Heads that are repeated for groups of queries are returned as they were before that.
    """
    known = None if value is None else lowering.pending(value)
    if isinstance(known, PendingReshape):
        grouped = _before_repetition(known)
        if grouped is not None:
            return grouped
    view = lowering.view(value)
    if len(view.shape) == 3:
        return split_heads(view, num_heads)
    if len(view.shape) != 4:
        raise NotLowered(f"keys or values of {len(view.shape)} axes")
    return view


def _before_repetition(pending: PendingReshape) -> View | None:
    """Return the heads (batch, key heads, length, size) of which a reshape merges a repetition on axis 2."""
    source, shape = pending.source, pending.shape
    if len(source.shape) != 5 or len(shape) != 4 or source.strides[2] != 0:
        return None
    batch, heads, group, length, size = source.shape
    if shape != (batch, heads * group, length, size):
        return None
    strides = source.strides
    return View(source.buffer, (batch, heads, length, size), (*strides[:2], *strides[3:]), source.offset)


def _rank(lowering: Lowering, value: Value | None, rank: int) -> View:
    assert value is not None
    if len(tensor_type(value)[1]) != rank:
        raise NotLowered(f"{value.name!r} has not {rank} axes")
    return lowering.view(value)
