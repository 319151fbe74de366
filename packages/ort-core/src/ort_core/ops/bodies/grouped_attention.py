"""GroupQueryAttention: several query heads per key/value head, caches, rotary positions, local windows, sinks."""

from __future__ import annotations

from ort_core.frozen import frozen
from ort_core.ir.types import DataType
from ort_core.ir.values import Value
from ort_core.ops.attention import AttentionFeature, AttentionRecord, Rotary
from ort_core.ops.bodies.activations import Results
from ort_core.ops.bodies.attention import Masks, attend, merge_heads, operands, read_record
from ort_core.ops.bodies.normalization import rms_norm
from ort_core.ops.bodies.rotary import angles, pairs_of, rotate
from ort_core.ops.bodies.writer import BodyWriter, NoBody

INT64 = DataType.INT64


@frozen
class _Rows:
    """Where rows of caches lie, each but the lists as (batch, 1, 1, 1) of int64.

    Attributes:
        fresh: the number of new rows, as a list.
        capacity: the number of rows of the past, as a list; ``None`` without a past.
        length: the number of rows of the present, as a list.
        past: how many rows of the past are valid.
        total: how many rows of the present are valid.
    """

    fresh: Value
    capacity: Value | None
    length: Value
    past: Value
    total: Value


_WRITTEN = (
    AttentionFeature.PACKED, AttentionFeature.MASK, AttentionFeature.PAST, AttentionFeature.PRESENT,
    AttentionFeature.LENGTHS, AttentionFeature.CAUSAL, AttentionFeature.WINDOW, AttentionFeature.SOFTCAP,
    AttentionFeature.ROTARY, AttentionFeature.POSITIONS, AttentionFeature.SINK, AttentionFeature.SMOOTH,
    AttentionFeature.NORMALIZED,
)  # fmt: skip


def group_query_attention(w: BodyWriter) -> Results:
    """Attend with grouped heads; also present key and value."""
    record = read_record(w, *_WRITTEN)
    if w.has(16):
        raise NoBody("packed queries have no body")
    if record.left is not None and not record.is_causal:
        raise NoBody("a window that is not causal has no body")
    query, key, value = operands(w, record)
    rows = _rows(w, query)
    if record.norms is not None:
        query, key = (
            w.op("Mul", rms_norm(w, x, epsilon)[0], w.wide(weight))
            for x, epsilon, weight in zip(
                (query, key), record.norms.epsilons, (record.norms.query, record.norms.key), strict=True
            )
        )
    if record.rotary is not None:
        query, key = _turned(w, rows, record, record.rotary, query, key)
    has_new = _has_new_keys(record)
    key, value = (_present(w, rows, index, new, has_new=has_new) for index, new in ((3, key), (4, value)))
    seen_key, seen_value, bias, columns = _seen(w, rows, key, value)
    masks = Masks(bias, _visible(w, rows, columns, record), record.softcap, _sink(w, record))
    output, _ = attend(w, (query, seen_key, seen_value), record, masks)
    stored = [w.narrow(_kept(w, rows, each)) if w.wants(place) else None for place, each in ((1, key), (2, value))]
    return [w.narrow(merge_heads(w, output)), *stored]


def _rows(w: BodyWriter, query: Value) -> _Rows:
    lengths = w.reshape(w.cast(w.input(5), INT64), -1, 1, 1, 1)
    fresh = w.size(query, 2)
    # A prompt that is padded on the right has fewer valid rows than new rows; its past is empty.
    past = w.op("Max", w.op("Sub", w.op("Add", lengths, w.ints(1)), fresh), w.ints(0))
    total = w.op("Add", past, fresh)
    longest = w.reshape(w.cast(w.input(6), INT64), 1)
    if not w.has(3):
        return _Rows(fresh, None, longest, past, total)
    capacity = w.size(w.input(3), 2)
    return _Rows(fresh, capacity, w.op("Max", capacity, longest), past, total)


def _turned(
    w: BodyWriter, rows: _Rows, record: AttentionRecord, rotary: Rotary, query: Value, key: Value
) -> tuple[Value, Value]:
    if rotary.cos is None or rotary.sin is None:
        raise NoBody("a rotary embedding without tables of angles has no body")
    pairs = pairs_of(w, rotary.cos)
    places = w.op("Add", w.reshape(rows.past, -1, 1), w.unsqueeze(w.range(rows.fresh), 0))
    if rotary.positions is not None:
        if w.shape(rotary.positions) is None or w.shape(rotary.positions) != (w.shape(0) or ())[:2]:
            raise NoBody("nothing says that its positions have the shape of its tokens")
        places = w.input(rotary.positions)
    cos, sin = (w.unsqueeze(each, 1) for each in angles(w, rotary.cos, rotary.sin, places))
    whole, interleaved = record.query.size == 2 * pairs, rotary.is_interleaved
    turned = rotate(w, query, cos, sin, pairs, interleaved=interleaved, whole=whole)
    if not _has_new_keys(record):
        cos, sin = (w.slice(each, 2, 0, w.size(key, 2)) for each in (cos, sin))
    return turned, rotate(w, key, cos, sin, pairs, interleaved=interleaved, whole=whole)


def _has_new_keys(record: AttentionRecord) -> bool:
    """Return whether there are known to be as many new keys as queries; none are given of caches that are shared."""
    return record.query.length is not None and record.key.length == record.query.length


def _present(w: BodyWriter, rows: _Rows, index: int, new: Value, *, has_new: bool) -> Value:
    """Return (B, M, length, H): each entry's valid rows of the past, then its new rows; what follows is unspecified.

    Without ``has_new`` there may be none: another layer has written them into a past that both share.
    """
    if rows.capacity is None:
        return new
    joined = w.joined(w.wide(index), new, axis=2)
    row = w.reshape(w.range(rows.length), 1, 1, -1, 1)
    past = rows.past if has_new else w.op("Add", rows.past, w.op("Sub", rows.fresh, w.size(new, 2)))
    from_new = w.op("Add", w.op("Sub", row, past), rows.capacity)
    end = w.op("Sub", w.size(joined, 2), w.ints(1))
    source = w.op("Min", w.op("Where", w.op("Less", row, past), row, from_new), end)
    shape = w.joined(w.size(new, 0), w.size(new, 1), rows.length, w.size(new, 3), axis=0)
    return w.op("GatherElements", joined, w.op("Expand", source, shape), axis=2)


def _seen(w: BodyWriter, rows: _Rows, key: Value, value: Value) -> tuple[Value, Value, Value | None, Value]:
    """Return the keys and values that have a column in the attention bias, that bias, and the number of columns.

    The number is that of rows as it was computed: providers know bounds of it, and none of a size of gathered rows.
    """
    columns = rows.fresh if rows.capacity is None else rows.length
    if not w.has(10):
        return key, value, None, columns
    bias = w.wide(10)
    width = w.size(bias, 3)
    seen = w.op("Min", width, columns)
    return w.slice(key, 2, 0, width), w.slice(value, 2, 0, width), w.slice(bias, 3, 0, columns), seen


def _visible(w: BodyWriter, rows: _Rows, columns: Value, record: AttentionRecord) -> Value:
    """Return (B, 1, S, columns): what each new token may attend to."""
    column = w.reshape(w.range(columns), 1, 1, 1, -1)
    lengths = w.reshape(w.op("Add", w.cast(w.input(5), INT64), w.ints(1)), -1, 1, 1, 1)
    valid = w.op("Less", column, lengths)
    if not record.is_causal:
        return valid
    new = w.reshape(w.range(rows.fresh), 1, 1, -1, 1)
    own = w.op("Min", w.op("Add", rows.past, new), w.op("Sub", lengths, w.ints(1)))  # padding: from the last key
    seen = w.op("And", w.op("LessOrEqual", column, own), valid)
    if record.left is not None:
        seen = w.op("And", seen, w.op("Greater", column, w.op("Sub", own, w.ints(record.left + 1))))
    return seen


def _sink(w: BodyWriter, record: AttentionRecord) -> Value | None:
    heads = record.query.heads
    assert isinstance(heads, int), "the schema requires it"
    if record.sink is not None:
        return w.reshape(w.wide(record.sink), 1, heads, 1, 1)
    return w.constant([[[[0.0]]] * heads], DataType.FLOAT) if record.has_zero_sink else None


def _kept(w: BodyWriter, rows: _Rows, stored: Value) -> Value:
    """Return the present: what follows its valid rows is zeros."""
    if rows.capacity is None:
        return stored
    row = w.reshape(w.range(rows.length), 1, 1, -1, 1)
    return w.op("Where", w.op("Less", row, rows.total), stored, w.constant(0, DataType.FLOAT))
