"""Attention and MultiHeadAttention of com.microsoft: dense heads with padding masks and a past."""

from __future__ import annotations

from ort_core.ir.values import Value
from ort_core.ops.attention import AttentionFeature, AttentionRecord, Layout
from ort_core.ops.bodies.activations import Results
from ort_core.ops.bodies.attention import (
    Masks,
    additive_mask,
    attend,
    merge_heads,
    operands,
    padding_mask,
    read_record,
)
from ort_core.ops.bodies.quantization import column_parameters, integer_product
from ort_core.ops.bodies.writer import BodyWriter

_WRITTEN = (
    AttentionFeature.PACKED, AttentionFeature.BIAS, AttentionFeature.MASK, AttentionFeature.PADDING,
    AttentionFeature.PAST, AttentionFeature.PRESENT, AttentionFeature.CAUSAL, AttentionFeature.SCORES,
)  # fmt: skip

_QUANTIZED_BIAS = 2  # of QAttention: its floats are of the type in which the result is


def attention(w: BodyWriter) -> Results:
    """Project the input to queries, keys and values with one matrix, then attend."""
    record = read_record(w, *_WRITTEN)
    heads = operands(w, record, w.sum(w.op("MatMul", w.wide(0), w.wide(1)), w.find_wide(2)))
    output, key, value, _ = _dense(w, record, heads)
    present = w.joined(w.unsqueeze(key, 0), w.unsqueeze(value, 0), axis=0) if w.wants(1) else None
    return [output, None if present is None else w.narrow(present)]


def quantized_attention(w: BodyWriter) -> Results:
    """Attention whose projection is a product of bytes, scaled to the floats of its bias."""
    record = read_record(w, *_WRITTEN)
    column_parameters(w, 3, 4, 6, 7)
    zero = w.scalar(w.input(6), 6) if w.has(6) else None
    total = integer_product(w, w.input(0), w.input(1), zero, w.find(7))
    scaled = w.op("Mul", total, w.op("Mul", w.wide(3), w.wide(4)))
    heads = operands(w, record, w.sum(scaled, w.wide(_QUANTIZED_BIAS)))
    output, key, value, _ = _dense(w, record, heads, _QUANTIZED_BIAS)
    present = w.joined(w.unsqueeze(key, 0), w.unsqueeze(value, 0), axis=0) if w.wants(1) else None
    return [output, None if present is None else w.narrow(present, _QUANTIZED_BIAS)]


def multi_head_attention(w: BodyWriter) -> Results:
    """Self or cross attention over projected queries, keys and values; also present key, present value, scores."""
    record = read_record(w, *_WRITTEN)
    output, key, value, scores = _dense(w, record, operands(w, record))
    presents = [w.narrow(each) if w.wants(place) else None for place, each in ((1, key), (2, value))]
    return [output, *presents, scores if w.wants(3) else None]


def _dense(
    w: BodyWriter, record: AttentionRecord, heads: tuple[Value, Value, Value], like: int = 0
) -> tuple[Value, Value, Value, Value]:
    """Return the result with its heads merged, in the type of an input, present keys and values, and the scores."""
    query, key, value = heads
    is_of_another = record.key.layout is Layout.HEADS  # whole already: there is nothing before them
    new = w.size(key, 2)
    if not is_of_another:
        key, value = _behind_past(w, record, key, value)
    lengths = (w.size(query, 2), w.size(key, 2))
    keeps = None
    if record.padding is not None:
        keeps = padding_mask(w, record.padding, w.size(query, 0), *lengths)
    past = w.ints(0) if is_of_another else w.op("Sub", lengths[1], new)
    bias = additive_mask(w, keeps, record, lengths=lengths, past=past)
    added = w.place(record.mask)
    masks = Masks(bias if added is None else w.sum(added, bias))
    output, scores = attend(w, (query, key, value), record, masks)
    return w.narrow(merge_heads(w, output), like), key, value, scores


def _behind_past(w: BodyWriter, record: AttentionRecord, key: Value, value: Value) -> tuple[Value, Value]:
    cache = record.cache
    if cache is None or cache.key is None or cache.value is None:
        return key, value
    pasts = [w.wide(cache.key), w.wide(cache.value)]
    if cache.is_one_tensor:
        pasts = [w.squeeze(w.slice(pasts[0], 0, place, place + 1), 0) for place in range(2)]
    return w.joined(pasts[0], key, axis=2), w.joined(pasts[1], value, axis=2)
