"""Operators with sliding windows: convolutions, pooling and their relatives."""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.errors import InvalidArgument
from ort_core.ir.dims import Dim, product
from ort_core.ir.types import DataType, Shape
from ort_core.ops.infer.generators import shape_from_input
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.shape_arithmetic import divide_dim, scale_dim
from ort_core.ops.windows import SAME, transposed_axes, window_axes


def window_shape(
    ctx: InferenceContext, space: Sequence[Dim], kernel: Sequence[Dim], *, ceil_mode: bool = False
) -> tuple[Dim, ...]:
    """Return the sizes after a window of ``kernel`` slid over ``space`` as strides, pads and dilations say."""
    if any(isinstance(size, int) and size < 1 for size in kernel):
        ctx.refuse(f"Attribute kernel_shape must only contain positive values, found {tuple(kernel)}")
    _require_attributes(ctx, kernel, len(space))
    try:
        axes = window_axes(space, kernel, *_steps(ctx), _pads(ctx), _auto_pad(ctx), ceil_mode=ceil_mode)
    except InvalidArgument as error:
        ctx.refuse(str(error))
    return tuple(axis.count for axis in axes)


def _require_attributes(ctx: InferenceContext, kernel: Sequence[Dim], count: int) -> None:
    """Refuse attributes that are there and have no entries, steps below 1, and negative pads of known windows."""
    for name in ("strides", "dilations"):
        found = ctx.ints_of(name)
        if found is not None and (len(found) != count or min(found, default=1) < 1):
            ctx.refuse(f"Attribute {name} {found} must have {count} entries of at least 1")
    pads = ctx.ints_of("pads")
    if pads is None or _auto_pad(ctx) in ("VALID", *SAME):
        return
    if len(pads) != 2 * count:
        ctx.refuse(f"Attribute pads has incorrect size: {len(pads)} entries for {count} axes")
    if min(pads, default=0) < 0 and all(isinstance(size, int) for size in kernel):
        ctx.refuse(f"Attribute pads must not contain negative values, found {pads}")


def _steps(ctx: InferenceContext) -> tuple[Sequence[int], Sequence[int]]:
    return ctx.ints_of("strides") or (), ctx.ints_of("dilations") or ()


def _pads(ctx: InferenceContext) -> Sequence[int]:
    return ctx.ints_of("pads") or ()


def _auto_pad(ctx: InferenceContext) -> str:
    return ctx.string_of("auto_pad", "NOTSET")


def conv_shape(ctx: InferenceContext, data: int, weights: int, *, channels_last: bool = False) -> Shape | None:
    """Return the shape of a convolution of input ``data`` with input ``weights`` [M, C/group, kernel...]."""
    x, w = ctx.shape_min_rank(data, 2), ctx.shape_min_rank(weights, 2)
    if x is None:
        return None
    if w is not None and len(w) != len(x):
        ctx.refuse(f"the weights have rank {len(w)}, the input has rank {len(x)}")
    space = x[1:-1] if channels_last else x[2:]
    kernel: Sequence[Dim] | None = ctx.ints_of("kernel_shape")
    if kernel is None:
        kernel = (None,) * len(space) if w is None else w[2:]
    channels, group = x[-1 if channels_last else 1], ctx.int_of("group", 1)
    if w is not None and all(isinstance(d, int) for d in (channels, w[1])) and channels != scale_dim(w[1], group):
        ctx.refuse(f"the input has {channels} channels, the weights expect {w[1]} in each of {group} groups")
    made = None if w is None else w[0]
    after = window_shape(ctx, space, kernel)
    return (x[0], *after, made) if channels_last else (x[0], made, *after)


@infer_rule("Conv")
def infer_conv(ctx: InferenceContext) -> None:
    """[N, C, space...] with [M, C/group, kernel...] gives [N, M, windows...]."""
    ctx.set_shape(0, conv_shape(ctx, 0, 1))


@infer_rule("ConvInteger")
def infer_conv_integer(ctx: InferenceContext) -> None:
    """As Conv, in int32."""
    ctx.set_output(0, DataType.INT32, conv_shape(ctx, 0, 1))


@infer_rule("QLinearConv")
def infer_qlinear_conv(ctx: InferenceContext) -> None:
    """As Conv; the element type is that of the result's zero point."""
    ctx.set_output(0, ctx.dtype(7), conv_shape(ctx, 0, 3))


@infer_rule("DeformConv")
def infer_deform_conv(ctx: InferenceContext) -> None:
    """As Conv; the offsets do not change the shape."""
    ctx.set_shape(0, conv_shape(ctx, 0, 1))


@infer_rule("ConvTranspose")
def infer_conv_transpose(ctx: InferenceContext) -> None:
    """[N, C, space...] with [C, M/group, kernel...] gives [N, M, larger space...]."""
    x, w = ctx.shape_min_rank(0, 2), ctx.shape_min_rank(1, 2)
    if x is None:
        return
    space = x[2:]
    kernel: Sequence[Dim] | None = ctx.ints_of("kernel_shape")
    if kernel is None:
        kernel = (None,) * len(space) if w is None else w[2:]
    made = None if w is None else scale_dim(w[1], ctx.int_of("group", 1))
    ctx.set_shape(0, (x[0], made, *_transposed(ctx, space, kernel)))


def _transposed(ctx: InferenceContext, space: Shape, kernel: Sequence[Dim]) -> tuple[Dim, ...]:
    extra, given = ctx.ints_of("output_padding") or (), ctx.ints_of("output_shape") or ()
    if given and (len(given) != len(space) or min(given) < 1):
        ctx.refuse(f"Attribute output_shape {given} must have {len(space)} entries of at least 1")
    if not given:
        _require_attributes(ctx, kernel, len(space))
    try:
        axes = transposed_axes(space, kernel, *_steps(ctx), _pads(ctx), _auto_pad(ctx), extra, given)
    except InvalidArgument as error:
        ctx.refuse(str(error))
    return tuple(axis.result for axis in axes)


def pool_shape(ctx: InferenceContext, index: int, *, channels_last: bool = False) -> Shape | None:
    """Return the shape after pooling input ``index`` with attribute ``kernel_shape``."""
    x = ctx.shape_min_rank(index, 2)
    if x is None:
        return None
    space = x[1:-1] if channels_last else x[2:]
    kernel = ctx.ints_of("kernel_shape")
    if kernel is None:
        ctx.refuse("Attribute kernel_shape must be specified")
    after = window_shape(ctx, space, kernel, ceil_mode=ctx.int_of("ceil_mode") != 0)
    return (x[0], *after, x[-1]) if channels_last else (x[0], x[1], *after)


@infer_rule("AveragePool", "LpPool", "MaxPool")
def infer_pool(ctx: InferenceContext) -> None:
    """[N, C, space...] gives [N, C, windows...]; MaxPool's second output holds indices."""
    shape = pool_shape(ctx, 0)
    ctx.set_shape(0, shape)
    if ctx.node.op_type == "MaxPool":
        ctx.set_output(1, DataType.INT64, shape)


@infer_rule("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")
def infer_global_pool(ctx: InferenceContext) -> None:
    """Every spatial size becomes 1."""
    shape = ctx.shape_min_rank(0, 2)
    if shape is not None:
        ctx.set_shape(0, (*shape[:2], *((1,) * (len(shape) - 2))))


@infer_rule("MaxUnpool")
def infer_max_unpool(ctx: InferenceContext) -> None:
    """The inverse of MaxPool's shape, or the given output shape."""
    shape = ctx.shape_min_rank(0, 2)
    if ctx.has_input(2):
        given = ctx.dims(2)
        ctx.set_shape(0, given if given is not None else (None,) * len(shape) if shape is not None else None)
        return
    kernel = ctx.ints_of("kernel_shape")
    if shape is None or kernel is None:
        return
    try:
        axes = transposed_axes(shape[2:], kernel, ctx.ints_of("strides") or (), pads=_pads(ctx))
    except InvalidArgument as error:
        ctx.refuse(str(error))
    ctx.set_shape(0, (*shape[:2], *(axis.result for axis in axes)))


@infer_rule("MaxRoiPool", "RoiAlign")
def infer_roi_pool(ctx: InferenceContext) -> None:
    """One [C, height, width] per region."""
    x, rois = ctx.shape_of_rank(0, 4), ctx.shape_of_rank(1, 2)
    pooled = ctx.ints_of("pooled_shape")
    if ctx.node.op_type == "RoiAlign":
        pooled = (ctx.int_of("output_height", 1), ctx.int_of("output_width", 1))
    if pooled is None or len(pooled) != 2:
        ctx.refuse("pooled_shape must have 2 entries")
    ctx.set_shape(0, (None if rois is None else rois[0], None if x is None else x[1], *pooled))


@infer_rule("Col2Im")
def infer_col2im(ctx: InferenceContext) -> None:
    """[N, C * block, L] gives [N, C, image...]."""
    columns, image, block = ctx.shape_of_rank(0, 3), shape_from_input(ctx, 1), ctx.dims(2)
    if image is None:
        return
    channels = None
    if columns is not None and block is not None:
        channels = divide_dim(columns[1], product(block))
    ctx.set_shape(0, (None if columns is None else columns[0], channels, *image))
