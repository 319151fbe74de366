"""Values of MIL's dequantization, of tensors and of constants that stay narrow in a package."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_ep_coreml.evaluation.values import Inputs, Value


def _along(values: object, like: np.ndarray, axis: object) -> np.ndarray:
    """Return a scalar, or a vector that belongs to one axis, in float64 and as many dimensions."""
    found = np.asarray(values, np.float64)
    if found.ndim == 0 or axis is None:
        return found.reshape([1] * like.ndim)
    shape = [1] * like.ndim
    shape[int(np.asarray(axis)) % like.ndim] = found.size
    return found.reshape(shape)


def _dequantized(inputs: Inputs, name: str) -> np.ndarray:
    data, scale, zero = np.asarray(inputs[name]), np.asarray(inputs["scale"]), inputs.get("zero_point")
    shifted = data.astype(np.float64) - _along(0 if zero is None else zero, data, inputs.get("axis"))
    return (shifted * _along(scale, data, inputs.get("axis"))).astype(scale.dtype)


def _blockwise(inputs: Inputs) -> np.ndarray:
    data, scale, offset = np.asarray(inputs["data"]), np.asarray(inputs["scale"]), inputs.get("offset")
    shifts = np.zeros(scale.shape) if offset is None else np.asarray(offset).astype(np.float64)
    factors = scale.astype(np.float64)
    for axis, (size, count) in enumerate(zip(data.shape, scale.shape, strict=True)):
        factors, shifts = factors.repeat(size // count, axis), shifts.repeat(size // count, axis)
    return ((data.astype(np.float64) - shifts) * factors).astype(scale.dtype)


QUANTIZED_VALUES: Mapping[str, Value] = {
    "dequantize": lambda inputs: _dequantized(inputs, "input"),
    "constexpr_affine_dequantize": lambda inputs: _dequantized(inputs, "quantized_data"),
    "constexpr_blockwise_shift_scale": _blockwise,
}
"""Functions of the inputs by name, by operation."""
