"""Signals: DFT and STFT."""

from __future__ import annotations

from ort_core.ir.dims import Dim
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.shape_arithmetic import add_dims, divide_dim


def _onesided(length: Dim) -> Dim:
    return add_dims(divide_dim(length, 2), 1)


@infer_rule("DFT")
def infer_dft(ctx: InferenceContext) -> None:
    """The transformed axis has the DFT's length (or its non-redundant half), the last axis holds the parts."""
    shape = ctx.shape_min_rank(0, 2)
    if ctx.shape(2):
        ctx.refuse("axis input must be a scalar.")
    if shape is None:
        return
    axis = _dft_axis(ctx)
    if axis is None:
        ctx.set_shape(0, (None,) * (len(shape) - 1) + (None,))
        return
    place = ctx.axis(axis, len(shape))
    if place == len(shape) - 1:
        ctx.refuse("the last axis holds real and imaginary parts and cannot be transformed")
    length = shape[place]
    if ctx.has_input(1):
        given = ctx.scalar(1)
        length = None if isinstance(given, float) else given
    onesided, inverse = ctx.int_of("onesided") != 0, ctx.int_of("inverse") != 0
    result = list(shape)
    result[-1] = 1 if onesided and inverse else 2
    if onesided and not inverse:
        length = _onesided(length)
    elif onesided and not ctx.has_input(1):
        half = add_dims(length, -1)
        length = None if half is None else half * 2
    result[place] = length
    ctx.set_shape(0, result)


def _dft_axis(ctx: InferenceContext) -> int | None:
    if ctx.opset < 20:
        return ctx.int_of("axis", 1)
    if not ctx.has_input(2):
        return -2
    found = ctx.scalar(2)
    return found if isinstance(found, int) else None


@infer_rule("STFT")
def infer_stft(ctx: InferenceContext) -> None:
    """[batch, frames, bins, 2]."""
    signal, step, window = ctx.shape_min_rank(0, 2), ctx.scalar(1), ctx.shape(2)
    if signal is None:
        return
    frame: Dim = window[0] if window else None
    if ctx.has_input(3):
        given = ctx.scalar(3)
        frame = frame if given is None or isinstance(given, float) else given
    bins = _onesided(frame) if ctx.int_of("onesided", 1) else frame
    room = None if frame is None else add_dims(signal[1], -frame)
    count = add_dims(divide_dim(room, None if isinstance(step, float) else step), 1)
    ctx.set_shape(0, (signal[0], count, bins, 2))
