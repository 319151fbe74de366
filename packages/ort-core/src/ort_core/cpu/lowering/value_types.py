"""The element types and shapes of values: as they are stored outside of a group, and as they are computed within it."""

from __future__ import annotations

from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.usual_sizes import usual_shape
from ort_core.plugin.ir import DataType, KnownDim, TensorType, Value

HALVES = frozenset({DataType.FLOAT16, DataType.BFLOAT16})


def computed_type(dtype: DataType) -> DataType:
    """Return the type that elements have in registers: halves are computed, and kept within a group, as float32."""
    return DataType.FLOAT if dtype in HALVES else dtype


def tensor_type(value: Value) -> tuple[DataType, tuple[KnownDim, ...]]:
    """Return the element type that a value has within a group, and its shape, all sizes known or symbolic.

    Raises:
        NotLowered: something of it is unknown.
    """
    dtype, shape = stored_type(value)
    return computed_type(dtype), shape


def stored_type(value: Value) -> tuple[DataType, tuple[KnownDim, ...]]:
    """Return a value's element type outside of the group and its shape, all sizes known or symbolic.

    Sizes that broadcast what is usually equal are those of one of the values (``usual_sizes``).

    Raises:
        NotLowered: something of it is unknown.
    """
    known = known_type(value)
    return known.dtype, usual_shape(known.shape)  # type: ignore[arg-type]  # all of its sizes are known


def known_type(value: Value) -> TensorType:
    """Return a value's type as it is, all sizes known or symbolic.

    Raises:
        NotLowered: something of it is unknown.
    """
    known = value.type
    if not isinstance(known, TensorType) or known.shape is None:
        raise NotLowered(f"the shape of {value.name!r} is unknown")
    for size in known.shape:
        if size is None:
            raise NotLowered(f"a size of {value.name!r} is unknown")
    return known


def axis_place(axis: int, rank: int) -> int:
    """Return an axis counted from the front; a number has one axis, as in onnxruntime.

    Raises:
        NotLowered: there is no such axis; the kernel says so.
    """
    places = max(rank, 1)
    if not -places <= axis < places:
        raise NotLowered(f"there is no axis {axis} among {rank}")
    return axis % places
