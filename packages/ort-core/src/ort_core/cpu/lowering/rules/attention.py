"""Attention of com.microsoft: MultiHeadAttention as the fusions write it and as models bring it."""

from __future__ import annotations

import math

from ort_core.cpu.codegen.attention.attention import AttentionFacts
from ort_core.cpu.lowering.attention_steps import Heads, append, copy_into, emit_attention, split_heads
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingElementwise, PendingReshape
from ort_core.cpu.lowering.reducing import combined
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import binary, select

_KEY, _VALUE, _BIAS, _PADDING, _ADDEND, _PAST_KEY, _PAST_VALUE = 1, 2, 3, 4, 5, 6, 7
DEFAULT_FILTER = -10000.0  # onnxruntime's; finite, so that a row that is masked as a whole stays defined


def multi_head_attention(lowering: Lowering, node: Node) -> None:
    """MultiHeadAttention with queries, keys and values separate or packed, a bias, a padding mask, a past."""
    for index, name in ((8, "a buffer length"), (9, "beams")):
        if node.input(index) is not None:
            raise NotLowered(f"MultiHeadAttention with {name}")
    if len(node.outputs) > 3 and node.outputs[3] is not None:
        raise NotLowered("the scores are asked for")
    num_heads = node.int_attribute("num_heads", 0)
    query, key, value = _query_key_value(lowering, node, num_heads)
    offset: KnownDim = 0
    if node.input(_PAST_KEY) is not None:
        key, value, offset = _with_past(lowering, node, key, value)
    elif any(present is not None for present in node.outputs[1:3]):
        for present, new in zip(node.outputs[1:3], (key, value)):
            if present is not None:
                target = lowering.result_view(present)
                copy_into(lowering, new, target, (node,))
                lowering.set(present, target)
    addend = None if node.input(_ADDEND) is None else lowering.view(node.input(_ADDEND))
    padding = None if node.input(_PADDING) is None else lowering.view(node.input(_PADDING))
    mask = score_addend(lowering, node, addend, padding, key.shape[2])
    facts = AttentionFacts(score_scale(node, query), is_causal=bool(node.int_attribute("unidirectional", 0)))
    if facts.is_causal:
        lowering.require_equal(key.shape[2], offset + query.shape[2])  # of surplus keys the last query sees all
    target = lowering.result_view(node.output)
    out = split_heads(target, num_heads)
    emit_attention(lowering, Heads(query, key, value, out, mask, None, offset), facts, (node,))
    lowering.set(node.output, target)


def _query_key_value(lowering: Lowering, node: Node, num_heads: int) -> tuple[View, View, View]:
    """Return the operands as (batch, heads, length, size), with their bias."""
    first, second = node.input(0), node.input(_KEY)
    assert first is not None
    if len(tensor_type(first)[1]) == 5:
        packed = lowering.view(first)
        parts = [_unpacked(packed, part) for part in range(3)]
    else:
        parts = [split_heads(_rank(lowering, first, 3), num_heads)]
        if second is not None and len(tensor_type(second)[1]) == 5:
            packed = lowering.view(second)
            parts += [_unpacked(packed, part) for part in range(2)]
        elif second is None or node.input(_VALUE) is None:
            raise NotLowered("keys or values are missing")
        else:
            parts += [_heads(lowering, node.input(index), num_heads) for index in (_KEY, _VALUE)]
    if node.input(_BIAS) is not None:
        is_cached = second is not None and len(tensor_type(second)[1]) == 4  # keys of four axes are past their bias
        parts = _biased(lowering, node, parts, parts[:1] if is_cached else parts)
    return parts[0], parts[1], parts[2]


def _unpacked(packed: View, part: int) -> View:
    """Return one part of (batch, length, heads, parts, size) as (batch, heads, length, size)."""
    batch, length, heads, _, size = packed.shape
    steps = packed.strides
    offset = packed.offset + part * steps[3]
    return View(packed.buffer, (batch, heads, length, size), (steps[0], steps[2], steps[1], steps[4]), offset)


def _biased(lowering: Lowering, node: Node, parts: list[View], of: list[View]) -> list[View]:
    """Return the operands, to the first of which (``of``) their parts of the bias are added."""
    bias = lowering.contiguous(node.input(_BIAS))
    start: KnownDim = 0
    for number, heads in enumerate(of):
        batch, count, length, size = heads.shape
        added = View(bias.buffer, (count, 1, size), (size, size, 1), bias.offset + start)
        target = lowering.new_view(heads.dtype, (batch, length, count, size)).transposed((0, 2, 1, 3))
        total = combined(heads.shape, lambda x, b: x + b, heads, added)
        pending = PendingElementwise(total.expression, total.inputs, heads.shape, (node,))
        parts = [*parts[:number], lowering.stores.store_elementwise(pending, target), *parts[number + 1 :]]
        start = start + count * size
    if len(of) == len(parts):
        lowering.require_equal(bias.shape[0], start)
    return parts


def score_addend(
    lowering: Lowering, node: Node, addend: View | None, padding: View | None, keys: KnownDim
) -> View | None:
    """Return what is added to the scores: what the model gives, and a filter where the padding mask is not positive."""
    if addend is not None and len(addend.shape) != 4:
        raise NotLowered("the addend of the scores has not four axes")
    if padding is None:
        return addend
    if len(padding.shape) not in (2, 3):
        raise NotLowered(f"a padding mask of {len(padding.shape)} axes")
    lowering.require_equal(padding.shape[-1], keys)
    middle = padding.shape[1:-1] or (1,)
    steps = padding.strides[1:-1] or (0,)
    shape = (padding.shape[0], 1, *middle, padding.shape[-1])
    mask = View(padding.buffer, shape, (padding.strides[0], 0, *steps, padding.strides[-1]), padding.offset)
    filtered = node.float_attribute("mask_filter_value", DEFAULT_FILTER)
    if addend is None:
        total = combined(shape, lambda m: select(binary("gt", m, 0), 0.0, filtered), mask)
    else:
        lowering.require_equal(addend.shape[3], keys)
        lowering.require_equal(shape[0] if addend.shape[0] == 1 else addend.shape[0], shape[0])
        rows = shape[2] if addend.shape[2] == 1 else addend.shape[2]
        shape = (shape[0], addend.shape[1], rows, keys)
        total = combined(shape, lambda m, a: a + select(binary("gt", m, 0), 0.0, filtered), mask, addend)
    pending = PendingElementwise(total.expression, total.inputs, shape, (node,))
    return lowering.stores.store_elementwise(pending, lowering.new_view(DataType.FLOAT, shape))


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


def score_scale(node: Node, query: View) -> float:
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
