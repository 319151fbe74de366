"""Operators that answer which elements: ArgMax, ArgMin, TopK, Unique and NonZero."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelFunction, kernel
from ort_core.kernels.reference.arrays.widening import widen
from ort_core.kernels.reference.normalization.reductions import normalize_axes

MIN_SELECTED = 2048  # elements of a row: fewer are sorted in the time that selecting takes to begin
SELECTED_SHARE = 4  # of a row: if more than this part is wanted, sorting all of it takes no longer


def _extreme_index(op_type: str, function: Callable[..., np.ndarray]) -> KernelFunction:
    @kernel(op_type)
    @np.errstate(all="ignore")
    def run(x: np.ndarray, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> np.ndarray:
        chosen = _checked_axis(op_type, axis, x.ndim)
        wide = np.atleast_1d(widen(x))
        result = (*wide.shape[:chosen], 1, *wide.shape[chosen + 1 :])
        if wide.shape[chosen] == 0 and 0 not in result:
            raise InvalidArgument(f"{op_type}: axis {axis} of an input of shape {x.shape} is empty; it has no extreme")
        if wide.shape[chosen] == 0:  # no element of the result asks for one
            index = np.zeros(result)
        elif select_last_index:
            index = wide.shape[chosen] - 1 - function(np.flip(wide, chosen), axis=chosen, keepdims=True)
        else:
            index = function(wide, axis=chosen, keepdims=True)
        if x.ndim == 0:
            return index.reshape(()).astype(np.int64)
        return (index if keepdims else np.squeeze(index, axis=chosen)).astype(np.int64)

    return run


def _checked_axis(op_type: str, axis: int, rank: int) -> int:
    return normalize_axes(op_type, (axis,), max(rank, 1))[0]


arg_max = _extreme_index("ArgMax", np.argmax)
arg_min = _extreme_index("ArgMin", np.argmin)


@kernel("TopK", until=9)
@np.errstate(all="ignore")
def top_k_by_attribute(x: np.ndarray, *, k: int, axis: int = -1) -> tuple[np.ndarray, np.ndarray]:
    """Return the ``k`` largest elements along ``axis`` and their indices."""
    if k <= 0:
        raise InvalidArgument(f"Invalid value for attribute k: {k}; TopK needs at least 1")
    return _top_k(x, k, axis, largest=True)


@kernel("TopK", since=10)
@np.errstate(all="ignore")
def top_k(
    x: np.ndarray, k: np.ndarray, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ``k`` largest or smallest elements along ``axis``, in order, and their indices."""
    if k.size != 1 or k.ndim > 1:
        raise InvalidArgument(f"k tensor should be a 1D tensor of size 1; input K of TopK has shape {k.shape}")
    count = int(k.reshape(()))
    if count < 0:
        raise InvalidArgument(f"value of k must not be negative; input K of TopK holds {count}")
    return _top_k(x, count, axis, largest=bool(largest))


def _top_k(x: np.ndarray, k: int, axis: int, *, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    chosen = _checked_axis("TopK", axis, x.ndim)
    length = x.shape[chosen] if x.ndim else 1
    if k > length:
        raise InvalidArgument(f"k argument [{k}] should not be greater than specified axis dim value [{length}]")
    moved = np.moveaxis(np.atleast_1d(x), chosen, -1)
    rows = moved.reshape(math.prod(moved.shape[:-1]), length)
    keys = widen(rows)
    if length >= MIN_SELECTED and 0 < k <= length // SELECTED_SHARE:
        index = _selected(keys, k, largest=largest)
    else:
        index = (_descending(keys, 1) if largest else np.argsort(keys, axis=1, kind="stable"))[:, :k]
    found = np.take_along_axis(rows, index, axis=1), index.astype(np.int64)
    values, places = (np.moveaxis(each.reshape((*moved.shape[:-1], k)), -1, chosen) for each in found)
    return values, places


def _selected(rows: np.ndarray, k: int, *, largest: bool) -> np.ndarray:
    """Return the places of the first ``k`` of each row in stable order, without sorting all that lies there."""
    length = rows.shape[-1]
    found = np.empty((len(rows), k), np.intp)
    last = length - k if largest else k - 1  # the place of the last that is wanted; NaN is sorted behind everything
    for place, row in enumerate(rows):
        bound = np.partition(row, last)[last]
        # Where the bound is NaN this is every place: fewer than k are numbers, or k and more are NaN
        places = np.flatnonzero(~(row < bound) if largest else ~(row > bound))
        candidates = row[places]
        order = _descending(candidates, 0) if largest else np.argsort(candidates, kind="stable")
        found[place] = places[order[:k]]
    return found


def _descending(keys: np.ndarray, axis: int) -> np.ndarray:
    """Return the stable descending order: equal elements keep their order, NaN counts as the largest."""
    backwards = np.argsort(np.flip(keys, axis), axis=axis, kind="stable")
    return keys.shape[axis] - 1 - np.flip(backwards, axis)


@kernel("Unique", since=11)
@np.errstate(all="ignore")
def unique(
    x: np.ndarray, *, axis: int | None = None, sorted: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return distinct elements (or slices along ``axis``), first occurrences, the inverse, and counts."""
    if axis is None:
        flat, along = x.reshape(-1), 0
    else:
        flat, along = np.atleast_1d(x), _checked_axis("Unique", axis, x.ndim)
    codes = _slice_codes(np.moveaxis(flat, along, 0))
    _, first, inverse, counts = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        first, inverse, counts = first[order], rank[inverse], counts[order]
    chosen = np.take(flat, first, axis=along)
    return chosen, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


def _slice_codes(slices: np.ndarray) -> np.ndarray:
    """Return one code for each slice along dimension 0: equal for equal slices, ordered as the slices are."""
    rows = widen(slices).reshape(slices.shape[0], -1) if slices.size else np.zeros((slices.shape[0], 1), np.int8)
    if rows.shape[1] == 1:
        return rows.reshape(-1)  # numpy orders and compares the elements themselves as it would their codes
    _, elements = np.unique(rows, return_inverse=True)
    _, codes = np.unique(elements.reshape(rows.shape), axis=0, return_inverse=True)
    return codes.reshape(-1)


@kernel("NonZero", since=9)
@np.errstate(all="ignore")
def non_zero(x: np.ndarray) -> np.ndarray:
    """Return the coordinates of the non-zero elements, one row for each dimension (a scalar counts as one row)."""
    shape = x.shape or (1,)
    places = np.flatnonzero(widen(x).astype(bool))  # numpy is ten times as fast for flags on one axis
    out = np.empty((len(shape), places.size), np.int64)
    for axis in range(len(shape) - 1, 0, -1):
        rest = places // max(shape[axis], 1)
        np.subtract(places, rest * shape[axis], out=out[axis])
        places = rest
    out[0] = places
    return out
