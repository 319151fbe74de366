"""Channels-last images of bytes: where a value lies as such, and copies that put it there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.quantized.byte_border import byte_border_kernel
from ort_core.cpu.lowering.images.layout_steps import as_images, emit_channels_last, is_channels_last, text_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor, PendingElementwise
from ort_core.cpu.lowering.products.quantized import BYTES
from ort_core.cpu.lowering.rules.quantized.integer_anchors import IntegerAnchor
from ort_core.cpu.lowering.steps import Argument, NotLowered, pointer
from ort_core.cpu.lowering.views import View, channels_last, count_of, ordered_strides
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import element


def byte_images(lowering: Lowering, source: Value | View) -> View:
    """Return bytes as channels-last images of rank 4, copied once if they lie otherwise."""
    view = source if isinstance(source, View) else _stored_channels_last(lowering, source)
    if len(view.shape) not in (3, 4) or not isinstance(view.shape[1], int) or view.dtype not in BYTES:
        raise NotLowered("only images of bytes with a known number of channels are generated")
    order = channels_last(len(view.shape))
    if view.strides != ordered_strides(view.shape, order):
        target = lowering.new_view(view.dtype, view.shape, order)
        pending = PendingElementwise(element(0, view.dtype), (view,), view.shape, ("Layout",))
        view = lowering.stores.store_elementwise(pending, target)
        if isinstance(source, Value):
            lowering.replace(source, view)
    return as_images(view)


def _stored_channels_last(lowering: Lowering, value: Value) -> View:
    """Return a value in memory; one that is computed now from a float image takes that image channels-last."""
    known = lowering.pending(value)
    if isinstance(known, PendingElementwise) and len(known.shape) in (3, 4) and not lowering.is_output(value):
        inputs = [_channels_last_image(lowering, view, known.shape) for view in known.inputs]
        lowering.set(value, replace(known, inputs=tuple(inputs)))
    return lowering.view(value)


def _channels_last_image(lowering: Lowering, view: View, shape: Sequence[KnownDim]) -> View:
    is_image = view.shape == tuple(shape) and isinstance(view.shape[1], int) and view.dtype.bits == 32
    if not is_image or not view.is_contiguous or is_channels_last(view):
        return view
    return emit_channels_last(lowering, view)


def own_bordered(lowering: Lowering, node: Node, source: Value | View, fill: int | View) -> View | None:
    """Return the images with the border that a node states in numbers, if nothing else reads them."""
    pads, real = node.ints_attribute("pads") or (), node.input(0)
    is_stated = node.string_attribute("auto_pad", "NOTSET") == "NOTSET" and len(pads) == 4
    if not is_stated or not any(pads) or min(pads) < 0 or not isinstance(source, Value):
        return None
    if real is None or (real is not source and not lowering.is_single_use(real)):
        return None
    return bordered_images(lowering, source, pads, fill)


def bordered_images(lowering: Lowering, value: Value, pads: Sequence[int], fill: int | View) -> View | None:
    """Return images with a border into whose middle their own convolution stores them; ``None`` if none is pending.

    A convolution of a mobile network copies its input in a quarter of its time otherwise.
    """
    known = lowering.pending(value)
    if not isinstance(known, PendingAnchor) or not isinstance(known.anchor, IntegerAnchor) or len(known.shape) != 4:
        return None
    if known.order or not known.anchor.is_image or known.dtype not in BYTES or not isinstance(known.shape[1], int):
        return None
    if not lowering.is_single_use(value):
        return None
    target = _bordered(lowering, known.dtype, known.shape, pads)
    top, left = pads[:2]
    offset = target.offset + target.strides[2] * top + target.strides[3] * left
    inside = View(target.buffer, known.shape, target.strides, offset)
    # In front of the convolution, so that threads meet once for both.
    _emit_border(lowering, None, target, known.shape, pads, fill)
    known.anchor.store(lowering, known, inside)
    lowering.set(value, inside)
    return target


def emit_byte_border(lowering: Lowering, source: View, pads: Sequence[KnownDim], value: int | View) -> View:
    """Copy images of bytes (rank 4) into larger ones; the border's value is a number, or a view of one."""
    target = _bordered(lowering, source.dtype, source.shape, pads)
    _emit_border(lowering, source, target, source.shape, pads, value)
    return target


def _bordered(lowering: Lowering, dtype: DataType, shape: Sequence[KnownDim], pads: Sequence[KnownDim]) -> View:
    batch, channels, height, width = shape
    top, left, bottom, right = pads
    larger = (batch, channels, height + (top + bottom), width + (left + right))
    return lowering.new_view(dtype, larger, channels_last(4))


def _emit_border(
    lowering: Lowering, source: View | None, target: View, shape: Sequence[KnownDim], pads: Sequence[KnownDim],
    value: int | View,
) -> None:  # fmt: skip
    """Write the step that fills the border and, with a source, copies it into the middle."""
    batch, channels, height, width = shape
    top, left, bottom, right = pads
    if isinstance(value, int):
        value = lowering.constant_view(np.array(value, target.dtype.numpy), target.dtype)
    copies = source is not None
    kernel = lowering.kernel(
        ("border", copies),
        lambda: text_kernel("border", lambda name: module_text(byte_border_kernel(name, copies=copies))),
    )
    read = target if source is None else source
    arguments: list[Argument] = [
        pointer(read), pointer(target), pointer(value), batch, height, read.strides[2], read.strides[0], top, bottom,
        left * channels, width * channels, right * channels,
    ]  # fmt: skip
    reads = [value.buffer] if source is None else [source.buffer, value.buffer]
    border = count_of(target.shape) - count_of(shape)
    work = (count_of(target.shape) if copies else border) // 16 + 1
    lowering.emit(kernel, arguments, reads, [target.buffer], work, ("Pad",))
