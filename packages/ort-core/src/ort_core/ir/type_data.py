"""Exact plain data of types and dimensions, and back: for JSON, where text would lose what an expression means.

A named size is its name, ``None`` is null, an expression is its terms: ``2*n + 1`` is ``[[[["n", 1]], 2], [[], 1]]``.
"""

from __future__ import annotations

from typing import Any

from ort_core.ir.dims import Atom, Call, Dim, Symbol, SymbolicDim
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

PlainData = Any  # Any: nested lists of int, str and None, as JSON has them

_WRAPPERS: dict[str, type[SequenceType] | type[OptionalType]] = {"sequence": SequenceType, "optional": OptionalType}
_TENSORS: dict[str, type[TensorType] | type[SparseTensorType]] = {"tensor": TensorType, "sparse": SparseTensorType}


def dim_to_data(dim: Dim) -> PlainData:
    """Return a dimension as plain data."""
    if not isinstance(dim, SymbolicDim):
        return dim
    if dim.name is not None:
        return dim.name
    return [
        [[[_atom_to_data(atom), power] for atom, power in monomial], coefficient] for monomial, coefficient in dim.terms
    ]


def dim_from_data(data: PlainData) -> Dim:
    """Return the dimension that ``dim_to_data`` gave.

    Raises:
        ValueError, TypeError: the data is of another shape.
    """
    if data is None or isinstance(data, int):
        return data
    if isinstance(data, str):
        return SymbolicDim.named(data)
    return SymbolicDim(
        tuple(
            (tuple((_atom_from_data(atom), int(power)) for atom, power in monomial), int(coefficient))
            for monomial, coefficient in data
        )
    )


def type_to_data(value_type: ValueType | None) -> PlainData:
    """Return a type as plain data."""
    if value_type is None:
        return None
    if isinstance(value_type, (TensorType, SparseTensorType)):
        shape = None if value_type.shape is None else [dim_to_data(dim) for dim in value_type.shape]
        return ["tensor" if isinstance(value_type, TensorType) else "sparse", int(value_type.dtype), shape]
    if isinstance(value_type, MapType):
        return ["map", int(value_type.key), type_to_data(value_type.value)]
    if isinstance(value_type, OpaqueType):
        return ["opaque", value_type.domain, value_type.name]
    return ["sequence" if isinstance(value_type, SequenceType) else "optional", type_to_data(value_type.element)]


def type_from_data(data: PlainData) -> ValueType | None:
    """Return the type that ``type_to_data`` gave.

    Raises:
        ValueError, TypeError, KeyError: the data is of another shape.
    """
    if data is None:
        return None
    kind, *rest = data
    if kind in _TENSORS:
        dtype, shape = rest
        return _TENSORS[kind](DataType(dtype), None if shape is None else tuple(dim_from_data(dim) for dim in shape))
    if kind == "opaque":
        return OpaqueType(*rest)
    element = type_from_data(rest[-1])
    if element is None:
        raise ValueError(f"a {kind} needs the type of its elements")
    return MapType(DataType(rest[0]), element) if kind == "map" else _WRAPPERS[kind](element)


def _atom_to_data(atom: Atom) -> PlainData:
    return atom.name if isinstance(atom, Symbol) else [atom.function, [dim_to_data(dim) for dim in atom.arguments]]


def _atom_from_data(data: PlainData) -> Atom:
    if isinstance(data, str):
        return Symbol(data)
    function, arguments = data
    dims = tuple(dim_from_data(dim) for dim in arguments)
    if any(dim is None for dim in dims):
        raise ValueError(f"an argument of {function} is unknown")
    return Call(str(function), dims)  # type: ignore[arg-type]  # checked above
