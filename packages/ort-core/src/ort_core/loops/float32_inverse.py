"""Inverse circular functions of float32 in its own arithmetic: an odd polynomial, and what is lost on the way to it.

Polynomials are minimax fits made for this project. Where an angle is a constant less a term that was rounded, what the
rounding lost is added in the end: the errors, in ``MAX_ULP``, are those of the last two operations.
"""

from __future__ import annotations

import math

import numpy as np

from ort_core.ir.types import DataType
from ort_core.loops.polynomials import with_sign_of
from ort_core.loops.scalar import Scalar, binary, fma, lift, polynomial, select, unary

F32 = DataType.FLOAT
MAX_ULP = {"asin": 1.5, "acos": 1.5, "atan": 1.5}
"""The stated maximum errors over all of float32, in ulp of the result: ``tests/loops/test_float32_inverse.py``."""

_HALF_PI = float(np.float32(math.pi / 2))
_HALF_PI_LOW = math.pi / 2 - _HALF_PI
# (atan(t) / t - 1) / t**2 of t**2 on [0, 1], (asin(t) / t - 1) / t**2 of t**2 on [0, 1/4]
_ARCTANGENT = (-0.0017988551030638435, 0.01093896147252015, -0.031225330479208686, 0.05800785455016656,
               -0.08406577228188096, 0.10953340597431487, -0.14264484195714225, 0.19998574015878864,
               -0.33333300098326935)  # fmt: skip
_ARCSINE = (0.03748227868368582, 0.014467501795784689, 0.03179840376707995, 0.04451836567952733, 0.07500494365964155,
            0.16666660233727856)  # fmt: skip


def atan(x: Scalar) -> Scalar:
    """Arc tangent: a polynomial up to 1; above, pi / 2 less that of ``1 / x``."""
    size = unary("abs", x)
    is_steep = binary("gt", size, 1.0)
    slope = select(is_steep, -1.0 / size, size)
    z = slope * slope
    angle = fma(polynomial(z, _ARCTANGENT) * z, slope, slope)
    return with_sign_of(x, select(is_steep, (angle + _HALF_PI_LOW) + _HALF_PI, angle))


def asin(x: Scalar) -> Scalar:
    """Arc sine; NaN beyond 1. Up to 1/2 it is a polynomial, above the half angle leads back to it."""
    size = unary("abs", x)
    is_near = binary("le", size, 0.5)
    z, root = _square_and_root(size, is_near)
    base = select(is_near, lift(0.0, F32), _HALF_PI)
    return with_sign_of(x, _less_arc_sine(base, select(is_near, -size, root + root), z))


def acos(x: Scalar) -> Scalar:
    """Arc cosine; NaN beyond 1."""
    size = unary("abs", x)
    is_near, is_below = binary("le", size, 0.5), binary("lt", x, 0.0)
    z, root = _square_and_root(size, is_near)
    twice = root + root
    base = select(is_near, _HALF_PI, select(is_below, lift(2 * _HALF_PI, F32), 0.0))
    return _less_arc_sine(base, select(is_near, x, select(is_below, twice, -twice)), z)


def _square_and_root(size: Scalar, is_near: Scalar) -> tuple[Scalar, Scalar]:
    """Return the square of what the polynomial is taken of, and the root that it is where the argument is not near."""
    half = fma(size, -0.5, 0.5)  # exact above 1/2
    return select(is_near, size * size, half), unary("sqrt", half)


def _less_arc_sine(base: Scalar, term: Scalar, z: Scalar) -> Scalar:
    """Return ``base - term (1 + z P(z))`` for a multiple of ``pi / 2`` that is 0 or larger than the term."""
    head = base - term
    lost = (base - head) - term
    rest = fma(base, _HALF_PI_LOW / _HALF_PI, lost)
    return head + fma(polynomial(z, _ARCSINE) * z, -term, rest)
