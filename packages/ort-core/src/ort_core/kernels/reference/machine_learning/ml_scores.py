"""Scores of classifiers and regressors in ai.onnx.ml: the post transforms, and the second column of binary ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.reference.arrays.axes import string_array

Array = np.ndarray


def logistic(scores: Array) -> Array:
    """Return 1 / (1 + exp(-x)) without overflow."""
    positive = 1.0 / (1.0 + np.exp(-np.abs(scores)))
    return np.where(scores < 0, 1.0 - positive, positive).astype(scores.dtype)


def softmax(scores: Array) -> Array:
    """Return the softmax of each row."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
    return powers / powers.sum(axis=1, keepdims=True)


def softmax_zero(scores: Array) -> Array:
    """Return the softmax of each row in which scores of zero stay zero."""
    highest = scores.max(axis=1, keepdims=True, initial=-np.inf)
    powers = np.where(np.abs(scores) > 1e-7, np.exp(scores - highest), scores * np.exp(-highest))
    total = powers.sum(axis=1, keepdims=True)
    return np.divide(powers, total, out=np.full_like(powers, 0.5), where=total != 0)


def probit(scores: Array) -> Array:
    """Return sqrt(2) * erfinv(2 x - 1), with onnxruntime's approximation of erfinv (Winitzki, a = 0.147)."""
    centered = scores * 2 - 1
    log = np.log((1 - centered) * (1 + centered))
    first = 2 / (np.pi * 0.147) + 0.5 * log
    root = np.sqrt(-first + np.sqrt(first * first - log / 0.147))
    return (1.41421356 * np.where(centered < 0, -root, root)).astype(scores.dtype)


TRANSFORMS: dict[str, Callable[[Array], Array]] = {
    "NONE": lambda scores: scores,
    "LOGISTIC": logistic,
    "SOFTMAX": softmax,
    "SOFTMAX_ZERO": softmax_zero,
    "PROBIT": probit,
}


def get_transform(name: str) -> Callable[[Array], Array]:
    """Return the post transform called ``name``.

    Raises:
        InvalidArgument: there is none.
    """
    if name not in TRANSFORMS:
        raise InvalidArgument(f"unknown post_transform {name!r}; known: {', '.join(TRANSFORMS)}")
    return TRANSFORMS[name]


def transform(scores: Array, name: str) -> Array:
    """Return scores [rows, columns] after the post transform; of a single column only PROBIT changes anything."""
    function = get_transform(name)
    if scores.shape[1] == 1 and name != "PROBIT":
        return scores
    return _quietly(function, scores)


def _quietly(function: Callable[[Array], Array], scores: Array) -> Array:
    # Infinite and NaN scores give infinite and NaN results, as in C++: nothing to warn about.
    with np.errstate(all="ignore"):
        return function(scores)


def two_columns(positive: Array, name: str, mirrored: Array) -> Array:
    """Return both columns of a binary classifier that computed one score per row.

    Args:
        positive: the score of the second class, [rows, 1].
        name: the post transform.
        mirrored: rows [rows] whose first score is -s; in the others it is 1 - s. LOGISTIC uses -s everywhere.
    """
    function = get_transform(name)
    if name == "PROBIT":
        return _quietly(function, np.concatenate([1 - positive, positive], axis=1))
    if name == "LOGISTIC":
        return _quietly(function, np.concatenate([-positive, positive], axis=1))
    first = np.where(mirrored[:, None], -positive, 1 - positive)
    return np.concatenate([first, positive], axis=1).astype(positive.dtype)


def class_labels(integers: Sequence[int] | None, strings: Sequence[str] | None) -> Array | None:
    """Return the labels of a classifier as an array to pick from, ``None`` when it names none."""
    if strings:
        return string_array(list(strings))
    return np.array(integers, np.int64) if integers else None


def as_matrix(data: Array, op_type: str) -> Array:
    """Return features [rows, columns]: a vector is one row.

    Raises:
        InvalidArgument: the input has no or more than two dimensions.
    """
    if data.ndim not in (1, 2):
        raise InvalidArgument(f"{op_type}: input must be 1-D or 2-D, got {data.ndim} dimensions")
    return data.reshape((1, -1)) if data.ndim == 1 else data
