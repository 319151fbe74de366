"""Attention and MultiHeadAttention of com.microsoft: dense heads with padding masks and a past."""

from __future__ import annotations

from ort_core.ir.values import Value
from ort_core.ops.bodies.activations import Results
from ort_core.ops.bodies.attention import (
    DEFAULT_FILTER,
    Masks,
    additive_mask,
    attend,
    merge_heads,
    padding_mask,
    split_heads,
)
from ort_core.ops.bodies.writer import BodyWriter, NoBody


def attention(w: BodyWriter) -> Results:
    """Project the input to queries, keys and values with one matrix, then attend."""
    _refuse(w, "do_rotary", "past_present_share_buffer")
    heads = w.integer("num_heads")
    projected = w.sum(w.op("MatMul", w.wide(0), w.wide(1)), w.find_wide(2))
    query, key, value = (split_heads(w, part, heads) for part in _projections(w, projected))
    past = w.find_wide(4)
    if past is not None:
        key, value = (w.joined(_half(w, past, place), new, axis=2) for place, new in ((0, key), (1, value)))
    lengths = (w.size(query, 2), w.size(key, 2))
    keeps = padding_mask(w, 3, w.size(query, 0), *lengths) if w.has(3) else None
    bias = additive_mask(
        w, keeps, _filter_value(w), causal=bool(w.integer("unidirectional")), lengths=lengths,
        past=w.op("Sub", lengths[1], lengths[0]),
    )  # fmt: skip
    added = w.find_wide(5)
    masks = Masks(bias if added is None else w.sum(added, bias))
    output, _ = attend(w, (query, key, value), (heads, heads), w.real("scale"), masks)
    present = w.joined(w.unsqueeze(key, 0), w.unsqueeze(value, 0), axis=0) if w.wants(1) else None
    return [w.narrow(merge_heads(w, output)), None if present is None else w.narrow(present)]


def _refuse(w: BodyWriter, *attributes: str) -> None:
    for name in attributes:
        if w.integer(name):
            raise NoBody(f"{w.node.op_type} with {name} has no body")


def _filter_value(w: BodyWriter) -> float:
    found = w.attribute("mask_filter_value")
    return float(found) if isinstance(found, (int, float)) else DEFAULT_FILTER


def _half(w: BodyWriter, past: Value, place: int) -> Value:
    return w.squeeze(w.slice(past, 0, place, place + 1), 0)


def _projections(w: BodyWriter, projected: Value) -> list[Value]:
    sizes = w.attribute("qkv_hidden_sizes")
    if isinstance(sizes, tuple) and sizes:
        starts = [sum(sizes[:place]) for place in range(4)]
        return [w.slice(projected, 2, starts[place], starts[place + 1]) for place in range(3)]
    columns = (w.shape(1) or (None, None))[-1]
    if not isinstance(columns, int):
        raise NoBody("the number of its weights' columns is not known")
    width = columns // 3
    return [w.slice(projected, 2, place * width, (place + 1) * width) for place in range(3)]


def multi_head_attention(w: BodyWriter) -> Results:
    """Self or cross attention over projected queries, keys and values; also present key, present value, scores."""
    if w.has(8) or w.has(9):
        raise NoBody("caches with spare rows and the past of beams have no body")
    heads = w.integer("num_heads")
    query, key, value = _heads(w, heads)
    cross = w.has(1) and w.rank(1) == 4
    new = w.size(key, 2)
    if not cross and w.has(6) and w.has(7):
        key, value = w.joined(w.wide(6), key, axis=2), w.joined(w.wide(7), value, axis=2)
    lengths = (w.size(query, 2), w.size(key, 2))
    keeps = padding_mask(w, 4, w.size(query, 0), *lengths) if w.has(4) else None
    bias = additive_mask(
        w, keeps, _filter_value(w), causal=bool(w.integer("unidirectional")), lengths=lengths,
        past=w.ints(0) if cross else w.op("Sub", lengths[1], new),
    )  # fmt: skip
    added = w.find_wide(5)
    masks = Masks(bias if added is None else w.sum(added, bias))
    output, scores = attend(w, (query, key, value), (heads, heads), w.real("scale"), masks)
    presents = [w.narrow(each) if w.wants(place) else None for place, each in ((1, key), (2, value))]
    return [w.narrow(merge_heads(w, output)), *presents, scores if w.wants(3) else None]


def _heads(w: BodyWriter, heads: int) -> tuple[Value, Value, Value]:
    """Bring every input layout to (B, N, S, H): packed QKV or KV (5-D), separate (3-D), or given as a past (4-D)."""
    query, key, value = w.wide(0), w.find_wide(1), w.find_wide(2)
    if w.rank(0) == 5:
        query, key, value = (_packed(w, query, place) for place in range(3))
    elif key is not None and w.rank(1) == 5:
        key, value = (_packed(w, key, place) for place in range(2))
    if key is None or value is None:
        raise NoBody("keys or values are absent, and nothing packs them")
    are_heads = w.has(1) and w.rank(1) == 4
    if w.has(3):
        query, key, value = _biased(w, query, key, value, are_heads=are_heads)
    pairs = ((query, False), (key, are_heads), (value, w.has(2) and w.rank(2) == 4))
    split = [x if is_split else split_heads(w, x, heads) for x, is_split in pairs]
    return split[0], split[1], split[2]


def _packed(w: BodyWriter, x: Value, place: int) -> Value:
    """Return one of the parts that (B, S, N, parts, H) packs, as (B, S, N * H)."""
    return w.reshape(w.squeeze(w.slice(x, 3, place, place + 1), 3), 0, 0, -1)


def _biased(w: BodyWriter, query: Value, key: Value, value: Value, *, are_heads: bool) -> tuple[Value, Value, Value]:
    bias = w.wide(3)
    width = w.size(query, 2)
    query = w.op("Add", query, w.slice(bias, 0, 0, width))
    if not are_heads:
        middle = w.op("Mul", width, w.ints(2))
        key = w.op("Add", key, w.slice(bias, 0, width, middle))
        value = w.op("Add", value, w.slice(bias, 0, middle))
    return query, key, value
