"""GroupQueryAttention of com.microsoft: new rows go behind the valid ones of a cache, and queries see their past.

A plan is made for each signature of shapes, so how long caches are is known in it, and how many of their rows are valid
is read on the device: ``seqlens_k`` is looked at before each run (``index_limits``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ort_core.plugin.ir import Node
from ort_core.plugin.ops import AttentionFeature, AttentionRecord, Layout, Rotary, node_attention
from ort_ep_directml.lowering.activations import scaled
from ort_ep_directml.lowering.attention import forbidden, grouped_product, joined_heads, rotated, split_heads
from ort_ep_directml.lowering.elementwise import BYTE, binary, unary
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.indexing import gathered
from ort_ep_directml.lowering.movement import sliced
from ort_ep_directml.lowering.operand import Operand, expanded, resized, transposed
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.rule import Rule
from ort_ep_directml.schema.element_types import ElementType

_WIDE, _INTEGER = ElementType.FLOAT32, ElementType.INT64
_LOWERED = (
    AttentionFeature.PACKED, AttentionFeature.PAST, AttentionFeature.PRESENT, AttentionFeature.LENGTHS,
    AttentionFeature.CAUSAL, AttentionFeature.WINDOW, AttentionFeature.SOFTCAP, AttentionFeature.ROTARY,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of caches: how many are ``fresh``, how many the past and the present have.

    ``last`` is where the last valid row lies, and ``resident`` how many rows of the past are valid, as [batch, 1, 1, 1]
    of int64.
    """

    fresh: int
    capacity: int
    length: int
    last: Operand
    resident: Operand


def _grouped_attention(to: EmissionState, node: Node) -> list[Operand]:
    record = node_attention(node)
    _check(record)
    queries, keys, values = (to.cast(each, _WIDE) for each in _heads(to, node, record))
    rows = _rows(to, node, record, queries)
    if record.rotary is not None:
        queries, keys = (_turned(to, node, record.rotary, each, rows) for each in (queries, keys))
    dtype = to.operand(node.input(0)).dtype
    keys, values = (
        _present(to, node, place, to.cast(new, dtype), rows) for place, new in ((3, keys), (4, values))
    )  # fmt: skip
    turned = transposed(to.cast(keys, _WIDE), (0, 1, 3, 2))
    scores = grouped_product(to, queries, turned, record.factor(queries.sizes[3]))
    if record.softcap:
        scores = scaled(to, unary(to, "ACTIVATION_TANH", scaled(to, scores, 1 / record.softcap)), record.softcap)
    biased = binary(to, "ELEMENT_WISE_ADD", scores, forbidden(to, _seen(to, record, rows)))
    weights = unary(to, "ACTIVATION_SOFTMAX1", biased, Axes=(3,))  # each query sees a key
    y = joined_heads(to, grouped_product(to, weights, to.cast(values, _WIDE)), 3)
    return [to.cast(y, dtype), keys, values]


def _check(record: AttentionRecord) -> None:
    """Look whether an attention is one that is lowered.

    Raises:
        Refused: it is not.
    """
    if any(source.layout is not Layout.ROWS for source in (record.query, record.key, record.value)):
        raise Refused("GroupQueryAttention is lowered of queries, keys and values of three dimensions each, or in one")
    what = record.beyond(*_LOWERED)
    if what is not None or not record.is_causal:
        raise Refused(f"GroupQueryAttention with {what or 'causal=0'} is not lowered")
    if record.rotary is not None and (record.rotary.cos is None or record.rotary.sin is None):
        raise Refused("GroupQueryAttention that turns heads without tables of angles is not lowered")
    if record.cache is not None and (record.cache.key is None) != (record.cache.value is None):
        raise Refused("GroupQueryAttention with a past of one of keys and values is not lowered")


def _heads(to: EmissionState, node: Node, record: AttentionRecord) -> tuple[Operand, Operand, Operand]:
    """Return queries, keys and values as [batch, heads, sequence, size]."""
    q, k = (node.int_attribute(name, 0) for name in ("num_heads", "kv_num_heads"))
    if not record.key.is_part:
        first, second, third = (
            split_heads(to, to.operand(node.input(place)), heads) for place, heads in enumerate((q, k, k))
        )
        return first, second, third
    whole = split_heads(to, to.operand(node.input(0)), q + 2 * k)
    batch, _, length, size = whole.sizes
    ends = pairwise((0, q, q + k, q + 2 * k))
    first, second, third = (
        sliced(to, whole, (0, start, 0, 0), (batch, end - start, length, size), (1,) * 4) for start, end in ends
    )
    return first, second, third


def _rows(to: EmissionState, node: Node, record: AttentionRecord, queries: Operand) -> _Rows:
    assert record.lengths is not None, "the schema requires lengths"
    if len(node.outputs) < 2 or node.outputs[1] is None:
        raise Refused("GroupQueryAttention that gives no keys is not lowered: what lengths may be is looked up there")
    total = None if record.lengths.total is None else to.context.constant(node.input(record.lengths.total))
    if total is None:
        raise Refused("total_sequence_length does not follow from shapes, and DirectML compiles for fixed sizes")
    fresh, longest, past = queries.sizes[2], int(total.reshape(-1)[0]), node.input(3)
    capacity = 0 if past is None else to.sizes(past)[2]
    if longest < 1 or (longest > capacity and longest != capacity + fresh and not to.is_sample):
        raise Refused(f"a total length of {longest} does not belong to {capacity} cached and {fresh} new rows")
    given = to.operand(node.input(record.lengths.input))
    last = to.reshape(to.cast(given, _INTEGER), (queries.sizes[0], 1, 1, 1))
    before = binary(to, "ELEMENT_WISE_SUBTRACT", last, to.scalar(_INTEGER, fresh - 1))
    resident = binary(to, "ELEMENT_WISE_MAX", before, to.scalar(_INTEGER, 0))
    return _Rows(fresh, capacity, max(capacity, longest), last, resident)


def _turned(to: EmissionState, node: Node, rotary: Rotary, x: Operand, rows: _Rows) -> Operand:
    assert rotary.cos is not None, "_check was asked"
    assert rotary.sin is not None, "_check was asked"
    tables = [to.operand(node.input(place)) for place in (rotary.cos, rotary.sin)]
    if tables[0].sizes != tables[1].sizes or (tables[0].sizes[0] < rows.length and not to.is_sample):
        raise Refused(f"{rows.length} positions have no rows each in tables of {list(tables[0].sizes)} angles")
    steps = to.constant(np.arange(rows.fresh, dtype=np.int64).reshape(1, 1, 1, rows.fresh))
    places = binary(to, "ELEMENT_WISE_ADD", rows.resident, steps)
    places = to.reshape(places, (x.sizes[0], rows.fresh))
    pairs = tables[0].sizes[1]
    angles = [to.reshape(to.cast(gathered(to, table, places, 0), _WIDE), (*places.sizes, 1, pairs)) for table in tables]
    found = rotated(to, transposed(x, (0, 2, 1, 3)), angles, 2 * pairs, is_interleaved=rotary.is_interleaved)
    return transposed(found, (0, 2, 1, 3))


def _present(to: EmissionState, node: Node, place: int, new: Operand, rows: _Rows) -> Operand:
    """Append a cache: the valid rows of the past, the new rows, zeros behind them."""
    batch, heads, fresh, size = new.sizes
    joined = new
    if rows.capacity:
        past = to.operand(node.input(place))
        if past.sizes != (batch, heads, rows.capacity, size):
            if not to.is_sample:
                raise Refused(f"a cache of {list(past.sizes)} does not belong to new rows of {list(new.sizes)}")
            past = resized(past, (batch, heads, rows.capacity, size))
        joined = to.emit("JOIN", (new.dtype, (batch, heads, rows.capacity + fresh, size)), Inputs=[past, new], Axis=2)
    row = to.constant(np.arange(rows.length, dtype=np.int64).reshape(1, 1, rows.length, 1))
    moved = binary(to, "ELEMENT_WISE_SUBTRACT", row, rows.resident)  # from the first new row
    behind = binary(to, "ELEMENT_WISE_ADD", moved, to.scalar(_INTEGER, rows.capacity))
    end = to.scalar(_INTEGER, rows.capacity + fresh - 1)
    new_place = binary(to, "ELEMENT_WISE_MIN", behind, end)
    is_past = binary(to, "ELEMENT_WISE_LOGICAL_LESS_THAN", row, rows.resident, BYTE)
    source = _chosen(to, is_past, expanded(row, is_past.sizes), new_place)
    counts = {"InputDimensionCount": 4, "IndicesDimensionCount": 4, "BatchDimensionCount": 2}
    sizes = (batch, heads, rows.length, size)
    places = expanded(source, (batch, heads, rows.length, 1))
    found = to.emit("GATHER_ND1", (new.dtype, sizes), Input=joined, Indices=places, **counts)
    is_valid = binary(to, "ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL", row, rows.last, BYTE)
    return _chosen(to, expanded(is_valid, sizes), found, expanded(to.scalar(new.dtype, 0), sizes))


def _chosen(to: EmissionState, condition: Operand, a: Operand, b: Operand) -> Operand:
    return to.emit("ELEMENT_WISE_IF", (a.dtype, a.sizes), Condition=condition, A=a, B=b)


def _seen(to: EmissionState, record: AttentionRecord, rows: _Rows) -> Operand:
    """Return whether each query sees each row of the present, as [batch, 1, fresh, length]."""
    steps = to.constant(np.arange(rows.fresh, dtype=np.int64).reshape(1, 1, rows.fresh, 1))
    column = to.constant(np.arange(rows.length, dtype=np.int64).reshape(1, 1, 1, rows.length))
    own = binary(to, "ELEMENT_WISE_ADD", rows.resident, steps)
    own = binary(to, "ELEMENT_WISE_MIN", own, rows.last)  # padding behind the end sees what the last token does
    found = binary(to, "ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL", column, own, BYTE)
    if record.left is None:
        return found
    first = binary(to, "ELEMENT_WISE_SUBTRACT", own, to.scalar(_INTEGER, record.left))
    near = binary(to, "ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL", column, first, BYTE)
    return binary(to, "ELEMENT_WISE_LOGICAL_AND", found, near, BYTE)


GROUPED_ATTENTION: Mapping[str, Rule] = {"GroupQueryAttention": Rule(_grouped_attention, required=1, outputs=3)}
"""Rules by operator of ``com.microsoft``."""
