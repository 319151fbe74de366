"""Scales and zero points: the numbers that a range of reals is mapped by.

A real ``r`` stands for the integer ``q`` with ``r = scale * (q - zero_point)``. The range always holds zero, so that
paddings stay exact. Everything works on arrays: a range per tensor is an array without axes, a range per channel one
with an axis. Ranges are subtracted in float64: two finite floats may lie further apart than their type reaches.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from ml_dtypes import float8_e4m3fn
from onnx import TensorProto

from ort_quantization.errors import InvalidQuantization, UnsupportedQuantization
from ort_quantization.quantized_types import (
    NUMPY_TYPES,
    RANGES,
    REDUCED_RANGES,
    SYMMETRIC_RANGES,
    Range,
    type_name,
)

FLOATS = (np.dtype(np.float32), np.dtype(np.float16))


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a tensor is quantized by.

    Attributes:
        scale: float32 or float16; without axes, or (channels,), or with the rank of the tensor for blocks.
        zero_point: of the same shape, in numpy's type of ``tensor_type``.
        tensor_type: ONNX's number of the quantized element type.
        axis: of the channels or blocks; ``None`` for one scale.
        block_size: how many numbers along ``axis`` share a scale; 0 where all do.
    """

    scale: np.ndarray
    zero_point: np.ndarray
    tensor_type: int
    axis: int | None = None
    block_size: int = 0

    def __getitem__(self, key: str) -> Any:
        """Return what has a name in onnxruntime's ``QuantizationParams``: subclasses read parameters so."""
        return getattr(self, "tensor_type" if key == "quant_type" else key)


def integer_range(tensor_type: int, is_reduced: bool = False, is_symmetric: bool = False) -> Range:
    """Return the least and the greatest integer to use.

    Raises:
        InvalidQuantization: the type is no integer of 4, 8 or 16 bits.
    """
    if tensor_type not in RANGES:
        known = ", ".join(type_name(each) for each in RANGES)
        raise UnsupportedQuantization(f"{type_name(tensor_type)} has no range of integers; known: {known}")
    if is_reduced:
        return REDUCED_RANGES[tensor_type]
    if is_symmetric:
        return SYMMETRIC_RANGES.get(tensor_type, RANGES[tensor_type])
    return RANGES[tensor_type]


def scale_and_zero_point(
    least: np.ndarray,
    most: np.ndarray,
    integers: Range,
    is_symmetric: bool = False,
    min_real_range: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return scales and zero points (int64) of ranges.

    Args:
        least: float32 or float16, any shape: the least real of each range.
        most: of the same type and shape.
        integers: the least and the greatest integer.
        is_symmetric: both ends lie as far from zero as the further one.
        min_real_range: how far the ends lie apart at least.

    Raises:
        InvalidQuantization: a range has an end that is no finite number, or the integers leave out zero.
    """
    lowest, highest = integers
    if lowest > 0 or highest < 0:
        raise InvalidQuantization(f"the integers must hold zero; found {lowest} to {highest}")
    dtype = most.dtype
    least, most = widened(least, most, is_symmetric, min_real_range)
    exact = (most.astype(np.float64) - least.astype(np.float64)) / (float(highest) - float(lowest))
    if not np.isfinite(exact).all():
        raise InvalidQuantization(f"a range of reals must have finite ends; found {least} to {most}")
    with np.errstate(over="ignore", under="ignore"):
        stored = exact.astype(dtype)
    facts = np.finfo(dtype)
    # A scale of float16 may be subnormal: numbers are divided by it in float32.
    flat = stored < facts.smallest_subnormal if dtype == np.float16 else exact < facts.tiny
    if is_symmetric:  # no rounding of a quotient: all channels must have the same zero point
        zero_point = np.full(exact.shape, np.round((lowest + highest) / 2))
    else:
        zero_point = np.round(lowest - least.astype(np.float64) / np.where(flat, 1.0, exact))
    return np.where(flat, np.ones((), dtype), stored), np.where(flat, 0, zero_point).astype(np.int64)


def widened(
    least: np.ndarray, most: np.ndarray, is_symmetric: bool, min_real_range: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return ranges that hold zero, are as wide as asked, and symmetric where that is asked for."""
    zero = np.zeros((), most.dtype)
    least, most = np.minimum(least, zero), np.maximum(most, zero)
    if min_real_range is not None:
        most = np.maximum(most, least + np.asarray(min_real_range, most.dtype))
    if is_symmetric:
        most = np.maximum(np.abs(least), np.abs(most))
        least = -most
    return least, most


def snapped_scale_and_zero_point(
    least: float, most: float, integers: Range, min_real_range: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return scale (float32) and zero point of unsigned integers, the latter at their lower end or in their middle.

    Ranges without negative numbers begin at the lower end. Others have zero in the middle, and a scale by which
    neither half is cut.
    """
    lowest, highest = integers
    middle = (lowest + highest + 1) // 2
    least, most = min(least, 0.0), max(most, 0.0)
    has_floor = min_real_range is not None and min_real_range > 0
    if has_floor and min_real_range is not None:
        most = max(most, least + min_real_range)
    zero_point = lowest if least >= 0 else middle
    if least >= 0:
        scale = (most if most > 0 else 1.0) / (highest - lowest)
    else:
        scale = max(-least / (middle - lowest), most / (highest - middle))
    if min_real_range is not None:
        scale = max(scale, min_real_range / (highest - lowest))
    return np.array(scale, np.float32), np.array(zero_point, np.int64)


_FLOAT8_MOST = 448.0  # the largest number of float8_e4m3fn


@functools.cache
def _float8_deviation() -> np.float32:
    """Return the standard deviation of all finite numbers of float8_e4m3fn."""
    numbers = np.arange(256, dtype=np.uint8).view(float8_e4m3fn).astype(np.float32)
    return np.std(numbers[np.isfinite(numbers)])


def float8_scale(deviation: np.ndarray) -> np.ndarray:
    """Return the scale by which numbers of a standard deviation are spread like the numbers of float8_e4m3fn."""
    return np.array(deviation / _float8_deviation(), dtype=deviation.dtype)


def covering_float8_scale(deviation: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Return the scale of a standard deviation, or a larger one where more than half of the largest number was cut off.

    That happens to numbers that hardly differ, such as shares near a half: they would all become one number, of another
    size, and equal ones NaN. Zeros get the scale 1.
    """
    scale = float8_scale(deviation)
    needed = largest / _FLOAT8_MOST
    found = np.where(needed > 2 * scale, needed, scale)
    return np.where(found == 0, 1, found).astype(scale.dtype)


def parameters_of(
    values: np.ndarray,
    tensor_type: int,
    is_symmetric: bool,
    is_reduced: bool = False,
    min_real_range: float | None = None,
    least: float | None = None,
    most: float | None = None,
    axis: int | None = None,
) -> Parameters:
    """Return what numbers are quantized by, from the numbers themselves.

    Args:
        values: float32 or float16, any shape.
        tensor_type: ONNX's number of the quantized element type.
        is_symmetric: zero in the middle.
        is_reduced: one bit less.
        min_real_range: least width of a range.
        least: instead of the least number.
        most: instead of the greatest number.
        axis: one scale for each index along it.

    Raises:
        InvalidQuantization: a type that is not quantized to, numbers that are not finite, a reduced range of floats.
    """
    others = None if axis is None else tuple(each for each in range(values.ndim) if each != axis % values.ndim)
    if tensor_type == TensorProto.FLOAT8E4M3FN:
        if is_reduced:
            raise UnsupportedQuantization("8 bit floats have no reduced range; leave out reduce_range")
        largest = np.abs(values).max(axis=others, initial=0.0)
        scale = covering_float8_scale(np.asarray(np.std(values, axis=others)), np.asarray(largest))
        return Parameters(scale, np.zeros(scale.shape, float8_e4m3fn), tensor_type, axis)
    integers = integer_range(tensor_type, is_reduced, is_symmetric)
    dtype = NUMPY_TYPES[tensor_type]
    if not values.size:
        shape = () if axis is None else (values.shape[axis],)
        return Parameters(np.ones(shape, values.dtype), np.zeros(shape, dtype), tensor_type, axis)
    found_least = np.asarray(values.min(axis=others)) if least is None else np.asarray(least, values.dtype)
    found_most = np.asarray(values.max(axis=others)) if most is None else np.asarray(most, values.dtype)
    scale, zero_point = scale_and_zero_point(found_least, found_most, integers, is_symmetric, min_real_range)
    return Parameters(scale, zero_point.astype(dtype), tensor_type, axis)


def block_parameters_of(
    values: np.ndarray, tensor_type: int, axis: int, block_size: int, is_symmetric: bool
) -> Parameters:
    """Return what a matrix is quantized by in blocks along an axis; a last block may be shorter.

    Raises:
        UnsupportedQuantization: the tensor is no matrix.
        InvalidQuantization: its numbers are not finite.
    """
    if values.ndim != 2:
        raise UnsupportedQuantization(f"blocks are of matrices; this tensor has {values.ndim} axes: {values.shape}")
    axis %= 2
    rows = np.moveaxis(values, axis, 0)
    missing = -len(rows) % block_size
    blocks = np.pad(rows, ((0, missing), (0, 0))).reshape(-1, block_size, rows.shape[1])
    integers = integer_range(tensor_type, is_symmetric=is_symmetric)
    scale, zero_point = scale_and_zero_point(blocks.min(axis=1), blocks.max(axis=1), integers, is_symmetric)
    zero_point = np.clip(zero_point, *integers)
    moved = np.moveaxis(scale, 0, axis), np.moveaxis(zero_point.astype(NUMPY_TYPES[tensor_type]), 0, axis)
    return Parameters(*moved, tensor_type, axis, block_size)
