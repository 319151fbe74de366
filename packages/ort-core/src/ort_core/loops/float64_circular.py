"""Circular functions of float64 over primitives for arguments up to ``MOST_CIRCULAR``, with their errors in ulp.

The argument less a whole number of quarter turns is a sum of two float64: a quarter turn is cut into pieces of 33 bits,
whose products with that number are exact, and what rounding takes from each difference is kept. For the remainder of
at most an eighth of a turn, Taylor's series are near enough: their first missing term is below 2**-62 of the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ort_core.ir.types import DataType
from ort_core.loops.scalar import Scalar, binary, bitcast, fma, polynomial, select, unary

F64, I64 = DataType.DOUBLE, DataType.INT64
MOST_CIRCULAR = 2.0**20
"""The largest argument of these functions: larger ones have too many quarter turns, and nonsense for results."""
MAX_ULP = {"sin": 1.0, "cos": 1.0, "tan": 2.0}
"""The stated maximum errors, in ulp of the result."""

_ROUNDER = 1.5 * 2.0**52  # added to a number of at most 50 bits, leaves its integer in the lowest bits
_QUARTER = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21)  # pi / 2: 33 bits each
_REST_OF_QUARTER = 8.4784276603689e-32
_SMALL = 2.0**-27  # below, sine and tangent are the argument
_SINE = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(8, 0, -1))
_COSINE = tuple((-1) ** k / math.factorial(2 * k) for k in range(9, 1, -1))


def sin(x: Scalar) -> Scalar:
    """Sine; NaN for infinities."""
    quarters, angle, rest = _reduced(x)
    return select(binary("lt", unary("abs", x), _SMALL), x, _turned(quarters, _sine(angle, rest), _cosine(angle, rest)))


def cos(x: Scalar) -> Scalar:
    """Cosine; NaN for infinities."""
    quarters, angle, rest = _reduced(x)
    return _turned(binary("add", quarters, 1), _sine(angle, rest), _cosine(angle, rest))


def tan(x: Scalar) -> Scalar:
    """Tangent; NaN for infinities."""
    quarters, angle, rest = _reduced(x)
    sine, cosine = _sine(angle, rest), _cosine(angle, rest)
    is_odd = binary("ne", binary("and", quarters, 1), 0)
    found = select(is_odd, -cosine, sine) / select(is_odd, sine, cosine)
    return select(binary("lt", unary("abs", x), _SMALL), x, found)


def _reduced(x: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """Return the number of quarter turns in the lowest bits of an int64, and the angle beyond them as a sum of two."""
    shifted = x * (2 / math.pi) + _ROUNDER
    number = shifted - _ROUNDER
    first, second, third = (number * piece for piece in _QUARTER)  # exact
    near = x - first  # exact
    total, lost = _difference(near, second)
    total, more = _difference(total, third)
    low = (lost + more) - number * _REST_OF_QUARTER
    angle = total + low
    return bitcast(shifted, I64), angle, low - (angle - total)


def _difference(a: Scalar, b: Scalar) -> tuple[Scalar, Scalar]:
    """Return ``a - b`` rounded, and what that is short of."""
    found = a - b
    part = found - a
    return found, (a - (found - part)) - (b + part)


def _turned(quarters: Scalar, sine: Scalar, cosine: Scalar) -> Scalar:
    found = select(binary("ne", binary("and", quarters, 1), 0), cosine, sine)
    return select(binary("ne", binary("and", quarters, 2), 0), -found, found)


def _sine(angle: Scalar, rest: Scalar) -> Scalar:
    z = angle * angle
    return angle + fma(angle * z, polynomial(z, _SINE), fma(rest * -0.5, z, rest))


def _cosine(angle: Scalar, rest: Scalar) -> Scalar:
    """``1 - z / 2`` is rounded; what that takes away is given back with the small terms."""
    z = angle * angle
    half = z * 0.5
    above = 1.0 - half
    return above + (((1.0 - above) - half) + (z * z * polynomial(z, _COSINE) - angle * rest))


CIRCULAR: Mapping[str, Callable[[Scalar], Scalar]] = {"Sin": sin, "Cos": cos, "Tan": tan}
"""The functions by their operators."""
