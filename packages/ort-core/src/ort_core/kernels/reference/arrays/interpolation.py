"""Weighted sums of Resize: along one axis, or of integers over all axes at once.

``ops.resized_axes`` says where outputs stand, ``ops.resize_filters`` what they mix.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np


def mix(data: np.ndarray, axis: int, places: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the weighted sums along one axis of a float array: a gather and a product per input of an output."""
    spread = [1] * data.ndim
    spread[axis] = len(places)
    total = None
    for number in range(places.shape[1]):
        part = data.take(places[:, number], axis=axis) * weights[:, number].astype(data.dtype).reshape(spread)
        total = part if total is None else np.add(total, part, out=total)
    assert total is not None
    return total


def mix_integers(data: np.ndarray, sizes: Sequence[int], places: Sequence[np.ndarray]) -> np.ndarray:
    """Return the linear mixture over the last axes of integers in float32, one coordinate for each output and axis.

    All neighbors are weighted at once, and added one after the other, the last axis first: the order decides which
    side of an integer a sum falls to, before its fraction is cut off, and onnxruntime adds in this one.
    """
    first = data.ndim - len(sizes)
    pairs = [_pairs(at, size) for at, size in zip(places, sizes, strict=True)]
    total = np.float32(0)
    for picks in itertools.product((0, 1), repeat=len(sizes)):
        part: np.ndarray = data
        weight = np.float32(1)
        for number in reversed(range(len(sizes))):
            inputs, weights = pairs[number]
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
