"""Attention and rotary embedding, as products and a softmax in float32. Query heads that share a key are stacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.ops import AttentionRecord, HeadSource, Layout, ScoreStage, node_attention
from ort_ep_directml.lowering.activations import scaled, times
from ort_ep_directml.lowering.elementwise import BYTE, binary, unary
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.indexing import gathered
from ort_ep_directml.lowering.movement import padded, sliced
from ort_ep_directml.lowering.operand import Operand, expanded, transposed
from ort_ep_directml.lowering.products import product
from ort_ep_directml.lowering.reductions import reduced
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.rule import Rule
from ort_ep_directml.schema.element_types import ElementType
from ort_ep_directml.schema.enumerators import InfinityMode, PaddingMode, ReduceFunction

_WIDE = ElementType.FLOAT32


def split_heads(to: EmissionState, x: Operand, count: int) -> Operand:
    """Return [batch, sequence, heads * size] as [batch, heads, sequence, size]."""
    if not count:
        raise Refused("the number of heads is not given")
    return transposed(to.reshape(x, (*x.sizes[:2], count, x.sizes[2] // count)), (0, 2, 1, 3))


def _heads(to: EmissionState, node: Node, source: HeadSource) -> Operand:
    """Return [batch, heads, sequence, size] from that or from [batch, sequence, heads * size]."""
    x = to.operand(None if source.input is None else node.input(source.input))
    if source.layout is Layout.HEADS:
        return x
    return split_heads(to, x, source.heads if isinstance(source.heads, int) else 0)


def joined_heads(to: EmissionState, y: Operand, rank: int) -> Operand:
    """Return [batch, heads, sequence, size] in as many dimensions as are asked for: 4, or 3 with heads side by side."""
    if rank == 4:
        return y
    batch, heads, length, size = y.sizes
    return to.reshape(transposed(y, (0, 2, 1, 3)), (batch, length, heads * size))


def grouped_product(to: EmissionState, left: Operand, right: Operand, alpha: float = 1.0) -> Operand:
    """Append [B, H, L, A] x [B, G, A, S], where each right head serves ``H / G`` left heads."""
    batch, heads, length, inner = left.sizes
    groups = right.sizes[1]
    stacked = to.reshape(left, (batch, groups, heads // groups * length, inner))
    return to.reshape(product(to, stacked, right, alpha=alpha), (batch, heads, length, right.sizes[3]))


def _behind(to: EmissionState, past: Operand, new: Operand) -> Operand:
    sizes = (*new.sizes[:2], past.sizes[2] + new.sizes[2], new.sizes[3])
    return to.emit("JOIN", (new.dtype, sizes), Inputs=[past, new], Axis=2)


def forbidden(to: EmissionState, allowed: Operand) -> Operand:
    """Append 0 where something is allowed, minus infinity elsewhere."""
    free = expanded(to.scalar(_WIDE, 0.0), allowed.sizes)
    barred = expanded(to.scalar(_WIDE, -np.inf), allowed.sizes)
    return to.emit("ELEMENT_WISE_IF", (_WIDE, allowed.sizes), Condition=allowed, A=free, B=barred)


def _frontier(
    to: EmissionState, node: Node, record: AttentionRecord, length: int, total: int, past: int
) -> Operand | None:
    """Return what forbids keys outside of the query's window: a constant, or from the lengths of a padded cache."""
    left, right = record.left, record.ahead
    ahead = np.arange(total, dtype=np.int64) - np.arange(length, dtype=np.int64)[:, None]
    if record.lengths is None:
        if left is None and right is None:
            return None
        ahead -= past
        allowed = (ahead >= -left if left is not None else True) & (ahead <= right if right is not None else True)
        return to.constant(np.where(allowed, np.float32(0), np.float32(-np.inf)))
    lengths = to.operand(node.input(record.lengths.input))
    lengths = to.reshape(to.cast(lengths, ElementType.INT64), (lengths.sizes[0], 1, 1, 1))
    bounds = [("LESS_THAN", to.constant(np.arange(total, dtype=np.int64).reshape(1, 1, 1, total)), lengths)]
    moved = binary(to, "ELEMENT_WISE_SUBTRACT", to.constant(ahead.reshape(1, 1, length, total) + length), lengths)
    if left is not None:
        bounds.append(("GREATER_THAN_OR_EQUAL", moved, to.scalar(ElementType.INT64, -left)))
    if right is not None:
        bounds.append(("LESS_THAN_OR_EQUAL", moved, to.scalar(ElementType.INT64, right)))
    made = [binary(to, f"ELEMENT_WISE_LOGICAL_{kind}", a, b, BYTE) for kind, a, b in bounds]
    found = made[0]
    for each in made[1:]:
        found = binary(to, "ELEMENT_WISE_LOGICAL_AND", found, each)
    return forbidden(to, found)


def _mask(to: EmissionState, node: Node, record: AttentionRecord, total: int) -> Operand | None:
    if record.mask is None:
        return None
    mask = to.operand(node.input(record.mask))
    is_flags = dtype_of(node.input(record.mask)) is DataType.BOOL
    bias = forbidden(to, mask) if is_flags else to.cast(mask, _WIDE)
    missing = total - bias.sizes[-1]
    ends = [0] * (bias.rank - 1)
    return padded(to, bias, [*ends, 0], [*ends, missing], -np.inf, PaddingMode.CONSTANT)


def _softmax(to: EmissionState, scores: Operand, bias: Operand | None) -> Operand:
    """Append the softmax of the last dimension; a row that is forbidden whole becomes zeros."""
    weights = unary(to, "ACTIVATION_SOFTMAX1", scores, Axes=(scores.rank - 1,))
    if bias is None:
        return weights
    top = reduced(to, bias, ReduceFunction.MAX, (bias.rank - 1,))
    mode = int(InfinityMode.NEGATIVE)
    empty = to.emit("ELEMENT_WISE_IS_INFINITY", (BYTE, top.sizes), Input=top, InfinityMode=mode)
    zero = expanded(to.scalar(_WIDE, 0.0), weights.sizes)
    parts = {"Condition": expanded(empty, weights.sizes), "A": zero, "B": weights}
    return to.emit("ELEMENT_WISE_IF", (_WIDE, weights.sizes), **parts)


def _attention(to: EmissionState, node: Node) -> list[Operand]:
    record = node_attention(node)
    if record.is_double:
        raise Refused("a softmax in float64 is left to others")
    queries, keys, values = (_heads(to, node, source) for source in (record.query, record.key, record.value))
    dtype, past = queries.dtype, 0
    if record.cache is not None and record.cache.key is not None and record.cache.value is not None:
        pasts = [to.operand(node.input(place)) for place in (record.cache.key, record.cache.value)]
        past = pasts[0].sizes[2]
        keys, values = (_behind(to, old, new) for old, new in zip(pasts, (keys, values), strict=True))
    turned = transposed(to.cast(keys, _WIDE), (0, 1, 3, 2))
    raw = grouped_product(to, to.cast(queries, _WIDE), turned, record.factor(queries.sizes[3]))
    cap = record.softcap
    capped = scaled(to, unary(to, "ACTIVATION_TANH", scaled(to, raw, 1 / cap)), cap) if cap else raw
    parts = [
        _frontier(to, node, record, queries.sizes[2], keys.sizes[2], past), _mask(to, node, record, keys.sizes[2])
    ]  # fmt: skip
    given = [part for part in parts if part is not None]
    bias = binary(to, "ELEMENT_WISE_ADD", given[0], given[1]) if len(given) == 2 else given[0] if given else None
    biased = capped if bias is None else binary(to, "ELEMENT_WISE_ADD", capped, bias)
    weights = _softmax(to, biased, bias)
    y = joined_heads(to, grouped_product(to, weights, to.cast(values, _WIDE)), 3 if record.is_merged else 4)
    shown = {ScoreStage.CAPPED: capped, ScoreStage.MASKED: biased, ScoreStage.WEIGHTS: weights}
    return [to.cast(y, dtype), keys, values, to.cast(shown.get(record.scores or ScoreStage.RAW, raw), dtype)]


def _rotary(to: EmissionState, node: Node) -> Operand:
    x = to.operand(node.input(0))
    heads = x if x.rank == 4 else split_heads(to, x, node.int_attribute("num_heads", 0))
    heads = transposed(heads, (0, 2, 1, 3))  # batch, sequence, heads, size
    size = node.int_attribute("rotary_embedding_dim", 0) or heads.sizes[3]
    angles = [_angles(to, node, place, heads) for place in (1, 2)]
    turned = rotated(to, heads, angles, size, is_interleaved=bool(node.int_attribute("interleaved", 0)))
    if x.rank == 3:
        return to.reshape(turned, x.sizes)
    return transposed(turned, (0, 2, 1, 3))


def rotated(
    to: EmissionState, heads: Operand, angles: Sequence[Operand], size: int, *, is_interleaved: bool
) -> Operand:
    """Append [batch, sequence, heads, size] whose first elements are turned, by cosines and sines that broadcast."""
    cosines, sines = angles
    half = size // 2
    stride = 2 if is_interleaved else 1
    starts = (0, 1) if stride == 2 else (0, half)
    window = half * 2 - 1 if stride == 2 else half
    first, second = (_columns(to, heads, start, window, stride) for start in starts)
    real = binary(to, "ELEMENT_WISE_SUBTRACT", times(to, first, cosines), times(to, second, sines))
    other = binary(to, "ELEMENT_WISE_ADD", times(to, first, sines), times(to, second, cosines))
    turned = _stacked(to, real, other, interleaved=stride == 2)
    if size < heads.sizes[3]:
        rest = _columns(to, heads, size, heads.sizes[3] - size, 1)
        turned = to.emit("JOIN", (heads.dtype, heads.sizes), Inputs=[turned, rest], Axis=3)
    return turned


def _angles(to: EmissionState, node: Node, place: int, heads: Operand) -> Operand:
    """Return a cache as [batch, sequence, 1, half], chosen by positions where they are given."""
    cache = to.operand(node.input(place))
    if node.input(3) is not None:
        cache = gathered(to, cache, to.operand(node.input(3)), 0)
    return to.reshape(cache, (*heads.sizes[:2], 1, cache.sizes[-1]))


def _columns(to: EmissionState, x: Operand, start: int, window: int, stride: int) -> Operand:
    return sliced(to, x, (0, 0, 0, start), (*x.sizes[:3], window), (1, 1, 1, stride))


def _stacked(to: EmissionState, a: Operand, b: Operand, *, interleaved: bool) -> Operand:
    sizes = (*a.sizes[:3], 2 * a.sizes[3])
    if not interleaved:
        return to.emit("JOIN", (a.dtype, sizes), Inputs=[a, b], Axis=3)
    single = (*a.sizes, 1)
    parts = [to.reshape(each, single) for each in (a, b)]
    return to.reshape(to.emit("JOIN", (a.dtype, (*a.sizes, 2)), Inputs=parts, Axis=4), sizes)


ATTENTION: Mapping[str, Rule] = {
    "Attention": Rule(_attention, required=3, outputs=4),
    "RotaryEmbedding": Rule(_rotary, required=3),
}
"""Rules by operator."""
