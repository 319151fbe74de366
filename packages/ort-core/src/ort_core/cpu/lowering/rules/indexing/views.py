"""Operators that only say where elements lie: no computation, strides and offsets instead."""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cpu.lowering.images.concatenations import joined
from ort_core.cpu.lowering.images.layout_steps import as_it_lies, is_channels_last
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import (
    PendingAnchor,
    PendingElementwise,
    PendingMatrices,
    PendingReshape,
    has_rows,
    is_placed,
    known_order,
    order_of,
)
from ort_core.cpu.lowering.products.chosen_matrices import turns_matrices
from ort_core.cpu.lowering.products.quantized import quantized_value, set_quantized
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import axis_place, tensor_type
from ort_core.cpu.lowering.views import View, broadcast_strides, channels_last, count_of, ordered_strides
from ort_core.plugin.ir import KnownDim, Node, ceil_div, maximum, minimum
from ort_core.plugin.loops import element
from ort_core.plugin.ops import is_before_beginning, is_beyond_end, slice_bound


def reshape(lowering: Lowering, node: Node) -> None:
    """Reshape, Flatten, Squeeze, Unsqueeze: the same elements in another shape."""
    _, shape = tensor_type(node.output)
    value = node.input(0)
    assert value is not None
    if node.op_type == "Reshape" and lowering.constant_of(node.input(1)) is None:
        # A computed size that turns out to be 0 means another thing: the size that the input has there.
        lowering.require_equal(minimum(count_of(tensor_type(value)[1]), 1), 1)
    quantized = quantized_value(lowering, value)
    if quantized is not None:
        stored = quantized.view(lowering)
        stored = stored if stored.is_contiguous else lowering.copied(stored)
        lowering.require_equal(count_of(stored.shape), count_of(shape))
        set_quantized(lowering, node.output, stored.reshaped(shape), quantized.grid)
        return
    known = lowering.pending(value)
    if isinstance(known, PendingAnchor) and lowering.is_single_use(value):
        moved = _anchor_with_rows(known, shape, node)
        if moved is not None:
            lowering.require_equal(count_of(known.shape), count_of(shape))
            lowering.set(node.output, moved)
            return
    source = lowering.view(value)
    lowering.require_equal(count_of(source.shape), count_of(shape))
    images = _images_of(source, shape)
    if images is not None:
        lowering.set(node.output, images)
        return
    rows = source.with_rows(shape[:-1]) if shape and source.shape[-1:] == shape[-1:] and not source.order else None
    if rows is not None and not source.is_contiguous:
        lowering.set(node.output, rows)
    elif 0 in source.strides and not source.is_contiguous:
        lowering.set(node.output, PendingReshape(source, shape, (node,)))
    else:
        lowering.set(node.output, lowering.contiguous(value).reshaped(shape))


def _images_of(source: View, shape: tuple[KnownDim, ...]) -> View | None:
    """Return channels-last images with their space counted by other axes, ``None`` where that is not what is asked."""
    if len(shape) not in (3, 4, 5) or source.shape[:2] != shape[:2] or not is_channels_last(source):
        return None
    order = channels_last(len(shape))
    return View(source.buffer, shape, ordered_strides(shape, order), source.offset, order)


def _anchor_with_rows(pending: PendingAnchor, shape: tuple[KnownDim, ...], node: Node) -> PendingAnchor | None:
    """Return an anchor whose result has the same rows, counted by other axes: so the next node can join it."""
    if pending.order or len(shape) < 2 or pending.shape[-1] != shape[-1] or not has_rows(pending.anchor):
        return None
    anchor = pending.anchor.with_rows(shape, pending.inputs)
    if anchor is None:
        return None
    return PendingAnchor(anchor, pending.expression, pending.inputs, shape, (*pending.operators, node))


def identity(lowering: Lowering, node: Node) -> None:
    """Identity and inference Dropout: the value itself."""
    if any(v is not None and v.use_count for v in node.outputs[1:]):
        raise NotLowered("the mask of Dropout is used")
    quantized = quantized_value(lowering, node.input(0))
    if quantized is not None:
        set_quantized(lowering, node.output, quantized.view(lowering), quantized.grid)
        return
    lowering.set(node.output, lowering.view(node.input(0)))


def transpose(lowering: Lowering, node: Node) -> None:
    """Transpose: the strides in another order; an anchor in front stores its result in that order at once."""
    value = node.input(0)
    assert value is not None
    _, shape = tensor_type(node.output)
    order = node.ints_attribute("perm") or tuple(range(len(shape)))[::-1]
    quantized = quantized_value(lowering, value)
    if quantized is not None:
        set_quantized(lowering, node.output, quantized.view(lowering).transposed(order), quantized.grid)
        return
    known = lowering.pending(value)
    if isinstance(known, PendingMatrices) and turns_matrices(node):
        lowering.set(node.output, known.turned())
        return
    last = len(order) - 1
    # An anchor with a layout of its own (a convolution) stores in no other order.
    takes_order = isinstance(known, PendingAnchor) and not known.order and not getattr(known.anchor, "layout", ())
    if takes_order and order[last:] == (last,) and lowering.is_single_use(value):
        assert isinstance(known, PendingAnchor)
        names = (*known.operators, node)
        lowering.set(
            node.output, PendingAnchor(known.anchor, known.expression, known.inputs, known.shape, names, tuple(order))
        )
        return
    moved = lowering.view(value).transposed(order)
    if len(shape) == 4 and is_channels_last(moved):  # rank 3 is as often a matrix that a product reads transposed
        moved = View(moved.buffer, moved.shape, moved.strides, moved.offset, channels_last(4))
    lowering.set(node.output, moved)


def expand(lowering: Lowering, node: Node) -> None:
    """Expand: stride 0 where a size of 1 repeats."""
    _, shape = tensor_type(node.output)
    view = lowering.view(node.input(0))
    view = lowering.operands.spread(view, shape)
    strides = broadcast_strides(view, shape)
    assert strides is not None, "spread says how"
    lowering.set(node.output, View(view.buffer, shape, strides, view.offset))


def slice_(lowering: Lowering, node: Node) -> None:
    """Slice with bounds that follow from sizes: another offset, other strides, negative ones for negative steps."""
    view = lowering.view(node.input(0))
    _, shape = tensor_type(node.output)
    starts, ends, axes, steps = _slice_bounds(lowering, node, len(view.shape))
    offset, strides = view.offset, list(view.strides)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis %= len(view.shape)
        size = view.shape[axis]
        if step > 0:
            begin, stop = slice_bound(start, size), slice_bound(end, size)
            count = maximum(ceil_div(stop - begin, step), 0)
            if count != shape[axis]:  # bounds that are sizes of tensors are not negative: only inference knows them
                begin, stop = _clamped(lowering, start, size), _clamped(lowering, end, size)
                count = maximum(ceil_div(stop - begin, step), 0)
        else:
            begin, stop = _clamped_below(lowering, start, size), _clamped_below(lowering, end, size)
            count = maximum(ceil_div(begin - stop, -step), 0)
        # A declared shape is believed only if it is the true one: views reach into memory.
        lowering.require_equal(count, shape[axis])
        offset = offset + begin * strides[axis]
        strides[axis] = strides[axis] * step
    lowering.set(node.output, as_it_lies(View(view.buffer, shape, tuple(strides), offset)))


def _slice_bounds(
    lowering: Lowering, node: Node, rank: int
) -> tuple[Sequence[KnownDim], Sequence[KnownDim], Sequence[int], Sequence[int]]:
    if lowering.opset_of(node) < 10:
        starts: Sequence[KnownDim] | None = node.ints_attribute("starts")
        ends: Sequence[KnownDim] | None = node.ints_attribute("ends")
        axes: Sequence[KnownDim] | None = node.ints_attribute("axes")
        steps: Sequence[KnownDim] | None = None
    else:
        starts, ends, axes, steps = (lowering.elements_of(node.input(i)) for i in range(1, 5))
        if (axes is None and node.input(3) is not None) or (steps is None and node.input(4) is not None):
            raise NotLowered("axes or steps are only known at run time")
    if starts is None or ends is None:
        raise NotLowered("its bounds are only known at run time")
    axes = axes if axes is not None else tuple(range(len(starts)))
    steps = steps if steps is not None else (1,) * len(starts)
    if not all(isinstance(each, int) for each in (*axes, *steps)) or 0 in steps:
        raise NotLowered("axes or steps depend on sizes")
    return starts, ends, [a for a in axes if isinstance(a, int)], [s for s in steps if isinstance(s, int)]


def _clamped(lowering: Lowering, index: KnownDim, size: KnownDim) -> KnownDim:
    """Return a bound of a slice within an axis."""
    if isinstance(index, int):
        return slice_bound(index, size)
    lowering.require_equal(maximum(index, 0), index)  # below 0 it would count from the end
    return minimum(index, size)


def _clamped_below(lowering: Lowering, index: KnownDim, size: KnownDim) -> KnownDim:
    """Return a bound of a backwards slice: from -1, in front of everything, to the last element."""
    if not isinstance(index, int):
        lowering.require_equal(maximum(index, 0), index)
        return minimum(index, size - 1)
    if is_beyond_end(index):
        return size - 1
    if is_before_beginning(index):
        return -1
    return minimum(index, size - 1) if index >= 0 else maximum(size + index, -1)


def split(lowering: Lowering, node: Node) -> None:
    """Split: one view per part."""
    view = lowering.view(node.input(0))
    axis = axis_place(node.int_attribute("axis", 0), len(view.shape))
    start: KnownDim = 0
    for output in node.outputs:
        if output is None:
            raise NotLowered("an output of Split has no name")
        _, shape = tensor_type(output)
        offset = view.offset + start * view.strides[axis]
        lowering.set(output, as_it_lies(View(view.buffer, shape, view.strides, offset)))
        start = start + shape[axis]
    lowering.require_equal(start, view.shape[axis])


def concat(lowering: Lowering, node: Node) -> None:
    """Concat: each part is copied (or computed) into its place of the result."""
    dtype, shape = lowering.type_of(node.output)
    axis = axis_place(node.int_attribute("axis", 0 if lowering.opset_of(node) >= 4 else 1), len(shape))
    require_joinable(lowering, [tensor_type(value)[1] for value in node.present_inputs()], axis, shape)
    for value in node.present_inputs():
        if not lowering.is_single_use(value):
            lowering.view(value)  # it is stored once, perhaps where this concatenation, or a larger one, has it
    orders = [known_order(lowering.pending(value)) for value in node.present_inputs()]
    order = next((each for each in orders if each), ())
    parts = [known for value in node.present_inputs() if isinstance(known := lowering.pending(value), View)]
    whole = joined(parts) if order and axis == 1 and len(parts) == len(orders) else None
    if whole is not None and whole.shape == shape and not lowering.is_output(node.output):
        lowering.set(node.output, as_it_lies(whole))
        return
    target = _concatenated(lowering, node, order if axis == 1 else ())
    start: KnownDim = 0
    for value in node.present_inputs():
        known = lowering.pending(value)
        _, part = tensor_type(value)
        offset = target.offset + start * target.strides[axis]
        place = View(target.buffer, part, target.strides, offset, target.order)
        start = start + part[axis]
        if known == place:
            continue
        first = len(lowering.steps)
        if isinstance(known, PendingAnchor) and _goes_among_others(known, place) and lowering.is_single_use(value):
            known.anchor.store(lowering, known, place)  # type: ignore[attr-defined]  # a PlacedAnchor
        else:
            if isinstance(known, PendingElementwise) and lowering.is_single_use(value):
                pending = known
            else:
                pending = PendingElementwise(element(0, dtype), (lowering.view(value),), part, (node,))
            lowering.stores.store_elementwise(pending, place)
        lowering.note_part(first, target.buffer)
    lowering.set(node.output, target)


def require_joinable(
    lowering: Lowering, parts: Sequence[Sequence[KnownDim]], axis: int, shape: Sequence[KnownDim]
) -> None:
    """Say that parts follow each other along an axis of ``shape`` and are as large as it along the others."""
    total: KnownDim = 0
    for part in parts:
        total = total + part[axis]
        for number, (found, wanted) in enumerate(zip(part, shape, strict=True)):
            if number != axis:
                lowering.require_equal(found, wanted)
    lowering.require_equal(total, shape[axis])


def _concatenated(lowering: Lowering, node: Node, order: tuple[int, ...]) -> View:
    """Return where a concatenation is stored: where parts of it are already, in another one that reads it, or new."""
    dtype, shape = lowering.type_of(node.output)
    if not order or lowering.is_output(node.output):
        return lowering.result_view(node.output)
    concatenations = lowering.concatenations
    known = concatenations.target(node) or concatenations.place(node.output, dtype, shape, order)
    return known or lowering.new_view(dtype, shape, order)


def _goes_among_others(pending: PendingAnchor, place: View) -> bool:
    anchor = pending.anchor
    may_lie_there = is_placed(anchor) and anchor.stores_among_others
    return may_lie_there and bool(place.order) and order_of(pending) == place.order and pending.dtype is place.dtype
