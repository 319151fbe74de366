"""Reductions over axes: sums, products, extremes, norms and logarithms of sums.

To opset 12 (ReduceSum) or 17 (the others) the axes are an attribute, afterwards an input. No axes means all axes,
or none with ``noop_with_empty_axes``. Floats accumulate in float64 and round once; integers stop at their limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelFunction, kernel
from ort_core.kernels.reference.arrays.saturating_integers import (
    Axes,
    KeepDims,
    mean_integers,
    multiply_integers,
    saturate_to_integer,
    sum_absolute_integers,
    sum_integers,
    sum_square_integers,
)
from ort_core.kernels.reference.arrays.widening import narrow, widen

Reduction = Callable[[np.ndarray, Axes, KeepDims], np.ndarray | np.float64]  # values, axes, keepdims


def normalize_axes(op_type: str, axes: Sequence[int], rank: int) -> Axes:
    """Return ``axes`` counted from the front.

    Raises:
        InvalidArgument: an axis is outside ``[-rank, rank - 1]``.
    """
    for axis in axes:
        if not -rank <= axis < rank:
            raise InvalidArgument(
                f"{op_type}: axis {axis} is not in valid range [{-rank},{rank - 1}] of the input's axes"
            )
    return tuple(dict.fromkeys(int(axis) % rank for axis in axes))


def _reduced(op_type: str, function: Reduction, x: np.ndarray, axes: Sequence[int], keepdims: int) -> np.ndarray:
    is_number = x.ndim == 0 and all(axis in (-1, 0) for axis in axes)  # as onnxruntime: PyTorch writes its sums so
    chosen = () if is_number else normalize_axes(op_type, axes, x.ndim)
    return narrow(function(widen(x), chosen, bool(keepdims)), x.dtype)


def _reduction(op_type: str, function: Reduction, axes_input_since: int = 18) -> KernelFunction:
    @kernel(op_type, since=axes_input_since)
    @np.errstate(all="ignore")
    def run(
        x: np.ndarray, axes: np.ndarray | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> np.ndarray:
        if axes is not None and axes.ndim != 1:
            raise InvalidArgument(
                f"An axes tensor must be a vector tensor. Input axes of {op_type} has shape {axes.shape}"
            )
        chosen = [] if axes is None else axes.tolist()
        if not chosen and not noop_with_empty_axes:
            chosen = list(range(x.ndim))
        return _reduced(op_type, function, x, chosen, keepdims)

    return run


def _reduction_by_attribute(op_type: str, function: Reduction, until: int = 17) -> KernelFunction:
    @kernel(op_type, until=until)
    @np.errstate(all="ignore")
    def run(x: np.ndarray, *, axes: tuple[int, ...] = (), keepdims: int = 1) -> np.ndarray:
        return _reduced(op_type, function, x, axes or range(x.ndim), keepdims)

    return run


def _sum(x: np.ndarray, axes: Axes, keepdims: KeepDims) -> np.ndarray | np.float64:
    if x.dtype.kind in "iu":
        return sum_integers(x, axes, keepdims)
    return _added(x, axes, keepdims)


def _added(x: np.ndarray, axes: Axes, keepdims: KeepDims) -> np.ndarray | np.float64:
    """Return ``np.sum`` in float64, without what that asks before it adds."""
    return np.add.reduce(x, axis=axes, dtype=np.float64, keepdims=keepdims)


def _product(x: np.ndarray, axes: Axes, keepdims: KeepDims) -> np.ndarray | np.float64:
    if x.dtype.kind in "iu":
        return multiply_integers(x, axes, keepdims)
    return np.prod(x, axis=axes, dtype=np.float64, keepdims=keepdims)


def _mean(x: np.ndarray, axes: Axes, keepdims: KeepDims) -> np.ndarray | np.float64:
    """Return the means; ONNX leaves those of nothing open, and onnxruntime gives 0."""
    if x.dtype.kind in "iu":
        return mean_integers(x, axes, keepdims)
    count = math.prod([x.shape[axis] for axis in axes])
    return _added(x, axes, keepdims) / np.float64(max(count, 1))


def _maximum(x: np.ndarray, axes: Axes, keepdims: KeepDims) -> np.ndarray:
    return np.max(x, axis=axes, keepdims=keepdims, initial=_lowest(x.dtype))


def _minimum(x: np.ndarray, axes: Axes, keepdims: KeepDims) -> np.ndarray:
    return np.min(x, axis=axes, keepdims=keepdims, initial=_highest(x.dtype))


def _lowest(dtype: np.dtype) -> float | int | bool:
    """Return the result of a maximum over nothing."""
    if dtype.kind == "b":
        return False
    return int(np.iinfo(dtype).min) if dtype.kind in "iu" else -np.inf


def _highest(dtype: np.dtype) -> float | int | bool:
    """Return the result of a minimum over nothing."""
    if dtype.kind == "b":
        return True
    return int(np.iinfo(dtype).max) if dtype.kind in "iu" else np.inf


def _l1(x: np.ndarray, axes: Axes, keepdims: KeepDims) -> np.ndarray | np.float64:
    if x.dtype.kind in "iu":
        return sum_absolute_integers(x, axes, keepdims)
    return _added(np.abs(x), axes, keepdims)


def _sum_square(x: np.ndarray, axes: Axes, keepdims: KeepDims) -> np.ndarray | np.float64:
    if x.dtype.kind in "iu":
        return sum_square_integers(x, axes, keepdims)
    real = x.astype(np.float64, copy=False)
    return _added(real * real, axes, keepdims)


def _l2(x: np.ndarray, axes: Axes, keepdims: KeepDims) -> np.ndarray | np.float64:
    return _as_type(np.sqrt(_sum_square(x.astype(np.float64, copy=False), axes, keepdims)), x.dtype)


def _log_sum(x: np.ndarray, axes: Axes, keepdims: KeepDims) -> np.ndarray | np.float64:
    return _as_type(np.log(_added(x, axes, keepdims)), x.dtype)


def _log_sum_exp(x: np.ndarray, axes: Axes, keepdims: KeepDims) -> np.ndarray | np.float64:
    real = x.astype(np.float64, copy=False)
    peak = _maximum(real, axes, True)
    peak = np.where(np.isfinite(peak), peak, 0.0)  # an infinite peak would make inf - inf
    total = np.log(np.sum(np.exp(real - peak), axis=axes, keepdims=True)) + peak
    return _as_type(total if keepdims else np.squeeze(total, axis=axes), x.dtype)


def _as_type(real: np.ndarray | np.float64, dtype: np.dtype) -> np.ndarray | np.float64:
    return saturate_to_integer(np.asarray(real), dtype) if dtype.kind in "iu" else real


reduce_sum = _reduction("ReduceSum", _sum, axes_input_since=13)
reduce_mean = _reduction("ReduceMean", _mean)
reduce_max = _reduction("ReduceMax", _maximum)
reduce_min = _reduction("ReduceMin", _minimum)
reduce_product = _reduction("ReduceProd", _product)
reduce_l1 = _reduction("ReduceL1", _l1)
reduce_l2 = _reduction("ReduceL2", _l2)
reduce_log_sum = _reduction("ReduceLogSum", _log_sum)
reduce_log_sum_exp = _reduction("ReduceLogSumExp", _log_sum_exp)
reduce_sum_square = _reduction("ReduceSumSquare", _sum_square)
reduce_sum_by_attribute = _reduction_by_attribute("ReduceSum", _sum, until=12)
reduce_mean_by_attribute = _reduction_by_attribute("ReduceMean", _mean)
reduce_max_by_attribute = _reduction_by_attribute("ReduceMax", _maximum)
reduce_min_by_attribute = _reduction_by_attribute("ReduceMin", _minimum)
reduce_product_by_attribute = _reduction_by_attribute("ReduceProd", _product)
reduce_l1_by_attribute = _reduction_by_attribute("ReduceL1", _l1)
reduce_l2_by_attribute = _reduction_by_attribute("ReduceL2", _l2)
reduce_log_sum_by_attribute = _reduction_by_attribute("ReduceLogSum", _log_sum)
reduce_log_sum_exp_by_attribute = _reduction_by_attribute("ReduceLogSumExp", _log_sum_exp)
reduce_sum_square_by_attribute = _reduction_by_attribute("ReduceSumSquare", _sum_square)
