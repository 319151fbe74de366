"""Operators that rearrange: reshape, transpose, concatenate, split, slice, pad, tile, expand; and Shape and Size."""

from __future__ import annotations

import math

import numpy as np

from ort_core.ir.dims import Dim, SymbolicDim, product
from ort_core.ir.types import DataType, Shape, TensorType
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.moved_sizes import holds_sizes
from ort_core.ops.shape_arithmetic import (
    MAX_RANK,
    add_dims,
    as_slice,
    broadcast,
    divide_dim,
    fixed_sizes,
    quotient_of_products,
    same_dim,
    scale_dim,
    slice_dim,
    slice_range,
)
from ort_core.ops.symbolic_values import COUNTABLE, MAX_ELEMENTS, SymbolicValue, counted


@infer_rule("Identity")
def infer_identity(ctx: InferenceContext) -> None:
    """Type and contents pass through."""
    ctx.copy(0)


@infer_rule("Shape")
def infer_shape(ctx: InferenceContext) -> None:
    """The sizes of the input, as a vector."""
    shape = ctx.shape(0)
    if shape is None:
        ctx.set_output(0, DataType.INT64, (None,))
        return
    rank = len(shape)
    start = min(max(_from_end(ctx.int_of("start"), rank), 0), rank)
    end = ctx.optional_int_of("end")
    stop = rank if end is None else min(max(_from_end(end, rank), 0), rank)
    part = shape[start:stop]
    ctx.set_output(0, DataType.INT64, (len(part),))
    ctx.set_value(0, part)


def _from_end(index: int, rank: int) -> int:
    return index + rank if index < 0 else index


@infer_rule("Size")
def infer_size(ctx: InferenceContext) -> None:
    """The number of elements, as a scalar."""
    ctx.set_output(0, DataType.INT64, ())
    shape = ctx.shape(0)
    if shape is not None:
        ctx.set_value(0, np.array(product(shape), object))


@infer_rule("Reshape")
def infer_reshape(ctx: InferenceContext) -> None:
    """The second input (before opset 5 an attribute) is the new shape; 0 copies a size, -1 is what is left."""
    attribute = ctx.ints_of("shape")
    target: Shape | None = attribute if attribute is not None and ctx.opset < 5 else ctx.dims(1)
    if target is None:
        lengths = ctx.shape(1)
        if lengths is not None and len(lengths) == 1 and isinstance(lengths[0], int) and lengths[0] <= MAX_RANK:
            target = (None,) * lengths[0]
    if target is None:
        return
    ctx.set_shape(0, _reshaped(ctx, ctx.shape(0), target, ctx.int_of("allowzero") != 0))
    value = ctx.value(0)
    found = ctx.found[0] if ctx.found else None
    sizes = fixed_sizes(found.shape) if isinstance(found, TensorType) else None
    if value is not None and sizes is not None and value.size == math.prod(sizes) and counted(sizes) < COUNTABLE:
        ctx.set_value(0, value.reshape(sizes))


def _reshaped(ctx: InferenceContext, source: Shape | None, target: Shape, allow_zero: bool) -> Shape:
    result: list[Dim] = []
    free: list[int] = []
    for index, dim in enumerate(target):
        if dim == 0 and not allow_zero:
            if source is not None and index >= len(source):
                ctx.refuse(f"the new shape copies dimension {index} of an input of rank {len(source)}")
            dim = None if source is None else source[index]
            result.append(dim)
        elif isinstance(dim, int) and dim < 0:
            if dim != -1:
                ctx.refuse(f"Invalid dimension value: {dim}")
            free.append(index)
            result.append(None)
        else:
            if dim is None:
                free.append(index)
            result.append(dim)
    if sum(1 for d in target if d == -1) > 1:
        ctx.refuse("Target shape may not have multiple -1 dimensions")
    if allow_zero and {0, -1} <= set(target):
        ctx.refuse("with allowzero the target shape may not have both 0 and -1: any size would fit for -1")
    if source is not None:
        _fill_free(ctx, source, result, free)
    return tuple(result)


def _fill_free(ctx: InferenceContext, source: Shape, result: list[Dim], free: list[int]) -> None:
    numbers = [d for d in result if d is not None]
    if len(free) != 1:
        return  # whether the elements fit is known only when the node runs: onnxruntime loads such models, too
    rest = product(tuple(numbers))
    total = product(source)
    if isinstance(rest, int) and isinstance(total, int):
        if rest and total % rest:
            ctx.refuse(f"Dimension could not be inferred: {total} elements do not divide by {rest}")
        result[free[0]] = total // rest if rest else None
        return
    result[free[0]] = quotient_of_products(source, numbers)


@infer_rule("Flatten")
def infer_flatten(ctx: InferenceContext) -> None:
    """Two dimensions: the products before and from the axis."""
    shape = ctx.shape(0)
    if shape is None:
        ctx.set_shape(0, (None, None))
        return
    axis = ctx.int_of("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        ctx.refuse(f"Invalid value({axis}) for attribute 'axis': it must lie in [-{len(shape)}, {len(shape)}]")
    axis = axis + len(shape) if axis < 0 else axis
    ctx.set_shape(0, (product(shape[:axis]), product(shape[axis:])))


def _axes(ctx: InferenceContext, index: int) -> tuple[int, ...] | None:
    return ctx.integers(index) if ctx.has_input(index) else ctx.ints_of("axes")


def _set_rank(ctx: InferenceContext, rank: int, sign: int) -> None:
    """Say the rank of the result when only the number of axes is known."""
    counts = ctx.shape(1)
    if counts is not None and len(counts) == 1 and isinstance(counts[0], int) and 0 <= counts[0] <= MAX_RANK:
        ctx.set_shape(0, (None,) * max(rank + sign * counts[0], 0))


@infer_rule("Squeeze")
def infer_squeeze(ctx: InferenceContext) -> None:
    """Sizes of 1 are removed."""
    shape = ctx.shape(0)
    axes = _axes(ctx, 1)
    if shape is None:
        return
    if axes is None and ctx.has_input(1):
        _set_rank(ctx, len(shape), -1)
        return
    if axes is None:
        if not all(isinstance(d, int) for d in shape):
            return
        kept = [i for i, d in enumerate(shape) if d != 1]
    else:
        gone = {ctx.axis(axis, len(shape)) for axis in axes}
        for axis in gone:
            if isinstance(shape[axis], int) and shape[axis] != 1:
                ctx.refuse(f"Dimension of input {axis} must be 1 instead of {shape[axis]}")
        kept = [i for i in range(len(shape)) if i not in gone]
    ctx.set_shape(0, tuple(shape[i] for i in kept))
    _reshape_value(ctx, tuple(shape[i] for i in kept))


@infer_rule("Unsqueeze")
def infer_unsqueeze(ctx: InferenceContext) -> None:
    """Sizes of 1 are inserted."""
    shape = ctx.shape(0)
    axes = _axes(ctx, 1)
    if shape is not None and axes is None:
        _set_rank(ctx, len(shape), 1)
    if shape is None or axes is None:
        return
    new = sorted(ctx.axes(axes, len(shape) + len(axes)))
    result = list(shape)
    for axis in new:
        result.insert(axis, 1)
    ctx.set_shape(0, result)
    _reshape_value(ctx, tuple(result))


def _reshape_value(ctx: InferenceContext, shape: Shape) -> None:
    value, sizes = ctx.value(0), fixed_sizes(shape)
    if value is not None and sizes is not None and value.size == math.prod(sizes) and counted(sizes) < COUNTABLE:
        ctx.set_value(0, value.reshape(sizes))


@infer_rule("Transpose")
def infer_transpose(ctx: InferenceContext) -> None:
    """The axes are permuted, reversed by default."""
    shape = ctx.shape(0)
    if shape is None:
        perm = ctx.ints_of("perm")
        if perm is not None and ctx.dtype(0) is not None:
            ctx.set_shape(0, (None,) * len(perm))
        return
    perm = ctx.ints_of("perm") or tuple(range(len(shape) - 1, -1, -1))
    if sorted(perm) != list(range(len(shape))):
        ctx.refuse(f"perm {perm} is not a permutation of {len(shape)} axes")
    ctx.set_shape(0, tuple(shape[axis] for axis in perm))
    value = ctx.value(0)
    if value is not None and value.ndim == len(perm):
        ctx.set_value(0, value.transpose(perm))


@infer_rule("Expand")
def infer_expand(ctx: InferenceContext) -> None:
    """The input broadcasts with a given shape."""
    target = ctx.dims(1)
    if target is None:
        lengths, shape = ctx.shape(1), ctx.shape(0)
        if lengths is not None and len(lengths) == 1 and isinstance(lengths[0], int) and shape is not None:
            ctx.set_shape(0, (None,) * min(max(lengths[0], len(shape)), MAX_RANK))
        return
    if any(isinstance(d, int) and d < 0 for d in target):
        ctx.refuse(f"the shape {target} has a negative size")
    shape = broadcast(ctx, (ctx.shape(0), target))
    ctx.set_shape(0, shape)
    value, sizes = ctx.value(0), fixed_sizes(shape)
    if value is not None and sizes is not None and counted(sizes) <= MAX_ELEMENTS:
        ctx.set_value(0, np.broadcast_to(value, sizes))


@infer_rule("Tile")
def infer_tile(ctx: InferenceContext) -> None:
    """Every axis is repeated."""
    shape = ctx.shape(0)
    if shape is None:
        return
    if ctx.opset < 6:  # one axis, how often
        times, axis = ctx.scalar(1), ctx.scalar(2)
        if not isinstance(axis, int):
            ctx.set_shape(0, (None,) * len(shape))
            return
        place = ctx.axis(axis, len(shape))
        size = None if isinstance(times, float) else scale_dim(shape[place], times)
        ctx.set_shape(0, (*shape[:place], size, *shape[place + 1 :]))
        return
    repeats = ctx.dims(1)
    if repeats is None:
        ctx.set_shape(0, (None,) * len(shape))
        return
    if len(repeats) != len(shape):
        ctx.refuse(f"repeats has {len(repeats)} entries for an input of rank {len(shape)}")
    ctx.set_shape(0, tuple(scale_dim(d, r) for d, r in zip(shape, repeats, strict=True)))
    value, counts = ctx.value(0), fixed_sizes(repeats)
    if value is None or counts is None or min(counts, default=1) < 0:
        return
    if counted(value.shape) * counted(counts) <= MAX_ELEMENTS:
        ctx.set_value(0, np.tile(value, counts))


@infer_rule("Concat")
def infer_concat(ctx: InferenceContext) -> None:
    """Sizes along the axis add up, the others are equal."""
    shapes = [ctx.shape(i) for i in range(ctx.input_count)]
    known = [s for s in shapes if s is not None]
    if not known:
        return
    rank = len(known[0])
    axis = ctx.axis(ctx.int_of("axis", 1), rank)
    result = list(known[0])
    for shape in known[1:]:
        if len(shape) != rank:
            ctx.refuse(f"All inputs to Concat must have same rank: {rank} and {len(shape)}")
        for place in range(rank):
            if place != axis:
                result[place] = same_dim(ctx, result[place], shape[place], f"size {place}")
    result[axis] = add_dims(*(s[axis] for s in known)) if len(known) == len(shapes) else None
    ctx.set_shape(0, result)
    values = _all_values(ctx, axis, rank)
    if values:
        ctx.set_value(0, np.concatenate(values, axis) if len(values) > 1 else values[0])


def _all_values(ctx: InferenceContext, axis: int, rank: int) -> list[SymbolicValue] | None:
    values = []
    for index in range(ctx.input_count):
        value = ctx.value(index)
        if value is None:
            count = _vector_length(ctx, index)
            if count is None or rank != 1:
                return None
            value = np.full((count,), None, object)
        if value.ndim != rank:
            return None
        values.append(value)
    return values


def _vector_length(ctx: InferenceContext, index: int) -> int | None:
    """Return the length of a short vector of sizes whose elements are not known."""
    shape = ctx.shape(index)
    if ctx.dtype(index) is not DataType.INT64 or not shape or not isinstance(shape[0], int):
        return None
    return shape[0] if shape[0] <= MAX_RANK else None


@infer_rule("Split")
def infer_split(ctx: InferenceContext) -> None:
    """One axis is cut into given or equal parts."""
    shape = ctx.shape(0)
    if shape is None:
        return
    axis = ctx.axis(ctx.int_of("axis"), len(shape))
    count = ctx.output_count
    parts: Shape | None
    if ctx.has_input(1):
        parts = ctx.dims(1)
        if parts is None:
            parts = (None,) * count
    else:
        parts = ctx.ints_of("split")
        if parts is None:
            parts = _equal_parts(ctx, shape[axis], count)
    if len(parts) != count:
        ctx.refuse(f"Mismatch between number of splits ({len(parts)}) and outputs ({count})")
    total = add_dims(*parts)
    if isinstance(total, int) and isinstance(shape[axis], int) and total != shape[axis]:
        ctx.refuse(f"Mismatch between the sum of 'split' ({total}) and the size of the axis ({shape[axis]})")
    offset: Dim = 0
    value = ctx.value(0)
    for index, part in enumerate(parts):
        ctx.set_shape(index, (*shape[:axis], part, *shape[axis + 1 :]))
        if value is not None and value.ndim == 1 and isinstance(part, int) and isinstance(offset, int):
            ctx.set_value(index, value[offset : offset + part])
        offset = add_dims(offset, part)


def _equal_parts(ctx: InferenceContext, size: Dim, count: int) -> Shape:
    wanted = ctx.optional_int_of("num_outputs")
    if wanted is not None and wanted != count:
        ctx.refuse(f"num_outputs is {wanted}, but the node has {count} outputs")
    if size is None or count == 0:
        return (None,) * count
    if ctx.opset >= 18:  # the last part may be smaller
        chunk = divide_dim(add_dims(size, count - 1), count)
        if chunk is None:
            return (None,) * count
        last = add_dims(size, scale_dim(chunk, 1 - count))
        if isinstance(last, int) and last < 0:
            ctx.refuse(f"an axis of size {size} cannot be split into {count} parts")
        return (*((chunk,) * (count - 1)), last)
    if isinstance(size, int) and size % count:
        ctx.refuse(f"an axis of size {size} does not split into {count} equal parts")
    return (divide_dim(size, count),) * count


@infer_rule("Slice")
def infer_slice(ctx: InferenceContext) -> None:
    """Ranges of some axes are kept; before opset 10 starts and ends are attributes."""
    shape = ctx.shape(0)
    if shape is None:
        return
    starts, ends, axes, steps = _slice_arguments(ctx)
    if axes is None and ctx.has_input(3):
        ctx.set_shape(0, (None,) * len(shape))
        return
    count = next((len(x) for x in (starts, ends, axes) if x is not None), None)
    if count is None:
        lengths = ctx.shape(1)
        count = lengths[0] if lengths is not None and len(lengths) == 1 else None  # type: ignore[assignment]  # narrowed below
    if not isinstance(count, int) or count > MAX_RANK:
        ctx.set_shape(0, (None,) * len(shape))
        return
    axes = tuple(range(count)) if axes is None else axes
    starts, ends = starts or (None,) * count, ends or (None,) * count
    steps = (steps if steps is not None else (None,) * count) if ctx.has_input(4) else (1,) * count
    if not len(starts) == len(ends) == len(axes) == len(steps):
        ctx.refuse("starts, ends, axes and steps differ in length")
    places = ctx.axes(axes, len(shape))
    result = list(shape)
    first, last = (_are_sizes(ctx, index, bounds) for index, bounds in ((1, starts), (2, ends)))
    for place, start, end, step in zip(places, starts, ends, steps, strict=True):
        if step == 0 and step is not None:
            ctx.refuse("'step' cannot be 0")
        result[place] = slice_dim(shape[place], start, end, step, start_is_size=first, end_is_size=last)
    ctx.set_shape(0, result)
    _slice_value(ctx, places, starts, ends, steps)


def _are_sizes(ctx: InferenceContext, index: int, bounds: Shape) -> bool:
    """Return whether bounds that are not numbers are sizes of tensors."""
    return any(isinstance(bound, SymbolicDim) for bound in bounds) and holds_sizes(ctx.node.input(index))


def _slice_arguments(ctx: InferenceContext) -> tuple[Shape | None, Shape | None, tuple[int, ...] | None, Shape | None]:
    if ctx.opset < 10:
        return ctx.ints_of("starts"), ctx.ints_of("ends"), ctx.ints_of("axes"), None
    return ctx.dims(1), ctx.dims(2), ctx.integers(3), ctx.dims(4)


def _slice_value(ctx: InferenceContext, places: list[int], starts: Shape, ends: Shape, steps: Shape) -> None:
    value = ctx.value(0)
    if value is None or value.ndim == 0 or not all(isinstance(i, int) for i in (*starts, *ends, *steps)):
        return
    index: list[slice] = [slice(None)] * value.ndim
    for place, start, end, step in zip(places, starts, ends, steps, strict=True):
        assert isinstance(start, int)
        assert isinstance(end, int)
        assert isinstance(step, int)
        index[place] = as_slice(slice_range(value.shape[place], start, end, step))
    ctx.set_value(0, value[tuple(index)])


@infer_rule("Pad")
def infer_pad(ctx: InferenceContext) -> None:
    """Every axis grows by its pads."""
    shape = ctx.shape(0)
    if shape is None:
        return
    if ctx.opset < 11:
        pads: Shape | None = ctx.ints_of("pads") or ctx.ints_of("paddings")
    else:
        pads = ctx.dims(1)
    axes = ctx.integers(3) if ctx.has_input(3) else tuple(range(len(shape)))
    if pads is None or axes is None:
        ctx.set_shape(0, (None,) * len(shape))
        return
    if len(pads) != 2 * len(axes):
        ctx.refuse(f"pads has {len(pads)} entries for {len(axes)} axes")
    result = list(shape)
    for number, place in enumerate(ctx.axes(axes, len(shape))):
        result[place] = add_dims(shape[place], pads[number], pads[number + len(axes)])
        if isinstance(result[place], int) and result[place] < 0:  # type: ignore[operator]  # just narrowed
            ctx.refuse(f"pads {pads} make axis {place} negative")
    ctx.set_shape(0, result)


@infer_rule("DepthToSpace", "SpaceToDepth")
def infer_depth_space(ctx: InferenceContext) -> None:
    """Blocks of pixels move between channels and space."""
    shape = ctx.shape_of_rank(0, 4)
    block = ctx.int_of("blocksize")
    if block <= 0:
        ctx.refuse("blocksize must be positive")
    if shape is None:
        return
    batch, channels, height, width = shape
    if ctx.node.op_type == "DepthToSpace":
        depth, down = divide_dim(channels, block * block), (scale_dim(height, block), scale_dim(width, block))
    else:
        depth, down = scale_dim(channels, block * block), (divide_dim(height, block), divide_dim(width, block))
    ctx.set_shape(0, (batch, depth, *down))


@infer_rule("CenterCropPad")
def infer_center_crop_pad(ctx: InferenceContext) -> None:
    """Some axes get given sizes."""
    shape, target = ctx.shape(0), ctx.dims(1)
    if shape is None:
        return
    axes = ctx.axes(ctx.ints_of("axes") or range(len(shape)), len(shape))
    if target is None:
        target = (None,) * len(axes)
    if len(target) != len(axes):
        ctx.refuse(f"shape has {len(target)} entries for {len(axes)} axes")
    result = list(shape)
    for place, size in zip(axes, target, strict=True):
        result[place] = size
    ctx.set_shape(0, result)


@infer_rule("Crop")
def infer_crop(ctx: InferenceContext) -> None:
    """An image loses its border, or is cut to a size at the border's corner."""
    shape = ctx.shape_of_rank(0, 4)
    border, scale = ctx.ints_of("border"), ctx.ints_of("scale")
    if shape is None or border is None or len(border) != 4:
        return
    left, top, right, bottom = border
    size: tuple[Dim, Dim]
    if scale is not None and len(scale) == 2:
        size = (scale[0], scale[1])
    else:
        size = (add_dims(shape[2], -top, -bottom), add_dims(shape[3], -left, -right))
    ctx.set_shape(0, (*shape[:2], *size))


@infer_rule("DynamicSlice")
def infer_dynamic_slice(ctx: InferenceContext) -> None:
    """The experimental forerunner of Slice: starts, ends and axes are inputs, there are no steps."""
    shape = ctx.shape(0)
    if shape is None:
        return
    starts, ends = ctx.dims(1), ctx.dims(2)
    axes = ctx.integers(3) if ctx.has_input(3) else (tuple(range(len(starts))) if starts is not None else None)
    result: list[Dim] = list(shape) if axes is not None else [None] * len(shape)
    for number, place in enumerate(ctx.axes(axes or (), len(shape))):
        known = starts is not None and ends is not None and number < min(len(starts), len(ends))
        result[place] = slice_dim(shape[place], starts[number], ends[number], 1) if known else None  # type: ignore[index]  # known
    ctx.set_shape(0, result)
