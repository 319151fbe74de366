"""Images: values as channels-last views of rank 4, and the attributes that windows over them have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from ort_core.cpu.lowering.images.layout_steps import (
    as_images,
    as_it_lies,
    emit_channels_last,
    is_channels_last,
    lies_among_channels,
)
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor
from ort_core.cpu.lowering.products.quantized import quantized_value
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.views import View, count_of, dense_strides
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import Scalar, element
from ort_core.plugin.ops import node_windows

Pads = tuple[KnownDim, KnownDim, KnownDim, KnownDim]  # top, left, bottom, right


def images(lowering: Lowering, value: Value | None, channels: int | None = None, *, as_parts: bool = False) -> View:
    """Return a value as channels-last images of rank 4, copied once if it lies otherwise.

    Args:
        lowering: receives the copy.
        value: the images.
        channels: how many there must be, for a value whose own type leaves it open.
        as_parts: whether they may be some of the channels of others (``lies_among_channels``).

    Raises:
        NotLowered: these are not images, or how many channels they have is not known.
    """
    assert value is not None
    quantized = quantized_value(lowering, value)
    if quantized is not None and isinstance(lowering.pending(value), PendingAnchor):
        lowering.set(value, quantized.expression(lowering))  # the integers are a quarter of the memory
    view = lowering.view(value)
    if channels is not None and len(view.shape) in (3, 4) and not isinstance(view.shape[1], int):
        lowering.require_equal(view.shape[1], channels)
        shape = (view.shape[0], channels, *view.shape[2:])
        dense = lowering.contiguous(value)
        view = View(dense.buffer, shape, dense_strides(shape), dense.offset)
        return as_images(emit_channels_last(lowering, view))
    if len(view.shape) not in (3, 4) or not isinstance(view.shape[1], int) or view.dtype is not DataType.FLOAT:
        raise NotLowered("only float32 images with a known number of channels are generated")
    if lies_among_channels(view):
        view = as_it_lies(view)
        if not as_parts:
            view = lowering.copied(view, view.order)
            lowering.replace(value, view)
    elif not is_channels_last(view):
        view = emit_channels_last(lowering, lowering.contiguous(value))
        lowering.replace(value, view)
    return as_images(view)


def biased(lowering: Lowering, node: Node, channels: int, rank: int) -> tuple[Scalar, tuple[View, ...]]:
    """Return what an anchor stores, the sum and a bias (input 2 of the node), and the views that this reads."""
    total: Scalar = element(0, DataType.FLOAT)
    if node.input(2) is None:
        return total, ()
    bias = lowering.contiguous(node.input(2))
    lowering.require_equal(count_of(bias.shape), channels)
    return total + element(1, DataType.FLOAT), (bias.reshaped((channels, *[1] * (rank - 2))),)


def pair(values: tuple[int, ...] | None, rank: int) -> tuple[int, int]:
    """Return an attribute of two axes; a 1-D window has height 1."""
    if not values:
        return (1, 1)
    return (1, values[0]) if rank == 3 else (values[0], values[1])


def pads_of(node: Node, rank: int, window: Sequence[int], sizes: Sequence[KnownDim]) -> tuple[int, int, int, int]:
    """Return top, left, bottom, right."""
    before, after = pads_by_axis(node, window, sizes[1 if rank == 3 else 0 :])
    return (0, before[0], 0, after[0]) if rank == 3 else (before[0], before[1], after[0], after[1])


def open_pads_of(node: Node, rank: int, window: Sequence[int], sizes: Sequence[KnownDim]) -> Pads:
    """Return top, left, bottom, right, of which automatic ones may depend on sizes that only a run knows."""
    before, after = open_pads_by_axis(node, window, sizes[1 if rank == 3 else 0 :])
    return (0, before[0], 0, after[0]) if rank == 3 else (before[0], before[1], after[0], after[1])


def has_known_pads(pads: Sequence[KnownDim]) -> TypeGuard[tuple[int, int, int, int]]:
    """Return whether no pad depends on a size that only a run knows."""
    return all(isinstance(each, int) for each in pads)


def pads_by_axis(node: Node, window: Sequence[int], sizes: Sequence[KnownDim]) -> tuple[list[int], list[int]]:
    """Return the pads in front of and behind each axis of space.

    Raises:
        NotLowered: some are negative, or depend on a size that only a run knows.
    """
    sides = open_pads_by_axis(node, window, sizes)
    before, after = ([pad for pad in side if isinstance(pad, int)] for side in sides)
    if (len(before), len(after)) != (len(sides[0]), len(sides[1])):  # known for steps of one, whatever the size
        raise NotLowered("automatic pads of an axis of unknown size are not generated")
    return before, after


def open_pads_by_axis(
    node: Node, window: Sequence[int], sizes: Sequence[KnownDim]
) -> tuple[list[KnownDim], list[KnownDim]]:
    """Return the pads in front of and behind each axis, of which automatic ones may depend on a run's sizes."""
    before, after = [], []
    for axis in node_windows(node, sizes, window):
        if axis.before is None or axis.after is None:
            raise NotLowered("automatic pads of an axis of unknown size are not generated")
        if any(isinstance(pad, int) and pad < 0 for pad in (axis.before, axis.after)):
            raise NotLowered("negative pads are not generated")
        before.append(axis.before)
        after.append(axis.after)
    return before, after


def strides_and_dilations(node: Node, axes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how far windows lie apart, and their taps, along each axis of space."""
    strides, dilations = (node.ints_attribute(name) or (1,) * axes for name in ("strides", "dilations"))
    if len(strides) != axes or len(dilations) != axes:
        raise NotLowered("strides or dilations do not fit the axes")
    return tuple(strides), tuple(dilations)
