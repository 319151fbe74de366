"""Cast, CastLike and BitCast."""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.ir.types import DataType
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.element_conversion import convert


def element_type(op_type: str, number: int) -> DataType:
    """Return the element type that an integer attribute names.

    Raises:
        InvalidArgument: there is no such type.
    """
    try:
        found = DataType(number)
    except ValueError:
        found = DataType.UNDEFINED
    if found is DataType.UNDEFINED:
        raise InvalidArgument(f"{op_type}: {number} is not an element type; see TensorProto.DataType for the numbers")
    return found


@kernel("Cast", until=5)
def cast_to_name(x: np.ndarray, *, to: str) -> np.ndarray:
    """Return ``x`` converted to the type that ``to`` names, such as ``FLOAT``."""
    try:
        target = DataType[to.upper()]
    except KeyError:
        target = DataType.UNDEFINED
    return cast(x, to=target)


@kernel("Cast", since=6)
def cast(x: np.ndarray, *, to: int, saturate: int = 1, round_mode: str = "up") -> np.ndarray:
    """Return ``x`` converted to element type ``to``."""
    return convert(x, element_type("Cast", to), saturate=bool(saturate), round_mode=round_mode)


@kernel("CastLike", since=15)
def cast_like(x: np.ndarray, target_type: np.ndarray, *, saturate: int = 1, round_mode: str = "up") -> np.ndarray:
    """Return ``x`` converted to the element type of ``target_type``."""
    target = DataType.from_numpy(target_type.dtype)
    return convert(x, target, saturate=bool(saturate), round_mode=round_mode)


@kernel("BitCast", since=26)
def bit_cast(x: np.ndarray, *, to: int) -> np.ndarray:
    """Return the bits of ``x`` read as element type ``to``, which must have as many bits."""
    source, target = DataType.from_numpy(x.dtype), element_type("BitCast", to)
    if source.bits != target.bits or DataType.STRING in (source, target):
        raise InvalidArgument(
            f"BitCast: input of type {source.text} ({source.bits} bits) cannot be read as {target.text} "
            f"({target.bits} bits); the types must be as wide as each other and not strings"
        )
    if source.bits >= 8:
        return np.ascontiguousarray(x).view(target.numpy).reshape(x.shape)
    # one byte holds one element: its high bits repeat the sign, or are zero, as the type asks
    bits = np.ascontiguousarray(x).view(np.uint8) & np.uint8((1 << source.bits) - 1)
    if target in (DataType.INT4, DataType.INT2):
        half = np.uint8(1 << (source.bits - 1))
        bits = (bits ^ half) - half
    return bits.view(target.numpy).reshape(x.shape)
