"""Attention of com.microsoft with its own projection: one product makes queries, keys and values, then they attend.

``Attention`` projects floats, ``QAttention`` bytes; past, masks and scores are the same for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ort_core.cpu.codegen.attention.attention import AttentionFacts
from ort_core.cpu.codegen.indexing.gather import gather_kernel
from ort_core.cpu.lowering.attention_steps import Heads, append, copy_into, emit_attention, split_heads
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor, PendingElementwise
from ort_core.cpu.lowering.reducing import combined
from ort_core.cpu.lowering.rules.attention import score_addend, score_scale
from ort_core.cpu.lowering.rules.integer_products import scaled_integer_product
from ort_core.cpu.lowering.rules.products import weight_product
from ort_core.cpu.lowering.steps import KernelText, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, count_of
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import Scalar, binary, cast, element, select

F32 = DataType.FLOAT
_ENDLESS = 1 << 40  # more than the lengths, int32, can be


def attention(lowering: Lowering, node: Node) -> None:
    """Attention: floats projected by a constant matrix, or by one known at run time."""
    _, _, _, mask, past, addend, past_length = (node.input(index) for index in range(7))
    _refuse_unusual(node, past_length)
    width = tensor_type(_required(node, 1))[1][1]
    sizes = node.ints_attribute("qkv_hidden_sizes") or (_whole(width) // 3,) * 3
    if len(sizes) != 3 or sum(sizes) != width:
        raise NotLowered(f"{width} columns do not divide into queries, keys and values of {sizes}")
    product = weight_product(lowering, _rows(lowering, node), _required(node, 1), node.op_type)
    value: Scalar = element(0, F32)
    inputs: tuple[View, ...] = ()
    if node.input(2) is not None:
        inputs = (lowering.contiguous(node.input(2)),)
        value = value + element(1, F32)
    shape = (*product.a.shape[:2], width)
    if not product.can_fuse(shape, inputs):
        raise NotLowered("the bias is no float32 vector")
    projected = lowering.new_view(F32, shape)
    product.store(lowering, PendingAnchor(product, value, inputs, shape, (node,)), projected)
    _attend(lowering, node, projected, sizes, mask, past, addend)


def quantized_attention(lowering: Lowering, node: Node) -> None:
    """QAttention: bytes projected by constant bytes, scaled to floats."""
    _refuse_unusual(node, None)
    pending = scaled_integer_product(lowering, node, scales=(3, 4), zero_points=(6, 7), bias=2)
    width = _whole(pending.shape[-1])
    projected = lowering.new_view(F32, pending.shape)
    pending.anchor.store(lowering, pending, projected)  # type: ignore[attr-defined]  # every anchor has it; see rules
    _attend(lowering, node, projected, (width // 3,) * 3, node.input(5), node.input(8), None)


def _refuse_unusual(node: Node, past_length: Value | None) -> None:
    for name in ("do_rotary", "past_present_share_buffer"):
        if node.int_attribute(name, 0):
            raise NotLowered(f"{node.op_type} with {name}")
    if past_length is not None:
        raise NotLowered(f"{node.op_type} with the length of its past")


def _rows(lowering: Lowering, node: Node) -> View:
    x = lowering.view(_required(node, 0))
    if len(x.shape) != 3 or x.dtype is not F32:
        raise NotLowered("the input is not (batch, length, width) of floats")
    return x


def _attend(
    lowering: Lowering, node: Node, projected: View, sizes: Sequence[int], mask: Value | None, past: Value | None,
    addend: Value | None,
) -> None:  # fmt: skip
    """Write the attention over queries, keys and values side by side in the rows of ``projected``."""
    num_heads = node.int_attribute("num_heads", 0)
    starts = accumulate((0, *sizes[:-1]))
    query, key, value = (
        split_heads(_columns(projected, start, size), num_heads) for start, size in zip(starts, sizes, strict=True)
    )
    present = node.outputs[1] if len(node.outputs) > 1 else None
    offset: KnownDim = 0
    if past is not None or present is not None:
        key, value, offset = _with_past(lowering, node, (key, value), past, present)
    bias = score_addend(
        lowering, node, None if addend is None else lowering.view(addend),
        None if mask is None else _padding(lowering, node, mask, key), key.shape[2],
    )  # fmt: skip
    facts = AttentionFacts(score_scale(node, query), is_causal=node.int_attribute("unidirectional", 0) != 0)
    target = lowering.result_view(node.output)
    out = split_heads(target, num_heads)
    emit_attention(lowering, Heads(query, key, value, out, bias, None, offset), facts, (node,))
    lowering.set(node.output, target)


def _columns(projected: View, start: int, size: int) -> View:
    shape = (*projected.shape[:2], size)
    return View(projected.buffer, shape, projected.strides, projected.offset + start)


def _with_past(
    lowering: Lowering, node: Node, new: tuple[View, View], past: Value | None, present: Value | None
) -> tuple[View, View, KnownDim]:
    """Return keys and values behind their past, and its length; (2, batch, heads, length, size) holds both."""
    key, value = new
    lowering.require_equal(key.shape[3], value.shape[3])
    before = None if past is None else lowering.view(past)
    if before is not None and len(before.shape) != 5:
        raise NotLowered(f"a past of {len(before.shape)} axes")
    length: KnownDim = 0 if before is None else before.shape[3]
    shape = (key.shape[0], key.shape[1], length + key.shape[2], key.shape[3])
    joined = lowering.new_view(F32, (2, *shape)) if present is None else lowering.result_view(present, (2, *shape))
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


def _padding(lowering: Lowering, node: Node, mask: Value, key: View) -> View:
    """Return a mask of (batch, keys) or (batch, queries, keys) that is positive where keys count.

    Lengths, one for each entry of the batch, are made such a mask; a filtered score stays defined where all are.
    """
    view = lowering.view(mask)
    if len(view.shape) != 1:
        return view
    lowering.require_equal(view.shape[0], key.shape[0])
    view = lowering.contiguous(mask)
    _refuse_negative(lowering, node, view)
    lengths = View(view.buffer, (view.shape[0], 1), (view.strides[0], 0), view.offset)
    shape = (view.shape[0], key.shape[2])
    kept = combined(
        shape, lambda n, i: select(binary("lt", i, cast(n, DataType.INT64)), 1.0, 0.0), lengths,
        lowering.iota(key.shape[2]),
    )  # fmt: skip
    pending = PendingElementwise(kept.expression, kept.inputs, shape, (node,))
    return lowering.stores.store_elementwise(pending, lowering.new_view(F32, shape))


def _refuse_negative(lowering: Lowering, node: Node, lengths: View) -> None:
    """Write a step that finds lengths below 0: rows of no bytes gathered from a table without an end."""
    name, function = gather_kernel(lengths.dtype.bits, wraps=False)
    count = count_of(lengths.shape)
    words = (
        pointer(lengths), pointer(lengths), pointer(lengths), Pointer(lowering.error_buffer()), 1, count, _ENDLESS, 0,
    )  # fmt: skip
    lowering.emit(KernelText(name, function), words, (lengths.buffer,), (), count, (node,))


def _required(node: Node, index: int) -> Value:
    value = node.input(index)
    if value is None:
        raise NotLowered("a required input is missing")
    return value


def _whole(size: KnownDim) -> int:
    if not isinstance(size, int):
        raise NotLowered("the number of columns is not known")
    return size
