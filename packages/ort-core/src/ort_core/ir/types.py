"""Types of ONNX values: element types, tensors, sparse tensors, sequences, optionals and maps.

Element types carry ONNX's own numbers (``TensorProto.DataType``). Types are immutable and compare by value; a
shape is a tuple of dimensions (see ``dims``), or ``None`` when not even the rank is known.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.dims import Dim


class DataType(enum.IntEnum):
    """ONNX tensor element types, numbered as in ``TensorProto.DataType``."""

    UNDEFINED = 0
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20
    UINT4 = 21
    INT4 = 22
    FLOAT4E2M1 = 23
    FLOAT8E8M0 = 24
    UINT2 = 25
    INT2 = 26
    FLOAT6E2M3 = 27
    FLOAT6E3M2 = 28

    @property
    def numpy(self) -> np.dtype:
        """The numpy dtype that holds one element (sub-byte types take one byte per element in memory)."""
        return _numpy_dtype(self)

    @property
    def bits(self) -> int:
        """Bits of one element as stored in a model file (0 for strings and undefined)."""
        return _BITS[self]

    @property
    def text(self) -> str:
        """The name in onnxruntime's type strings, such as ``float`` in ``tensor(float)``."""
        return _TEXT[self]

    @property
    def is_float(self) -> bool:
        """Whether this is a real floating-point type of any width."""
        return self in _FLOATS

    @property
    def is_integer(self) -> bool:  # type: ignore[override, unused-ignore]  # int has a method of that name from 3.12 on
        """Whether this is a signed or unsigned integer of any width (not bool)."""
        return self in _INTEGERS

    @classmethod
    def from_numpy(cls, dtype: np.dtype) -> DataType:
        """Return the element type of a numpy dtype.

        Raises:
            ValueError: the dtype has no ONNX element type.
        """
        found = _from_numpy(np.dtype(dtype))
        if found is None:
            raise ValueError(f"numpy dtype {dtype} has no ONNX element type")
        return found


_FLOATS = frozenset(
    {DataType.FLOAT, DataType.FLOAT16, DataType.DOUBLE, DataType.BFLOAT16}
    | {DataType(n) for n in (17, 18, 19, 20, 23, 24, 27, 28)}
)
_INTEGERS = frozenset(DataType(n) for n in (2, 3, 4, 5, 6, 7, 12, 13, 21, 22, 25, 26))
_BITS = {
    **dict.fromkeys(DataType, 0),
    **{DataType(n): 8 for n in (2, 3, 9, 17, 18, 19, 20, 24)},
    **{DataType(n): 16 for n in (4, 5, 10, 16)},
    **{DataType(n): 32 for n in (1, 6, 12)},
    **{DataType(n): 64 for n in (7, 11, 13, 14)},
    DataType.COMPLEX128: 128,
    **{DataType(n): 4 for n in (21, 22, 23)},
    **{DataType(n): 2 for n in (25, 26)},
    **{DataType(n): 6 for n in (27, 28)},
}
_TEXT = {t: t.name.lower() for t in DataType}
_NATIVE = {
    DataType.FLOAT: "float32",
    DataType.UINT8: "uint8",
    DataType.INT8: "int8",
    DataType.UINT16: "uint16",
    DataType.INT16: "int16",
    DataType.INT32: "int32",
    DataType.INT64: "int64",
    DataType.STRING: "object",
    DataType.BOOL: "bool",
    DataType.FLOAT16: "float16",
    DataType.DOUBLE: "float64",
    DataType.UINT32: "uint32",
    DataType.UINT64: "uint64",
    DataType.COMPLEX64: "complex64",
    DataType.COMPLEX128: "complex128",
}
_ML_DTYPES = {
    DataType.BFLOAT16: "bfloat16",
    DataType.FLOAT8E4M3FN: "float8_e4m3fn",
    DataType.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    DataType.FLOAT8E5M2: "float8_e5m2",
    DataType.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    DataType.UINT4: "uint4",
    DataType.INT4: "int4",
    DataType.FLOAT4E2M1: "float4_e2m1fn",
    DataType.FLOAT8E8M0: "float8_e8m0fnu",
    DataType.UINT2: "uint2",
    DataType.INT2: "int2",
    DataType.FLOAT6E2M3: "float6_e2m3fn",
    DataType.FLOAT6E3M2: "float6_e3m2fn",
}
_BY_NAME = {name: t for t, name in {**_NATIVE, **_ML_DTYPES}.items()}


@functools.cache
def _numpy_dtype(data_type: DataType) -> np.dtype:
    if data_type in _NATIVE:
        return np.dtype(_NATIVE[data_type])
    if data_type in _ML_DTYPES:
        import ml_dtypes  # imported late: most models need none of its types

        return np.dtype(getattr(ml_dtypes, _ML_DTYPES[data_type]))
    raise ValueError("an undefined element type has no numpy dtype")


@functools.cache
def _from_numpy(dtype: np.dtype) -> DataType | None:
    if dtype.kind in "UST":
        return DataType.STRING
    return _BY_NAME.get(dtype.newbyteorder("=").name)


Shape = tuple[Dim, ...]


@frozen
class TensorType:
    """A dense tensor: element type and shape (``None``: rank unknown)."""

    dtype: DataType
    shape: Shape | None = None

    def __str__(self) -> str:
        return f"tensor({self.dtype.text})"


@frozen
class SparseTensorType:
    """A sparse tensor: element type and dense shape."""

    dtype: DataType
    shape: Shape | None = None

    def __str__(self) -> str:
        return f"sparse_tensor({self.dtype.text})"


@frozen
class SequenceType:
    """A sequence of values of one type."""

    element: ValueType

    def __str__(self) -> str:
        return f"seq({self.element})"


@frozen
class OptionalType:
    """A value or its absence."""

    element: ValueType

    def __str__(self) -> str:
        return f"optional({self.element})"


@frozen
class MapType:
    """A map from integer or string keys to values of one type."""

    key: DataType
    value: ValueType

    def __str__(self) -> str:
        return f"map({self.key.text},{self.value})"


@frozen
class OpaqueType:
    """A type that only the operators of ``domain`` understand."""

    domain: str
    name: str

    def __str__(self) -> str:
        return f"opaque({self.domain},{self.name})"


ValueType = TensorType | SparseTensorType | SequenceType | OptionalType | MapType | OpaqueType


def is_assignable(found: ValueType, expected: ValueType) -> bool:
    """Return whether a value of type ``found`` may stand where ``expected`` is declared (shapes are not compared)."""
    if isinstance(expected, OptionalType) and not isinstance(found, OptionalType):
        return is_assignable(found, expected.element)
    return compare_types(found, expected, is_assignable)


def compare_types(first: ValueType, second: ValueType, inner: Callable[[ValueType, ValueType], bool]) -> bool:
    """Return whether kinds and element types do not contradict each other; ``inner`` compares types within types."""
    if isinstance(first, TensorType) and isinstance(second, TensorType):
        return first.dtype == second.dtype or DataType.UNDEFINED in (first.dtype, second.dtype)
    if isinstance(first, SparseTensorType) and isinstance(second, SparseTensorType):
        return first.dtype == second.dtype
    if isinstance(first, SequenceType) and isinstance(second, SequenceType):
        return inner(first.element, second.element)
    if isinstance(first, OptionalType) and isinstance(second, OptionalType):
        return inner(first.element, second.element)
    if isinstance(first, MapType) and isinstance(second, MapType):
        return first.key == second.key and inner(first.value, second.value)
    return first == second
