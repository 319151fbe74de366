"""Operators that copy whole elements to other places: transpose, join, cut, repeat, reorder."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.axes import (
    check_size,
    integers,
    resolve_axis,
    shape_text,
    single_integer,
    zero_of,
)
from ort_core.ops.shape_arithmetic import as_slice, slice_range
from ort_core.tensors.broadcasting import broadcast_shapes

MAX_TILE_ELEMENTS = 2**32 - 1  # onnxruntime refuses larger outputs of Tile


@kernel("Transpose")
def transpose(data: np.ndarray, *, perm: tuple[int, ...] | None = None) -> np.ndarray:
    """Y's dimension i is X's dimension ``perm[i]`` (default: reversed)."""
    if perm is None:
        return data.transpose()
    in_range = all(-data.ndim <= axis < data.ndim for axis in perm)
    if not in_range or sorted(axis % data.ndim for axis in perm) != list(range(data.ndim)):
        raise InvalidArgument(
            f"Transpose: perm {list(perm)} is not a permutation of the {data.ndim} axes of an input of shape "
            f"{shape_text(data.shape)}"
        )
    return data.transpose(perm)


@kernel("Expand")
def expand(data: np.ndarray, shape: np.ndarray, *, ctx: KernelContext | None = None) -> np.ndarray:
    """Y = X broadcast together with ``shape``, in both directions."""
    requested = integers(shape, "shape", "Expand")
    try:
        target = broadcast_shapes(data.shape, tuple(requested))
    except ValueError as error:
        raise InvalidArgument(
            f"invalid expand shape: an input of shape {shape_text(data.shape)} cannot be broadcast with "
            f"{shape_text(requested)}"
        ) from error
    check_size(target, data.dtype, "Expand", ctx)
    out = np.empty(target, data.dtype)
    out[...] = data  # twice as fast as a copy of broadcast_to, for a few elements
    return out


@kernel("Tile", since=1, until=5)
def tile_1(data: np.ndarray, tiles: np.ndarray, axis: np.ndarray, *, ctx: KernelContext | None = None) -> np.ndarray:
    """Y = X repeated ``tiles`` times along ``axis``."""
    repeats = [1] * data.ndim
    repeats[resolve_axis(single_integer(axis, "axis", "Tile"), data.ndim, "Tile")] = single_integer(
        tiles, "tiles", "Tile"
    )
    return _tile(data, repeats, ctx)


@kernel("Tile", since=6)
def tile(data: np.ndarray, repeats: np.ndarray, *, ctx: KernelContext | None = None) -> np.ndarray:
    """Y = X repeated ``repeats[i]`` times along each axis i."""
    counts = integers(repeats, "repeats", "Tile") if repeats.ndim == 1 else None
    if counts is None:
        raise InvalidArgument(
            f"Tile: 'repeat' input tensor must be 1 dimensional, got shape {shape_text(repeats.shape)}"
        )
    if len(counts) != data.ndim:
        raise InvalidArgument(
            f"Tile: 'repeat' input tensor must have the same length as the 'input' tensor: {len(counts)} repeats for "
            f"rank {data.ndim}"
        )
    return _tile(data, counts, ctx)


def _tile(data: np.ndarray, repeats: Sequence[int], ctx: KernelContext | None) -> np.ndarray:
    if any(count < 0 for count in repeats):
        raise InvalidArgument(f"Tile: repeats must not be negative, got {list(repeats)}")
    target = [dim * count for dim, count in zip(data.shape, repeats, strict=True)]
    if math.prod(target) > MAX_TILE_ELEMENTS:
        raise InvalidArgument(f"Tile: the output size of shape {shape_text(target)} exceeds the supported maximum")
    check_size(target, data.dtype, "Tile", ctx)
    return np.tile(data, tuple(repeats))


@kernel("Concat", since=1, until=3)
def concat_1(*inputs: np.ndarray, axis: int = 1, ctx: KernelContext | None = None) -> np.ndarray:
    """Y = the inputs one after the other along ``axis``."""
    return join(inputs, axis, "Concat", ctx)


@kernel("Concat", since=4)
def concat(*inputs: np.ndarray, axis: int, ctx: KernelContext | None = None) -> np.ndarray:
    """Y = the inputs one after the other along ``axis``."""
    return join(inputs, axis, "Concat", ctx)


def join(inputs: Sequence[np.ndarray], axis: int, op_type: str, ctx: KernelContext | None) -> np.ndarray:
    """Concatenate; empty inputs of another shape are left out, as onnxruntime does."""
    if not inputs:
        raise InvalidArgument(f"{op_type}: must have 1 or more inputs")
    reference = next((value for value in inputs if value.size), inputs[0])
    position = resolve_axis(axis, reference.ndim, op_type)
    expected = reference.shape[:position] + reference.shape[position + 1 :]
    kept = []
    for value in inputs:
        fits = value.ndim == reference.ndim and value.shape[:position] + value.shape[position + 1 :] == expected
        if fits:
            kept.append(value)
        elif value.size:
            raise InvalidArgument(
                f"{op_type}: non concat axis dimensions must match: shapes {shape_text(reference.shape)} and "
                f"{shape_text(value.shape)} cannot be joined along axis {position}"
            )
    total = sum(value.shape[position] for value in kept)
    check_size((*expected[:position], total, *expected[position:]), reference.dtype, op_type, ctx)
    return np.concatenate(kept, axis=position)


@kernel("Split", since=1, until=1)
def split_1(
    data: np.ndarray,
    sizes: np.ndarray | None = None,
    *,
    axis: int | None = None,
    split: tuple[int, ...] | None = None,
    ctx: KernelContext,
) -> tuple[np.ndarray, ...]:
    """Cut X along ``axis`` into parts whose sizes are an input or the attribute ``split`` (default: equal parts)."""
    given = split if sizes is None else integers(sizes, "split", "Split")
    return _split(data, axis or 0, given, len(ctx.output_present), even=True)


@kernel("Split", since=2, until=12)
def split_2(
    data: np.ndarray, *, axis: int = 0, split: tuple[int, ...] | None = None, ctx: KernelContext
) -> tuple[np.ndarray, ...]:
    """Cut X along ``axis`` into parts of sizes ``split`` (default: equal parts)."""
    return _split(data, axis, split, len(ctx.output_present), even=True)


@kernel("Split", since=13)
def split(
    data: np.ndarray,
    split: np.ndarray | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    ctx: KernelContext,
) -> tuple[np.ndarray, ...]:
    """Cut X along ``axis`` into parts of sizes ``split`` (default: equal parts, the last may be smaller)."""
    sizes = None if split is None else integers(split, "split", "Split")
    outputs = len(ctx.output_present)
    if num_outputs is not None and num_outputs != outputs:
        raise InvalidArgument(f"Split: num_outputs is {num_outputs} and the node has {outputs} outputs")
    return _split(data, axis, sizes, outputs, even=ctx.opset < 18)


def _split(
    data: np.ndarray, axis: int, sizes: Sequence[int] | None, outputs: int, *, even: bool
) -> tuple[np.ndarray, ...]:
    if not -data.ndim <= axis < data.ndim:
        raise InvalidArgument(f"Split: Invalid value of attribute 'axis'. Rank={data.ndim} Value={axis}")
    axis %= data.ndim
    length = data.shape[axis]
    if sizes is None:
        if even and length % outputs:
            raise InvalidArgument(
                f"Input cannot be split evenly on selected axis. Input shape={shape_text(data.shape)} Axis={axis} "
                f"NumOutputs={outputs}"
            )
        chunk = -(-length // outputs)
        sizes = [max(0, min(chunk, length - index * chunk)) for index in range(outputs)]
    elif any(part < 0 for part in sizes):
        raise InvalidArgument(f"Invalid value in 'split' input. All values must be >= 0. Got {list(sizes)}")
    elif len(sizes) != outputs or sum(sizes) != length:
        raise InvalidArgument(_split_mismatch(data.shape, axis, sizes, outputs))
    stops = list(itertools.accumulate(sizes, initial=0))
    before = (slice(None),) * axis
    return tuple(data[(*before, slice(a, b))] for a, b in itertools.pairwise(stops))


def _split_mismatch(shape: Sequence[int], axis: int, sizes: Sequence[int], outputs: int) -> str:
    what = "number of splits" if len(sizes) != outputs else "the sum of 'split'"
    excess = " A size exceeds the remaining size of the selected axis." if sum(sizes) > shape[axis] else ""
    return (
        f"Cannot split using values in 'split'. Axis={axis} Input shape={shape_text(shape)} NumOutputs={outputs} "
        f"Num entries in 'split' (must equal number of outputs) was {len(sizes)} Sum of sizes in 'split' (must equal "
        f"size of selected axis) was {sum(sizes)}. Mismatch of {what}.{excess}"
    )


@kernel("Slice", since=1, until=9)
def slice_1(
    data: np.ndarray, *, starts: tuple[int, ...], ends: tuple[int, ...], axes: tuple[int, ...] | None = None
) -> np.ndarray:
    """Y = X[start:end] along each of ``axes`` (default: the first ones)."""
    return _slice(data, starts, ends, axes, None)


@kernel("Slice", since=10)
def slice_10(
    data: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    axes: np.ndarray | None = None,
    steps: np.ndarray | None = None,
) -> np.ndarray:
    """Y = X[start:end:step] along each of ``axes`` (default: the first ones); steps may be negative."""
    return _slice(
        data,
        integers(starts, "starts", "Slice"),
        integers(ends, "ends", "Slice"),
        None if axes is None else integers(axes, "axes", "Slice"),
        None if steps is None else integers(steps, "steps", "Slice"),
    )


def _slice(
    data: np.ndarray,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> np.ndarray:
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise InvalidArgument(
            f"Slice: 'starts', 'ends', 'axes' and 'steps' must have the same length, got {len(starts)}, {len(ends)}, "
            f"{len(axes)} and {len(steps)}"
        )
    cuts = [slice(None)] * data.ndim
    seen: set[int] = set()
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not -data.ndim <= axis < data.ndim:
            raise InvalidArgument(f"Slice: 'axes' has an axis outside of the tensor dimension count: {axis}")
        position = axis % data.ndim
        if position in seen:
            raise InvalidArgument(f"Slice: 'axes' has duplicates: {list(axes)}")
        seen.add(position)
        cuts[position] = _cut(start, end, step, data.shape[position])
    return data[tuple(cuts)]


def _cut(start: int, end: int, step: int, length: int) -> slice:
    """Return the slice with start and end clamped as the specification says (numpy reads -1 differently)."""
    if step == 0:
        raise InvalidArgument("Slice: 'step' value cannot be 0")
    return as_slice(slice_range(length, start, end, step))


@kernel("Trilu", since=14)
def trilu(data: np.ndarray, k: np.ndarray | None = None, *, upper: int = 1) -> np.ndarray:
    """Y = X where column - row >= k (``upper``) or <= k, else zero, for the last two dimensions."""
    if data.ndim < 2:
        raise InvalidArgument(f"Trilu: input should have a rank of at least 2, got shape {shape_text(data.shape)}")
    diagonal = 0 if k is None else single_integer(k, "k", "Trilu")
    rows, columns = data.shape[-2:]
    diagonal = min(max(diagonal, -rows - 1), columns + 1)
    offset = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    out = data.copy()
    out[..., offset < diagonal if upper else offset > diagonal] = zero_of(data.dtype)
    return out


@kernel("ReverseSequence", since=10)
def reverse_sequence(
    data: np.ndarray, sequence_lens: np.ndarray, *, batch_axis: int = 1, time_axis: int = 0
) -> np.ndarray:
    """Y[t, b] = X[len[b] - 1 - t, b] while t < len[b], else X[t, b]."""
    batch, time = (resolve_axis(axis, data.ndim, "ReverseSequence") for axis in (batch_axis, time_axis))
    if batch == time:
        raise InvalidArgument("ReverseSequence: time_axis and batch_axis must refer to different dimensions")
    steps = data.shape[time]
    if sequence_lens.shape != (data.shape[batch],):
        raise InvalidArgument(
            f"sequence_lens shape must be {{{data.shape[batch]}}} (the batch size), got "
            f"{shape_text(sequence_lens.shape)}"
        )
    if ((sequence_lens < 0) | (sequence_lens > steps)).any():
        raise InvalidArgument(f"Invalid sequence length: {sequence_lens.tolist()}. Values must be in range [0,{steps}]")
    moment = np.arange(steps)[:, None]
    source = np.where(moment < sequence_lens, sequence_lens - 1 - moment, moment)
    front = np.moveaxis(data, (time, batch), (0, 1))
    return np.moveaxis(front[source, np.arange(data.shape[batch])], (0, 1), (time, batch))
