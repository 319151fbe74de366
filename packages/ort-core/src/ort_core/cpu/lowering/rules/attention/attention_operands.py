"""Queries, keys and values of an attention as views (batch, heads, length, size): split, projected, with their bias."""

from __future__ import annotations

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor, PendingElementwise, PendingReshape
from ort_core.cpu.lowering.rows.reducing import combined
from ort_core.cpu.lowering.rules.products import weight_product
from ort_core.cpu.lowering.rules.quantized.integer_products import scaled_integer_product
from ort_core.cpu.lowering.sequences.attention_steps import split_heads
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.views import View
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import Scalar, element
from ort_core.plugin.ops import AttentionRecord, HeadSource, Layout, Projection

F32 = DataType.FLOAT


def operands(lowering: Lowering, node: Node, record: AttentionRecord) -> tuple[View, View, View]:
    """Return queries, keys and values.

    Raises:
        NotLowered: one is missing, its axes are not known, or its heads do not divide it.
    """
    projected = None if record.projection is None else _projected(lowering, node, record.projection)
    read: dict[int, View] = {}
    found = []
    for source in (record.query, record.key, record.value):
        if projected is not None:
            found.append(_heads(projected, source))
            continue
        if source.input is None or source.layout is None:
            raise NotLowered("queries, keys or values are missing, or their axes are not known")
        view = _before_repetition(lowering, node, source, any(record.presents))
        if view is None:
            if source.input not in read:
                read[source.input] = lowering.view(node.input(source.input))
            view = _heads(read[source.input], source)
        found.append(view)
    if record.bias is not None:
        found = _biased(lowering, node, found, record)
    return found[0], found[1], found[2]


def _heads(view: View, source: HeadSource) -> View:
    """Return the heads that a source names in a view."""
    if source.layout is Layout.HEADS:
        return view
    first, heads, size = source.first, source.heads, source.size
    if first is None or not isinstance(heads, int):
        raise NotLowered("where the heads lie is not known")
    if source.layout is Layout.PARTS:
        steps = view.strides
        shape = (view.shape[0], view.shape[2], view.shape[1], view.shape[4])
        offset = view.offset + first * steps[3]
        return View(view.buffer, shape, (steps[0], steps[2], steps[1], steps[4]), offset)
    columns: KnownDim = view.shape[2]
    if source.is_part:
        if not isinstance(size, int):
            raise NotLowered("the size of the heads is not known")
        columns = heads * size
    part = View(view.buffer, (*view.shape[:2], columns), view.strides, view.offset + first * view.strides[2])
    return split_heads(part, heads)


def _before_repetition(lowering: Lowering, node: Node, source: HeadSource, is_output: bool) -> View | None:
    """Return heads (batch, key heads, length, size) as they were before a reshape merged a repetition on axis 2."""
    value: Value | None = None if source.input is None else node.input(source.input)
    known = None if value is None or is_output or source.layout is not Layout.HEADS else lowering.pending(value)
    if not isinstance(known, PendingReshape) or source.input == 0:
        return None
    of, shape = known.source, known.shape
    if len(of.shape) != 5 or len(shape) != 4 or of.strides[2] != 0:
        return None
    batch, heads, group, length, size = of.shape
    if shape != (batch, heads * group, length, size):
        return None
    return View(of.buffer, (batch, heads, length, size), (*of.strides[:2], *of.strides[3:]), of.offset)


def _biased(lowering: Lowering, node: Node, parts: list[View], record: AttentionRecord) -> list[View]:
    """Return the operands, to those of which the bias is their parts of it are added."""
    assert record.bias is not None, "there is one"
    bias = lowering.contiguous(node.input(record.bias))
    start: KnownDim = 0
    for number in range(record.biased):
        heads = parts[number]
        batch, count, length, size = heads.shape
        added = View(bias.buffer, (count, 1, size), (size, size, 1), bias.offset + start)
        target = lowering.new_view(heads.dtype, (batch, length, count, size)).transposed((0, 2, 1, 3))
        total = combined(heads.shape, lambda x, b: x + b, heads, added)
        pending = PendingElementwise(total.expression, total.inputs, heads.shape, (node,))
        parts = [*parts[:number], lowering.stores.store_elementwise(pending, target), *parts[number + 1 :]]
        start = start + count * size
    if record.biased == len(parts):
        lowering.require_equal(bias.shape[0], start)
    return parts


def _projected(lowering: Lowering, node: Node, projection: Projection) -> View:
    """Return the product that has queries, keys and values side by side in its rows."""
    if projection.scales is not None:
        return _projected_bytes(lowering, node, projection)
    x, weights = (node.input(index) for index in (projection.input, projection.weights))
    if x is None or weights is None or None in projection.widths:
        raise NotLowered("a required input is missing, or the number of columns is not known")
    rows = lowering.view(x)
    if len(rows.shape) != 3 or rows.dtype is not F32:
        raise NotLowered("the input is not (batch, length, width) of floats")
    product = weight_product(lowering, rows, weights, node.op_type)
    width = product.b.shape[1]
    if not isinstance(width, int):
        raise NotLowered(f"how many columns the weights have is not known: {width} is not a number")
    if sum(projection.widths) != width:  # type: ignore[arg-type]  # checked
        parts = " and ".join(map(str, projection.widths))
        raise NotLowered(f"{width} columns do not divide into queries, keys and values of {parts}")
    value: Scalar = element(0, F32)
    inputs: tuple[View, ...] = ()
    if projection.bias is not None:
        inputs = (lowering.contiguous(node.input(projection.bias)),)
        value = value + element(1, F32)
    shape = (*product.a.shape[:2], width)
    if not product.can_fuse(shape, inputs):
        raise NotLowered("the bias is not a float32 vector")
    projected = lowering.new_view(F32, shape)
    product.store(lowering, PendingAnchor(product, value, inputs, shape, (node,)), projected)
    return projected


def _projected_bytes(lowering: Lowering, node: Node, projection: Projection) -> View:
    """Return the product of bytes by constant bytes, scaled to floats."""
    assert projection.scales is not None, "of bytes"
    assert projection.zero_points is not None, "of bytes"
    pending = scaled_integer_product(
        lowering, node, scales=projection.scales, zero_points=projection.zero_points, bias=2
    )
    projected = lowering.new_view(F32, pending.shape)
    pending.anchor.store(lowering, pending, projected)  # type: ignore[attr-defined]  # every anchor has it; see rules
    return projected
