"""The loop language for plugin authors (provisional): scalar expressions, meanings of operators, polynomials."""

from __future__ import annotations

from ort_core.loops.cuda_printer import (
    PREAMBLE,
    THREADS_PER_BLOCK,
    InputLayout,
    PrintedExpression,
    PrintedKernel,
    print_elementwise_kernel,
    print_expression,
)
from ort_core.loops.meanings import MEANINGS, SUPPORTED, ElementMeaning, meaning_of
from ort_core.loops.numpy_evaluation import evaluate
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
    structure,
    substitute,
    unary,
)

__all__ = [
    "COMPARISONS",
    "MAX_ULP",
    "MEANINGS",
    "SUPPORTED",
    "PREAMBLE",
    "THREADS_PER_BLOCK",
    "ElementMeaning",
    "InputLayout",
    "PrintedExpression",
    "PrintedKernel",
    "Scalar",
    "binary",
    "bitcast",
    "cast",
    "element",
    "erf",
    "evaluate",
    "exp",
    "exp2_of_negative",
    "fma",
    "lift",
    "log",
    "maximum",
    "meaning_of",
    "minimum",
    "operations",
    "print_elementwise_kernel",
    "print_expression",
    "row_value",
    "select",
    "sigmoid",
    "structure",
    "substitute",
    "tanh",
    "unary",
]
