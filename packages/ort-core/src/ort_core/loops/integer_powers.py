"""Powers of integers modulo the size of their type: squares of squares, multiplied where the exponent has a bit."""

from __future__ import annotations

from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.loops.scalar import Scalar, binary, integer_range, lift, select

_VECTOR_BITS = 32  # of integers that vector units multiply in an instruction or two
_MOST = 2**32  # constant exponents up to it take at most 64 products


def power(x: Scalar, exponent: Scalar) -> Scalar | Rejection:
    """Return ``x**exponent`` in the type of x, whose higher bits are cut off; as 1 / x**n a negative one is truncated.

    Of an integer exponent only: what a broken one gives is a power of floats.
    """
    if not exponent.dtype.is_integer:
        return Rejection(f"no generated power of integers with exponents of {exponent.dtype.text}")
    if exponent.operation == "constant" and 0 <= int(exponent.value) <= _MOST:
        return _constant_power(x, int(exponent.value))
    if x.dtype.bits > _VECTOR_BITS or exponent.dtype.bits > _VECTOR_BITS:
        return Rejection("powers of integers of 64 bits with computed exponents take 126 products")
    least, most = integer_range(exponent.dtype)
    if not least:
        return _power(x, exponent, most.bit_length())
    is_negative = binary("lt", exponent, 0)
    raised = _power(x, select(is_negative, lift(0, exponent.dtype) - exponent, exponent), exponent.dtype.bits)
    return select(is_negative, _of_negative(x, raised), raised)


def _constant_power(x: Scalar, exponent: int) -> Scalar:
    result, square = None, x
    while exponent:
        if exponent & 1:
            result = square if result is None else result * square
        exponent >>= 1
        square = square * square if exponent else square
    return lift(1, x.dtype) if result is None else result


def _power(x: Scalar, exponent: Scalar, bits: int) -> Scalar:
    """Return the power by each bit of an exponent that is not negative; its least number counts as unsigned."""
    result, square = lift(1, x.dtype), x
    for bit in range(bits):
        is_set = binary("ne", binary("and", exponent, _signed(1 << bit, exponent.dtype)), 0)
        result = select(is_set, result * square, result)
        square = square * square
    return result


def _signed(value: int, dtype: DataType) -> int:
    """Return the number of a type that has the bits of a natural number."""
    return value if value <= integer_range(dtype)[1] else value - (1 << dtype.bits)


def _of_negative(x: Scalar, raised: Scalar) -> Scalar:
    """Return what a negative exponent leaves: of 1 and -1 what the positive one gives, else 0."""
    is_unit = binary("eq", x, 1)
    if integer_range(x.dtype)[0]:
        is_unit = binary("or", is_unit, binary("eq", x, -1))
    return select(is_unit, raised, 0)
