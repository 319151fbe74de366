"""Images: values as channels-last views of rank 4, and the attributes that windows over them have."""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cpu.lowering.layout_steps import as_images, emit_channels_last, is_channels_last
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor
from ort_core.cpu.lowering.quantized import quantized_value
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.views import View
from ort_core.plugin.ir import DataType, KnownDim, Node, Value


def images(lowering: Lowering, value: Value | None) -> View:
    """Return a value as channels-last images of rank 4, copied once if it lies otherwise."""
    assert value is not None
    quantized = quantized_value(lowering, value)
    if quantized is not None and isinstance(lowering.pending(value), PendingAnchor):
        lowering.set(value, quantized.expression(lowering))  # the integers are a quarter of the memory
    view = lowering.view(value)
    if len(view.shape) not in (3, 4) or not isinstance(view.shape[1], int) or view.dtype is not DataType.FLOAT:
        raise NotLowered("no images with a known number of channels")
    if not is_channels_last(view):
        view = emit_channels_last(lowering, lowering.contiguous(value))
        lowering.replace(value, view)
    return as_images(view)


def pair(values: tuple[int, ...] | None, rank: int) -> tuple[int, int]:
    """Return an attribute of two axes; a 1-D window has height 1."""
    if not values:
        return (1, 1)
    return (1, values[0]) if rank == 3 else (values[0], values[1])


def pads_of(
    node: Node,
    rank: int,
    window: Sequence[int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    sizes: Sequence[KnownDim],
) -> tuple[int, int, int, int]:
    """Return top, left, bottom, right."""
    mode = node.string_attribute("auto_pad", "NOTSET")
    if mode == "VALID":
        return (0, 0, 0, 0)
    if mode == "NOTSET":
        given = node.ints_attribute("pads") or (0,) * (2 * (rank - 2))
        if any(pad < 0 for pad in given):
            raise NotLowered("negative pads")
        return (0, given[0], 0, given[1]) if rank == 3 else (given[0], given[1], given[2], given[3])
    kernel = (1, window[0]) if rank == 3 else (window[0], window[1])
    before, after = [], []
    for size, taps, stride, dilation in zip(sizes, kernel, strides, dilations):
        if not isinstance(size, int):
            raise NotLowered("automatic pads of an axis of unknown size")
        total = max((-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1 - size, 0)
        small = total // 2
        before.append(small if mode == "SAME_UPPER" else total - small)
        after.append(total - small if mode == "SAME_UPPER" else small)
    return (before[0], before[1], after[0], after[1])
