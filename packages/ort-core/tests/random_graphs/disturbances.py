"""How the twins of a value are disturbed: what nodes are given, and what a node rounds itself."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from onnx import NodeProto

from random_graphs.element_types import F32
from random_graphs.triples import Triple


def twin_of(value: Triple, side: int, rounds: bool) -> Any:
    """Return one twin of an input; exact floats are disturbed, too, where the node rounds."""
    chosen = value.above if side > 0 else value.below
    if not (rounds and value.is_exact and value.is_tensor and value.dtype is not None and value.dtype.is_float):
        return chosen
    return disturbed(value.truth, value.truth, value.dtype.window, side)


def is_kept(node: NodeProto, place: int, value: Triple) -> bool:
    """Return whether an exact input stays as it is: near a whole exponent, numbers below zero have no powers."""
    if node.op_type == "Pow":
        return place == 1 and value.is_exact and bool((np.mod(value.truth, 1) == 0).all())
    return _is_scale(node, value)


def _is_scale(node: NodeProto, value: Triple) -> bool:
    """Return whether a value is scales of a Resize that divide without rounding: 8 pixels by 2 are 4, not 3.999 cut."""
    if node.op_type not in ("Resize", "Upsample") or value.truth.ndim != 1 or not value.is_exact:
        return False
    return bool((np.frexp(value.truth)[0] == 0.5).all())


def moved_apart(value: Triple) -> Any:
    """Return the truth of an input, its floats disturbed each by itself even where its twins have moved as one."""
    if not (value.is_tensor and value.dtype is not None and value.dtype.is_float):
        return value.truth
    return disturbed(value.truth, value.truth, F32.window / 8, 1)


def wider(truth: np.ndarray, twin: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Return a twin that lies at least as far from the truth as another disturbance does."""
    with np.errstate(all="ignore"):
        far = np.abs(moved - truth)
        return np.where(np.abs(twin - truth) < far, truth + np.where(twin < truth, -far, far), twin)


def disturbed(array: np.ndarray, size: np.ndarray, window: float, side: int) -> np.ndarray:
    """Return an array with a disturbance of one window, whose sign changes from element to element."""
    signs = _signs(array.size).reshape(array.shape)
    with np.errstate(all="ignore"):
        moved = array + signs * (side * window) * np.abs(size)
    return np.where(np.isfinite(moved), moved, array)


def with_rounding(twin: np.ndarray, truth: np.ndarray, size: np.ndarray, side: int) -> np.ndarray:
    """Return a twin with the rounding of its own node: farther from the truth, never back to it."""
    signs = _signs(twin.size).reshape(twin.shape)
    with np.errstate(all="ignore"):
        way = np.where(twin == truth, signs * side, np.sign(twin - truth))
        moved = twin + way * size
    return np.where(np.isfinite(moved), moved, twin)


@functools.lru_cache(maxsize=512)
def _signs(count: int) -> np.ndarray:
    """Return as many of one sign as of the other: of two numbers one moves up, the other down."""
    return np.random.default_rng(count).permutation(np.resize([-1.0, 1.0], count))
