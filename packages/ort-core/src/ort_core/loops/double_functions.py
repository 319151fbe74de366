"""Elementary functions of float32 that are computed in float64 and rounded once: their errors are near half an ulp.

Series about zero are enough in float64, where a truncated term may be 2**-30 of the sum; no fitted coefficients are
needed. Arguments of the circular functions are reduced exactly for all of float32: a float32 has 24 bits, so its
products with pieces of 29 bits of 1 / (2 pi) are exact in float64, and whole turns are dropped from each of them.
"""

from __future__ import annotations

import math

from ort_core.ir.types import DataType
from ort_core.loops.scalar import Scalar, binary, bitcast, cast, fma, maximum, minimum, polynomial, select, unary

F32, F64, I64 = DataType.FLOAT, DataType.DOUBLE, DataType.INT64
_SHIFT = 6755399441055744.0  # 1.5 * 2**52: adding it leaves an integer of under 51 bits in the low bits
_SHIFT_BITS = 0x4338000000000000
_ONE_BITS, _SQRT_HALF_BITS = 0x3FF0000000000000, 0x3FE6A09E667F3BCD
_LN2_HIGH, _LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
_PIECE_BITS = 29
_TURN_PIECES = (85445659, 240010261, 88048874, 524801235, 249589169, 156865476, 119571452)
"""1 / (2 pi), ``_PIECE_BITS`` bits each: 203 bits are 60 more than the largest float32 has in front of the point."""
_SMALL = 2.0**-12  # below, the first term of sin, tan, sinh, asinh and atanh is right within half an ulp


def sin(x: Scalar) -> Scalar:
    """Sine; NaN for infinities."""
    quarter, angle = _quarter_turn(x)
    result = cast(_circular(quarter, angle), F32)
    return select(binary("lt", unary("abs", x), _SMALL), x, result)


def cos(x: Scalar) -> Scalar:
    """Cosine; NaN for infinities."""
    quarter, angle = _quarter_turn(x)
    return cast(_circular(binary("add", quarter, 1), angle), F32)


def tan(x: Scalar) -> Scalar:
    """Tangent; NaN for infinities."""
    quarter, angle = _quarter_turn(x)
    s, c = _sine(angle), _cosine(angle)
    is_odd = binary("ne", binary("and", quarter, 1), 0)
    result = cast(select(is_odd, -c, s) / select(is_odd, s, c), F32)
    return select(binary("lt", unary("abs", x), _SMALL), x, result)


def _quarter_turn(x: Scalar) -> tuple[Scalar, Scalar]:
    """Return the number of the quarter turn (int64, any multiple of 4 added) and the angle within it, in radians."""
    wide = cast(x, F64)
    turns: Scalar | None = None
    for number in reversed(range(len(_TURN_PIECES))):  # small pieces first
        product = wide * math.ldexp(_TURN_PIECES[number], -_PIECE_BITS * (number + 1))
        part = product - unary("rint", product)
        turns = part if turns is None else turns + part
    assert turns is not None
    turns = turns - unary("rint", turns)
    quarter = unary("rint", turns * 4.0)
    return bitcast(quarter + _SHIFT, I64), fma(quarter, -0.25, turns) * (2 * math.pi)


def _circular(quarter: Scalar, angle: Scalar) -> Scalar:
    value = select(binary("ne", binary("and", quarter, 1), 0), _cosine(angle), _sine(angle))
    return select(binary("ne", binary("and", quarter, 2), 0), -value, value)


def _sine(angle: Scalar) -> Scalar:
    z = angle * angle
    return angle * _series(z, [(-1.0) ** n / math.factorial(2 * n + 1) for n in range(8)])


def _cosine(angle: Scalar) -> Scalar:
    return _series(angle * angle, [(-1.0) ** n / math.factorial(2 * n) for n in range(8)])


def _series(z: Scalar, coefficients: list[float]) -> Scalar:
    """Return ``c[0] + c[1] z + c[2] z**2 + ...``."""
    return polynomial(z, coefficients[::-1])


def sinh(x: Scalar) -> Scalar:
    """Hyperbolic sine: a series below 1, ``(e**x - e**-x) / 2`` above."""
    wide = cast(x, F64)
    z = wide * wide
    near = wide * _series(z, [1.0 / math.factorial(2 * n + 1) for n in range(8)])
    grown = _exp(unary("abs", wide))
    far = (grown - 1.0 / grown) * 0.5
    far = select(binary("lt", wide, 0.0), -far, far)
    result = cast(select(binary("lt", unary("abs", wide), 1.0), near, far), F32)
    return select(binary("lt", unary("abs", x), _SMALL), x, result)


def cosh(x: Scalar) -> Scalar:
    """Hyperbolic cosine."""
    grown = _exp(unary("abs", cast(x, F64)))
    return cast((grown + 1.0 / grown) * 0.5, F32)


def asinh(x: Scalar) -> Scalar:
    """Inverse hyperbolic sine: ``log(|x| + sqrt(x**2 + 1))`` with the sign of x."""
    size = unary("abs", cast(x, F64))
    value = _log(size + unary("sqrt", size * size + 1.0))
    result = cast(select(binary("lt", cast(x, F64), 0.0), -value, value), F32)
    return select(binary("lt", unary("abs", x), _SMALL), x, result)


def acosh(x: Scalar) -> Scalar:
    """Inverse hyperbolic cosine: ``log(x + sqrt(x**2 - 1))``; NaN below 1."""
    wide = cast(x, F64)
    value = _log(wide + unary("sqrt", wide * wide - 1.0))
    return cast(select(binary("lt", wide, 1.0), math.nan, value), F32)


def atanh(x: Scalar) -> Scalar:
    """Inverse hyperbolic tangent: ``log((1 + x) / (1 - x)) / 2``; infinite at 1, NaN beyond."""
    wide = cast(x, F64)
    result = cast(_log((wide + 1.0) / (1.0 - wide)) * 0.5, F32)
    return select(binary("lt", unary("abs", x), _SMALL), x, result)


def power(x: Scalar, y: Scalar) -> Scalar:
    """``x**y`` of float32 as C's ``pow``: 1 for y = 0 and for x = 1, NaN for a negative base with a broken exponent."""
    base, exponent = cast(x, F64), cast(y, F64)
    raised = cast(_exp(exponent * _log(unary("abs", base))), F32)
    is_one = binary("eq", base, 1.0)
    is_unit = binary("and", binary("eq", unary("abs", base), 1.0), binary("eq", unary("abs", exponent), math.inf))
    raised = select(binary("or", is_one, is_unit), 1.0, raised)
    half = exponent * 0.5
    is_whole = binary("eq", unary("floor", exponent), exponent)
    is_odd = binary("and", is_whole, binary("ne", unary("floor", half), half))
    is_below = binary("lt", bitcast(x, DataType.INT32), 0)
    signed = select(binary("and", is_below, is_odd), -raised, raised)
    is_finite_below = binary("and", binary("lt", base, 0.0), binary("gt", base, -math.inf))
    is_broken = binary("and", is_finite_below, unary("not", binary("or", is_whole, unary("is_nan", exponent))))
    signed = select(is_broken, math.nan, signed)
    return select(binary("eq", exponent, 0.0), 1.0, signed)


_QUOTIENT_BITS, _DROPPED_BITS = 28, 25  # of a float64 that are kept of a quotient, and that are not
_LARGEST_QUOTIENT_BITS = 278  # of two float32


def remainder(x: Scalar, y: Scalar) -> Scalar:
    """The remainder of ``x / y`` towards zero of float32, with the sign of x, as C's ``fmod``; exact.

    Each turn takes off ``q |y|`` for a whole number q of 28 bits, a bit below the quotient: its products with the 24
    bits of a float32 are exact in float64, and what is left has few bits again, and 27 less in front of |y|.
    """
    rest, size = unary("abs", cast(x, F64)), unary("abs", cast(y, F64))
    for _ in range(-(-_LARGEST_QUOTIENT_BITS // (_QUOTIENT_BITS - 1))):
        quotient = rest / size * (1.0 - 2.0**-50)
        bits = binary("and", bitcast(quotient, I64), -(1 << _DROPPED_BITS))
        rest = rest - unary("trunc", bitcast(bits, F64)) * size
    rest = select(binary("ge", rest, size), rest - size, rest)
    wide = cast(x, F64)
    is_whole = binary("and", binary("eq", size, math.inf), binary("lt", unary("abs", wide), math.inf))
    found = bitcast(cast(select(is_whole, unary("abs", wide), rest), F32), DataType.INT32)
    sign = binary("and", bitcast(x, DataType.INT32), -(1 << 31))
    return bitcast(binary("or", found, sign), F32)


def _exp(x: Scalar) -> Scalar:
    """``e**x`` of float64 within 2**-36; limited to [-160, 160], beyond the range of float32."""
    bounded = minimum(maximum(x, -160.0), 160.0)
    n = unary("rint", bounded * math.log2(math.e))
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, bounded))
    fraction = _series(r, [1.0 / math.factorial(k) for k in range(11)])
    return fraction * bitcast(binary("shl", bitcast(n + _SHIFT, I64), 52) + _ONE_BITS, F64)


def _log(x: Scalar) -> Scalar:
    """Natural logarithm of float64 within 2**-44, of 0 and of normal numbers; NaN below 0."""
    bits = bitcast(x, I64)
    exponent = binary("ashr", bits - _SQRT_HALF_BITS, 52)
    mantissa = bitcast(bits - binary("shl", exponent, 52), F64)
    f = (mantissa - 1.0) / (mantissa + 1.0)
    value = 2.0 * f * _series(f * f, [1.0 / (2 * k + 1) for k in range(9)])
    result = fma(bitcast(exponent + _SHIFT_BITS, F64) - _SHIFT, math.log(2.0), value)
    result = select(binary("eq", x, math.inf), x, result)
    result = select(binary("eq", x, 0.0), -math.inf, result)
    return select(binary("lt", x, 0.0), math.nan, select(unary("is_nan", x), x, result))
