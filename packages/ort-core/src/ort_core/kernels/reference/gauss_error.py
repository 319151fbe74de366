"""erf over arrays: two Chebyshev series whose coefficients are fitted to ``math.erf`` when first needed."""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.polynomial.chebyshev import Chebyshev

# Below the split, erf(x)/x is a short series in x*x; above it, erfc(x)*exp(x*x) is one in 1/x.
# At 6, erf is 1.0 in float64.
_SPLIT = 2.0
_ONE = 6.0


@functools.cache
def _series() -> tuple[Chebyshev, Chebyshev]:
    def near(squares: np.ndarray) -> np.ndarray:
        roots = np.sqrt(squares)
        return np.array([math.erf(r) / r if r > 0 else 2 / math.sqrt(math.pi) for r in roots])

    def far(inverse: np.ndarray) -> np.ndarray:
        return np.array([math.erfc(1 / t) * math.exp(1 / (t * t)) for t in inverse])

    return (
        Chebyshev.interpolate(near, 24, domain=[0.0, _SPLIT * _SPLIT]),
        Chebyshev.interpolate(far, 24, domain=[1 / _ONE, 1 / _SPLIT]),
    )


def erf(array: np.ndarray) -> np.ndarray:
    """Return the Gauss error function elementwise: float64 inside, the result in the dtype of ``array``."""
    near, far = _series()
    magnitude = np.abs(array).astype(np.float64)
    clipped = np.clip(magnitude, _SPLIT, _ONE)
    tail = np.where(magnitude >= _ONE, 1.0, 1.0 - far(1 / clipped) * np.exp(-clipped * clipped))
    small = np.minimum(magnitude, _SPLIT)
    result = np.where(magnitude < _SPLIT, small * near(small * small), tail)
    result = np.where(np.isnan(magnitude), np.nan, result)
    return np.copysign(result, array).astype(array.dtype)
