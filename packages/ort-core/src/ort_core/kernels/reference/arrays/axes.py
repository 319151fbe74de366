"""Axes, shapes and fill values: the few checks that every kernel that moves data shares.

An axis may be negative and counts from the end; sizes are computed in Python integers, so nothing overflows, and
are shown to the run's guard before memory is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from types import EllipsisType

import numpy as np

from ort_core.errors import AllocationLimitExceeded, InvalidArgument
from ort_core.kernels.kernel import KernelContext

MAX_ELEMENTS = 2**63 - 1


def resolve_axis(axis: int, rank: int, op_type: str) -> int:
    """Return ``axis`` as a number in ``[0, rank)``."""
    if not -rank <= axis < rank:
        raise InvalidArgument(f"{op_type}: axis {axis} is not in valid range [-{rank},{rank - 1}]")
    return int(axis) % rank


def resolve_axes(axes: Iterable[int], rank: int, op_type: str) -> tuple[int, ...]:
    """Return ``axes`` as distinct numbers in ``[0, rank)``, in the order given."""
    resolved = tuple(resolve_axis(int(axis), rank, op_type) for axis in axes)
    if len(set(resolved)) != len(resolved):
        raise InvalidArgument(f"{op_type}: 'axes' has duplicates: {list(resolved)}; name each axis once")
    return resolved


def integers(values: np.ndarray | Sequence[int], name: str, op_type: str) -> list[int]:
    """Return a one-dimensional (or scalar) integer input as Python integers."""
    array = np.asarray(values)
    if array.ndim > 1:
        raise InvalidArgument(f"{op_type}: input '{name}' must be 1 dimensional, got shape {shape_text(array.shape)}")
    found = array.reshape(-1).tolist()
    return found if array.dtype.kind in "iu" else [_integer(value, name, op_type) for value in found]


def single_integer(value: np.ndarray | int, name: str, op_type: str) -> int:
    """Return the one number of a scalar or one-element input."""
    array = np.asarray(value)
    if array.size != 1:
        raise InvalidArgument(f"{op_type}: input '{name}' must hold one value, got shape {shape_text(array.shape)}")
    return _integer(array.reshape(()).item(), name, op_type)


def _integer(value: object, name: str, op_type: str) -> int:
    # The first version of Tile takes its counts in the type of the data, so a whole float is a number, too.
    if isinstance(value, int | float) and math.isfinite(value):
        return int(value)
    raise InvalidArgument(f"{op_type}: input '{name}' must hold whole numbers, got {value!r}")


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as onnxruntime writes it: ``{2,3}``."""
    return "{" + ",".join(str(int(dim)) for dim in shape) + "}"


def check_size(shape: Sequence[int], dtype: np.dtype, op_type: str, ctx: KernelContext | None) -> None:
    """Raise when an output of this shape may not be made.

    Raises:
        InvalidArgument: a dimension is negative, or the number of elements exceeds what ONNX can count.
        AllocationLimitExceeded: the guard forbids that many bytes.
    """
    sizes = [int(dim) for dim in shape]
    if sizes and min(sizes) < 0:
        raise InvalidArgument(f"{op_type}: the output shape {shape_text(shape)} has a negative dimension")
    count = math.prod(sizes)
    whole = count or math.prod([max(dim, 1) for dim in sizes])  # numpy counts so, empty or not
    if whole * dtype.itemsize > MAX_ELEMENTS:
        raise InvalidArgument(
            f"{op_type}: output tensor size would overflow: shape {shape_text(shape)} exceeds the supported maximum"
        )
    if ctx is None:
        return
    try:
        ctx.guard.check_allocation(count * dtype.itemsize, op_type)
    except AllocationLimitExceeded:  # to write the whole sentence for each call takes longer than a small kernel
        ctx.guard.check_allocation(count * dtype.itemsize, f"output of {op_type} with shape {shape_text(shape)}")
        raise


def zero_of(dtype: np.dtype) -> object:
    """Return the value that fills new elements of ``dtype``: zero, false, or the empty string."""
    return "" if dtype.kind == "O" else np.zeros((), dtype)[()]


def filled(shape: Sequence[int], value: object, dtype: np.dtype) -> np.ndarray:
    """Return a new array of ``shape`` with every element equal to ``value``."""
    out = np.empty(tuple(shape), dtype)
    out[...] = value
    return out


def string_array(values: Sequence[str], shape: Sequence[int] | None = None) -> np.ndarray:
    """Return an ``object`` array of strings, one-dimensional unless ``shape`` is given."""
    out = np.empty(len(values), object)
    out[:] = values
    return out if shape is None else out.reshape(tuple(shape))


def view_at(array: np.ndarray, cuts: Sequence[slice]) -> np.ndarray:
    """Return ``array[cuts]`` as a view, of a scalar too (where numpy would hand out the element)."""
    index: tuple[slice | EllipsisType, ...] = (*cuts, ...)
    return array[index]
