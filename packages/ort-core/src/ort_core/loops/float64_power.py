"""``x**y`` of float64 within ``MAX_ULP``: a logarithm of twice the digits, whose product with y keeps those that count.

Sums of two float64 (``Pair``) carry what rounding takes from the first: the exponent of a power reaches 745, and its
error is that of the result. Products are split by masks, which overflow nowhere; nothing needs a fused operation.
"""

from __future__ import annotations

import math

from ort_core.ir.types import DataType
from ort_core.loops.float64_functions import exp_of_sum, mantissa_and_exponent
from ort_core.loops.scalar import Scalar, binary, bitcast, fma, lift, maximum, minimum, polynomial, select, unary

F64, I64 = DataType.DOUBLE, DataType.INT64
MAX_ULP = 2.0
"""The stated maximum error, in ulp of the result; of results that are subnormal, of the least number."""

Pair = tuple[Scalar, Scalar]
_HIGH_BITS = -(1 << 27)  # of a float64: 26 bits
_LN2_HIGH, _LN2_LOW = 0.69314718036912382, 1.9082149292705877e-10  # the high part has 33 bits
_TWO_THIRDS, _REST_OF_TWO_THIRDS = 2 / 3, 3.700743415417188e-17
_SERIES = tuple(2 / (2 * k + 1) for k in range(11, 1, -1))  # of log((1 + s) / (1 - s)) / s, behind its first two terms
_MOST = 800.0  # of an exponent: beyond, the result is infinite or 0


def power(x: Scalar, y: Scalar) -> Scalar:
    """``x**y`` as C's ``pow``: 1 for y = 0 and for x = 1, NaN for a negative base with a broken exponent."""
    size = unary("abs", x)
    product, rest = _times(y, _logarithm(size))
    is_near = binary("lt", unary("abs", product), _MOST)
    bounded = minimum(maximum(product, -_MOST), _MOST)
    raised = exp_of_sum(bounded, select(is_near, rest, 0.0))
    grows = binary("ne", binary("gt", y, 0.0), binary("eq", size, 0.0))  # of a base of 0, and of an infinite one
    is_end = binary("or", binary("eq", size, 0.0), binary("eq", size, math.inf))
    raised = select(is_end, select(grows, math.inf, lift(0.0, F64)), raised)
    is_unit = binary("and", binary("eq", size, 1.0), binary("eq", unary("abs", y), math.inf))
    raised = select(is_unit, 1.0, raised)
    half = y * 0.5
    is_whole = binary("eq", unary("floor", y), y)
    is_odd = binary("and", is_whole, binary("ne", unary("floor", half), half))
    is_below = binary("lt", bitcast(x, I64), 0)
    signed = select(binary("and", is_below, is_odd), -raised, raised)
    is_finite_below = binary("and", binary("lt", x, 0.0), binary("gt", x, -math.inf))
    is_broken = binary("and", is_finite_below, unary("not", is_whole))
    signed = select(is_broken, math.nan, signed)
    signed = select(binary("or", unary("is_nan", x), unary("is_nan", y)), math.nan, signed)
    return select(binary("or", binary("eq", y, 0.0), binary("eq", x, 1.0)), 1.0, signed)


def _logarithm(x: Scalar) -> Pair:
    """Return the logarithm of a positive number, within 2**-65 of itself.

    With ``s = f / (2 + f)`` of a mantissa ``1 + f`` it is ``2 s + 2 s**3 / 3 + ...``, of which the first two terms are
    sums of two.
    """
    mantissa, exponent = mantissa_and_exponent(x)
    f = mantissa - 1.0
    below = f + 2.0
    s = f / below
    whole, lost = _product(s, below)
    s_low = (((f - whole) - lost) - s * (f - (below - 2.0))) / below
    z, z_low = _product(s, s)
    z_low = fma(s * 2.0, s_low, z_low)
    further = z * polynomial(z, _SERIES)
    factor = further + _TWO_THIRDS
    factor_low = (further - (factor - _TWO_THIRDS)) + _REST_OF_TWO_THIRDS
    cubic = _times_pair((s, s_low), _times_pair((z, z_low), (factor, factor_low)))
    twice = s + s
    high = twice + cubic[0]
    low = (cubic[0] - (high - twice)) + (cubic[1] + (s_low + s_low))
    large = exponent * _LN2_HIGH
    total = large + high
    rest = (high - (total - large)) + fma(exponent, _LN2_LOW, low)
    rounded = total + rest
    return rounded, rest - (rounded - total)


def _times(y: Scalar, pair: Pair) -> Pair:
    product, rest = _product(y, pair[0])
    return product, fma(y, pair[1], rest)


def _times_pair(a: Pair, b: Pair) -> Pair:
    product, rest = _product(a[0], b[0])
    return product, rest + fma(a[0], b[1], a[1] * b[0])


def _product(a: Scalar, b: Scalar) -> Pair:
    """Return a product rounded, and what that is short of."""
    product = a * b
    a_high, b_high = (bitcast(binary("and", bitcast(each, I64), _HIGH_BITS), F64) for each in (a, b))
    a_low, b_low = a - a_high, b - b_high
    rest = ((a_high * b_high - product) + (a_high * b_low + a_low * b_high)) + a_low * b_low
    return product, rest
