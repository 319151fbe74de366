"""Operators that make tensors from attributes and shapes: Constant, ConstantOfShape, Range, EyeLike."""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.ir.types import DataType
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.axes import check_size
from ort_core.kernels.reference.arrays.element_conversion import convert
from ort_core.kernels.reference.arrays.widening import is_float, narrow, widen
from ort_core.kernels.reference.elementwise.cast import element_type
from ort_core.tensors.sparse import SparseArray


@kernel("Constant")
def constant(
    *,
    value: np.ndarray | None = None,
    sparse_value: SparseArray | None = None,
    value_float: float | None = None,
    value_floats: tuple[float, ...] | None = None,
    value_int: int | None = None,
    value_ints: tuple[int, ...] | None = None,
    value_string: str | None = None,
    value_strings: tuple[str, ...] | None = None,
) -> np.ndarray:
    """Return the one value given, as a tensor; a sparse value is made dense."""
    if value is not None:
        return value
    if sparse_value is not None:
        return sparse_value.dense()
    typed = (
        (np.float32, (value_float, value_floats)),
        (np.int64, (value_int, value_ints)),
        (np.object_, (value_string, value_strings)),
    )
    for dtype, given in typed:
        for item in given:
            if item is not None:
                return np.array(item, dtype)
    raise InvalidArgument("Constant: exactly one of value, sparse_value and the value_* attributes must be given")


@kernel("ConstantOfShape", since=9)
def constant_of_shape(shape: np.ndarray, *, value: np.ndarray | None = None, ctx: KernelContext) -> np.ndarray:
    """Return a tensor of ``shape`` filled with the one element of ``value`` (default: float 0)."""
    if shape.ndim != 1:
        raise InvalidArgument(f"Input tensor should be one dimensional: ConstantOfShape got shape {shape.shape}")
    if np.any(shape < 0):
        raise InvalidArgument(f"Can't create tensor with negative dimensions: ConstantOfShape got {shape.tolist()}")
    if value is not None and value.size != 1:
        raise InvalidArgument(f"ConstantOfShape: attribute value must hold one element, it has shape {value.shape}")
    element = np.zeros(1, np.float32) if value is None else value.reshape(1)
    dims = tuple(int(dim) for dim in shape)
    check_size(dims, element.dtype, "ConstantOfShape", ctx)
    is_clear = not any(element.tobytes())  # the system gives memory that is cleared; -0.0 has a bit
    return np.zeros(dims, element.dtype) if is_clear else np.full(dims, element[0], element.dtype)


_COUNTED = 2**24  # numbers up to it are exact in float32


@kernel("Range", since=11)
@np.errstate(all="ignore")
def arithmetic_range(
    start: np.ndarray, limit: np.ndarray, delta: np.ndarray, *, stash_type: int = 1, ctx: KernelContext
) -> np.ndarray:
    """Return start, start + delta, ... up to but without ``limit``.

    Every element is start + i delta in float64, rounded once: at least as precise as any ``stash_type`` asks.
    """
    for name, bound in (("start", start), ("limit", limit), ("delta", delta)):
        if bound.size != 1:
            raise InvalidArgument(f"{name} in Range operator should be scalar like tensor, yet got shape {bound.shape}")
    first, last, step = (widen(bound.reshape(())) for bound in (start, limit, delta))
    if step == 0:
        raise InvalidArgument("delta in Range operator can not be zero!")
    count = _count(first, last, step)
    ctx.guard.check_allocation(count * start.dtype.itemsize, f"the output of Range, {count} elements")
    if start.dtype == np.float32 and first == 0 and step == 1 and count <= _COUNTED:
        return np.arange(count, dtype=np.float32)
    is_short = not is_float(start.dtype) and count <= np.iinfo(start.dtype).max  # counted, and added, modulo its size
    steps = np.arange(count, dtype=start.dtype if is_short else first.dtype if first.dtype.kind != "f" else np.float64)
    if step != 1:
        steps *= step
    if first != 0:
        steps += first
    return narrow(steps, start.dtype)


def _count(first: np.ndarray, last: np.ndarray, step: np.ndarray) -> int:
    if not is_float(first.dtype):
        return max(-((int(first) - int(last)) // int(step)), 0)
    exact = np.ceil((np.float64(last) - np.float64(first)) / np.float64(step))
    if not np.isfinite(exact) or exact >= 2.0**63:
        raise InvalidArgument(
            "Range: the computed number of elements exceeds the supported range. "
            f"start={first}, limit={last}, delta={step}"
        )
    return max(int(exact), 0)


@kernel("EyeLike", since=9)
def eye_like(x: np.ndarray, *, dtype: int | None = None, k: int = 0) -> np.ndarray:
    """Return ones on diagonal ``k``, zeros elsewhere, in the shape of a matrix ``x``."""
    if x.ndim != 2:
        raise InvalidArgument(f"EyeLike : Input tensor dimension is not 2; it has shape {x.shape}")
    target = DataType.from_numpy(x.dtype) if dtype is None else element_type("EyeLike", dtype)
    return convert(np.eye(x.shape[0], x.shape[1], k=k, dtype=np.int8), target)
