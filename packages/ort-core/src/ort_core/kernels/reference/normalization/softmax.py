"""Softmax, LogSoftmax and Hardmax: over the axes from ``axis`` on (to opset 12), or over one axis (from opset 13)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelFunction, kernel
from ort_core.kernels.reference.arrays.widening import narrow, widen

AxisFunction = Callable[[np.ndarray], np.ndarray]  # computes along the last axis


def _checked_axis(op_type: str, axis: int, rank: int) -> int:
    if not -max(rank, 1) <= axis < max(rank, 1):
        raise InvalidArgument(
            f"[ShapeInferenceError] 'axis' must be in [{-rank} , {rank - 1}]. Its actual value is: {axis} ({op_type})"
        )
    return axis % max(rank, 1)


def _flattening(op_type: str, function: AxisFunction) -> KernelFunction:
    @kernel(op_type, until=12)
    @np.errstate(all="ignore")
    def run(x: np.ndarray, *, axis: int = 1) -> np.ndarray:
        # axis == rank is legal here: every row then has one element
        start = axis + x.ndim if axis < 0 else axis
        if not 0 <= start <= x.ndim:
            _checked_axis(op_type, axis, x.ndim)
        rows = int(np.prod(x.shape[:start], dtype=np.int64))
        columns = int(np.prod(x.shape[start:], dtype=np.int64))
        if x.size == 0:
            return x
        return narrow(function(widen(x).reshape(rows, columns)), x.dtype).reshape(x.shape)

    return run


def _along_axis(op_type: str, function: AxisFunction) -> KernelFunction:
    @kernel(op_type, since=13)
    @np.errstate(all="ignore")
    def run(x: np.ndarray, *, axis: int = -1) -> np.ndarray:
        chosen = _checked_axis(op_type, axis, x.ndim)
        if x.size == 0:
            return x
        moved = np.moveaxis(np.atleast_1d(widen(x)), chosen, -1)
        return narrow(np.moveaxis(function(moved), -1, chosen), x.dtype).reshape(x.shape)

    return run


@np.errstate(all="ignore")
def _softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


@np.errstate(all="ignore")
def log_softmax_of(x: np.ndarray) -> np.ndarray:
    """Return log(softmax(x)) along the last axis."""
    shifted = x - x.max(axis=-1, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _hardmax(x: np.ndarray) -> np.ndarray:
    chosen = np.zeros((x.size // x.shape[-1], x.shape[-1]), x.dtype)
    chosen[np.arange(len(chosen)), np.argmax(x, axis=-1).reshape(-1)] = 1
    return chosen.reshape(x.shape)


softmax_flattened = _flattening("Softmax", _softmax)
softmax = _along_axis("Softmax", _softmax)
log_softmax_flattened = _flattening("LogSoftmax", log_softmax_of)
log_softmax = _along_axis("LogSoftmax", log_softmax_of)
hardmax_flattened = _flattening("Hardmax", _hardmax)
hardmax = _along_axis("Hardmax", _hardmax)
