"""Structures of operators as C lays them out, made from the table."""

from __future__ import annotations

import ctypes
import functools

from ort_ep_directml.abi.dml import ScalarUnion, Size2D
from ort_ep_directml.schema.operators import OPERATORS, Field

_C_TYPES: dict[str, type] = {
    "uint": ctypes.c_uint32,
    "int": ctypes.c_int32,
    "float": ctypes.c_float,
    "bool": ctypes.c_int32,
    "type": ctypes.c_uint32,
    "count": ctypes.c_uint32,
    "scalar": ScalarUnion,
    "size2d": Size2D,
}
"""What is held by value; everything else is a pointer."""

ARRAY_ELEMENTS: dict[str, type] = {"uints": ctypes.c_uint32, "ints": ctypes.c_int32, "floats": ctypes.c_float}
"""Elements of arrays of numbers."""


@functools.cache
def structure_of(name: str) -> type[ctypes.Structure]:
    """Return the structure of an operator, ``DML_<name>_OPERATOR_DESC``.

    Raises:
        KeyError: there is no such operator.
    """
    fields = [(field.name, _c_type(field)) for field in OPERATORS[name].fields]
    return type(f"DML_{name}_OPERATOR_DESC", (ctypes.Structure,), {"_fields_": fields})


def _c_type(field: Field) -> type:
    return _C_TYPES.get(field.kind, ctypes.c_void_p)
