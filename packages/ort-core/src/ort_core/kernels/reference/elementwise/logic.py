"""Comparison, boolean and bitwise operators of two inputs, and Where."""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelFunction, kernel
from ort_core.kernels.reference.arrays.broadcasting import align, check_broadcast
from ort_core.kernels.reference.arrays.widening import widen
from ort_core.kernels.reference.elementwise.arithmetic import BinaryFunction


def _predicate(op_type: str, function: BinaryFunction, since: int = 1) -> KernelFunction:
    @kernel(op_type, since=since)
    @np.errstate(all="ignore")
    def run(a: np.ndarray, b: np.ndarray, *, axis: int | None = None, broadcast: int = 0) -> np.ndarray:
        b = align(a, b, axis if broadcast else None)
        check_broadcast(op_type, a, b)
        # strings compare to an object array: asarray makes the booleans a bool array again
        return np.asarray(function(widen(a), widen(b)), dtype=np.bool_)

    return run


def _bitwise(op_type: str, function: BinaryFunction) -> KernelFunction:
    @kernel(op_type, since=18)
    @np.errstate(all="ignore")
    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        check_broadcast(op_type, a, b)
        return np.asarray(function(a, b))

    return run


equal = _predicate("Equal", np.equal)
less = _predicate("Less", np.less)
greater = _predicate("Greater", np.greater)
less_or_equal = _predicate("LessOrEqual", np.less_equal, since=12)
greater_or_equal = _predicate("GreaterOrEqual", np.greater_equal, since=12)
logical_and = _predicate("And", np.logical_and)
logical_or = _predicate("Or", np.logical_or)
logical_xor = _predicate("Xor", np.logical_xor)
bitwise_and = _bitwise("BitwiseAnd", np.bitwise_and)
bitwise_or = _bitwise("BitwiseOr", np.bitwise_or)
bitwise_xor = _bitwise("BitwiseXor", np.bitwise_xor)


@kernel("Where", since=9)
@np.errstate(all="ignore")
def where(condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the elements of ``x`` where ``condition`` holds, else those of ``y``."""
    check_broadcast("Where", condition, x, y)
    if x.dtype != y.dtype:
        raise InvalidArgument(f"Where: inputs X ({x.dtype}) and Y ({y.dtype}) must have one element type")
    return np.where(condition, x, y)
