"""Caches of an attention: new keys and values behind those of before, or behind the length of each entry."""

from __future__ import annotations

from ort_core.cpu.codegen.attention.cache_append import ARGUMENTS, cache_append_text
from ort_core.cpu.codegen.attention.rotary import Positions
from ort_core.cpu.lowering.images.layout_steps import text_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingElementwise
from ort_core.cpu.lowering.rules.attention.rotary import Rotation, rotate
from ort_core.cpu.lowering.sequences.attention_steps import append, copy_into, dense_rows
from ort_core.cpu.lowering.steps import Argument, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.value_types import HALVES, stored_type
from ort_core.cpu.lowering.views import View, count_of
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import cast, element, select, unary
from ort_core.plugin.ops import AttentionRecord, Cache, Rotary

_BOTH = ("keys", "values")
_KINDS = frozenset({"PER_TENSOR", "PER_CHANNEL"})
BUFFERED_REST = 1  # the lengths of ``buffered`` are what rows are valid, less this


def presents(
    lowering: Lowering, node: Node, record: AttentionRecord, key: View, value: View
) -> tuple[View, View, KnownDim]:
    """Return keys and values behind their caches, and the length of these; outputs that show them are set."""
    cache = record.cache
    if cache is None or not (record.has_past or any(record.presents)):
        return key, value, 0
    if cache.is_one_tensor:
        return _in_one_tensor(lowering, node, cache, (key, value))
    joined = []
    before: KnownDim = 0
    for number, (index, new) in enumerate(((cache.key, key), (cache.value, value))):
        present = output_of(node, 1 + number)
        past = None if index is None else lowering.view(node.input(index))
        if past is None:
            if present is not None:
                target = lowering.result_view(present)
                copy_into(lowering, new, target, (node,))
                lowering.set(present, target)
            joined.append(new)
            continue
        if len(past.shape) != 4:
            raise NotLowered(f"a past of {len(past.shape)} axes is not generated")
        shape = (new.shape[0], new.shape[1], past.shape[2] + new.shape[2], new.shape[3])
        target = lowering.new_view(new.dtype, shape) if present is None else lowering.result_view(present)
        lowering.set(present, target)
        append(lowering, past, new, target, (node,))
        joined.append(target)
        before = past.shape[2]
    return joined[0], joined[1], before


def _in_one_tensor(lowering: Lowering, node: Node, cache: Cache, new: tuple[View, View]) -> tuple[View, View, KnownDim]:
    """Return keys and values behind their past, and its length; (2, batch, heads, length, size) holds both."""
    key, value = new
    lowering.require_equal(key.shape[3], value.shape[3])
    present = output_of(node, 1)
    before = None if cache.key is None else lowering.view(node.input(cache.key))
    if before is not None and len(before.shape) != 5:
        raise NotLowered(f"a past of {len(before.shape)} axes is not generated")
    length: KnownDim = 0 if before is None else before.shape[3]
    shape = (key.shape[0], key.shape[1], length + key.shape[2], key.shape[3])
    joined = (
        lowering.new_view(key.dtype, (2, *shape)) if present is None else lowering.result_view(present, (2, *shape))
    )
    parts = [View(joined.buffer, shape, joined.strides[1:], joined.offset + i * joined.strides[0]) for i in range(2)]
    for number, (part, each) in enumerate(zip(parts, new, strict=True)):
        if before is None:
            copy_into(lowering, each, part, (node,))
        else:
            start = before.offset + number * before.strides[0]
            old = View(before.buffer, before.shape[1:], before.strides[1:], start)
            append(lowering, old, each, part, (node,))
    lowering.set(present, joined)
    return parts[0], parts[1], length


def filled(
    lowering: Lowering, node: Node, record: AttentionRecord, heads: tuple[View, View, View], lengths: View
) -> tuple[View, View, View]:
    """Return queries, and keys and values behind the valid rows of their caches; queries and keys may be turned first.

    ``lengths`` (batch,) say how many rows are valid, the new ones included.
    """
    query, key, value = heads
    if lengths.dtype is not DataType.INT32:
        raise NotLowered(f"lengths of type {lengths.dtype.text} are not generated")
    if record.rotary is not None:
        rotation = _rotation(lowering, node, record.rotary, query, lengths)
        query, key = (rotated(lowering, each, rotation, node) for each in (query, key))
    assert record.cache is not None, "there is one"
    pasts = [None if index is None else node.input(index) for index in (record.cache.key, record.cache.value)]
    is_kept = all(lowering.keeps(past, output_of(node, 1 + which)) for which, past in enumerate(pasts))
    assert record.lengths is not None, "there are some"
    longest = lowering.contiguous(None if record.lengths.total is None else node.input(record.lengths.total))
    caches = [
        _appended(lowering, node, stored_form(lowering, node, record, which, new, is_kept), lengths, longest)
        for which, new in ((0, key), (1, value))
    ]
    return query, caches[0], caches[1]


def buffered(
    lowering: Lowering, node: Node, record: AttentionRecord, key: View, value: View
) -> tuple[View, View, View]:
    """Return keys and values in buffers where the new row lies at a start, and how many rows count.

    The start is one number for the whole batch; rows behind the new one stay as they are, and nobody reads them.
    """
    cache = record.cache
    assert cache is not None, "there is one"
    if cache.start is None or cache.is_one_tensor or key.shape[2] != 1:
        raise NotLowered(f"{node.op_type} with a buffer for other than one new row at a start is not generated")
    if record.mask is not None or record.padding is not None or record.ahead is not None:
        raise NotLowered(f"{node.op_type} with a buffer and a mask is not generated")
    start = lowering.contiguous(node.input(cache.start))
    if start.dtype is not DataType.INT32:
        raise NotLowered(f"a start of type {start.dtype.text} is not generated")
    lowering.require_equal(count_of(start.shape), 1)
    lengths = _numbers(lowering, start, 0, key.shape[0], node)
    longest = _numbers(lowering, start, BUFFERED_REST, 1, node)
    pasts = [None if index is None else node.input(index) for index in (cache.key, cache.value)]
    is_kept = all(lowering.keeps(past, output_of(node, 1 + which)) for which, past in enumerate(pasts))
    caches = []
    for which, new in ((0, key), (1, value)):
        stored = stored_form(lowering, node, record, which, new, is_kept)
        if stored.past is None:
            raise NotLowered("a buffer that is not given is not generated")
        lowering.require_equal(stored.past.shape[2], stored.target.shape[2])
        caches.append(_appended(lowering, node, stored, lengths, longest, keeps_rest=True))
    return caches[0], caches[1], lengths


def _numbers(lowering: Lowering, start: View, added: int, count: KnownDim, node: Node) -> View:
    """Return a start and what is added to it, as often as there are entries."""
    moved = element(0, DataType.INT32) + added if added else element(0, DataType.INT32)
    pending = PendingElementwise(moved, (start.reshaped((1,)),), (count,), (node,))
    return lowering.stores.store_elementwise(pending, lowering.new_view(DataType.INT32, (count,)))


def cache_scales(lowering: Lowering, node: Node, record: AttentionRecord) -> tuple[View, View] | None:
    """Return scales of keys and values in a cache of integers: one number, or (heads, size); ``None`` of floats."""
    quantized = record.quantized
    if quantized is None:
        return None
    if quantized.bits != 8 or quantized.kinds[0] != quantized.kinds[1] or quantized.kinds[0] not in _KINDS:
        raise NotLowered(f"a cache of {quantized.bits} bits, {' and '.join(quantized.kinds)}, is not generated")
    found = []
    for index, source in zip(quantized.scales, (record.key, record.value), strict=True):
        if index is None:
            raise NotLowered("a cache of integers without scales is not generated")
        scale = lowering.contiguous(node.input(index))
        heads, size = source.heads, source.size
        if scale.dtype is not DataType.FLOAT or not isinstance(heads, int) or not isinstance(size, int):
            raise NotLowered("how many scales a cache has is not known")
        shape = (heads, size) if quantized.kinds[0] == "PER_CHANNEL" else ()
        lowering.require_equal(count_of(scale.shape), heads * size if shape else 1)
        found.append(scale.reshaped(shape))
    return found[0], found[1]


def _rotation(lowering: Lowering, node: Node, rotary: Rotary, query: View, lengths: View) -> Rotation:
    if rotary.cos is None or rotary.sin is None:
        raise NotLowered(f"{node.op_type} that turns heads without tables of angles is not generated")
    cos, sin = (lowering.contiguous(node.input(index)) for index in (rotary.cos, rotary.sin))
    if rotary.positions is None:
        return Rotation(cos, sin, Positions.LENGTHS, lengths, rotary.is_interleaved)
    ids = lowering.contiguous(node.input(rotary.positions))
    if len(ids.shape) != 2 or ids.dtype is not DataType.INT64:
        raise NotLowered("positions of this form are not generated")
    lowering.require_equal(ids.shape[0], query.shape[0])
    lowering.require_equal(ids.shape[1], query.shape[2])
    return Rotation(cos, sin, Positions.IDS, ids, rotary.is_interleaved)


def rotated(lowering: Lowering, heads: View, rotation: Rotation, node: Node) -> View:
    """Return heads (batch, heads, length, size), turned."""
    batch, number, length, size = heads.shape
    packed = lowering.new_view(heads.dtype, (batch, length, number, size)).transposed((0, 2, 1, 3))
    rotate(lowering, heads, packed, rotation, node)
    return packed


@frozen
class StoredRows:
    """New rows as the cache stores them, its past (``None``: none is given), and where its present goes."""

    new: View
    past: View | None
    present: Value
    target: View


def stored_form(
    lowering: Lowering, node: Node, record: AttentionRecord, which: int, new: View, is_kept: bool
) -> StoredRows:
    """Return new keys (0) or values (1) in the type of their cache; halves that are kept stay in memory as they are."""
    assert record.cache is not None, "there is one"
    index, present = (record.cache.key, record.cache.value)[which], output_of(node, 1 + which)
    if present is None:
        raise NotLowered(f"the present {_BOTH[which]} are not asked for")
    given = None if index is None else node.input(index)
    past: View | None = None
    if is_kept and given is not None:
        past, target = lowering.kept(given, present)
    else:
        past, target = None if given is None else lowering.view(given), lowering.result_view(present)
    scales = cache_scales(lowering, node, record)
    if (scales is not None) != (target.dtype is DataType.INT8) or (past is not None and past.dtype is not target.dtype):
        raise NotLowered(f"a cache of {target.dtype.text} is not generated")
    if scales is not None:
        if past is None:
            raise NotLowered("a cache of integers without a past is not generated")
        scale = scales[which]
        real = element(0, new.dtype) / element(1, DataType.FLOAT)
        level = select(unary("is_nan", real), 0.0, unary("rint", real))
        parts = (new, scale.reshaped((scale.shape[0], 1, scale.shape[1])) if scale.shape else scale)
        pending = PendingElementwise(cast(level, DataType.INT8), parts, new.shape, (node,))
        new = lowering.stores.store_elementwise(pending, lowering.new_view(DataType.INT8, new.shape))
    elif target.dtype is not new.dtype:
        narrowed = lowering.stores.converted(new, target.dtype)
        new = lowering.stores.store_elementwise(narrowed, lowering.new_view(target.dtype, new.shape))
    elif stored_type(present)[0] in HALVES:  # kept as floats within the group: rounded to what is stored
        rounded = cast(cast(element(0, new.dtype), stored_type(present)[0]), new.dtype)
        pending = PendingElementwise(rounded, (new,), new.shape, (node,))
        new = lowering.stores.store_elementwise(pending, lowering.new_view(new.dtype, new.shape))
    return StoredRows(dense_rows(lowering, new), past, present, target)


def _appended(
    lowering: Lowering, node: Node, stored: StoredRows, lengths: View, longest: View, *, keeps_rest: bool = False
) -> View:
    """Write the step that puts new keys or values behind the valid rows of the cache; return the present.

    What lies behind all of them is zeros, or, with ``keeps_rest``, what the past has there.
    """
    new, target = stored.new, stored.target
    batch, heads, rows, size = target.shape
    for left, right in zip(new.shape, (batch, heads, new.shape[2], size), strict=True):
        lowering.require_equal(left, right)
    past, strides = new, new.strides[:3]
    room: KnownDim = 0
    if stored.past is not None:
        past = dense_rows(lowering, stored.past)
        for axis in (0, 1, 3):
            lowering.require_equal(past.shape[axis], target.shape[axis])
        room, strides = past.shape[2], past.strides[:3]
    error = lowering.error_buffer()
    if longest.dtype is not DataType.INT32:
        raise NotLowered(f"a total length of type {longest.dtype.text} is not generated")
    lowering.require_equal(count_of(longest.shape), 1)
    kernel = lowering.kernel(
        ("cache_append", target.dtype, keeps_rest),
        lambda: text_kernel(
            "cache_append",
            lambda name: cache_append_text(name, lowering.target, target.dtype, keeps_rest=keeps_rest),
        ),
    )
    words: list[Argument] = [
        pointer(target), pointer(past), pointer(new), pointer(lengths), pointer(longest), Pointer(error), batch, heads,
        rows, new.shape[2], room, size, *target.strides[:3], *strides, *new.strides[:3],
    ]  # fmt: skip
    assert len(words) == ARGUMENTS.count
    reads = [past.buffer, new.buffer, lengths.buffer, longest.buffer]
    work, in_place = count_of(target.shape) * 2, (past.buffer, target.buffer)
    lowering.emit(kernel, words, reads, [target.buffer], work, (node,), in_place=in_place)
    lowering.set(stored.present, target)
    return target


def output_of(node: Node, index: int) -> Value | None:
    """Return an output, ``None`` where it is not asked for."""
    return node.outputs[index] if len(node.outputs) > index else None
