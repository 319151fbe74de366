"""Evaluates scalar expressions over numpy arrays: what they mean, without a compiler; the printers' oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ort_core.ir.types import DataType
from ort_core.loops.rows import is_of_row, neutral_value
from ort_core.loops.scalar import ROW_REDUCTIONS, Scalar
from ort_core.tensors.broadcasting import broadcast_shapes

_UNSIGNED = {4: np.uint32, 8: np.uint64, 2: np.uint16, 1: np.uint8}
_BINARY: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum, "rem": np.fmod,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "shl": np.left_shift, "ashr": np.right_shift,
}  # fmt: skip
_UNARY: dict[str, Callable[..., np.ndarray]] = {
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "rint": np.rint,
    "trunc": np.trunc, "not": np.invert, "is_nan": np.isnan,
}  # fmt: skip

_EXTREMES = {"row_max": np.maximum, "row_min": np.minimum, "row_peak": np.fmax}


def evaluate(root: Scalar, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """Return the elements of an expression over inputs that broadcast with each other.

    Args:
        root: an expression without ``row`` values.
        inputs: the array of each ``input`` index, of the expression's element types.

    Raises:
        ValueError: the expression reads a value of a row.
    """
    with np.errstate(all="ignore"):
        result = _Evaluation(inputs).value(root)
    shape = broadcast_shapes(result.shape, *(array.shape for array in inputs))
    return np.array(np.broadcast_to(result, shape), dtype=root.dtype.numpy)


def evaluate_rows(roots: Sequence[Scalar], inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Return the elements of row formulas over inputs that broadcast with each other.

    Args:
        roots: one formula for each result; those of a row have a last axis of size 1. Sums are of float64.
        inputs: the array of each ``input`` index; one of them has an axis.

    Raises:
        ValueError: there is no axis.
    """
    shape = broadcast_shapes(*(array.shape for array in inputs))
    if not shape:
        raise ValueError("a row formula needs an input with at least one axis: its rows are those of the last one")
    evaluation, results = _Evaluation(inputs, shape[-1]), []
    with np.errstate(all="ignore"):
        for root in roots:
            own = (*shape[:-1], 1) if is_of_row(root) else shape
            results.append(np.array(np.broadcast_to(evaluation.value(root), own), dtype=root.dtype.numpy))
    return tuple(results)


class _Evaluation:
    """One walk; shared subexpressions are computed once."""

    def __init__(self, inputs: Sequence[np.ndarray], row_length: int | None = None) -> None:
        self._inputs = inputs
        self._row_length = row_length
        self._done: dict[int, np.ndarray] = {}

    def value(self, node: Scalar) -> np.ndarray:
        found = self._done.get(id(node))
        if found is None:
            arguments = [self.value(argument) for argument in node.arguments]
            found = self._done[id(node)] = np.asarray(self._apply(node, arguments), dtype=node.dtype.numpy)
        return found

    def _apply(self, node: Scalar, arguments: list[np.ndarray]) -> np.ndarray:
        operation = node.operation
        if operation == "input":
            return self._inputs[node.index]
        if operation == "constant":
            return np.asarray(node.value, node.dtype.numpy)
        if operation == "select":
            return np.where(*arguments)
        if operation == "fma":
            return _fused_multiply_add(*arguments)
        if operation == "cast":
            return _cast(arguments[0], node.dtype.numpy)
        if operation == "bitcast":
            return np.ascontiguousarray(arguments[0]).view(node.dtype.numpy).reshape(arguments[0].shape)
        if operation == "div":
            return _divide(*arguments)
        if operation == "lshr":
            unsigned = _UNSIGNED[arguments[0].itemsize]
            return (arguments[0].view(unsigned) >> arguments[1].view(unsigned)).view(arguments[0].dtype)
        if operation in _BINARY:
            return _BINARY[operation](*arguments)
        if operation in _UNARY:
            return _UNARY[operation](*arguments)
        if self._row_length is not None and operation == "row_length":
            return np.asarray(self._row_length, node.dtype.numpy)
        if self._row_length is not None and operation in ROW_REDUCTIONS:
            return _reduced(operation, arguments[0], self._row_length, node.dtype)
        raise ValueError(f"{operation!r} has no elementwise value")


def _reduced(operation: str, value: np.ndarray, length: int, dtype: DataType) -> np.ndarray:
    """Reduce the last axis, of ``length`` elements, to size 1."""
    rows = np.broadcast_to(value, (*value.shape[:-1], length))
    if operation in ("row_sum", "row_prod"):
        reduce = np.sum if operation == "row_sum" else np.prod
        return np.asarray(reduce(rows, axis=-1, keepdims=True, dtype=np.float64 if dtype.is_float else value.dtype))
    extreme = _EXTREMES[operation].reduce
    initial = neutral_value(operation.removeprefix("row_"), dtype)
    return np.asarray(extreme(rows, axis=-1, keepdims=True, initial=initial))


def _fused_multiply_add(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    if a.dtype == np.float32:  # a product of two float32 is exact in float64
        return (a.astype(np.float64) * b + c).astype(np.float32)
    return a * b + c


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return a / b
    is_rounded_up = (a % b != 0) & ((a < 0) != (b < 0))  # integers divide as in C: towards zero
    return a // b + is_rounded_up.astype(a.dtype)


def _cast(value: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Convert; from floats to integers as the printers do: the nearest one where out of range, 0 for NaN."""
    if value.dtype.kind != "f" or dtype.kind != "i":
        return value.astype(dtype)
    limits = np.iinfo(dtype)
    inside = np.where(np.abs(value) < -float(limits.min), value, 0)
    result = inside.astype(dtype)
    result = np.where(value >= -float(limits.min), limits.max, result)
    return np.where(value <= float(limits.min), limits.min, result)
