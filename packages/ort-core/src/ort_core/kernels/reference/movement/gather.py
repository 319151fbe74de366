"""Operators that read elements at given positions. Every index is checked before it is used."""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.axes import check_size, filled, resolve_axis, shape_text
from ort_core.tensors.broadcasting import broadcast_arrays

_INDEX_ARRAYS = 63


def checked_indices(indices: np.ndarray, length: int) -> np.ndarray:
    """Return ``indices`` in ``[0, length)``, with negative ones counted from the end.

    Raises:
        InvalidArgument: an index is outside ``[-length, length)``.
    """
    outside = (indices < -length) | (indices >= length)
    if outside.any():
        raise InvalidArgument(
            f"indices element out of data bounds, idx={indices[outside][0]} must be within the inclusive range "
            f"[{-length},{length - 1}]"
        )
    return np.where(indices < 0, indices + length, indices)


@kernel("Gather")
def gather(data: np.ndarray, indices: np.ndarray, *, axis: int = 0, ctx: KernelContext | None = None) -> np.ndarray:
    """Y = X at ``indices`` along ``axis``; the index's dimensions replace the axis."""
    position = resolve_axis(axis, data.ndim, "Gather")
    shape = data.shape[:position] + indices.shape + data.shape[position + 1 :]
    check_size(shape, data.dtype, "Gather", ctx)
    try:
        taken = data.take(indices, axis=position)  # which counts negative indices from the end, too
    except IndexError:
        checked_indices(indices, data.shape[position])  # says which one is outside
        raise
    return as_array(taken, data.dtype)


def as_array(value: object, dtype: np.dtype) -> np.ndarray:
    """Return a scalar that numpy unpacked as an array again."""
    if isinstance(value, np.ndarray):
        return value
    return filled((), value, dtype)


@kernel("GatherElements", since=11)
def gather_elements(data: np.ndarray, indices: np.ndarray, *, axis: int = 0) -> np.ndarray:
    """Y[i, j, ...] = X at (i, j, ...) with the coordinate of ``axis`` replaced by ``indices[i, j, ...]``."""
    position = resolve_axis(axis, data.ndim, "GatherElements")
    if indices.ndim != data.ndim:
        raise InvalidArgument("GatherElements op: Rank of input 'data' needs to be equal to rank of input 'indices'")
    for other in range(data.ndim):
        if other != position and indices.shape[other] > data.shape[other]:
            raise InvalidArgument(
                f"GatherElements op: 'indices' shape should have values within bounds of 'data' shape. Invalid value "
                f"in indices shape is: {indices.shape[other]}"
            )
    length = data.shape[position]
    if ((indices < -length) | (indices >= length)).any():
        raise InvalidArgument(
            f"GatherElements op: Out of range value in index tensor; values must be in [{-length},{length - 1}]"
        )
    source, where = indexed(data, element_coordinates(np.where(indices < 0, indices + length, indices), position))
    return source[where]


def element_coordinates(indices: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    """Return coordinates for every element of ``indices``: its own, but on ``axis`` its value."""
    grid = np.ogrid[tuple(slice(dim) for dim in indices.shape)]
    return tuple(indices if other == axis else np.asarray(own) for other, own in enumerate(grid))


def indexed(array: np.ndarray, where: tuple[np.ndarray, ...]) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Return an array, or a view of it, with index arrays that numpy takes: 63 at most.

    An array of 64 axes has one of a single element: that one is left out.
    """
    if len(where) <= _INDEX_ARRAYS:
        return array, where
    axis = array.shape.index(1)
    full = broadcast_arrays(*where)
    return array.squeeze(axis), (*full[:axis], *full[axis + 1 :])


@kernel("GatherND", since=11)
def gather_nd(
    data: np.ndarray, indices: np.ndarray, *, batch_dims: int = 0, ctx: KernelContext | None = None
) -> np.ndarray:
    """Y = the slices of X at the coordinates in the last dimension of ``indices``, per batch."""
    if data.ndim == 0 or indices.ndim == 0:
        raise InvalidArgument("GatherND: input tensor and indices tensor must have rank larger than 0")
    depth = indices.shape[-1]
    if not 0 <= batch_dims < min(data.ndim, indices.ndim) or depth > data.ndim - batch_dims:
        raise InvalidArgument(
            f"GatherND: last dimension of indices must not be larger than rank of input tensor: data "
            f"{shape_text(data.shape)}, indices {shape_text(indices.shape)}, batch_dims {batch_dims}"
        )
    if 0 in data.shape[:batch_dims]:
        raise InvalidArgument("GatherND: input tensor batch dimensions cannot be zero")
    if data.shape[:batch_dims] != indices.shape[:batch_dims]:
        raise InvalidArgument(
            f"GatherND: the batch dimensions of data {shape_text(data.shape)} and indices "
            f"{shape_text(indices.shape)} differ"
        )
    shape = indices.shape[:-1] + data.shape[batch_dims + depth :]
    check_size(shape, data.dtype, "GatherND", ctx)
    coordinates = checked_coordinates(indices, data.shape[batch_dims : batch_dims + depth], "GatherND")
    grid = np.ogrid[tuple(slice(dim) for dim in indices.shape[:batch_dims])]
    inner = indices.ndim - 1 - batch_dims
    batch = tuple(np.asarray(own).reshape(np.shape(own) + (1,) * inner) for own in grid)
    source, where = indexed(data, (*batch, *coordinates))
    out = source[where] if where else data[(None,) * inner]
    return np.broadcast_to(as_array(out, data.dtype), shape)


def checked_coordinates(indices: np.ndarray, shape: tuple[int, ...], op_type: str) -> tuple[np.ndarray, ...]:
    """Split the last dimension of ``indices`` into one index array per dimension of ``shape``, none negative."""
    out = []
    for axis, length in enumerate(shape):
        values = indices[..., axis]
        outside = (values < -length) | (values >= length)
        if outside.any():
            word = "index" if op_type == "GatherND" else "indice"
            raise InvalidArgument(
                f"{op_type}: invalid {word} found, {word} = {np.asarray(values)[outside][0]} must be within "
                f"[{-length},{length - 1}]"
            )
        out.append(np.where(values < 0, values + length, values))
    return tuple(out)


@kernel("Compress", since=9)
def compress(data: np.ndarray, condition: np.ndarray, *, axis: int | None = None) -> np.ndarray:
    """Y = the slices of X along ``axis`` (default: of X flattened) where ``condition`` is true."""
    source = data.reshape(-1) if axis is None else data
    position = 0 if axis is None else resolve_axis(axis, data.ndim, "Compress")
    # The schema wants a vector; onnxruntime reads any shape in order, and exporters write masks as they are.
    chosen = np.flatnonzero(condition.reshape(-1)[: source.shape[position]])
    return np.take(source, chosen, axis=position)


@kernel("OneHot", since=9)
def one_hot(
    indices: np.ndarray,
    depth: np.ndarray,
    values: np.ndarray,
    *,
    axis: int = -1,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Y = ``values[1]`` where the new axis's position equals the index, else ``values[0]``."""
    if depth.size != 1:
        raise InvalidArgument(f"Invalid argument for depth; it's not a scalar: shape {shape_text(depth.shape)}")
    if values.shape != (2,):
        raise InvalidArgument(f"OneHot: 'values' must hold [off, on], got shape {shape_text(values.shape)}")
    count = int(depth.reshape(-1)[0])
    if count <= 0:
        raise InvalidArgument(f"Depth is negative or zero: {count}")
    position = resolve_axis(axis, indices.ndim + 1, "OneHot")
    shape = (*indices.shape[:position], count, *indices.shape[position:])
    check_size(shape, values.dtype, "OneHot", ctx)
    # Compared before the cast: an index may be of any type, and 2.5 or NaN marks nothing.
    inside = (indices >= -count) & (indices < count) & (indices == np.trunc(indices))
    wanted = np.where(inside, indices, 0).astype(np.int64)
    wanted = np.where(wanted < 0, wanted + count, wanted)
    rows = filled((indices.size, count), values[0], values.dtype)
    hits = np.flatnonzero(inside)
    rows[hits, wanted.reshape(-1)[hits]] = values[1]
    return np.moveaxis(rows.reshape((*indices.shape, count)), -1, position)
