"""Elementary functions of float32 as polynomials over primitives, each with its greatest error in ulp.

Those that float64 has, too, hand it on to ``float64_functions``: what is made of them is of either type.
The errors are measured over the whole float32 range in strides by ``tests/loops/test_polynomials.py``. The
coefficients of ``log`` and of ``e**x - 1`` are the minimax ones published with the Cephes library (S. L. Moshier,
1989); the others are fits made for this project.
"""

from __future__ import annotations

from ort_core.ir.types import DataType
from ort_core.loops import float64_functions
from ort_core.loops.scalar import (
    Scalar,
    binary,
    bitcast,
    cast,
    fma,
    maximum,
    minimum,
    polynomial,
    select,
    unary,
)

F32, F64, I32 = DataType.FLOAT, DataType.DOUBLE, DataType.INT32
MAX_ULP = {
    "exp": 2.0, "exp_of_negative": 2.0, "exp2_of_negative": 2.5, "expm1_of_negative": 2.5, "log": 2.0,
    "log1p_of_fraction": 4.0, "tanh": 2.0, "sigmoid": 4.0, "erf": 1.5,
}  # fmt: skip
"""The stated maximum errors, in ulp of the result; results below the least normal number may be flushed."""

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4  # high part exact in 9 bits, so that n * high is exact
_EXP = (0.0013814540579915047, 0.00836874544620514, 0.04166838899254799, 0.1666652113199234, 0.4999999403953552, 1.0,
        1.0)  # fmt: skip
_EXPM1 = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_EXP_OVERFLOW, _EXP_UNDERFLOW = 88.72283935546875, -87.33654022216797  # the last floats with a finite, normal result
_EXP_VANISHES = -88.0  # -127 log 2, nearly
_ROUNDER = 1.5 * 2.0**23  # added to a number of at most 22 bits, leaves its integer in the lowest bits
_ROUND_AND_BIAS = _ROUNDER + 127.0  # leaves the integer and 127, a float's exponent field, in the lowest bits


class UnsupportedTypeError(ValueError):
    """A function is asked for a type that it has no form for: an operator without one of its own runs on numpy then."""


def _require_float32(name: str, x: Scalar) -> None:
    if x.dtype is not F32:
        raise UnsupportedTypeError(f"{name} is of float, not of {x.dtype.text}; cast(x, DataType.FLOAT) makes it one")


def exp(x: Scalar) -> Scalar:
    """``e**x``: 2**n times a polynomial in the remainder; 0 below -87.34, infinity above 88.72, NaN for NaN.

    n is rounded by an addition and put into the exponent by a shift of the sum's bits: what is above n is shifted out.
    Arguments out of range give nonsense up to the end, where it is replaced.
    """
    if x.dtype is F64:
        return float64_functions.exp(x)
    _require_float32("exp", x)
    shifted, r = _turned(x)
    y = polynomial(r, _EXP)
    scaled = bitcast(binary("add", bitcast(y, I32), binary("shl", bitcast(shifted, I32), 23)), F32)
    scaled = select(binary("le", x, _EXP_OVERFLOW), scaled, x + float("inf"))  # NaN stays NaN
    return select(binary("lt", x, _EXP_UNDERFLOW), 0.0, scaled)


def exp_of_negative(x: Scalar) -> Scalar:
    """``e**x`` for ``x <= 0``, in fewer instructions than ``exp``: 0 below -87.69; NaN for NaN.

    The factor ``2**n`` is 0 where n is -127, as it is at the limit that x is raised to.
    """
    if x.dtype is F64:
        return float64_functions.exp(x)
    _require_float32("exp_of_negative", x)
    shifted, r = _turned(maximum(x, _EXP_VANISHES), _ROUND_AND_BIAS)
    return polynomial(r, _EXP) * bitcast(binary("shl", bitcast(shifted, I32), 23), F32)


def expm1_of_negative(x: Scalar) -> Scalar:
    """``e**x - 1`` for ``x <= 0`` without cancellation, what ELU needs; NaN for NaN, nonsense above 0.

    With ``x = n log 2 + r`` it is ``2**n (e**r - 1) + (2**n - 1)``, and the last difference is exact.
    """
    if x.dtype is F64:
        return float64_functions.expm1_of_negative(x)
    _require_float32("expm1_of_negative", x)
    return _scaled_less_one(*_reduced(select(binary("lt", x, -80.0), -80.0, x)))


def _scaled_less_one(shifted: Scalar, rest: Scalar) -> Scalar:
    """Return ``2**n (rest + 1) - 1`` for what ``_reduced`` gives, of ``n`` from -126 to 0."""
    factor = bitcast(binary("add", binary("shl", bitcast(shifted, I32), 23), 0x3F800000), F32)
    return fma(factor, rest, factor - 1.0)


def _reduced(x: Scalar, low: Scalar | None = None) -> tuple[Scalar, Scalar]:
    """Return ``n + _ROUNDER`` and ``e**(x + low - n log 2) - 1``, where ``n`` is ``x / log 2`` rounded.

    ``low`` is what is below the last bit of ``x``.
    """
    shifted, r = _turned(x)
    p = polynomial(r, _EXPM1)
    return shifted, fma(p, r * r, r) if low is None else fma(p, r * r, low) + r


def _turned(x: Scalar, rounder: float = _ROUNDER) -> tuple[Scalar, Scalar]:
    """Return ``n + rounder`` and ``x - n log 2``."""
    shifted = fma(x, _LOG2_E, rounder)
    n = shifted - rounder
    return shifted, fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, x))


_EXP2 = (1.3264728e-3, 9.671513e-3, 5.5507336e-2, 2.4022242e-1, 6.931470e-1)  # minimax on [-1/2, 1/2] with 2**0 = 1


def exp2_of_negative(x: Scalar) -> Scalar:
    """``2**x`` for ``x <= 0``, what a softmax needs, in a third of the instructions of ``exp``; NaN for NaN.

    Below -126.5 it is 0: no conversion to integers, and one factor ``2**n``.
    """
    _require_float32("exp2_of_negative", x)
    return exp2_above_underflow(select(binary("lt", x, -127.0), -127.0, x))


def exp2_above_underflow(x: Scalar) -> Scalar:
    """``2**x`` for ``-127.5 < x <= 0``, 0 below -126.5; nonsense further below, which the caller excludes."""
    shifted = x + _ROUND_AND_BIAS
    r = x - (shifted - _ROUND_AND_BIAS)
    p: Scalar = fma(r, _EXP2[0], _EXP2[1])
    for coefficient in (*_EXP2[2:], 1.0):
        p = fma(p, r, coefficient)
    return p * bitcast(binary("shl", bitcast(shifted, I32), 23), F32)


_LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
        2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip


def log(x: Scalar) -> Scalar:
    """Natural logarithm; -infinity at 0, NaN below 0."""
    if x.dtype is F64:
        return float64_functions.log(x)
    _require_float32("log", x)
    tiny = binary("lt", x, 1.17549435e-38)
    scaled = select(tiny, x * 8388608.0, x)
    bits = bitcast(scaled, I32)
    # Mantissa in [sqrt(1/2), sqrt(2)): the exponent is that of x / sqrt(1/2).
    exponent = binary("ashr", binary("sub", bits, 0x3F3504F3), 23)
    mantissa = bitcast(binary("sub", bits, binary("shl", exponent, 23)), F32)
    f = mantissa - 1.0
    e = cast(exponent, F32) - select(tiny, 23.0, 0.0)
    z = f * f
    p = fma(f, _LOG[0], _LOG[1])
    for coefficient in _LOG[2:]:
        p = fma(p, f, coefficient)
    y = p * f * z
    y = fma(e, _LN2_LOW, y)
    y = fma(z, -0.5, y)
    result = fma(e, _LN2_HIGH, f + y)
    result = select(binary("eq", x, float("inf")), x, result)
    result = select(binary("eq", x, 0.0), float("-inf"), result)
    bad = binary("lt", x, 0.0)
    return select(bad, float("nan"), select(unary("is_nan", x), x, result))


def log1p_of_fraction(x: Scalar) -> Scalar:
    """``log(1 + x)`` for x from 0 to 1, where adding 1 would lose its digits; NaN for NaN.

    What the addition loses is made up for by ``x / ((1 + x) - 1)`` (W. Kahan, as HP-15C's handbook has it).
    """
    if x.dtype is F64:
        return float64_functions.log1p_of_fraction(x)
    _require_float32("log1p_of_fraction", x)
    whole = x + 1.0
    return select(binary("eq", whole, 1.0), x, log(whole) * (x / (whole - 1.0)))


def sigmoid(x: Scalar) -> Scalar:
    """``1 / (1 + e**-x)``."""
    if x.dtype is F64:
        return float64_functions.sigmoid(x)
    _require_float32("sigmoid", x)
    return 1.0 / (exp(-x) + 1.0)


# 3/4 (e**(2 r) - 1 - 2 r) / r**2 for |r| up to log(2) / 4; minimax, errors weighed by what they change of e**(2 r) - 1.
_TANH = (0.06671151146292686, 0.20078560709953308, 0.5000022500753403, 0.9999928772449493, 1.5)
_TANH_ENDS = 9.1  # 1 - tanh(9.1) is 2**-25


def tanh(x: Scalar) -> Scalar:
    """Hyperbolic tangent: ``t / (t + 3/2)`` of ``t = 3/4 (e**(2 |x|) - 1)``.

    Of an error of t, ``2 / (e**(2 |x|) + 1)`` comes through: so ``r = |x| - n log(2) / 2`` needs to be exact for n = 0
    only. With 3/4 the sum below is rounded less where a result is just below a power of two.
    """
    if x.dtype is F64:
        return float64_functions.tanh(x)
    _require_float32("tanh", x)
    size = minimum(unary("abs", x), _TANH_ENDS)
    shifted = fma(size, 2.0 * _LOG2_E, _ROUNDER)
    r = fma(shifted - _ROUNDER, -0.5 / _LOG2_E, size)
    rest = fma(r, 1.5, polynomial(r, _TANH) * (r * r))
    factor = bitcast(binary("add", binary("shl", bitcast(shifted, I32), 23), 0x3F800000), F32)
    t = fma(factor, rest, fma(factor, 0.75, -0.75))
    quotient = t / (t + 1.5)
    sign = binary("and", bitcast(x, I32), -(1 << 31))
    return bitcast(binary("or", bitcast(quotient, I32), sign), F32)


def with_sign_of(x: Scalar, size: Scalar) -> Scalar:
    """Return a value of float32 with the sign of another one, that of zero and of NaN included."""
    sign = binary("and", bitcast(x, I32), -(1 << 31))
    return bitcast(binary("or", bitcast(unary("abs", size), I32), sign), F32)


# -log(erfc(x)) / x - 1 on [0, 3.92]: the minimax polynomial, errors weighed by what they change of erf.
_ERF = (-9.256319585830855e-06, 0.00011764175518895841, -0.000632838576954184, 0.0016670306144750818,
        -0.0001603992476929886, -0.019153062147934184, 0.10277783001607645, 0.636619382025061,
        0.1283791716094234)  # fmt: skip
_ERF_ENDS = 3.9192059  # it is 1 from here on


def erf(x: Scalar) -> Scalar:
    """Error function: ``1 - e**-q`` as a power less 1, so that nothing cancels near 0; 1 from 3.92 on.

    ``q`` is a sum of two numbers; what its rounding loses is given to the power, too.
    """
    if x.dtype is F64:
        return float64_functions.erf(x)
    _require_float32("erf", x)
    a = minimum(unary("abs", x), _ERF_ENDS)
    rest = polynomial(a, _ERF) * a
    q = a + rest
    shifted, power = _reduced(-q, (q - a) - rest)
    return with_sign_of(x, _scaled_less_one(shifted, power))
