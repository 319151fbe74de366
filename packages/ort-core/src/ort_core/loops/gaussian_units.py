"""Gaussian error linear units: ``x Phi(x)`` exactly, and its form with a hyperbolic tangent.

Both are ``max(x, 0) - |x| w(|x|)`` with a weight that falls from 1/2 to 0: ``Phi(-a)``, or ``s(-2 u(a))`` with the
logistic function s. The weight comes from a power of two, so there is no case for small and for negative
arguments, and nothing cancels: below -1 the usual ``x / 2 (1 + erf(x / sqrt 2))`` loses bit after bit, all at -5.5.

At minus infinity both are not a number, as their definitions are: an infinity times zero. So ``|x|`` is cut above zero
only before it multiplies the weight.

Far below zero the weight's relative error is that of its exponent, which float32 holds to 2**-18 at most. The bounds
are in ``MAX_ULP``; ``tests/loops/test_gaussian_units.py`` holds them over all of float32 in strides. Of float64 the
weight is half of ``erfc``, which ends at -8.48, or the logistic function itself.
"""

from __future__ import annotations

import math

from ort_core.ir.types import DataType
from ort_core.loops import float64_functions
from ort_core.loops.polynomials import exp2_above_underflow
from ort_core.loops.scalar import Scalar, fma, maximum, minimum, unary

MAX_ULP = {
    "gelu": ((-1.0, 10.0), (-4.0, 64.0), (-8.0, 512.0), (-math.inf, 2.0**15)),
    "gelu_tanh": ((-1.0, 10.0), (-4.0, 64.0), (-math.inf, 512.0)),
}
"""Above which argument which greatest error holds, in ulp of the result: the first row that fits counts. At 2**15 ulp
(2**14 where products and sums are fused) the results are below 1e-14; results below 2**-122 may be 0."""

# log2(Phi(-a)) on [0, 13]: the minimax polynomial, errors weighed with log2(Phi(-a))**-1.25, exact at 0.
_LOG2_PHI = (1.4488263019862835e-12, -1.194720156139084e-10, 4.3647601088991905e-09, -9.299587588884606e-08,
             1.2773845128322137e-06, -1.1734256077033933e-05, 7.089489372447133e-05, -0.00024042389122769237,
             -0.00010838971502380446, 0.007100708317011595, -0.05255254730582237, -0.45918476581573486,
             -1.151107907295227, -1.0)  # fmt: skip
_PHI_ENDS = 13.003  # here the weight is 2**-127 and becomes 0, as at ``_TANH_ENDS``
_TANH_ENDS = 10.031
_TANH_LINEAR = -2 * math.log2(math.e) * math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715 * _TANH_LINEAR


def gelu(x: Scalar) -> Scalar:
    """``x Phi(x)``, Phi the normal distribution; NaN at minus infinity, an infinity times 0, and for NaN."""
    factor = unary("abs", minimum(x, _PHI_ENDS))
    if x.dtype is DataType.DOUBLE:
        weight = float64_functions.erfc_of_positive(factor * math.sqrt(0.5)) * 0.5
        return fma(-factor, weight, maximum(x, 0.0))
    a = minimum(factor, _PHI_ENDS)
    p: Scalar = fma(a, _LOG2_PHI[0], _LOG2_PHI[1])
    for coefficient in _LOG2_PHI[2:]:
        p = fma(p, a, coefficient)
    return fma(-factor, exp2_above_underflow(p), maximum(x, 0.0))


def gelu_tanh(x: Scalar) -> Scalar:
    """``x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x**3)))``; NaN at minus infinity and for NaN."""
    if x.dtype is DataType.DOUBLE:
        return x * float64_functions.sigmoid(x * fma(x * x, _TANH_CUBIC, _TANH_LINEAR) * -math.log(2.0))
    factor = unary("abs", minimum(x, _TANH_ENDS))
    a = minimum(factor, _TANH_ENDS)
    power = exp2_above_underflow(a * fma(a * a, _TANH_CUBIC, _TANH_LINEAR))
    return maximum(x, 0.0) - (factor * power) / (power + 1.0)
