"""Tensors of float32 as half floats, without losing signs, zeros or finiteness."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import TensorProto, numpy_helper

LEAST, MOST = 5.96e-08, 65504.0  # of float16: the smallest number above zero, and the largest
DTYPES: dict[int, np.dtype] = {
    TensorProto.FLOAT16: np.dtype(np.float16),
    TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
}
_PIECE = 1 << 20  # numbers at once: what is compared on the way stays small
_BFLOAT16_MOST = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)


def half_floats(array: np.ndarray, least: float, most: float, half: int = TensorProto.FLOAT16) -> np.ndarray:
    """Return half floats; magnitudes between 0 and ``least`` become ``least``, finite ones above ``most`` that."""
    found = np.empty(array.shape, DTYPES[half])
    flat, target = array.reshape(-1), found.reshape(-1)
    for start in range(0, flat.size, _PIECE):
        target[start : start + _PIECE] = _cut(flat[start : start + _PIECE], least, most).astype(DTYPES[half])
    return found


def _cut(array: np.ndarray, least: float, most: float) -> np.ndarray:
    sizes = np.abs(array)
    small = (sizes > 0) & (sizes < least)
    large = (sizes > most) & np.isfinite(array)
    if small.any() or large.any():
        array = np.where(small, np.copysign(np.float32(least), array), array)
        array = np.where(large, np.copysign(np.float32(most), array), array)
    return array


def make_half(tensor: TensorProto, least: float, most: float, half: int = TensorProto.FLOAT16) -> None:
    """Turn a tensor of float32 that is in memory into one of half floats; others stay."""
    if tensor.data_type == TensorProto.FLOAT:
        array = half_floats(numpy_helper.to_array(tensor), least, most, half)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def limits(half: int, least: float, most: float) -> tuple[float, float]:
    """Return the limits of a type: bfloat16 reaches as far as float32, but for the last numbers."""
    return (least, most) if half == TensorProto.FLOAT16 else (0.0, _BFLOAT16_MOST)
