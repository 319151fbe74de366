"""GroupQueryAttention of com.microsoft: caches whose length differs between batch entries, rotary, local windows."""

from __future__ import annotations

import math

from ort_core.cpu.codegen.attention.attention import AttentionFacts
from ort_core.cpu.codegen.attention.cache_append import ARGUMENTS, cache_append_text
from ort_core.cpu.codegen.attention.rotary import Positions
from ort_core.cpu.lowering.attention_steps import Heads, dense_rows, emit_attention, split_heads
from ort_core.cpu.lowering.layout_steps import text_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.rules.rotary import Rotation, rotate
from ort_core.cpu.lowering.steps import Argument, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.views import View, count_of
from ort_core.plugin.ir import DataType, KnownDim, Node

_PAST_KEY, _LENGTHS, _TOTAL, _COS, _SIN, _POSITIONS, _ADDEND = 3, 5, 6, 7, 8, 9, 10
_REFUSED = {11: "sinks", 12: "quantised caches", 13: "quantised caches",
            14: "normalised heads", 15: "normalised heads"}  # fmt: skip


def group_query_attention(lowering: Lowering, node: Node) -> None:
    """GroupQueryAttention in float32 whose cache holds every position."""
    _refuse(node)
    heads, key_heads = node.int_attribute("num_heads", 0), node.int_attribute("kv_num_heads", 0)
    query, key, value = _query_key_value(lowering, node, heads, key_heads)
    lengths = lowering.contiguous(node.input(_LENGTHS))
    if lengths.dtype is not DataType.INT32:
        raise NotLowered(f"lengths of type {lengths.dtype.text}")
    if len(lengths.shape) > 2 or (len(lengths.shape) == 2 and 1 not in lengths.shape):
        raise NotLowered(f"lengths of shape {lengths.shape}")
    lowering.require_equal(count_of(lengths.shape), query.shape[0])
    lengths = lengths.reshaped((query.shape[0],))
    if node.int_attribute("do_rotary", 0):
        rotation = _rotation(lowering, node, query, lengths)
        query, key = (_rotated(lowering, each, rotation, node) for each in (query, key))
    key, value = (_appended(lowering, node, index, new, lengths) for index, new in ((0, key), (1, value)))
    target = lowering.result_view(node.output)
    out = split_heads(target, heads)
    size = query.shape[3]
    if not isinstance(size, int):
        raise NotLowered("the size of the heads is not known")
    facts = AttentionFacts(
        node.float_attribute("scale", 0.0) or 1 / math.sqrt(size), is_causal=True,
        window=max(node.int_attribute("local_window_size", -1), 0),
        softcap=max(node.float_attribute("softcap", 0.0), 0.0),
        lengths_bits=32, lengths_rest=1, lengths_cover_queries=True,
    )  # fmt: skip
    mask = None if node.input(_ADDEND) is None else lowering.view(node.input(_ADDEND))
    if mask is not None and (len(mask.shape) != 4 or mask.dtype is not DataType.FLOAT):
        raise NotLowered("the addend of the scores is not float32 of four axes")
    emit_attention(lowering, Heads(query, key, value, out, mask, lengths), facts, (node,))
    lowering.set(node.output, target)


def _refuse(node: Node) -> None:
    for index, what in _REFUSED.items():
        if node.input(index) is not None:
            raise NotLowered(f"GroupQueryAttention with {what}")
    if not node.int_attribute("causal", 1):
        raise NotLowered("GroupQueryAttention that is not causal")
    if node.int_attribute("local_window_size", -1) == 0:
        raise NotLowered("a window of no keys")
    if node.int_attribute("sliding_window_cache", 0) or node.int_attribute("smooth_softmax", -1) == 1:
        raise NotLowered("a cache that slides, or a smooth softmax")
    if node.int_attribute("qk_output", 0) or (len(node.outputs) > 3 and node.outputs[3] is not None):
        raise NotLowered("the scores are asked for")


def _query_key_value(lowering: Lowering, node: Node, heads: int, key_heads: int) -> tuple[View, View, View]:
    """Return the operands as heads, packed in one or separate."""
    view = lowering.view(node.input(0))
    if len(view.shape) != 3:
        raise NotLowered("queries have not three axes")
    if node.input(1) is not None and node.input(2) is not None:
        key, value = (split_heads(lowering.view(node.input(index)), key_heads) for index in (1, 2))
        return split_heads(view, heads), key, value
    packed = split_heads(view, heads + 2 * key_heads)

    def part(first: int, count: int) -> View:
        shape = (packed.shape[0], count, *packed.shape[2:])
        return View(packed.buffer, shape, packed.strides, packed.offset + first * packed.strides[1])

    return part(0, heads), part(heads, key_heads), part(heads + key_heads, key_heads)


def _rotation(lowering: Lowering, node: Node, query: View, lengths: View) -> Rotation:
    cos, sin = (lowering.contiguous(node.input(index)) for index in (_COS, _SIN))
    interleaved = bool(node.int_attribute("rotary_interleaved", 0))
    positions = node.input(_POSITIONS)
    if positions is None:
        return Rotation(cos, sin, Positions.LENGTHS, lengths, interleaved)
    ids = lowering.contiguous(positions)
    if len(ids.shape) != 2 or ids.dtype is not DataType.INT64:
        raise NotLowered("positions of another form")
    lowering.require_equal(ids.shape[0], query.shape[0])
    lowering.require_equal(ids.shape[1], query.shape[2])
    return Rotation(cos, sin, Positions.IDS, ids, interleaved)


def _rotated(lowering: Lowering, heads: View, rotation: Rotation, node: Node) -> View:
    batch, number, length, size = heads.shape
    packed = lowering.new_view(heads.dtype, (batch, length, number, size)).transposed((0, 2, 1, 3))
    rotate(lowering, heads, packed, rotation, node)
    return packed


def _appended(lowering: Lowering, node: Node, which: int, new: View, lengths: View) -> View:
    """Write the step that puts new keys (0) or values (1) behind the valid rows of the cache; return the present."""
    present = node.outputs[1 + which] if len(node.outputs) > 1 + which else None
    if present is None:
        raise NotLowered("the present cache is not asked for")
    new = dense_rows(lowering, new)
    target = lowering.result_view(present)
    batch, heads, rows, size = target.shape
    for left, right in zip(new.shape, (batch, heads, new.shape[2], size), strict=True):
        lowering.require_equal(left, right)
    past, strides = new, new.strides[:3]
    room: KnownDim = 0
    if node.input(_PAST_KEY + which) is not None:
        past = dense_rows(lowering, lowering.view(node.input(_PAST_KEY + which)))
        for axis in (0, 1, 3):
            lowering.require_equal(past.shape[axis], target.shape[axis])
        room, strides = past.shape[2], past.strides[:3]
    error, longest = lowering.error_buffer(), lowering.contiguous(node.input(_TOTAL))
    if longest.dtype is not DataType.INT32:
        raise NotLowered(f"a total length of type {longest.dtype.text}")
    lowering.require_equal(count_of(longest.shape), 1)
    kernel = lowering.kernel(
        "cache_append", lambda: text_kernel("cache_append", lambda name: cache_append_text(name, lowering.target))
    )
    words: list[Argument] = [
        pointer(target), pointer(past), pointer(new), pointer(lengths), pointer(longest), Pointer(error), batch, heads,
        rows, new.shape[2], room, size, *target.strides[:3], *strides, *new.strides[:3],
    ]  # fmt: skip
    assert len(words) == ARGUMENTS.count
    reads = [past.buffer, new.buffer, lengths.buffer, longest.buffer]
    work, in_place = count_of(target.shape) * 2, (past.buffer, target.buffer)
    lowering.emit(kernel, words, reads, [target.buffer], work, (node,), in_place=in_place)
    lowering.set(present, target)
    return target
