"""Operators that write elements at given positions into a copy. Every index is checked before it is used.

Without a reduction the last of several writes to one place stays; with one, all are combined in order.
"""

from __future__ import annotations

import math

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.axes import resolve_axis, shape_text
from ort_core.kernels.reference.movement.gather import (
    checked_coordinates,
    checked_indices,
    element_coordinates,
    indexed,
)
from ort_core.tensors.broadcasting import broadcast_arrays

REDUCTIONS: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _write(out: np.ndarray, where: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str, op_type: str) -> None:
    out, where = indexed(out, where)
    if reduction == "none":
        # A 0-d object array would be stored as an object; its one string is what is meant.
        out[where] = updates if updates.ndim else updates[()]
    elif reduction in REDUCTIONS:
        with np.errstate(all="ignore"):  # overflow and NaN are results here, not news
            REDUCTIONS[reduction].at(out, where, updates)
    else:
        known = ", ".join(["none", *REDUCTIONS])
        raise InvalidArgument(f"{op_type}: unknown reduction {reduction!r}; known: {known}")


@kernel("Scatter", since=9)
@kernel("ScatterElements", since=11)
def scatter_elements(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, axis: int = 0, reduction: str = "none"
) -> np.ndarray:
    """Y = X, but at (i, j, ...) with the coordinate of ``axis`` replaced by ``indices[i, j, ...]``: the update."""
    position = resolve_axis(axis, data.ndim, "ScatterElements")
    if indices.ndim != updates.ndim or indices.ndim != data.ndim:
        raise InvalidArgument(
            f"Indices, updates and data must have the same rank: {shape_text(indices.shape)}, "
            f"{shape_text(updates.shape)} and {shape_text(data.shape)}"
        )
    for other, (found, expected) in enumerate(zip(indices.shape, updates.shape, strict=True)):
        if found != expected:
            raise InvalidArgument(f"Indices vs updates dimensions differs at position={other} {found} vs {expected}")
        if other != position and found > data.shape[other]:
            raise InvalidArgument(f"Indices dim={found} at pos={other} is greater than input dim={data.shape[other]}")
    out = data.copy()
    coordinates = element_coordinates(checked_indices(indices, data.shape[position]), position)
    _write(out, broadcast_arrays(*coordinates), updates, reduction, "ScatterElements")
    return out


@kernel("ScatterND", since=11)
def scatter_nd(data: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, reduction: str = "none") -> np.ndarray:
    """Y = X, but the slices at the coordinates in the last dimension of ``indices`` are the updates."""
    if data.ndim == 0 or indices.ndim == 0:
        raise InvalidArgument("ScatterND: input tensor and indices tensor must have rank larger than 0")
    depth = indices.shape[-1]
    expected = indices.shape[:-1] + data.shape[depth:]
    if depth > data.ndim or updates.shape != expected:
        raise InvalidArgument(
            f"updates tensor should have shape equal to indices.shape[:-1] + data.shape[indices.shape[-1]:]. "
            f"updates shape: {shape_text(updates.shape)}, indices shape: {shape_text(indices.shape)}, data shape: "
            f"{shape_text(data.shape)}"
        )
    where = checked_coordinates(indices, data.shape[:depth], "ScatterND")
    out = data.copy()
    if depth == 0:
        # A coordinate of length zero names the whole tensor: each update is one more write to all of it.
        places = tuple(np.asarray(own) for own in np.ogrid[tuple(slice(dim) for dim in data.shape)])
        for update in updates.reshape((math.prod(indices.shape[:-1]), *data.shape)):
            _write(out, places, update, reduction, "ScatterND")
        return out
    _write(out, where, updates, reduction, "ScatterND")
    return out
