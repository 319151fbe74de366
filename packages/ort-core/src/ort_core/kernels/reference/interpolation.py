"""The filters of Resize along one axis: which inputs each output mixes, and with what weights.

``ops.resized_axes`` says where outputs stand; weights are computed in float64 from there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ort_core.ops.resized_axes import ResizedAxis

_F = np.float64


@dataclass(frozen=True, slots=True)
class Filter:
    """A weight by distance: linear (a triangle) or cubic, widened by ``antialias`` where the axis shrinks."""

    cubic: bool
    coefficient: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False

    def taps(self, x: np.ndarray, axis: ResizedAxis) -> tuple[np.ndarray, np.ndarray]:
        """Return, per output, the indices of the inputs that it mixes and their weights: two arrays [made, taps]."""
        x = x.astype(_F)
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


def mix_integers(data: np.ndarray, sizes: Sequence[int], places: Sequence[np.ndarray]) -> np.ndarray:
    """Return the linear mixture over the last axes of integers in float32, one coordinate for each output and axis.

    All neighbors are weighted at once, and added one after the other, the last axis first: the order decides which
    side of an integer a sum falls to, before its fraction is cut off, and onnxruntime adds in this one.
    """
    first = data.ndim - len(sizes)
    taps = [_pairs(at, size) for at, size in zip(places, sizes, strict=True)]
    total = np.float32(0)
    for picks in itertools.product((0, 1), repeat=len(sizes)):
        part: np.ndarray = data
        weight = np.float32(1)
        for number in reversed(range(len(sizes))):
            inputs, weights = taps[number]
            part = part.take(inputs[picks[number]], axis=first + number)
            weight = weight * weights[picks[number]].reshape(-1, *(1,) * (len(sizes) - 1 - number))  # type: ignore[assignment]  # grows from a scalar to an array
        total = total + part.astype(np.float32) * weight  # type: ignore[assignment]  # as above
    return np.asarray(total)


def _pairs(at: np.ndarray, size: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return the inputs on both sides of each output, and their weights: a half each where they are one input."""
    at = np.clip(at.astype(np.float32), np.float32(0), np.float32(size - 1))
    before = np.minimum(at.astype(np.int64), size - 1)
    behind = np.minimum(before + 1, size - 1)
    near, far = np.abs(at - before.astype(np.float32)), np.abs(at - behind.astype(np.float32))
    is_one, half = before == behind, np.float32(0.5)
    return (before, behind), (np.where(is_one, half, far), np.where(is_one, half, near))
