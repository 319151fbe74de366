"""Elementary functions of float64 over primitives, each with its greatest error in ulp; subnormal results count.

Nothing is read from tables, so that vectors compute them as single elements do: arguments are reduced to an interval,
on which a polynomial is near enough. The polynomials were fitted for this project by Remez exchange in 50 digits, to
the function and with the weight that stand beside the coefficients; ``tanh`` needs no fit. Each form also holds where
``fma`` rounds twice: what must be exact is exact without it.

``tests/loops/test_float64_functions.py`` holds the errors to 40 digits.
"""

from __future__ import annotations

import math

from ort_core.ir.types import DataType
from ort_core.loops.scalar import Scalar, binary, bitcast, fma, lift, maximum, minimum, polynomial, select, unary

F64, I64 = DataType.DOUBLE, DataType.INT64
MAX_ULP = {
    "exp": 1.5, "expm1_of_negative": 2.0, "log": 1.0, "log1p_of_fraction": 1.5, "sigmoid": 2.5, "tanh": 2.0,
    "erf": 1.5, "erfc_of_positive": 256.0,
}  # fmt: skip
"""The stated maximum errors, in ulp of the result; of ``erfc_of_positive`` near 6, and 8 up to 3."""

_SIGN, _FRACTION_BITS = -(2**63), 52
_ONE_BITS, _SQRT_HALF_BITS = 0x3FF0000000000000, 0x3FE6A09E667F3BCD
_ROUNDER = 1.5 * 2.0**52  # added to a number of at most 50 bits, leaves its integer in the lowest bits
_LN2_HIGH, _LN2_LOW = 0.69314718036912382, 1.9082149292705877e-10  # the high part has 33 bits: n * high is exact

# (e**r - 1 - r - r**2 / 2) / r**3 on [-log(2) / 2, log(2) / 2], with the weight |r**3| e**-r: 2**-57
_EXP = (2.4978917879241482e-08, 2.762525395997329e-07, 2.75576398077572e-06, 2.4801508527973896e-05,
        0.00019841269466729688, 0.0013888888926907254, 0.008333333333500082, 0.041666666666603715,
        0.16666666666666433)  # fmt: skip
_EXP_LEAST, _EXP_MOST = -746.0, 710.0  # beyond, the result is 0 or infinity, as it is there


def exp(x: Scalar) -> Scalar:
    """``e**x``: 2**n times ``e**r``; rounded once where it is subnormal, 0 below, infinity above, NaN for NaN.

    2**n is two factors, the first of which leaves a normal number.
    """
    shifted, rest = _reduced(minimum(maximum(x, _EXP_LEAST), _EXP_MOST))
    n = bitcast(shifted, I64)
    half = binary("lshr", n, 1)
    return (rest + 1.0) * _power_of_two(half) * _power_of_two(n - half)


def expm1_of_negative(x: Scalar) -> Scalar:
    """``e**x - 1`` for ``x <= 0`` without cancellation; NaN for NaN, nonsense above 0.

    With ``x = n log 2 + r`` it is ``2**n (e**r - 1) + (2**n - 1)``, and the last difference is exact or near -1.
    """
    shifted, rest = _reduced(maximum(x, -50.0))
    factor = _power_of_two(bitcast(shifted, I64))
    return fma(factor, rest, factor - 1.0)


def exp_of_sum(x: Scalar, rest: Scalar) -> Scalar:
    """``e**(x + rest)`` as ``exp``, for a rest that is small beside an ulp of 1."""
    shifted, near = _reduced(minimum(maximum(x, _EXP_LEAST), _EXP_MOST), rest)
    n = bitcast(shifted, I64)
    half = binary("lshr", n, 1)
    return (near + 1.0) * _power_of_two(half) * _power_of_two(n - half)


def half_exp(x: Scalar) -> Scalar:
    """``e**x / 2`` for ``x >= 0``, without overflow up to where it is infinite itself; NaN for NaN."""
    shifted, rest = _reduced(minimum(x, _EXP_MOST + 2.0))
    n = bitcast(shifted, I64) - 1
    half = binary("lshr", n, 1)
    return (rest + 1.0) * _power_of_two(half) * _power_of_two(n - half)


def _moderate_exp(x: Scalar) -> Scalar:
    """``e**x`` for ``-700 <= x <= 700``, and NaN for NaN."""
    shifted, rest = _reduced(x)
    return (rest + 1.0) * _power_of_two(bitcast(shifted, I64))


def _reduced(x: Scalar, rest: Scalar | None = None) -> tuple[Scalar, Scalar]:
    """Return ``n + _ROUNDER`` and ``e**(x + rest - n log 2) - 1``, where ``n`` is ``x / log 2`` rounded."""
    shifted = fma(x, math.log2(math.e), _ROUNDER)
    n = shifted - _ROUNDER
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, x))
    r = r if rest is None else r + rest
    return shifted, fma(fma(polynomial(r, _EXP), r, 0.5), r * r, r)


def _power_of_two(exponent: Scalar) -> Scalar:
    """Return 2**n, for n the lowest 11 bits of an integer and their sign; what is above is shifted out."""
    return bitcast(binary("shl", exponent, _FRACTION_BITS) + _ONE_BITS, F64)


# (log((1 + s) / (1 - s)) - 2 s) / s**3 of s**2, for s up to (sqrt(2) - 1) / (sqrt(2) + 1), with the weight s**2: 2**-59
_LOG = (0.147975089087028, 0.15313903282161453, 0.1818356973104695, 0.22222198476334562, 0.2857142874325688,
        0.39999999999411134, 0.6666666666666735)  # fmt: skip
_SUBNORMAL_SHIFT = 54
_EXPONENT_BITS = 0x4330000000000000  # of 2**52: with a small integer in its lowest bits it is their sum


def log(x: Scalar) -> Scalar:
    """Natural logarithm; -infinity at 0, NaN below 0."""
    mantissa, exponent = mantissa_and_exponent(x)
    result = _log_of(mantissa - 1.0, exponent)
    result = select(binary("lt", x, math.inf), result, x)  # NaN stays NaN
    result = select(binary("eq", x, 0.0), -math.inf, result)
    return select(binary("lt", x, 0.0), math.nan, result)


def mantissa_and_exponent(x: Scalar) -> tuple[Scalar, Scalar]:
    """Return m and n with ``x = m 2**n`` and m from ``sqrt(1/2)`` to ``sqrt(2)``, of a positive finite number."""
    is_tiny = binary("lt", x, 2.0**-1022)
    bits = bitcast(select(is_tiny, x * 2.0**_SUBNORMAL_SHIFT, x), I64)
    moved = bits + (_ONE_BITS - _SQRT_HALF_BITS)  # the exponent is that of x / sqrt(1/2), so that m is near 1
    mantissa = bitcast(binary("and", moved, (1 << _FRACTION_BITS) - 1) + _SQRT_HALF_BITS, F64)
    exponent = bitcast(binary("or", binary("lshr", moved, _FRACTION_BITS), _EXPONENT_BITS), F64)
    bias = 2.0**52 + 1023
    return mantissa, exponent - select(is_tiny, bias + _SUBNORMAL_SHIFT, lift(bias, F64))


def log1p_of_fraction(x: Scalar) -> Scalar:
    """``log(1 + x)`` for x from 0 to 1, where adding 1 would lose its digits; NaN for NaN."""
    is_above = binary("gt", x, math.sqrt(2) - 1)
    return _log_of(select(is_above, (x - 1.0) * 0.5, x), select(is_above, 1.0, lift(0.0, F64)))


def _log_of(f: Scalar, exponent: Scalar) -> Scalar:
    """Return ``exponent log(2) + log(1 + f)`` for f from ``sqrt(1/2) - 1`` to ``sqrt(2) - 1``.

    With ``s = f / (2 + f)`` and ``log((1 + s) / (1 - s)) = 2 s + s R``, and as ``2 s = f - s f``, the logarithm is
    ``f - (f**2 / 2 - s (f**2 / 2 + R))``: f is exact, and all that is rounded is small beside it.
    """
    s = f / (f + 2.0)
    z, half = s * s, f * f * 0.5
    small = fma(s, fma(z, polynomial(z, _LOG), half), exponent * _LN2_LOW)
    return fma(exponent, _LN2_HIGH, f - (half - small))


def sigmoid(x: Scalar) -> Scalar:
    """``1 / (1 + e**-x)``, of ``w = e**-|x|``, which does not overflow: ``w / (1 + w)`` below 0."""
    w = exp(-unary("abs", x))
    return select(binary("lt", x, 0.0), w, 1.0) / (w + 1.0)


def _fraction_of_tanh(terms: int) -> tuple[list[float], list[float]]:
    """Return N and D, highest power first, with ``tanh x = x - x z N(z) / D(z)`` nearly, where ``z = x**2``.

    It is J. H. Lambert's continued fraction ``x / (1 + z / (3 + z / (5 + ...)))`` of so many terms; all coefficients
    are whole numbers.
    """
    above, below = [2 * terms - 1], [1]  # lowest power first
    for odd in range(2 * terms - 3, 0, -2):
        shifted = [0, *below, *[0] * (len(above) - len(below) - 1)]
        widened = [*above, *[0] * (len(shifted) - len(above))]
        above, below = [odd * a + b for a, b in zip(widened, shifted, strict=True)], above
    difference = [a - b for a, b in zip(above, [*below, *[0] * (len(above) - len(below))], strict=True)]
    return [float(c) for c in reversed(difference[1:])], [float(c) for c in reversed(above)]


_TANH_ABOVE, _TANH_BELOW = _fraction_of_tanh(8)
_TANH_SMALL = 0.625  # up to here eight terms are right within 2**-57
_TANH_ENDS = 22.0  # 1 - tanh(22) is 2**-62


def tanh(x: Scalar) -> Scalar:
    """Hyperbolic tangent: a fraction of polynomials below 0.625, ``1 - 2 / (e**2|x| + 1)`` above: one division."""
    a, z = unary("abs", x), x * x
    is_small = binary("lt", a, _TANH_SMALL)
    bounded = minimum(a, _TANH_ENDS)
    above = select(is_small, a * z * polynomial(z, _TANH_ABOVE), 2.0)
    below = select(is_small, polynomial(z, _TANH_BELOW), _moderate_exp(bounded + bounded) + 1.0)
    return with_sign(select(is_small, a, 1.0) - above / below, x)


def with_sign(size: Scalar, x: Scalar) -> Scalar:
    """Return a value that is not negative with the sign of another one."""
    return bitcast(binary("or", bitcast(size, I64), binary("and", bitcast(x, I64), _SIGN)), F64)


# erf(x) / x - 1 of x**2 on [0, 1], errors beside erf(x) / x: 2**-62
_ERF_SMALL = (5.945280432038e-11, -1.1365677755618263e-09, 1.4657883087466361e-08, -1.635002573354726e-07,
              1.6460972867792408e-06, -1.4925593510203918e-05, 0.00012055331037042933, -0.000854832697874625,
              0.005223977624780938, -0.026866170645072903, 0.11283791670954857, -0.3761263890318375,
              0.1283791670955126)  # fmt: skip
# -log(erfc(t + 1.5)) for t from -0.5 to 4.5, with the weight erfc**(1/4): 2**-59
_ERF_LARGE = (-2.932455214054423e-19, 2.0967539155949028e-17, -6.561953499955513e-16, 1.2327195199177357e-14,
              -1.5855953000140052e-13, 1.5001952232126379e-12, -1.0904425648334709e-11, 6.246052706710535e-11,
              -2.8407948508866357e-10, 1.001681935030973e-09, -2.4182421675257085e-09, 1.0784796675419523e-09,
              2.789232112413844e-08, -1.9261651271111596e-07, 8.187548497790248e-07, -2.370831525407418e-06,
              2.646835160479956e-06, 2.2473686869152945e-05, -0.0002159633048398388, 0.0012572166868925398,
              -0.006006746386461234, 0.025824140633643324, 0.8926403306150373, 3.5088008017795276,
              3.3844920895515527)  # fmt: skip
_ERF_CENTER, _ERF_ENDS = 1.5, 6.0  # 1 - erf(6) is 2**-55


def erf(x: Scalar) -> Scalar:
    """Error function: ``x + x p(x**2)`` below 1, ``1 - e**-q(|x|)`` up to 6, 1 beyond."""
    a = unary("abs", x)
    return with_sign(select(binary("lt", a, 1.0), _small_erf(a), 1.0 - _large_erfc(a)), x)


def erfc_of_positive(x: Scalar) -> Scalar:
    """``1 - erf(x)`` for ``x >= 0`` without cancellation, 0 beyond 6, where it is below 2.2e-17; NaN for NaN."""
    found = select(binary("lt", x, 1.0), 1.0 - _small_erf(x), _large_erfc(x))
    return select(binary("gt", x, _ERF_ENDS), 0.0, found)


def _small_erf(x: Scalar) -> Scalar:
    return fma(x, polynomial(x * x, _ERF_SMALL), x)


def _large_erfc(x: Scalar) -> Scalar:
    return _moderate_exp(-polynomial(minimum(x, _ERF_ENDS) - _ERF_CENTER, _ERF_LARGE))
