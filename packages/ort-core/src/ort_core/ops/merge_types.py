"""What two statements about one value say together: the more specific wins, contradictions are reported."""

from __future__ import annotations

from collections.abc import Collection

from ort_core.ir.dims import Dim, SymbolicDim
from ort_core.ir.types import (
    DataType,
    MapType,
    OptionalType,
    SequenceType,
    Shape,
    SparseTensorType,
    TensorType,
    ValueType,
    compare_types,
)
from ort_core.ops.unknown_dims import is_unknown


def knowledge(dim: Dim) -> int:
    """Return how much a dimension tells: 0 nothing, 1 an anonymous size, 2 a named size or expression, 3 a number."""
    if dim is None:
        return 0
    if isinstance(dim, int):
        return 3
    return 1 if is_unknown(dim) else 2


def merge_dims(first: Dim, second: Dim, given: Collection[str] = ()) -> Dim:
    """Return the dimension that tells more; ``first`` if both tell as much.

    Symbols in ``given`` are sizes of inputs: a ``first`` of these alone tells more than a name that no input has.
    """
    if first is second or first == second:
        return first
    if knowledge(second) <= knowledge(first):
        return first
    return first if _is_of(first, given) and not _is_of(second, given) else second


def _is_of(dim: Dim, given: Collection[str]) -> bool:
    return isinstance(dim, SymbolicDim) and dim.symbols() <= set(given)


def merge_shapes(first: Shape | None, second: Shape | None, given: Collection[str] = ()) -> Shape | None:
    """Return what both shapes say; where they contradict each other, ``first``. ``given`` as for ``merge_dims``."""
    if first is None or second is None:
        return second if first is None else first
    if first == second or len(first) != len(second):
        return first
    return tuple([merge_dims(one, other, given) for one, other in zip(first, second, strict=True)])


def shapes_agree(first: Shape | None, second: Shape | None) -> bool:
    """Return whether ranks and fixed sizes do not contradict each other."""
    if first is None or second is None or first == second:
        return True
    return len(first) == len(second) and all(
        a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in zip(first, second, strict=True)
    )


def merge_types(first: ValueType, second: ValueType, given: Collection[str] = ()) -> ValueType:
    """Return what both types say; where they contradict each other, ``first``. ``given`` as for ``merge_dims``."""
    if isinstance(first, TensorType) and isinstance(second, TensorType):
        if first.dtype != second.dtype and DataType.UNDEFINED not in (first.dtype, second.dtype):
            return first
        dtype = first.dtype if first.dtype is not DataType.UNDEFINED else second.dtype
        shape = merge_shapes(first.shape, second.shape, given)
        return first if shape is first.shape and dtype is first.dtype else TensorType(dtype, shape)
    if isinstance(first, SparseTensorType) and isinstance(second, SparseTensorType):
        if first.dtype != second.dtype:
            return first
        return SparseTensorType(first.dtype, merge_shapes(first.shape, second.shape))
    if isinstance(first, SequenceType) and isinstance(second, SequenceType):
        return SequenceType(merge_types(first.element, second.element))
    if isinstance(first, OptionalType) and isinstance(second, OptionalType):
        return OptionalType(merge_types(first.element, second.element))
    if isinstance(first, MapType) and isinstance(second, MapType) and first.key == second.key:
        return MapType(first.key, merge_types(first.value, second.value))
    return first


def types_agree(first: ValueType, second: ValueType) -> bool:
    """Return whether kinds and element types do not contradict each other (shapes are not compared)."""
    return compare_types(first, second, types_agree)


def type_shapes_agree(first: ValueType, second: ValueType) -> bool:
    """Return whether the ranks and fixed sizes of two agreeing types do not contradict each other."""
    if isinstance(first, (TensorType, SparseTensorType)) and isinstance(second, (TensorType, SparseTensorType)):
        return shapes_agree(first.shape, second.shape)
    if isinstance(first, (SequenceType, OptionalType)) and isinstance(second, (SequenceType, OptionalType)):
        return type_shapes_agree(first.element, second.element)
    return True


def join_shapes(first: Shape | None, second: Shape | None) -> Shape | None:
    """Return what holds for a value that has one shape or the other: equal sizes stay, others are unknown."""
    if first is None or second is None or len(first) != len(second):
        return None
    return tuple(a if a == b else None for a, b in zip(first, second, strict=True))


def join_types(first: ValueType | None, second: ValueType | None) -> ValueType | None:
    """Return what holds for a value that has one type or the other, ``None`` if the kinds or element types differ."""
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, OptionalType) != isinstance(second, OptionalType):
        bare_first = first.element if isinstance(first, OptionalType) else first
        bare_second = second.element if isinstance(second, OptionalType) else second
        joined = join_types(bare_first, bare_second)
        return None if joined is None else OptionalType(joined)
    if not types_agree(first, second):
        return None
    if isinstance(first, TensorType) and isinstance(second, TensorType):
        return TensorType(first.dtype, join_shapes(first.shape, second.shape))
    if isinstance(first, (SequenceType, OptionalType)) and isinstance(second, (SequenceType, OptionalType)):
        element = join_types(first.element, second.element)
        return None if element is None else type(first)(element)
    return first


def without_sizes(value_type: ValueType) -> ValueType:
    """Return a type of which every shape tells its rank alone."""
    if isinstance(value_type, (TensorType, SparseTensorType)):
        if not value_type.shape:
            return value_type
        return type(value_type)(value_type.dtype, (None,) * len(value_type.shape))
    if isinstance(value_type, (SequenceType, OptionalType)):
        return type(value_type)(without_sizes(value_type.element))
    if isinstance(value_type, MapType):
        return MapType(value_type.key, without_sizes(value_type.value))
    return value_type


def substitute_type(value_type: ValueType, sizes: dict[str, int | SymbolicDim]) -> ValueType:
    """Return a type with named sizes replaced in every shape."""
    if isinstance(value_type, (TensorType, SparseTensorType)):
        if value_type.shape is None:
            return value_type
        shape = tuple(d.substitute(sizes) if isinstance(d, SymbolicDim) else d for d in value_type.shape)
        return type(value_type)(value_type.dtype, shape)
    if isinstance(value_type, (SequenceType, OptionalType)):
        return type(value_type)(substitute_type(value_type.element, sizes))
    return value_type
