"""GroupQueryAttention and RotaryEmbedding of com.microsoft: heads that share keys, and caches of a fixed capacity.

A cache holds ``capacity`` rows. New rows are written behind those that ``seqlens_k`` says are valid, and the rest is
zeros: the program reads how many from that input. Where the output is longer by the new rows, all rows of the past are
valid, and new ones are appended. What the program does not read but counts on (``total_sequence_length``) is looked
at before each run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ort_core.plugin.ir import Node, Value
from ort_core.plugin.ops import AttentionFeature, AttentionRecord, Layout, Rotary, node_attention
from ort_ep_coreml.lowering.attention import merged, repeated, rotated, split_rows, weighted
from ort_ep_coreml.lowering.attention_masks import MASKED
from ort_ep_coreml.lowering.conditions import known_attributes, lies_within, looked_at, only_attributes, only_outputs
from ort_ep_coreml.lowering.emission import EmissionState
from ort_ep_coreml.lowering.indexing import from_the_front, indices_in_bounds
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of, sizes_of
from ort_ep_coreml.lowering.rule import FLOATS, INTS, Rule
from ort_ep_coreml.lowering.terms import Term, chosen, first, joined, term
from ort_ep_coreml.mil import Operand, Size

_LENGTHS, _TOTAL = 5, 6  # inputs whose types are asked for
_LOWERED = (
    AttentionFeature.PACKED, AttentionFeature.PAST, AttentionFeature.PRESENT, AttentionFeature.LENGTHS,
    AttentionFeature.CAUSAL, AttentionFeature.WINDOW, AttentionFeature.SOFTCAP, AttentionFeature.ROTARY,
)  # fmt: skip
_INT32 = np.dtype(np.int32)


@dataclass(frozen=True, slots=True)
class _Grouped:
    """The sizes of a node: ``capacity`` rows of its past, ``fresh`` new ones, and whether these are appended."""

    queries: int
    keys: int
    size: int
    fresh: int
    capacity: int
    appends: bool

    @property
    def columns(self) -> int:
        """How many rows the present has."""
        return self.capacity + self.fresh if self.appends else self.capacity

    @property
    def limits_of_lengths(self) -> tuple[int, int]:
        """Between which numbers ``seqlens_k`` lies; a prompt may be padded behind its end."""
        return (self.columns - 1 if self.appends and self.capacity else 0), self.columns - 1

    @property
    def limits_of_total(self) -> tuple[int, int]:
        """Between which numbers ``total_sequence_length`` lies."""
        return (self.columns if self.appends else 1), self.columns


def _grouped(node: Node, record: AttentionRecord) -> _Grouped | str:
    """Return the sizes of a node, or why it is not lowered."""
    queries, keys, fresh, size = record.query.heads, record.key.heads, record.query.length, record.query.size
    if not isinstance(fresh, int) or not isinstance(size, int):
        return "how many tokens GroupQueryAttention gets, and how wide they are, is not known beforehand"
    assert isinstance(queries, int), "the schema requires it"
    assert isinstance(keys, int), "the schema requires it"
    past = None if record.cache is None or record.cache.key is None else node.input(record.cache.key)
    if past is None or record.cache is None:
        return _Grouped(queries, keys, size, fresh, 0, appends=True)
    capacity, given = record.cache.rows, node.outputs[1] if len(node.outputs) > 1 else None
    if not isinstance(capacity, int):
        return f"the cache {past.name!r} has an open size: Core ML writes into caches of a fixed capacity"
    columns = None if given is None or given.shape is None else given.shape[2]
    if columns == capacity + fresh:
        return _Grouped(queries, keys, size, fresh, capacity, appends=True)
    if fresh > capacity:
        return f"the cache {past.name!r} has {capacity} rows, fewer than the {fresh} new ones"
    return _Grouped(queries, keys, size, fresh, capacity, appends=False)


def _group_query_attention(to: EmissionState, node: Node) -> list[Operand]:
    """Lower GroupQueryAttention: queries, keys and values, or all in one; the past; lengths; cosines and sines."""
    record = node_attention(node)
    sizes = _grouped(node, record)
    assert isinstance(sizes, _Grouped), "_groups_as_lowered was asked"
    q, k, v = _heads(to, node, record, sizes)
    resident = _resident(to, node, record, sizes)
    if record.rotary is not None:
        turned = record.rotary
        q, k = (_turned(to, node, turned, each, resident, sizes) for each in (q, k))
    if record.has_past and record.cache is not None:
        pasts = [term(to, node.input(place)) for place in (record.cache.key, record.cache.value) if place is not None]
        k, v = (_cached(past, new, resident, sizes) for past, new in zip(pasts, (k, v), strict=True))
    bias = _visible(record, resident, sizes, q)
    times = sizes.queries // sizes.keys
    shown = weighted(q, repeated(k, sizes.keys, times), record.factor(sizes.size), bias, record.softcap)
    y = merged(shown[-1] @ repeated(v, sizes.keys, times), sizes.queries, sizes.size)
    return [y.operand, k.operand, v.operand]


def _heads(to: EmissionState, node: Node, record: AttentionRecord, sizes: _Grouped) -> tuple[Term, Term, Term]:
    heads = (sizes.queries, sizes.keys, sizes.keys)
    if not record.key.is_part:
        places = (record.query.input, record.key.input, record.value.input)
        parts = (term(to, node.input(place)) for place in places if place is not None)
        q, k, v = (split_rows(part, count, sizes.size) for part, count in zip(parts, heads, strict=True))
        return q, k, v
    packed = split_rows(first(to, node), sum(heads), sizes.size)
    ends = np.cumsum([0, *heads])
    q, k, v = (packed.cut(1, int(start), int(end), 4) for start, end in pairwise(ends))
    return q, k, v


def _resident(to: EmissionState, node: Node, record: AttentionRecord, sizes: _Grouped) -> Term | int:
    """Return how many rows of the past are valid: a number where all are, else [batch, 1, 1, 1]."""
    lengths, total = _counts(node, record)
    assert lengths is not None, "required"
    assert total is not None, "required"
    to.count_on(looked_at(lengths), *sizes.limits_of_lengths)
    to.count_on(looked_at(total), *sizes.limits_of_total)
    if sizes.appends:
        return sizes.capacity
    return (term(to, lengths).reshaped(-1, 1, 1, 1) + (1 - sizes.fresh)).with_("maximum", 0)


def _counts(node: Node, record: AttentionRecord) -> tuple[Value | None, Value | None]:
    """Return the lengths of each entry of the batch, and the longest."""
    if record.lengths is None:
        return None, None
    total = record.lengths.total
    return node.input(record.lengths.input), None if total is None else node.input(total)


def _turned(to: EmissionState, node: Node, rotary: Rotary, x: Term, resident: Term | int, sizes: _Grouped) -> Term:
    tables = [term(to, node.input(place)) for place in (rotary.cos, rotary.sin) if place is not None]
    if isinstance(resident, int):
        rows = np.arange(resident, resident + sizes.fresh).astype(np.int32)
        angles = [each.do("gather", indices=rows, axis=0, validate_indices=False) for each in tables]
    else:
        at = (resident + np.arange(sizes.fresh).reshape(1, 1, -1, 1)).reshaped(-1, 1, sizes.fresh)
        angles = [each.do("gather", indices=at.operand, axis=0, validate_indices=False) for each in tables]
    assert rotary.cos is not None, "_rotates was asked"
    pairs = sizes_of(node.inputs[rotary.cos])[1]  # type: ignore[arg-type]  # _rotates was asked
    assert isinstance(pairs, int), "_rotates was asked"
    return rotated(x, angles[0], angles[1], sizes.size, 2 * pairs, rotary.is_interleaved)


def _cached(past: Term, new: Term, resident: Term | int, sizes: _Grouped) -> Term:
    """Return the past with new rows behind those that are valid, and zeros behind these."""
    if isinstance(resident, int):
        return joined([past, new], 2)
    rows = np.arange(sizes.capacity).reshape(1, 1, -1, 1)
    away = Term(past.to, rows.astype(np.int32), _INT32) - resident  # from the first new row
    place = away.with_("maximum", 0).with_("minimum", sizes.fresh - 1)
    places = place + np.zeros((1, sizes.keys, sizes.capacity, sizes.size), np.int32)
    written = new.do("gather_along_axis", indices=places.operand, axis=2, validate_indices=False)
    behind = chosen(away.with_("less", sizes.fresh), written, 0, past)
    return chosen(away.with_("less", 0), past, behind, past)


def _visible(record: AttentionRecord, resident: Term | int, sizes: _Grouped, like: Term) -> Term | None:
    """Return what forbids each new token rows behind its own, and those before its window."""
    ahead = np.arange(sizes.columns) - np.arange(sizes.fresh)[:, None]
    if isinstance(resident, int):
        seen = ahead <= resident
        if record.left is not None:
            seen = seen & (ahead >= resident - record.left)
        return Term(like.to, np.where(seen, 0, MASKED).astype(like.dtype), like.dtype)
    moved = Term(like.to, ahead.astype(np.int32), _INT32) - resident
    flags = moved.with_("less_equal", 0)
    if record.left is not None:
        flags = flags.with_("logical_and", moved.with_("greater", -record.left - 1))
    return chosen(flags, 0, MASKED, like)


def _groups_as_lowered(context: LoweringContext, node: Node) -> str | None:
    record = node_attention(node)
    if any(source.layout is not Layout.ROWS for source in (record.query, record.key, record.value)):
        return "GroupQueryAttention is lowered of queries, keys and values of three dimensions each, or all in one"
    if record.cache is not None and (record.cache.key is None) != (record.cache.value is None):
        return "GroupQueryAttention with a past of one of keys and values"
    what = record.beyond(*_LOWERED)
    if what is not None or not record.is_causal:
        return f"GroupQueryAttention with {what or 'causal=0'} is not lowered"
    if record.left is not None and record.left < 0:
        return "GroupQueryAttention with a window of no keys is not lowered"
    sizes = _grouped(node, record)
    if isinstance(sizes, str):
        return sizes
    for value, limits in zip(_counts(node, record), (sizes.limits_of_lengths, sizes.limits_of_total), strict=True):
        if value is None:
            return "GroupQueryAttention without seqlens_k or total_sequence_length is not lowered"
        if not lies_within(context, value, *limits):
            return f"nothing proves that {value.name!r} lies within {list(limits)}"
    return _rotates(node, record.rotary, sizes)


def _rotates(node: Node, rotary: Rotary | None, sizes: _Grouped) -> str | None:
    if rotary is None:
        return None
    cos, sin = (None if place is None else node.input(place) for place in (rotary.cos, rotary.sin))
    if cos is None or sin is None or sizes_of(cos) != sizes_of(sin):
        return "GroupQueryAttention with do_rotary=1 needs cos_cache and sin_cache of one shape"
    rows, pairs = sizes_of(cos)
    if not isinstance(rows, int) or not isinstance(pairs, int) or rows < sizes.columns:
        return f"nothing proves that {sizes.columns} positions have rows in {cos.name!r}; Core ML does not look"
    return None


def _rotary(to: EmissionState, node: Node) -> Operand:
    """Lower RotaryEmbedding: X, positions or the first of them, cosines, sines."""
    x, rank = first(to, node), rank_of(node.input(0))
    size = _head_size(node)
    heads = int(sizes_of(node.inputs[0])[-1]) // size if rank == 3 else 0  # type: ignore[arg-type]  # _turns_as_lowered was asked
    x = split_rows(x, heads, size) if rank == 3 else x
    positions = node.input(1)
    assert positions is not None, "required"
    rows, pairs = (int(each) for each in sizes_of(node.inputs[2]))  # type: ignore[arg-type]  # _turns_as_lowered was asked
    if positions.shape == (1,):
        fresh = _length(node)
        assert isinstance(fresh, int), "_turns_as_lowered was asked"
        to.count_on(looked_at(positions), 0, rows - fresh)
        at: Operand = (term(to, positions) + np.arange(fresh)).operand
    else:
        at = from_the_front(to, positions, (rows,))
    cos, sin = (
        _row_axis(term(to, node.input(place)).do("gather", indices=at, axis=0, validate_indices=False), positions)
        for place in (2, 3)
    )
    found = rotated(x, cos, sin, size, 2 * pairs, bool(node.int_attribute("interleaved", 0)))
    return (merged(found, heads, size) if rank == 3 else found).operand


def _row_axis(angles: Term, positions: Value) -> Term:
    return angles if positions.shape == (1,) else angles.do("expand_dims", axes=np.array([1], np.int32))


def _length(node: Node) -> Size:
    return sizes_of(node.inputs[0])[1 if rank_of(node.input(0)) == 3 else 2]  # type: ignore[arg-type]  # required


def _head_size(node: Node) -> int:
    sizes, heads = sizes_of(node.inputs[0]), node.int_attribute("num_heads", 0)  # type: ignore[arg-type]  # required
    width, pairs = sizes[-1], sizes_of(node.inputs[2])[1]  # type: ignore[arg-type]  # required
    assert isinstance(width, int), "_turns_as_lowered was asked"
    assert isinstance(pairs, int), "_turns_as_lowered was asked"
    return width if len(sizes) == 4 else width // heads if heads else 2 * pairs


def _turns_as_lowered(context: LoweringContext, node: Node) -> str | None:
    positions, table = node.input(1), sizes_of(node.inputs[2])  # type: ignore[arg-type]  # required
    if rank_of(node.input(0)) not in (3, 4) or not isinstance(sizes_of(node.inputs[0])[-1], int):  # type: ignore[arg-type]  # required
        return "the size of the heads of RotaryEmbedding is not known beforehand"
    if any(not isinstance(size, int) for size in table):
        return "how many rows the cosines of RotaryEmbedding have is not known beforehand"
    if positions is None or positions.shape != (1,):
        return (
            _positions_in_bounds(context, node) if rank_of(positions) == 2 else "its positions have no two dimensions"
        )
    fresh, rows = _length(node), table[0]
    if not isinstance(fresh, int) or not isinstance(rows, int):
        return "RotaryEmbedding from a first position on over a length that is not known beforehand is not lowered"
    if lies_within(context, positions, 0, rows - fresh):
        return None
    return f"nothing proves that positions from {positions.name!r} on have a row"


_positions_in_bounds = indices_in_bounds(lambda node: sizes_of(node.inputs[2])[:1])  # type: ignore[arg-type]  # required
_GROUPED = known_attributes(
    "num_heads", "kv_num_heads", "causal", "do_rotary", "local_window_size", "rotary_interleaved", "scale", "softcap",
    "smooth_softmax", "k_quant_type", "v_quant_type", "kv_cache_bit_width", "qk_output", "sliding_window_cache",
    "qk_norm_epsilon",
)  # fmt: skip

CONTRIBUTED_GROUPED_ATTENTION: Mapping[str, Rule] = {
    "GroupQueryAttention": Rule(
        _group_query_attention,
        FLOATS,
        ports={_LENGTHS: INTS, _TOTAL: INTS},
        conditions=(_GROUPED, only_outputs(0, 1, 2), _groups_as_lowered),
        outputs=3,
    ),
    "RotaryEmbedding": Rule(
        _rotary,
        FLOATS,
        ports={1: INTS},
        conditions=(only_attributes(is_packed_batching=0), _turns_as_lowered),
        required=4,
    ),
}
"""Rules by operator of ``com.microsoft``."""
