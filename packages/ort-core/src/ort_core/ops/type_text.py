"""Type texts such as ``tensor(float)`` or ``seq(map(string, float))``, as schemas write them, to value types."""

from __future__ import annotations

import functools

from ort_core.ir.types import (
    DataType,
    MapType,
    OpaqueType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    ValueType,
)

_ELEMENTS = {t.text: t for t in DataType}


@functools.cache
def parse_type(text: str) -> ValueType | None:
    """Return the type that a text names, or ``None`` when it names none (a type variable, say)."""
    text = text.replace(" ", "")
    if text in _ELEMENTS:
        return TensorType(_ELEMENTS[text], ())
    head, bracket, rest = text.partition("(")
    if not bracket or not rest.endswith(")"):
        return None
    return _parse_constructed(head, rest[:-1])


def _parse_constructed(head: str, inner: str) -> ValueType | None:
    if head == "tensor":
        return TensorType(_ELEMENTS[inner]) if inner in _ELEMENTS else None
    if head == "sparse_tensor":
        return SparseTensorType(_ELEMENTS[inner]) if inner in _ELEMENTS else None
    if head in ("map", "opaque"):
        first, _, second = inner.partition(",")
        if head == "opaque":
            return OpaqueType(first, second)
        value = parse_type(second)
        return MapType(_ELEMENTS[first], value) if value is not None and first in _ELEMENTS else None
    element = parse_type(inner)
    if element is None:
        return None
    if head == "seq":
        return SequenceType(element)
    return OptionalType(element) if head == "optional" else None


def without_shapes(value_type: ValueType) -> ValueType:
    """Return a type with every shape forgotten."""
    if isinstance(value_type, TensorType):
        return value_type if value_type.shape is None else TensorType(value_type.dtype)
    if isinstance(value_type, SparseTensorType):
        return SparseTensorType(value_type.dtype)
    if isinstance(value_type, SequenceType):
        return SequenceType(without_shapes(value_type.element))
    if isinstance(value_type, OptionalType):
        return OptionalType(without_shapes(value_type.element))
    if isinstance(value_type, MapType):
        return MapType(value_type.key, without_shapes(value_type.value))
    return value_type


@functools.cache
def plain_text(value_type: ValueType) -> str:
    """Return the text of a type by which allowed types are compared: scalars in maps without ``tensor(...)``."""
    if isinstance(value_type, MapType):
        value = value_type.value
        inner = value.dtype.text if isinstance(value, TensorType) else plain_text(value)
        return f"map({value_type.key.text},{inner})"
    if isinstance(value_type, SequenceType):
        return f"seq({plain_text(value_type.element)})"
    if isinstance(value_type, OptionalType):
        return f"optional({plain_text(value_type.element)})"
    return str(value_type)
