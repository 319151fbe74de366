"""CumSum and CumProd along one axis, forwards or backwards, with or without the element itself."""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelFunction, kernel
from ort_core.kernels.reference.arrays.widening import accumulating_dtype, narrow
from ort_core.kernels.reference.normalization.reductions import normalize_axes


def _cumulative(op_type: str, since: int, function: np.ufunc) -> KernelFunction:
    @kernel(op_type, since=since)
    @np.errstate(all="ignore")
    def run(x: np.ndarray, axis: np.ndarray, *, exclusive: int = 0, reverse: int = 0) -> np.ndarray:
        if axis.size != 1:
            raise InvalidArgument(f"{op_type}: input axis has shape {axis.shape}; expected one integer")
        if x.ndim == 0:
            raise InvalidArgument(
                f"Cannot apply {op_type} operator on a scalar; input x must have at least one dimension"
            )
        along = normalize_axes(op_type, (int(axis.reshape(())),), x.ndim)[0]
        values = np.flip(x, along) if reverse else x
        accumulated = function.accumulate(values, axis=along, dtype=accumulating_dtype(x.dtype))
        if exclusive:
            accumulated = _shifted(accumulated, along, function.identity)
        return narrow(np.flip(accumulated, along) if reverse else accumulated, x.dtype)

    return run


def _shifted(values: np.ndarray, axis: int, first: float) -> np.ndarray:
    """Return ``values`` moved one step along ``axis``, with ``first`` in front."""
    moved = np.roll(values, 1, axis)
    if values.shape[axis]:
        moved[(slice(None),) * axis + (0,)] = first
    return moved


cum_sum = _cumulative("CumSum", 11, np.add)
cum_prod = _cumulative("CumProd", 26, np.multiply)
