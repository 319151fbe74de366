"""The loop language for plugin authors (provisional): scalar expressions, meanings of operators, polynomials."""

from __future__ import annotations

from ort_core.loops.meanings import MEANINGS, meaning_of
from ort_core.loops.polynomials import MAX_ULP, erf, exp, exp2_of_negative, log, sigmoid, tanh
from ort_core.loops.scalar import (
    COMPARISONS,
    Scalar,
    binary,
    bitcast,
    cast,
    element,
    fma,
    lift,
    maximum,
    minimum,
    operations,
    row_value,
    select,
    substitute,
    unary,
)

__all__ = [
    "COMPARISONS",
    "MAX_ULP",
    "MEANINGS",
    "Scalar",
    "binary",
    "bitcast",
    "cast",
    "element",
    "erf",
    "exp",
    "exp2_of_negative",
    "fma",
    "lift",
    "log",
    "maximum",
    "meaning_of",
    "minimum",
    "operations",
    "row_value",
    "select",
    "sigmoid",
    "substitute",
    "tanh",
    "unary",
]
