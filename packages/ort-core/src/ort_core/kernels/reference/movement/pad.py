"""Pad: grow or crop every axis, with a constant, the edge, the mirror image or the other end.

All modes but ``constant`` are one gather per axis: position p of the output reads position index[p] of the input.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.axes import (
    check_size,
    filled,
    integers,
    resolve_axes,
    shape_text,
    view_at,
    zero_of,
)

MODES = ("constant", "reflect", "edge", "wrap")


@kernel("Pad", since=1, until=1)
def pad_1(
    data: np.ndarray,
    *,
    paddings: tuple[int, ...],
    mode: str = "constant",
    value: float = 0.0,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Y = X with ``paddings`` (all starts, then all ends) more elements on each side."""
    return pad_array(data, paddings, mode, _fill_value(value, data.dtype), ctx)


@kernel("Pad", since=2, until=10)
def pad_2(
    data: np.ndarray,
    *,
    pads: tuple[int, ...],
    mode: str = "constant",
    value: float = 0.0,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Y = X with ``pads`` (all starts, then all ends) more elements on each side; negative ones crop."""
    return pad_array(data, pads, mode, _fill_value(value, data.dtype), ctx)


@kernel("Pad", since=11)
def pad(
    data: np.ndarray,
    pads: np.ndarray,
    constant_value: np.ndarray | None = None,
    axes: np.ndarray | None = None,
    *,
    mode: str = "constant",
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Y = X with ``pads`` (all starts, then all ends, of ``axes``) more elements on each side; negative ones crop."""
    amounts = integers(pads.reshape(-1), "pads", "Pad")  # onnxruntime accepts [1, 2 * rank] as well
    if axes is not None:
        amounts = _spread(amounts, resolve_axes(integers(axes, "axes", "Pad"), data.ndim, "Pad"), data.ndim)
    fill = None if constant_value is None or constant_value.size == 0 else constant_value.reshape(-1)[0]
    return pad_array(data, amounts, mode, fill, ctx)


def _fill_value(value: float, dtype: np.dtype) -> object:
    if dtype.kind == "O":
        return ""
    with np.errstate(invalid="ignore"):  # what NaN becomes as an integer is the processor's choice, as in C++
        return np.asarray(value).astype(dtype)


def _spread(amounts: Sequence[int], axes: Sequence[int], rank: int) -> list[int]:
    if len(amounts) != 2 * len(axes):
        raise InvalidArgument(
            f"Pad: pads tensor size should be equal to twice the number of explicitly provided axes: {len(amounts)} "
            f"pads for {len(axes)} axes"
        )
    full = [0] * (2 * rank)
    for index, axis in enumerate(axes):
        full[axis], full[axis + rank] = amounts[index], amounts[index + len(axes)]
    return full


def pad_array(
    data: np.ndarray, pads: Sequence[int], mode: str, fill: object | None, ctx: KernelContext | None
) -> np.ndarray:
    """Pad ``data`` by ``pads`` (all starts, then all ends); ``fill`` ``None`` means zero or the empty string."""
    rank = data.ndim
    if mode not in MODES:
        raise InvalidArgument(f"Pad: unknown mode {mode!r}; known: {', '.join(MODES)}")
    if len(pads) != 2 * rank:
        raise InvalidArgument(f"Pad: pads has {len(pads)} entries; an input of rank {rank} needs {2 * rank}")
    before, after = list(pads[:rank]), list(pads[rank:])
    target = [dim + b + a for dim, b, a in zip(data.shape, before, after, strict=True)]
    check_size(target, data.dtype, "Pad", ctx)
    if mode != "constant":
        _check_sources(data.shape, target, before, after, mode)
    cropped = view_at(data, _crops(data.shape, before, after))
    grow = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    if mode == "constant":
        out = filled(target, zero_of(data.dtype) if fill is None else fill, data.dtype)
        if cropped.size:
            inside = tuple(slice(b, b + dim) for (b, _), dim in zip(grow, cropped.shape, strict=True))
            view_at(out, inside)[...] = cropped
        return out
    for axis, (b, a) in enumerate(grow):
        if b or a:
            cropped = np.take(cropped, _source_index(cropped.shape[axis], b, a, mode), axis=axis)
    return cropped


def _crops(shape: Sequence[int], before: Sequence[int], after: Sequence[int]) -> tuple[slice, ...]:
    # A crop of more than the whole axis leaves nothing; the start stays inside so that the slice is empty, not odd.
    return tuple(
        slice(min(max(-b, 0), dim), max(dim - max(-a, 0), 0)) for dim, b, a in zip(shape, before, after, strict=True)
    )


def _check_sources(
    shape: Sequence[int], target: Sequence[int], before: Sequence[int], after: Sequence[int], mode: str
) -> None:
    """Refuse what has no source element to read from."""
    for axis, (dim, wanted, b, a) in enumerate(zip(shape, target, before, after, strict=True)):
        rest = dim + min(b, 0) + min(a, 0)
        if dim == 0 and wanted > 0:
            raise InvalidArgument(
                f"Cannot use '{mode}' mode to pad dimension with a value of 0. Input shape:{shape_text(shape)}"
            )
        if rest <= 0 and dim > 0:
            raise InvalidArgument(f"Pad {mode}: axis {axis} has no element left to pad with after cropping")
        if mode == "reflect" and (b > 0 or a > 0):
            _check_reflection(axis, rest, b, a)


def _check_reflection(axis: int, rest: int, before: int, after: int) -> None:
    if rest < 2:
        raise InvalidArgument(f"Pad reflect requires axis length >= 2 after slicing, got {rest} on axis {axis}")
    for name, amount in (("pre", before), ("post", after)):
        if amount > rest - 1:
            raise InvalidArgument(
                f"Pad reflect: {name}-pad ({amount}) exceeds maximum allowed ({rest - 1}) for axis {axis}"
            )


def _source_index(length: int, before: int, after: int, mode: str) -> np.ndarray:
    position = np.arange(-before, length + after)
    if mode == "edge":
        return position.clip(0, max(length - 1, 0))
    if mode == "wrap":
        return position % max(length, 1)
    period = max(2 * (length - 1), 1)
    folded = position % period
    return np.where(folded < length, folded, period - folded)
