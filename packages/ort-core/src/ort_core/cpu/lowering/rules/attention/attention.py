"""Attention, whatever operator it is: operands as heads, a cache before them, what masks add, then one step.

What each operator means is read from its record (``ops.attention``).
"""

from __future__ import annotations

from ort_core.cpu.codegen.attention.attention import AttentionFacts
from ort_core.cpu.lowering.broadcasting import sizes_text
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.rules.attention.attention_caches import (
    BUFFERED_REST,
    buffered,
    cache_scales,
    filled,
    presents,
)
from ort_core.cpu.lowering.rules.attention.attention_masks import score_mask
from ort_core.cpu.lowering.rules.attention.attention_operands import operands
from ort_core.cpu.lowering.sequences.attention_steps import Heads, emit_attention, split_heads
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.views import View, count_of
from ort_core.plugin.ir import DataType, KnownDim, Node
from ort_core.plugin.ops import AttentionFeature, AttentionRecord, Growth, node_attention

_GENERATED = frozenset(AttentionFeature) - {
    AttentionFeature.TOKENS, AttentionFeature.SINK, AttentionFeature.SMOOTH, AttentionFeature.NORMALIZED,
    AttentionFeature.SLIDING, AttentionFeature.BEAMS,
    AttentionFeature.SCORES, AttentionFeature.DOUBLE,
}  # fmt: skip


def attention(lowering: Lowering, node: Node) -> None:
    """Attention, MultiHeadAttention, DecoderMaskedMultiHeadAttention, GroupQueryAttention, QAttention in float32."""
    record = node_attention(node)
    _refuse(node, record)
    query, key, value = operands(lowering, node, record)
    lengths = _lengths(lowering, node, record, query)
    scales = None
    if record.cache is not None and record.cache.growth is Growth.FILLED:
        if lengths is None:
            raise NotLowered("a cache without lengths is not generated")
        query, key, value = filled(lowering, node, record, (query, key, value), lengths)
        scales = cache_scales(lowering, node, record)
        before: KnownDim = 0
    elif record.cache is not None and record.cache.growth is Growth.BUFFER and record.cache.key is not None:
        key, value, lengths = buffered(lowering, node, record, key, value)
        before = 0
    else:
        key, value, before = presents(lowering, node, record, key, value)
    mask = score_mask(lowering, node, record, key)
    facts = _facts(record, query, lengths)
    if facts.is_causal and record.last_sees_all:
        lowering.require_equal(key.shape[2], before + query.shape[2])  # of surplus keys the last query sees all
    target = lowering.result_view(node.output)
    heads = record.query.heads
    out = split_heads(target, heads) if record.is_merged and isinstance(heads, int) else target
    emit_attention(lowering, Heads(query, key, value, out, mask, lengths, before, scales), facts, (node,))
    lowering.set(node.output, target)


def _refuse(node: Node, record: AttentionRecord) -> None:
    """Raise where the record asks for what is not generated."""
    if record.quantized is not None and (record.cache is None or record.cache.growth is not Growth.FILLED):
        raise NotLowered(f"{node.op_type} with a cache of integers is not generated")
    what = record.beyond(*_GENERATED)
    if what is not None:
        raise NotLowered(f"{node.op_type} with {what} is not generated")
    if record.rotary is not None and (record.cache is None or record.cache.growth is not Growth.FILLED):
        raise NotLowered(f"{node.op_type} that turns heads beside no buffer of keys is not generated")
    if record.left is not None and (record.left < 0 or record.ahead != 0):
        raise NotLowered("a window of no keys, or one that is not causal, is not generated")
    if record.ahead not in (None, 0):
        raise NotLowered("a window that is not causal is not generated")


def _facts(record: AttentionRecord, query: View, lengths: View | None) -> AttentionFacts:
    size = query.shape[3]
    if record.scale is None and not isinstance(size, int):
        raise NotLowered("the size of the heads is not known")
    stated, rest = record.lengths, 0
    if stated is not None:
        rest = stated.rest
    elif lengths is not None:
        rest = BUFFERED_REST
    return AttentionFacts(
        record.factor(size if isinstance(size, int) else 0), is_causal=record.ahead == 0,
        window=0 if record.left is None else record.left + 1, softcap=record.softcap,
        is_hidden_nan=record.is_hidden_nan,
        lengths_bits=0 if lengths is None else lengths.dtype.bits, lengths_rest=rest,
        lengths_cover_queries=record.cache is not None and record.cache.growth is Growth.FILLED,
    )  # fmt: skip


def _lengths(lowering: Lowering, node: Node, record: AttentionRecord, query: View) -> View | None:
    """Return how many keys count, one number for each entry of the batch."""
    if record.lengths is None:
        return None
    lengths = lowering.contiguous(node.input(record.lengths.input))
    if lengths.dtype not in (DataType.INT32, DataType.INT64):
        raise NotLowered(f"lengths of type {lengths.dtype.text} are not generated")
    if len(lengths.shape) > 2 or (len(lengths.shape) == 2 and 1 not in lengths.shape):
        raise NotLowered(f"lengths of shape {sizes_text(lengths.shape)} are not generated")
    lowering.require_equal(count_of(lengths.shape), query.shape[0])
    return lengths.reshaped((query.shape[0],))
