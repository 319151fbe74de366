"""Maxima over small windows of bytes: one expression over shifted views of the images with a border.

The order of integers on a grid is the order of the real numbers where the scale is above zero, so dequantized images
are pooled as they are stored.
"""

from __future__ import annotations

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingElementwise
from ort_core.cpu.lowering.products.quantized import BYTES, limits, quantized_value, set_quantized
from ort_core.cpu.lowering.rules.images.images import pads_of, pair
from ort_core.cpu.lowering.rules.quantized.integer_images import byte_images, emit_byte_border, own_bordered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, channels_last
from ort_core.plugin.ir import KnownDim, Node
from ort_core.plugin.loops import Scalar, element, maximum

MAX_TAPS = 9  # operands of one expression


def byte_max_pooling(lowering: Lowering, node: Node) -> bool:
    """Lower a MaxPool of bytes, or of dequantized bytes; return whether it is one with a small window."""
    value = node.input(0)
    kernel = node.ints_attribute("kernel_shape") or ()
    rank = len(kernel) + 2
    if node.op_type != "MaxPool" or value is None or rank not in (3, 4):
        return False
    quantized = quantized_value(lowering, value)
    dtype, shape = tensor_type(node.output)
    stored = dtype if quantized is None else quantized.grid.dtype
    window = pair(kernel, rank)
    if stored not in BYTES or window[0] * window[1] > MAX_TAPS:
        return False
    if quantized is not None and not quantized.grid.scale > 0:
        return False
    source, least = value if quantized is None else quantized.source, limits(stored)[0]
    strides, dilations = pair(node.ints_attribute("strides"), rank), pair(node.ints_attribute("dilations"), rank)
    x = own_bordered(lowering, node, source, least) if rank == 4 else None
    if x is None:
        x = byte_images(lowering, source)
        pads = pads_of(node, rank, kernel, x.shape[2:])
        if any(pads):
            x = emit_byte_border(lowering, x, pads, least)
    size: tuple[KnownDim, ...] = shape if rank == 4 else (shape[0], shape[1], 1, shape[2])
    taps = [
        _tap(x, size, strides, row * dilations[0], column * dilations[1])
        for row in range(window[0])
        for column in range(window[1])
    ]
    largest: Scalar = element(0, stored)
    for index in range(1, len(taps)):
        largest = maximum(largest, element(index, stored))
    target = lowering.new_view(stored, size, channels_last(4))
    lowering.stores.store_elementwise(PendingElementwise(largest, tuple(taps), size, (node,)), target)
    if rank == 3:
        strides3 = (target.strides[0], target.strides[1], target.strides[3])
        target = View(target.buffer, shape, strides3, target.offset, channels_last(3))
    if quantized is None:
        lowering.set(node.output, target)
    else:
        set_quantized(lowering, node.output, target, quantized.grid)
    return True


def _tap(x: View, shape: tuple[KnownDim, ...], strides: tuple[int, int], row: int, column: int) -> View:
    """Return what one tap of every window reads."""
    steps = (x.strides[0], x.strides[1], x.strides[2] * strides[0], x.strides[3] * strides[1])
    return View(x.buffer, shape, steps, x.offset + x.strides[2] * row + x.strides[3] * column)
