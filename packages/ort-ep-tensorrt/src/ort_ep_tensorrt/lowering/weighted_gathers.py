"""Weighted gathers: a sum along one axis whose every result reads a few places, as Gather, Mul and Add.

y[j] = w[j, 0] * x[i[j, 0]] + w[j, 1] * x[i[j, 1]] + ...

The places and weights of an operator that is such a sum (interpolation, average pooling) are what its reference kernel
makes of the identity matrix, so that no formula of the specification stands here again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import Constant, DataType, TensorType, Value
from ort_ep_tensorrt.lowering.editing import Editor

MAX_GATHERS = 64  # of one result; each is a Gather of its own, and engines of more are slow to build
MAX_ELEMENTS = 1 << 24  # of a matrix that is looked at: 128 MiB in float64


@dataclass(frozen=True, slots=True)
class WeightedGathers:
    """What each result along an axis reads.

    Attributes:
        places: ``[gathers, results]``; where a result has fewer, its first place again.
        weights: ``[gathers, results]``, 0 where a result has fewer.
    """

    places: np.ndarray
    weights: np.ndarray

    @property
    def count(self) -> int:
        """The most places that one result reads."""
        return len(self.places)


def weighted_gathers_of(matrix: np.ndarray) -> WeightedGathers | Rejection:
    """Return the weighted gathers of a matrix ``[places, results]``."""
    counts = np.count_nonzero(matrix, axis=0)
    most = max(1, int(counts.max(initial=0)))
    if most > MAX_GATHERS:
        return Rejection(f"{most} places make one result; up to {MAX_GATHERS} are written out")
    order = np.argsort(matrix == 0, axis=0, kind="stable")[:most]
    weights = np.take_along_axis(matrix, order, axis=0)
    return WeightedGathers(np.where(weights == 0, order[:1], order), weights)


def summed(editor: Editor, x: Value, axis: int, gathers: WeightedGathers) -> Value:
    """Return the sum of the places of ``x`` along an axis times their weights."""
    total: Value | None = None
    for places, weights in zip(gathers.places, gathers.weights, strict=True):
        each = _taken(editor, x, axis, places)
        if (weights != 1).any():
            shape = [1] * (_rank(x) - 1 - axis)
            dtype = dtype_of(x) or DataType.FLOAT
            factor = Constant.of(weights.reshape(-1, *shape).astype(dtype.numpy), dtype)
            each = editor.add("Mul", [each, editor.constant(factor)], like=each)
        total = each if total is None else editor.add("Add", [total, each], like=each)
    assert total is not None, "there is at least one tap"
    return total


def largest(editor: Editor, x: Value, axis: int, gathers: WeightedGathers) -> Value:
    """Return the largest of the places of ``x`` along an axis."""
    found = [_taken(editor, x, axis, places) for places in gathers.places]
    return found[0] if len(found) == 1 else editor.add("Max", found, like=found[0])


def _taken(editor: Editor, x: Value, axis: int, places: np.ndarray) -> Value:
    made = editor.add("Gather", [x, editor.constant(places.astype(np.int64))], {"axis": axis})
    assert x.shape is not None, "ranks are known behind the rules"
    shape = (*x.shape[:axis], len(places), *x.shape[axis + 1 :])
    made.type = TensorType(dtype_of(x) or DataType.FLOAT, shape)
    return made


def _rank(x: Value) -> int:
    assert x.rank is not None, "ranks are known behind the rules"
    return x.rank
