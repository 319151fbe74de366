"""One axis of a resize: where each output stands in the input, and which inputs it mixes with what weights.

Coordinates are float64 throughout: in float32 a coordinate that lies exactly between two inputs, as 4.5 / 0.3 - 0.5,
would fall to one side or the other by its rounding error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ort_core.errors import InvalidArgument

_Coordinates = np.ndarray
_F = np.float64


@dataclass(frozen=True, slots=True)
class Axis:
    """The sizes that one axis is resized between; ``start`` and ``end`` are the region of interest in [0, 1]."""

    size: int
    out: int
    scale: float
    start: float = 0.0
    end: float = 1.0

    @property
    def exact_out(self) -> np.float64:
        """The output's size before it was cut down to an integer."""
        return _F(self.scale) * _F(self.size)


def coordinates(axis: Axis, mode: str, *, fractional: bool = False) -> _Coordinates:
    """Return the position in the input that each output element stands for.

    With ``fractional``, ``align_corners`` goes by the size that the scale asks for, before it is cut to an integer.

    Raises:
        InvalidArgument: the coordinate transformation mode is not known.
    """
    x = np.arange(axis.out, dtype=_F)
    scale, half = _F(axis.scale), _F(0.5)
    if mode == "asymmetric":
        return x / scale
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and axis.out > 1):
        return (x + half) / scale - half
    if mode == "pytorch_half_pixel":
        return np.zeros_like(x)
    if mode == "tf_half_pixel_for_nn":
        return (x + half) / scale
    if mode == "align_corners":
        length = axis.exact_out if fractional else _F(axis.out)
        return x * _F(axis.size - 1) / (length - 1) if length != 1 else np.zeros_like(x)
    if mode == "half_pixel_symmetric":
        offset = _F(axis.size / 2) * (1 - _F(axis.out) / axis.exact_out)
        return offset + (x + half) / scale - half
    if mode == "tf_crop_and_resize":
        return _crop(axis, x)
    raise InvalidArgument(f"coordinate_transformation_mode {mode!r} is not known to Resize")


def _crop(axis: Axis, x: _Coordinates) -> _Coordinates:
    last = _F(axis.size - 1)
    if axis.out == 1:
        return np.full_like(x, _F(0.5) * _F(axis.start + axis.end) * last)
    return _F(axis.start) * last + x * _F(axis.end - axis.start) * last / _F(axis.out - 1)


def nearest(x: _Coordinates, axis: Axis, nearest_mode: str) -> np.ndarray:
    """Return the index of the one input that each output copies."""
    if nearest_mode == "simple":  # what the operators did before they had the attribute
        rounded = np.ceil(x) if axis.scale < 1 else np.trunc(x)
    elif nearest_mode == "round_prefer_floor":
        rounded = np.ceil(x - _F(0.5))
    elif nearest_mode == "round_prefer_ceil":
        rounded = np.floor(x + _F(0.5))
    elif nearest_mode == "floor":
        rounded = np.floor(x)
    elif nearest_mode == "ceil":
        rounded = np.ceil(x)
    else:
        raise InvalidArgument(f"nearest_mode {nearest_mode!r} is not known to Resize")
    return np.clip(rounded, 0, axis.size - 1).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Filter:
    """A weight by distance: linear (a triangle) or cubic, widened by ``antialias`` where the axis shrinks."""

    cubic: bool
    coefficient: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False

    def taps(self, x: _Coordinates, axis: Axis) -> tuple[np.ndarray, np.ndarray]:
        """Return, per output, the indices of the inputs that it mixes and their weights: two arrays [out, taps]."""
        squeeze = min(axis.scale, 1.0) if self.antialias else 1.0
        reach = math.ceil((2 if self.cubic else 1) / squeeze)
        if not self.cubic and not self.antialias:
            x = np.clip(x, 0, axis.size - 1)
        places = np.floor(x).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
        weights = self._weight((places.astype(_F) - x[:, None]) * _F(squeeze))
        outside = (places < 0) | (places >= axis.size)
        if self.exclude_outside:
            weights = np.where(outside, _F(0), weights)
        if self.exclude_outside or self.antialias:
            weights = weights / weights.sum(axis=1, keepdims=True)
        return np.clip(places, 0, axis.size - 1), weights

    def _weight(self, distance: np.ndarray) -> np.ndarray:
        d = np.abs(distance)
        if not self.cubic:
            return np.maximum(1 - d, 0)
        a = _F(self.coefficient)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, _F(0)))


def mix(data: np.ndarray, axis: int, places: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the weighted sums along one axis of a float array: one gather and one multiplication per tap."""
    spread = [1] * data.ndim
    spread[axis] = len(places)
    total = None
    for tap in range(places.shape[1]):
        part = data.take(places[:, tap], axis=axis) * weights[:, tap].astype(data.dtype).reshape(spread)
        total = part if total is None else np.add(total, part, out=total)
    assert total is not None
    return total
