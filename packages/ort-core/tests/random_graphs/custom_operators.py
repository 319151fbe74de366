"""Users' operators of random graphs: as numpy kernels and as formulas, each with its truth in plain numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import ort_core as ort
from ort_core.plugin.loops import Scalar, exp, maximum, row_max, row_min, tanh
from random_graphs.writer import CUSTOM_DOMAIN

T = TypeVar("T", np.float32, np.float64)


@ort.custom_op(CUSTOM_DOMAIN, "ScaledSine")
def scaled_sine(x: NDArray[T]) -> NDArray[T]:
    with np.errstate(invalid="ignore"):  # of infinite numbers, which campaigns feed
        return (2 * np.sin(x)).astype(x.dtype)


@ort.custom_op(CUSTOM_DOMAIN, "Distance")
def distance(x: NDArray[T], y: NDArray[T]) -> NDArray[T]:
    with np.errstate(invalid="ignore"):
        return np.abs(x - y).astype(x.dtype)


@ort.elementwise_op(CUSTOM_DOMAIN, "SmoothMaximum")
def smooth_maximum(x: Scalar, y: Scalar) -> Scalar:
    return maximum(x, y) + exp(-abs(x - y)) * 0.5


@ort.elementwise_op(CUSTOM_DOMAIN, "Gated")
def gated(x: Scalar, y: Scalar) -> Scalar:
    return x * (tanh(y) + 1.0)


@ort.row_op(CUSTOM_DOMAIN, "RowRange")
def row_range(x: Scalar) -> Scalar:
    return (x - row_min(x)) / (row_max(x) - row_min(x) + 1.0)


OPERATORS = (scaled_sine, distance, smooth_maximum, gated, row_range)


def _row_range(x: Any) -> Any:
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError("rows need an axis with elements")
    low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
    return (x - low) / (high - low + 1)


KERNELS: Mapping[str, Callable[..., Any]] = {
    "ScaledSine": lambda x: 2 * np.sin(x),
    "Distance": lambda x, y: np.abs(x - y),
}
FORMULAS: Mapping[str, Callable[..., Any]] = {
    "SmoothMaximum": lambda x, y: np.maximum(x, y) + 0.5 * np.exp(-np.abs(x - y)),
    "Gated": lambda x, y: x * (np.tanh(y) + 1),
    "RowRange": _row_range,
}
