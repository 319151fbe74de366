"""Inverses of circular functions, hyperbolic functions and their inverses, of float64, with their errors in ulp.

Those of circular functions are polynomials on an interval about 0, fitted for this project by Remez exchange in 50
digits; what lies beyond is led back to it by a half angle, or by a difference of two slopes. The others are made of
``exp`` and ``log`` where nothing cancels, and of series, or of ``log1p``, where it would.
"""

from __future__ import annotations

import math

from ort_core.ir.types import DataType
from ort_core.loops.float64_functions import half_exp, log, log1p_of_fraction, with_sign
from ort_core.loops.scalar import Scalar, binary, bitcast, fma, lift, maximum, minimum, polynomial, select, unary

F64, I64 = DataType.DOUBLE, DataType.INT64
MAX_ULP = {
    "asin": 1.5, "acos": 1.5, "atan": 2.5, "sinh": 3.0, "cosh": 3.0, "asinh": 4.0, "acosh": 4.0, "atanh": 4.0,
}  # fmt: skip
"""The stated maximum errors, in ulp of the result."""

_HALF_PI, _HALF_PI_LOW = math.pi / 2, 6.123233995736766e-17
_QUARTER_PI, _QUARTER_PI_LOW = math.pi / 4, 3.061616997868383e-17
_TINY = 2.0**-27  # below, odd functions are their argument
_HUGE = 2.0**28  # above, adding 1 to a square changes nothing

# (atan(s) / s - 1) / s**2 of s**2, for s up to tan(pi / 8), with the weight s**2: 2**-59
_ATAN = (-0.017922291361407706, 0.03807833092774429, -0.05039845856823917, 0.05848008982520789, -0.06663120391937338,
         0.07692061637823243, -0.09090897836500611, 0.111111107861409, -0.1428571428024863, 0.19999999999954085,
         -0.333333333333332)  # fmt: skip
# (asin(s) / s - 1) / s**2 of s**2, for s up to 1 / 2, with the weight s**2: 2**-59
_ASIN = (0.03267652290391636, -0.021076752485255573, 0.021763155639524745, 0.003683165236894008, 0.010786501939514933,
         0.011397779665179436, 0.013980961171899281, 0.017351600097772587, 0.022372215661197754, 0.030381942683527632,
         0.044642857175124395, 0.07499999999970255, 0.16666666666666763)  # fmt: skip
_SINH = tuple(1 / math.factorial(2 * k + 1) for k in range(9, 0, -1))  # Taylor's series below 1
_HIGH_BITS = -(1 << 32)  # of a float64: 21 bits, whose square is exact


def atan(x: Scalar) -> Scalar:
    """Arc tangent: of ``1 / x`` above 1, of ``(x - 1) / (x + 1)`` for slopes above tan(pi / 8)."""
    size = unary("abs", x)
    is_steep = binary("gt", size, 1.0)
    slope = select(is_steep, 1.0 / size, size)
    is_upper = binary("gt", slope, math.tan(math.pi / 8))
    u = select(is_upper, (slope - 1.0) / (slope + 1.0), slope)
    z = u * u
    part = select(is_steep, -u, u) * fma(z, polynomial(z, _ATAN), 1.0)
    other = select(is_steep, _HALF_PI, lift(0.0, F64))
    other_low = select(is_steep, _HALF_PI_LOW, lift(0.0, F64))
    angle = select(is_upper, _QUARTER_PI, other) + (part + select(is_upper, _QUARTER_PI_LOW, other_low))
    return select(binary("lt", size, _TINY), x, with_sign(angle, x))


def asin(x: Scalar) -> Scalar:
    """Arc sine; NaN beyond 1. Above 1/2 it is a quarter turn less twice that of ``sqrt((1 - x) / 2)``."""
    size = unary("abs", x)
    z, root, high, low = _half_angle(size)
    above = root * (z * polynomial(z, _ASIN)) * 2.0 - (_HALF_PI_LOW - low * 2.0)
    far = _QUARTER_PI - (above - (_QUARTER_PI - high * 2.0))
    square = size * size
    near = fma(size, square * polynomial(square, _ASIN), size)
    angle = with_sign(select(binary("le", size, 0.5), near, far), x)
    return select(binary("lt", size, _TINY), x, angle)


def acos(x: Scalar) -> Scalar:
    """Arc cosine; NaN beyond 1."""
    size, square = unary("abs", x), x * x
    z, root, high, low = _half_angle(size)
    near = _HALF_PI - (x - (_HALF_PI_LOW - x * (square * polynomial(square, _ASIN))))
    bent = root * (z * polynomial(z, _ASIN))
    above = (high + (bent + low)) * 2.0
    below = math.pi - (root + (bent - _HALF_PI_LOW)) * 2.0
    far = select(binary("lt", x, 0.0), below, above)
    return select(binary("le", size, 0.5), near, far)


def _half_angle(size: Scalar) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """Return ``(1 - size) / 2``, its root, and that as a sum of 21 bits and a rest."""
    z = (1.0 - size) * 0.5
    root = unary("sqrt", z)
    high = bitcast(binary("and", bitcast(root, I64), _HIGH_BITS), F64)
    return z, root, high, (z - high * high) / maximum(root + high, 2.0**-1000)


def sinh(x: Scalar) -> Scalar:
    """Hyperbolic sine: a series below 1, ``h - 1 / (4 h)`` with ``h = e**|x| / 2`` above."""
    size, z = unary("abs", x), x * x
    grown = half_exp(size)
    near = fma(x, minimum(z, 1.0) * polynomial(minimum(z, 1.0), _SINH), x)
    found = select(binary("lt", size, 1.0), near, with_sign(grown - 0.25 / grown, x))
    return select(binary("lt", size, _TINY), x, found)


def cosh(x: Scalar) -> Scalar:
    """Hyperbolic cosine."""
    grown = half_exp(unary("abs", x))
    return grown + 0.25 / grown


def asinh(x: Scalar) -> Scalar:
    """Inverse hyperbolic sine: ``log(|x| + sqrt(x**2 + 1))`` with the sign of x; ``log1p`` of its excess below 3/4."""
    size, z = unary("abs", x), x * x
    root = unary("sqrt", z + 1.0)
    near = log1p_of_fraction(minimum(size + z / (root + 1.0), 1.0))
    found = select(binary("le", size, 0.75), near, _log_of_sum(size, root))
    return select(binary("lt", size, _TINY), x, with_sign(found, x))


def acosh(x: Scalar) -> Scalar:
    """Inverse hyperbolic cosine: ``log(x + sqrt(x**2 - 1))``; NaN below 1."""
    t = x - 1.0
    near = log1p_of_fraction(minimum(t + unary("sqrt", t * (t + 2.0)), 1.0))
    found = select(binary("le", x, 1.25), near, _log_of_sum(x, unary("sqrt", x * x - 1.0)))
    return select(binary("lt", x, 1.0), math.nan, found)


def _log_of_sum(size: Scalar, root: Scalar) -> Scalar:
    """Return ``log(size + root)``, where the root is nearly as large as a large size, or has no room."""
    is_huge = binary("gt", size, _HUGE)
    return log(select(is_huge, size, size + root)) + select(is_huge, math.log(2.0), lift(0.0, F64))


def atanh(x: Scalar) -> Scalar:
    """Inverse hyperbolic tangent: ``log((1 + x) / (1 - x)) / 2``; infinite at 1, NaN beyond."""
    size = unary("abs", x)
    near = log1p_of_fraction(minimum((size + size) / (1.0 - size), 1.0))
    found = select(binary("le", size, 1 / 3), near, log((size + 1.0) / (1.0 - size))) * 0.5
    return select(binary("lt", size, _TINY), x, with_sign(found, x))
