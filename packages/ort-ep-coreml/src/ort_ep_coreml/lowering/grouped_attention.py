"""GroupQueryAttention and RotaryEmbedding of com.microsoft: heads that share keys, and caches of a fixed capacity.

A cache holds ``capacity`` rows. New rows are written behind those that ``seqlens_k`` says are valid, and the rest is
zeros: the program reads how many from that input. Where the output is longer by the new rows, all rows of the past are
valid, and new ones are appended. What the program does not read but counts on (``total_sequence_length``) is looked
at before each run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ort_core.plugin.ir import Node, Value
from ort_ep_coreml.lowering.asked import Asked, rank_of, sizes_of
from ort_ep_coreml.lowering.attention import merged, repeated, rotated, split_rows, weighted
from ort_ep_coreml.lowering.attention_masks import MASKED
from ort_ep_coreml.lowering.conditions import known_attributes, lies_within, only_attributes, only_outputs
from ort_ep_coreml.lowering.emission import EmissionState
from ort_ep_coreml.lowering.indexing import from_the_front, indices_in_bounds
from ort_ep_coreml.lowering.rule import FLOATS, INTS, Rule
from ort_ep_coreml.lowering.terms import Term, chosen, first, joined, term
from ort_ep_coreml.mil import Operand, Size

_QUERY, _KEY, _VALUE, _PAST, _PAST_VALUE, _LENGTHS, _TOTAL, _COS, _SIN = range(9)
_UNREAD = tuple(range(9, 16))  # positions, biases, sinks, scales of narrow caches, norms of heads
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


def _grouped(node: Node) -> _Grouped | str:
    """Return the sizes of a node, or why it is not lowered."""
    queries, keys = node.int_attribute("num_heads", 0), node.int_attribute("kv_num_heads", 0)
    _, fresh, width = sizes_of(node.inputs[_QUERY])  # type: ignore[arg-type]  # ranks were asked
    if not isinstance(fresh, int) or not isinstance(width, int):
        return "how many tokens GroupQueryAttention gets, and how wide they are, is not known beforehand"
    size = width // (queries if node.input(_KEY) is not None else queries + 2 * keys)
    past = node.input(_PAST)
    if past is None:
        return _Grouped(queries, keys, size, fresh, 0, appends=True)
    capacity, given = sizes_of(past)[2], node.outputs[1] if len(node.outputs) > 1 else None
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
    sizes = _grouped(node)
    assert isinstance(sizes, _Grouped), "_groups_as_lowered was asked"
    q, k, v = _heads(to, node, sizes)
    resident = _resident(to, node, sizes)
    if node.int_attribute("do_rotary", 0):
        q, k = (_turned(to, node, each, resident, sizes) for each in (q, k))
    if node.input(_PAST) is not None:
        pasts = (term(to, node.input(place)) for place in (_PAST, _PAST_VALUE))
        k, v = (_cached(past, new, resident, sizes) for past, new in zip(pasts, (k, v), strict=True))
    scale = node.float_attribute("scale", 0.0) or 1 / math.sqrt(sizes.size)
    bias = _visible(node, resident, sizes, q)
    times = sizes.queries // sizes.keys
    shown = weighted(q, repeated(k, sizes.keys, times), scale, bias, node.float_attribute("softcap", 0.0))
    y = merged(shown[-1] @ repeated(v, sizes.keys, times), sizes.queries, sizes.size)
    return [y.operand, k.operand, v.operand]


def _heads(to: EmissionState, node: Node, sizes: _Grouped) -> tuple[Term, Term, Term]:
    counts = (sizes.queries, sizes.keys, sizes.keys)
    if node.input(_KEY) is not None:
        q, k, v = (split_rows(term(to, node.input(place)), count, sizes.size) for place, count in enumerate(counts))
        return q, k, v
    packed = split_rows(first(to, node), sum(counts), sizes.size)
    ends = np.cumsum([0, *counts])
    q, k, v = (packed.cut(1, int(start), int(end), 4) for start, end in pairwise(ends))
    return q, k, v


def _resident(to: EmissionState, node: Node, sizes: _Grouped) -> Term | int:
    """Return how many rows of the past are valid: a number where all are, else [batch, 1, 1, 1]."""
    lengths, total = node.input(_LENGTHS), node.input(_TOTAL)
    assert lengths is not None, "required"
    assert total is not None, "required"
    to.count_on(lengths, *sizes.limits_of_lengths)
    to.count_on(total, *sizes.limits_of_total)
    if sizes.appends:
        return sizes.capacity
    return (term(to, lengths).reshaped(-1, 1, 1, 1) + (1 - sizes.fresh)).with_("maximum", 0)


def _turned(to: EmissionState, node: Node, x: Term, resident: Term | int, sizes: _Grouped) -> Term:
    tables = (term(to, node.input(place)) for place in (_COS, _SIN))
    if isinstance(resident, int):
        rows = np.arange(resident, resident + sizes.fresh).astype(np.int32)
        angles = [each.do("gather", indices=rows, axis=0, validate_indices=False) for each in tables]
    else:
        at = (resident + np.arange(sizes.fresh).reshape(1, 1, -1, 1)).reshaped(-1, 1, sizes.fresh)
        angles = [each.do("gather", indices=at.operand, axis=0, validate_indices=False) for each in tables]
    turned = 2 * _pairs(node)
    return rotated(x, angles[0], angles[1], sizes.size, turned, bool(node.int_attribute("rotary_interleaved", 0)))


def _pairs(node: Node) -> int:
    pairs = sizes_of(node.inputs[_COS])[1]  # type: ignore[arg-type]  # _rotates was asked
    assert isinstance(pairs, int), "_rotates was asked"
    return pairs


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


def _visible(node: Node, resident: Term | int, sizes: _Grouped, like: Term) -> Term | None:
    """Return what forbids each new token rows behind its own, and those before its window."""
    window = node.int_attribute("local_window_size", -1)
    ahead = np.arange(sizes.columns) - np.arange(sizes.fresh)[:, None]
    if isinstance(resident, int):
        seen = (ahead <= resident) & ((ahead > resident - window) | (window <= 0))
        return Term(like.to, np.where(seen, 0, MASKED).astype(like.dtype), like.dtype)
    moved = Term(like.to, ahead.astype(np.int32), _INT32) - resident
    flags = moved.with_("less_equal", 0)
    if window > 0:
        flags = flags.with_("logical_and", moved.with_("greater", -window))
    return chosen(flags, 0, MASKED, like)


def _groups_as_lowered(asked: Asked, node: Node) -> str | None:
    if rank_of(node.input(_QUERY)) != 3 or (node.input(_KEY) is None) != (node.input(_VALUE) is None):
        return "GroupQueryAttention is lowered of queries, keys and values of three dimensions each, or all in one"
    if (node.input(_PAST) is None) != (node.input(_PAST_VALUE) is None):
        return "GroupQueryAttention with a past of one of keys and values"
    if node.int_attribute("smooth_softmax", -1) > 0:
        return "GroupQueryAttention with smooth_softmax=1 is not lowered"
    read = [place for place in _UNREAD if node.input(place) is not None]
    if read:
        return f"GroupQueryAttention with input {read[0]} ({node.inputs[read[0]].name!r}) is not lowered"  # type: ignore[union-attr]  # present
    sizes = _grouped(node)
    if isinstance(sizes, str):
        return sizes
    for value, limits in ((node.input(_LENGTHS), sizes.limits_of_lengths), (node.input(_TOTAL), sizes.limits_of_total)):
        if value is None:
            return "GroupQueryAttention without seqlens_k or total_sequence_length is not lowered"
        if not lies_within(asked, value, *limits):
            return f"nothing proves that {value.name!r} lies within {list(limits)}"
    return _rotates(node, sizes)


def _rotates(node: Node, sizes: _Grouped) -> str | None:
    if not node.int_attribute("do_rotary", 0):
        return None
    cos, sin = node.input(_COS), node.input(_SIN)
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
        to.count_on(positions, 0, rows - fresh)
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


def _turns_as_lowered(asked: Asked, node: Node) -> str | None:
    positions, table = node.input(1), sizes_of(node.inputs[2])  # type: ignore[arg-type]  # required
    if rank_of(node.input(0)) not in (3, 4) or not isinstance(sizes_of(node.inputs[0])[-1], int):  # type: ignore[arg-type]  # required
        return "the size of the heads of RotaryEmbedding is not known beforehand"
    if any(not isinstance(size, int) for size in table):
        return "how many rows the cosines of RotaryEmbedding have is not known beforehand"
    if positions is None or positions.shape != (1,):
        return _positions_in_bounds(asked, node) if rank_of(positions) == 2 else "its positions have no two dimensions"
    fresh, rows = _length(node), table[0]
    if not isinstance(fresh, int) or not isinstance(rows, int):
        return "RotaryEmbedding from a first position on over a length that is not known beforehand is not lowered"
    if lies_within(asked, positions, 0, rows - fresh):
        return None
    return f"nothing proves that positions from {positions.name!r} on have a row"


_positions_in_bounds = indices_in_bounds(lambda node: sizes_of(node.inputs[2])[:1])  # type: ignore[arg-type]  # required
_GROUPED = known_attributes(
    "num_heads", "kv_num_heads", "causal", "do_rotary", "local_window_size", "rotary_interleaved", "scale", "softcap",
    "smooth_softmax", "k_quant_type", "v_quant_type", "kv_cache_bit_width", "qk_output", "sliding_window_cache",
    "qk_norm_epsilon",
)  # fmt: skip
_PLAIN = only_attributes(
    causal=1, k_quant_type="NONE", v_quant_type="NONE", qk_output=0, sliding_window_cache=0, kv_cache_bit_width=0
)

CONTRIBUTED_GROUPED_ATTENTION: Mapping[str, Rule] = {
    "GroupQueryAttention": Rule(
        _group_query_attention,
        FLOATS,
        ports={_LENGTHS: INTS, _TOTAL: INTS},
        conditions=(_GROUPED, _PLAIN, only_outputs(0, 1, 2), _groups_as_lowered),
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
