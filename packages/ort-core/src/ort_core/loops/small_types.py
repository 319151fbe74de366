"""Numbers of 8, 4 and 2 bits as bytes: what a float32 becomes, and what a byte stands for.

    float8:      sign, exponent, mantissa, rounded to the nearest, ties to even, with subnormal numbers
    int4, int2:  the low bits of a byte

Elements of these types are only stored: expressions hold their bytes, as ``bitcast`` of UINT8, and compute in others.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType

from ort_core.frozen import frozen
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.loops.meanings import meaning_of
from ort_core.loops.scalar import Scalar, binary, bitcast, cast, lift, select, unary

F32, I64, I32, I8, U8 = DataType.FLOAT, DataType.INT64, DataType.INT32, DataType.INT8, DataType.UINT8
_BIAS, _MANTISSA, _NAN = 127, 23, 0x7FC00000  # of float32
_SIGN, _MAGNITUDE = 0x80, 0x7F


@frozen
class Float8:
    """A format: bits of the mantissa, the bias, the code of its largest number, and what lies beyond that.

    ``beyond`` is the code of infinity, or of NaN where there is none; ``nan`` that of NaN. ``is_unsigned_zero``: there
    is one zero, and the code of the other is the only NaN.
    """

    mantissa: int
    bias: int
    largest: int
    beyond: int
    nan: int
    is_unsigned_zero: bool = False

    @property
    def limit(self) -> float:
        """The largest number."""
        exponent, rest = divmod(self.largest, 1 << self.mantissa)
        return float((1 + rest / (1 << self.mantissa)) * 2.0 ** (exponent - self.bias))

    @property
    def least_normal(self) -> float:
        """The least number that is not subnormal."""
        return float(2.0 ** (1 - self.bias))

    @property
    def spacing(self) -> float:
        """The distance of subnormal numbers."""
        return float(self.least_normal / (1 << self.mantissa))


FLOAT8: Mapping[DataType, Float8] = MappingProxyType(
    {
        DataType.FLOAT8E4M3FN: Float8(3, 7, 0x7E, 0x7F, 0x7F),
        DataType.FLOAT8E4M3FNUZ: Float8(3, 8, 0x7F, 0x80, 0x80, is_unsigned_zero=True),
        DataType.FLOAT8E5M2: Float8(2, 15, 0x7B, 0x7C, 0x7E),
        DataType.FLOAT8E5M2FNUZ: Float8(2, 16, 0x7F, 0x80, 0x80, is_unsigned_zero=True),
    }
)
SIGNED, UNSIGNED = frozenset({DataType.INT4, DataType.INT2}), frozenset({DataType.UINT4, DataType.UINT2})
SMALL_INTEGERS = SIGNED | UNSIGNED
SMALL_TYPES = SMALL_INTEGERS | FLOAT8.keys()


def packed(x: Scalar, dtype: DataType, *, saturate: bool = True) -> Scalar:
    """Return float32 numbers as elements of a small type; whole numbers, if it is one of integers.

    ``saturate``: what lies beyond the range of an 8-bit float is its largest number, else infinity or NaN. Integers
    always do, and NaN is the least of them.
    """
    return bitcast(_limited(x, dtype) if dtype in SMALL_INTEGERS else _float8(x, FLOAT8[dtype], saturate), dtype)


def unpacked(stored: Scalar) -> Scalar:
    """Return the float32 numbers that elements of a small type stand for."""
    if stored.dtype in SMALL_INTEGERS:
        return cast(_as_byte(stored), F32)
    return _from_float8(cast(bitcast(stored, U8), I32), FLOAT8[stored.dtype])


def converted(x: Scalar, to: DataType, *, saturate: bool = True) -> Scalar | Rejection:
    """Return what Cast makes of an element, from a small type or to one.

    Integers of few bits keep the low bits of what is converted; of floats, rounded to whole numbers, halves away from
    zero. ``saturate`` is as for ``packed``.
    """
    if x.dtype in SMALL_TYPES:
        x = _as_byte(x) if x.dtype in SMALL_INTEGERS else unpacked(x)
    if to in FLOAT8:
        return packed(cast(x, F32), to, saturate=saturate)
    if to not in SMALL_INTEGERS:
        return meaning_of("", "Cast", [x], {"to": int(to)})
    if x.dtype.is_float:
        x = unary("trunc", x + select(binary("lt", x, 0.0), lift(-0.5, x.dtype), lift(0.5, x.dtype)))
    whole = meaning_of("", "Cast", [x], {"to": int(I64 if x.dtype.bits == 64 else I32)})
    return whole if isinstance(whole, Rejection) else bitcast(_low_bits(whole, to), to)


def _as_byte(stored: Scalar) -> Scalar:
    """Return a small integer as one of 8 bits."""
    byte, unused = bitcast(stored, U8), 8 - stored.dtype.bits
    if stored.dtype in UNSIGNED:
        return binary("and", byte, (1 << stored.dtype.bits) - 1)
    return binary("ashr", binary("shl", bitcast(byte, I8), unused), unused)


def _limited(x: Scalar, dtype: DataType) -> Scalar:
    high = float((1 << (dtype.bits - (dtype in SIGNED))) - 1)
    low = -high - 1 if dtype in SIGNED else 0.0
    limited = select(binary("gt", x, low), x, low)  # not of NaN
    limited = select(binary("lt", limited, high), limited, high)
    return _low_bits(cast(limited, I32), dtype)


def _low_bits(whole: Scalar, dtype: DataType) -> Scalar:
    return cast(binary("and", whole, (1 << dtype.bits) - 1), U8)


def _float8(x: Scalar, of: Float8, saturate: bool) -> Scalar:
    bits = bitcast(x, I32)
    size = binary("and", bits, 0x7FFFFFFF)
    if saturate:
        size = binary("min", size, _bits_of(of.limit))  # as numbers that are not negative, and NaN is seen below
    shift = _MANTISSA - of.mantissa
    odd = binary("and", binary("lshr", size, shift), 1)
    rounded = binary("lshr", size + odd + ((1 << (shift - 1)) - 1), shift)
    normal = rounded - ((_BIAS - of.bias) << of.mantissa)
    # The sum has the spacing of the subnormal numbers, so that adding rounds to them.
    aligned = of.spacing * 2.0**_MANTISSA
    subnormal = bitcast(bitcast(size, F32) + aligned, I32) - _bits_of(aligned)
    code = select(binary("lt", size, _bits_of(of.least_normal)), subnormal, normal)
    code = select(binary("gt", code, of.largest), lift(of.beyond, I32), code)
    code = select(unary("is_nan", x), lift(of.nan, I32), code)
    sign = binary("and", binary("lshr", bits, 24), _SIGN)
    if of.is_unsigned_zero:
        sign = select(binary("eq", code, 0), lift(0, I32), sign)
    return cast(binary("or", code, sign), U8)


def _from_float8(code: Scalar, of: Float8) -> Scalar:
    size = binary("and", code, _MAGNITUDE)
    sign = binary("shl", binary("and", code, _SIGN), 24)
    normal = binary("shl", size, _MANTISSA - of.mantissa) + ((_BIAS - of.bias) << _MANTISSA)
    subnormal = bitcast(cast(size, F32) * of.spacing, I32)
    bits = select(binary("lt", size, 1 << of.mantissa), subnormal, normal)
    if of.is_unsigned_zero:
        bits = select(binary("eq", code, of.nan), lift(_NAN, I32), bits)
        return bitcast(binary("or", bits, sign), F32)
    has_infinity = of.beyond != of.nan
    if has_infinity:
        bits = select(binary("eq", size, of.beyond), lift(_bits_of(float("inf")), I32), bits)
    bits = select(binary("gt", size, of.beyond if has_infinity else of.largest), lift(_NAN, I32), bits)
    return bitcast(binary("or", bits, sign), F32)


def _bits_of(value: float) -> int:
    return int.from_bytes(struct.pack("<f", value), "little")
