"""What an attention adds to its scores, as one view: what the model gives, and a filter where keys are padding."""

from __future__ import annotations

from ort_core.cpu.codegen.indexing.gather import gather_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingElementwise
from ort_core.cpu.lowering.rows.reducing import combined
from ort_core.cpu.lowering.steps import KernelText, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.views import View, count_of
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import binary, cast, select
from ort_core.plugin.ops import AttentionRecord

_ENDLESS = 1 << 40  # more than the lengths, int32, can be


def score_mask(lowering: Lowering, node: Node, record: AttentionRecord, key: View) -> View | None:
    """Return what is added to the scores of keys, or booleans that say which count; ``None``: nothing."""
    keys = key.shape[2]
    mask = None if record.mask is None else lowering.view(node.input(record.mask))
    if mask is not None and record.is_mask_padded:
        if not mask.shape:
            raise NotLowered("a mask without axes is not generated")
        lowering.require_equal(mask.shape[-1], keys)  # a shorter one forbids the keys behind it
    elif mask is not None and (len(mask.shape) != 4 or mask.dtype is not DataType.FLOAT):
        raise NotLowered("the addend of the scores is not float32 of four axes")
    if record.padding is None:
        return mask
    value = node.input(record.padding)
    assert value is not None, "it is there"
    return _padded(lowering, node, record, mask, _padding(lowering, node, value, key), keys)


def _padded(
    lowering: Lowering, node: Node, record: AttentionRecord, addend: View | None, padding: View, keys: KnownDim
) -> View:
    """Return the addend with a filter where a padding mask (batch, keys) or (batch, queries, keys) is not positive."""
    if len(padding.shape) not in (2, 3):
        raise NotLowered(f"a padding mask of {len(padding.shape)} axes is not generated")
    lowering.require_equal(padding.shape[-1], keys)
    middle = padding.shape[1:-1] or (1,)
    steps = padding.strides[1:-1] or (0,)
    shape = (padding.shape[0], 1, *middle, padding.shape[-1])
    mask = View(padding.buffer, shape, (padding.strides[0], 0, *steps, padding.strides[-1]), padding.offset)
    filtered = record.filtered
    if addend is None:
        total = combined(shape, lambda m: select(binary("gt", m, 0), 0.0, filtered), mask)
    else:
        lowering.require_equal(addend.shape[3], keys)
        lowering.require_equal(shape[0] if addend.shape[0] == 1 else addend.shape[0], shape[0])
        rows = shape[2] if addend.shape[2] == 1 else addend.shape[2]
        shape = (shape[0], addend.shape[1], rows, keys)
        total = combined(shape, lambda m, a: a + select(binary("gt", m, 0), 0.0, filtered), mask, addend)
    pending = PendingElementwise(total.expression, total.inputs, shape, (node,))
    return lowering.stores.store_elementwise(pending, lowering.new_view(DataType.FLOAT, shape))


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
    return lowering.stores.store_elementwise(pending, lowering.new_view(DataType.FLOAT, shape))


def _refuse_negative(lowering: Lowering, node: Node, lengths: View) -> None:
    """Write a step that finds lengths below 0: rows of no bytes gathered from a table without an end."""
    name, function = gather_kernel(lengths.dtype.bits, wraps=False)
    count = count_of(lengths.shape)
    words = (
        pointer(lengths), pointer(lengths), pointer(lengths), Pointer(lowering.error_buffer()), 1, count, _ENDLESS, 0,
    )  # fmt: skip
    lowering.emit(KernelText(name, function), words, (lengths.buffer,), (), count, (node,))
