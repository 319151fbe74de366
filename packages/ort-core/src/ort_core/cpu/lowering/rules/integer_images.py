"""Channels-last images of bytes: where a value lies as such, and copies that put it there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ort_core.cpu.codegen.byte_border import byte_border_kernel
from ort_core.cpu.codegen.emitter import module_text
from ort_core.cpu.lowering.layout_steps import as_images, emit_channels_last, is_channels_last, text_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingElementwise
from ort_core.cpu.lowering.quantized import BYTES
from ort_core.cpu.lowering.steps import Argument, NotLowered, pointer
from ort_core.cpu.lowering.views import View, channels_last, count_of, ordered_strides
from ort_core.plugin.ir import KnownDim, Value
from ort_core.plugin.loops import element


def byte_images(lowering: Lowering, source: Value | View) -> View:
    """Return bytes as channels-last images of rank 4, copied once if they lie otherwise."""
    view = source if isinstance(source, View) else _stored_channels_last(lowering, source)
    if len(view.shape) not in (3, 4) or not isinstance(view.shape[1], int) or view.dtype not in BYTES:
        raise NotLowered("no images of bytes with a known number of channels")
    order = channels_last(len(view.shape))
    if view.strides != ordered_strides(view.shape, order):
        target = lowering.new_view(view.dtype, view.shape, order)
        pending = PendingElementwise(element(0, view.dtype), (view,), view.shape, ("Layout",))
        view = lowering.store_elementwise(pending, target)
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


def emit_byte_border(lowering: Lowering, source: View, pads: Sequence[int], value: int | View) -> View:
    """Copy images of bytes (rank 4) into larger ones; the border's value is a number, or a view of one."""
    batch, channels, height, width = source.shape
    top, left, bottom, right = pads
    shape = (batch, channels, height + (top + bottom), width + (left + right))
    target = lowering.new_view(source.dtype, shape, channels_last(4))
    if isinstance(value, int):
        value = lowering.constant_view(np.array(value, source.dtype.numpy), source.dtype)
    kernel = text_kernel("border", lambda name: module_text(byte_border_kernel(name)))
    arguments: list[Argument] = [
        pointer(source), pointer(target), pointer(value), batch, height, source.strides[2], source.strides[0], top,
        bottom, left * channels, width * channels, right * channels,
    ]  # fmt: skip
    reads = [source.buffer, value.buffer]
    lowering.emit(kernel, arguments, reads, [target.buffer], count_of(shape) // 16 + 1, ("Pad",))
    return target
