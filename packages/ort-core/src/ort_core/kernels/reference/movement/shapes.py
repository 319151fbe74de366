"""Operators that read or change a tensor's shape and move no element."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.axes import check_size, integers, resolve_axes, resolve_axis, shape_text


@kernel("Identity")
def identity(value: Any, /) -> Any:  # Any: tensors, sequences and optionals alike
    """Y = X, for tensors, sequences and optionals."""
    return value


@kernel("Shape")
def shape(data: np.ndarray, *, start: int = 0, end: int | None = None) -> np.ndarray:
    """Y = the dimensions ``start`` to ``end`` of X (negative counts from the end; clamped)."""
    return np.array(data.shape, np.int64)[start:end]


@kernel("Size")
def size(data: np.ndarray) -> np.ndarray:
    """Y = the number of elements of X."""
    return np.array(data.size, np.int64)


@kernel("Reshape", since=1, until=4)
def reshape_1(
    data: np.ndarray, *, shape: tuple[int, ...] = (), consumed_inputs: tuple[int, ...] | None = None
) -> np.ndarray:
    """Y = X with dimensions ``shape``: 0 copies the dimension, -1 takes what is left."""
    return data.reshape(target_shape(data.shape, shape, allowzero=False))


@kernel("Reshape", since=5)
def reshape(data: np.ndarray, shape: np.ndarray, *, allowzero: int = 0) -> np.ndarray:
    """Y = X with dimensions ``shape``: 0 copies the dimension unless ``allowzero``, -1 takes what is left."""
    return data.reshape(target_shape(data.shape, integers(shape, "shape", "Reshape"), allowzero=bool(allowzero)))


def target_shape(found: Sequence[int], requested: Sequence[int], *, allowzero: bool) -> tuple[int, ...]:
    """Return the shape that Reshape gives to a tensor of shape ``found``.

    Raises:
        InvalidArgument: ``requested`` has a wrong number, two -1, or another number of elements.
    """
    dims = list(requested)
    if any(dim < -1 for dim in dims) or dims.count(-1) > 1:
        raise InvalidArgument(f"Reshape: at most one dimension may be -1 and none below, got {shape_text(dims)}")
    if not allowzero:
        for index, dim in enumerate(dims):
            if dim == 0:
                if index >= len(found):
                    raise InvalidArgument(
                        f"Reshape: the dimension with value zero exceeds the dimension size of the input tensor. "
                        f"Input shape:{shape_text(found)}, requested shape:{shape_text(requested)}"
                    )
                dims[index] = found[index]
    if -1 in dims:
        copied = {index for index, dim in enumerate(requested) if dim == 0 and not allowzero}
        left = [dim for index, dim in enumerate(found) if index not in copied]
        stated = [dim for index, dim in enumerate(dims) if dim != -1 and index not in copied]
        dims[dims.index(-1)] = _missing_dimension(left, stated)
    if math.prod(found) != math.prod(dims):
        raise InvalidArgument(
            f"The input tensor cannot be reshaped to the requested shape. Input shape:{shape_text(found)}, "
            f"requested shape:{shape_text(requested)}"
        )
    check_size([max(dim, 1) for dim in dims], np.dtype(np.int64), "Reshape", None)  # of 8 bytes each at most
    return tuple(dims)


def _missing_dimension(found: Sequence[int], known: Sequence[int]) -> int:
    """Return what -1 stands for beside dimensions that are not copied; with zeros on both sides the others decide."""
    if 0 in known and 0 in found:
        found, known = [dim for dim in found if dim], [dim for dim in known if dim]
    whole, rest = divmod(math.prod(found), math.prod(known) or 1)
    if rest:
        raise InvalidArgument(
            f"The input tensor cannot be reshaped to the requested shape: -1 cannot stand for "
            f"{math.prod(found)} / {math.prod(known)} elements"
        )
    return whole if 0 not in known else 0


@kernel("Flatten")
def flatten(data: np.ndarray, *, axis: int = 1) -> np.ndarray:
    """Y = X as a matrix: dimensions before ``axis`` are its rows, the others its columns."""
    if not -data.ndim <= axis <= data.ndim:
        raise InvalidArgument(
            f"[ShapeInferenceError] Invalid value({axis}) for attribute 'axis' of Flatten; "
            f"expected [-{data.ndim},{data.ndim}]"
        )
    split = axis % data.ndim if axis < 0 else axis
    return data.reshape(math.prod(data.shape[:split]), math.prod(data.shape[split:]))


@kernel("Squeeze", since=1, until=12)
def squeeze_1(data: np.ndarray, *, axes: tuple[int, ...] | None = None) -> np.ndarray:
    """Y = X without the dimensions ``axes``, each of size 1 (default: all such)."""
    return _squeeze(data, axes)


@kernel("Squeeze", since=13)
def squeeze(data: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
    """Y = X without the dimensions ``axes``, each of size 1 (default: all such)."""
    return _squeeze(data, None if axes is None else integers(axes, "axes", "Squeeze"))


def _squeeze(data: np.ndarray, axes: Sequence[int] | None) -> np.ndarray:
    # No axes at all and an empty list mean the same: every dimension of size 1.
    chosen = {resolve_axis(axis, data.ndim, "Squeeze") for axis in axes} if axes else None
    if chosen is None:
        chosen = {axis for axis, dim in enumerate(data.shape) if dim == 1}
    for axis in chosen:
        if data.shape[axis] != 1:
            raise InvalidArgument(
                f"Squeeze: dimension of input {axis} must be 1 instead of {data.shape[axis]}. "
                f"shape={shape_text(data.shape)}"
            )
    return data.reshape([dim for axis, dim in enumerate(data.shape) if axis not in chosen])


@kernel("Unsqueeze", since=1, until=12)
def unsqueeze_1(data: np.ndarray, *, axes: tuple[int, ...]) -> np.ndarray:
    """Y = X with new dimensions of size 1 at positions ``axes`` of Y."""
    return _unsqueeze(data, axes)


@kernel("Unsqueeze", since=13)
def unsqueeze(data: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Y = X with new dimensions of size 1 at positions ``axes`` of Y."""
    return _unsqueeze(data, integers(axes, "axes", "Unsqueeze"))


def _unsqueeze(data: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    rank = data.ndim + len(axes)
    added = set(resolve_axes(axes, rank, "Unsqueeze"))
    old = iter(data.shape)
    return data.reshape([1 if axis in added else next(old) for axis in range(rank)])
