"""What every form of attention consists of: heads, products with keys, masks, a softmax, products with values."""

from __future__ import annotations

from ort_core.frozen import frozen
from ort_core.ir.types import DataType
from ort_core.ir.values import Value
from ort_core.ops.attention import AttentionFeature, AttentionRecord, HeadSource, Layout
from ort_core.ops.attention_forms import node_attention
from ort_core.ops.bodies.writer import BodyWriter, NoBody

FLOAT = DataType.FLOAT
LOWEST = -3.4028234663852886e38  # of float32: as a score it has no weight beside any other


@frozen
class Masks:
    """What changes scores.

    Attributes:
        bias: is added.
        allowed: where it is false, a key has no weight; every row has a key that is allowed.
        softcap: c turns scores into c * tanh(score / c); 0 does nothing.
        sink: one more score of each head, (1, heads, 1, 1), which takes weight and gives no value.
    """

    bias: Value | None = None
    allowed: Value | None = None
    softcap: float = 0.0
    sink: Value | None = None


def read_record(w: BodyWriter, *features: AttentionFeature) -> AttentionRecord:
    """Return what the node means.

    Raises:
        NoBody: it asks for more than some features.
    """
    record = node_attention(w.node, w.shape_of_rank, w.attribute)
    what = record.beyond(*features)
    if what is not None:
        raise NoBody(f"{w.node.op_type} with {what} has no body")
    return record


def operands(w: BodyWriter, record: AttentionRecord, projected: Value | None = None) -> tuple[Value, Value, Value]:
    """Return queries, keys and values as (batch, heads, sequence, width), with their bias; without, the projection's.

    Raises:
        NoBody: one is absent, or nothing says where its columns lie.
    """
    sources = (record.query, record.key, record.value)
    start: Value | int = 0
    found = []
    for number, source in enumerate(sources):
        x = projected if source.input is None else w.find_wide(source.input)
        if x is None or source.layout is None:
            raise NoBody("keys or values are absent, and nothing packs them")
        if source.layout is Layout.HEADS:
            found.append(x)
            continue
        rows = _rows_of(w, x, source)
        if record.bias is not None and number < record.biased:
            width = w.size(rows, 2)
            end: Value | int | None = width if number == 0 else None if number == 2 else w.op("Mul", width, w.ints(2))
            rows = w.op("Add", rows, w.slice(w.wide(record.bias), 0, start, end))
            start = end if end is not None else 0
        assert isinstance(source.heads, int), "the schema requires it"
        found.append(split_heads(w, rows, source.heads))
    return found[0], found[1], found[2]


def _rows_of(w: BodyWriter, x: Value, source: HeadSource) -> Value:
    """Return what a source names as (batch, sequence, heads * width)."""
    first, size = source.first, source.size
    if source.layout is Layout.PARTS and isinstance(first, int):  # (batch, sequence, heads, parts, width)
        return w.reshape(w.squeeze(w.slice(x, 3, first, first + 1), 3), 0, 0, -1)
    if not source.is_part:
        return x
    if not isinstance(first, int) or not isinstance(size, int) or not isinstance(source.heads, int):
        raise NoBody("the number of columns of its queries, keys and values is not known")
    return w.slice(x, 2, first, first + source.heads * size)


def split_heads(w: BodyWriter, x: Value, heads: int) -> Value:
    """Return (batch, sequence, heads * width) as (batch, heads, sequence, width)."""
    return w.transpose(w.reshape(x, 0, 0, heads, -1), 0, 2, 1, 3)


def merge_heads(w: BodyWriter, x: Value) -> Value:
    """Return (batch, heads, sequence, width) as (batch, sequence, heads * width)."""
    return w.reshape(w.transpose(x, 0, 2, 1, 3), 0, 0, -1)


def attend(
    w: BodyWriter, heads: tuple[Value, Value, Value], record: AttentionRecord, masks: Masks
) -> tuple[Value, Value]:
    """Return what queries (B, N, S, H) take of values (B, M, T, V) by keys (B, M, T, H), and the scores.

    Args:
        w: the body.
        heads: queries, keys and values, float32.
        record: with N, M, a divisor of N, and the scale of the products.
        masks: what changes scores.
    """
    query, key, value = heads
    scaled = w.op("Mul", query, _factor(w, query, record.scale))
    many, few = record.query.heads, record.key.heads
    assert isinstance(many, int), "the schema requires it"
    assert isinstance(few, int), "the schema requires it"
    if few != many:  # all heads of a group are rows of one matrix: the keys are read once
        width = w.size(query, 3)
        scaled = w.reshape(scaled, 0, few, -1, width)
    scores = w.op("MatMul", scaled, w.transpose(key, 0, 1, 3, 2))
    if few != many:
        scores = w.reshape(scores, 0, many, w.size(query, 2), w.size(key, 2))
    scores = _masked(w, scores, masks)
    weights = _weights(w, scores, masks.sink)
    if few != many:
        mixed = w.op("MatMul", w.reshape(weights, 0, few, -1, w.size(key, 2)), value)
        return w.reshape(mixed, 0, many, w.size(query, 2), w.size(value, 3)), scores
    return w.op("MatMul", weights, value), scores


def _factor(w: BodyWriter, query: Value, scale: float | None) -> Value:
    if scale is not None:
        return w.constant(scale, FLOAT)
    width = w.cast(w.size(query, 3), FLOAT)
    return w.op("Div", w.constant(1, FLOAT), w.op("Sqrt", width))


def _masked(w: BodyWriter, scores: Value, masks: Masks) -> Value:
    if masks.softcap:
        cap = w.constant(masks.softcap, FLOAT)
        scores = w.op("Mul", w.op("Tanh", w.op("Div", scores, cap)), cap)
    scores = w.sum(scores, masks.bias)
    return scores if masks.allowed is None else w.op("Where", masks.allowed, scores, w.constant(LOWEST, FLOAT))


def _weights(w: BodyWriter, scores: Value, sink: Value | None) -> Value:
    if sink is None:
        return w.op("Softmax", scores, axis=-1)
    column = w.op("Expand", sink, w.joined(*(w.size(scores, axis) for axis in range(3)), w.ints(1), axis=0))
    weights = w.op("Softmax", w.joined(scores, column, axis=3), axis=-1)
    return w.slice(weights, 3, 0, -1)


def positions(w: BodyWriter, count: Value, start: Value | None = None) -> Value:
    """Return the positions from ``start`` (0) on, ``count`` of them, as (count,) of int64."""
    return w.range(count) if start is None else w.range(w.op("Add", start, count), start)


def padding_mask(w: BodyWriter, index: int, batch: Value, query_length: Value, key_length: Value) -> Value:
    """Return which keys an input in one of com.microsoft's forms keeps, to broadcast to (batch, 1, query, key).

    The forms: (batch,) of lengths, (2 * batch,) of ends, then starts, (batch, key) and (batch, query, key) of 0 and 1,
    and (batch, 1, max, max).
    """
    mask, rank = w.input(index), w.rank(index)
    if rank == 1:
        return _between(w, index, batch, key_length)
    if rank == 4:
        start = w.op("Sub", key_length, query_length)
        mask = w.slice(w.slice(mask, 2, start, key_length), 3, 0, key_length)
    elif rank in (2, 3):
        mask = w.unsqueeze(mask, 1, 2) if rank == 2 else w.unsqueeze(mask, 1)
    else:
        raise NoBody(f"a mask of rank {rank}")
    return w.op("Greater", mask, w.constant(0, w.dtype(index)))


def _between(w: BodyWriter, index: int, batch: Value, key_length: Value) -> Value:
    """Return which keys lie before the end of each row, and behind its start where the list goes on with starts."""
    count, rows = ((w.shape(place) or (None,))[0] for place in (index, 0))
    if count is None or rows is None or count not in (rows, rows * 2):
        raise NoBody("nothing says whether its mask index has lengths, or ends and starts")
    numbers = w.cast(w.input(index), DataType.INT64)
    column = w.reshape(positions(w, key_length), 1, 1, 1, -1)
    if count == rows:
        return w.op("Less", column, w.reshape(numbers, -1, 1, 1, 1))
    ends, starts = (
        w.reshape(part, -1, 1, 1, 1) for part in (w.slice(numbers, 0, 0, batch), w.slice(numbers, 0, batch))
    )
    return w.op("And", w.op("Less", column, ends), w.op("GreaterOrEqual", column, w.op("Min", starts, key_length)))


def additive_mask(
    w: BodyWriter, keeps: Value | None, record: AttentionRecord, *, lengths: tuple[Value, Value], past: Value
) -> Value | None:
    """Return what is added to scores, ``None`` where nothing is masked.

    Args:
        w: the body.
        keeps: which keys are kept.
        record: says what is added to the scores of others, and whether query i sees keys up to ``past`` + i only; the
            last query sees all, as onnxruntime has it.
        lengths: of queries and keys.
        past: how many keys come before those of the queries.
    """
    none = w.constant(0, FLOAT)
    total = None if keeps is None else w.op("Where", keeps, none, w.constant(record.filtered, FLOAT))
    if not record.is_causal:
        return total
    rows = w.unsqueeze(positions(w, lengths[0]), 1)
    columns = w.unsqueeze(positions(w, lengths[1]), 0)
    is_future = w.op("Greater", columns, w.op("Add", rows, past))
    is_not_last = w.op("Less", rows, w.op("Sub", lengths[0], w.ints(1)))
    hidden = w.op("And", is_future, is_not_last)
    # Half of the lowest float: finite, and stays so when a score joins it.
    return w.op("Where", hidden, w.constant(LOWEST / 2, FLOAT), none if total is None else total)
