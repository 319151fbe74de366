"""How two inputs of an elementwise operator are brought to one shape.

Since opset 7 shapes broadcast as in numpy. Before it, ``broadcast=1`` let B stand for a contiguous run of A's
dimensions: the last ones, or those from ``axis`` on.
"""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.tensors.broadcasting import broadcast_shapes


def align(a: np.ndarray, b: np.ndarray, axis: int | None) -> np.ndarray:
    """Return ``b`` with ones appended so that its first dimension meets dimension ``axis`` of ``a``.

    Raises:
        InvalidArgument: ``b`` does not fit into ``a`` at ``axis``.
    """
    if axis is None:
        return b
    start = axis + a.ndim if axis < 0 else axis
    trailing = a.ndim - start - b.ndim
    if trailing < 0:
        raise InvalidArgument(
            f"attribute axis={axis} puts input B of shape {b.shape} outside input A of shape {a.shape}"
        )
    return b.reshape(b.shape + (1,) * trailing)


def check_broadcast(op_type: str, *arrays: np.ndarray) -> tuple[int, ...]:
    """Return the common shape of ``arrays``.

    Raises:
        InvalidArgument: the shapes do not broadcast.
    """
    shapes = [a.shape for a in arrays]
    if shapes.count(shapes[0]) == len(shapes):  # most often
        return shapes[0]
    try:
        return broadcast_shapes(*shapes)
    except ValueError as error:
        text = " and ".join(map(str, shapes))
        raise InvalidArgument(
            f"{op_type}: Attempting to broadcast an axis by a dimension other than 1. {_conflict(arrays)}: shapes "
            f"{text} cannot be brought together; dimensions must be equal or 1, counted from the last"
        ) from error


def _conflict(arrays: tuple[np.ndarray, ...]) -> str:
    """Return the first pair of dimensions, from the last axis on, that do not go together."""
    for axis in range(1, max(a.ndim for a in arrays) + 1):
        dims = sorted({a.shape[-axis] for a in arrays if a.ndim >= axis} - {1})
        if len(dims) > 1:
            return f"{dims[-1]} by {dims[0]}"
    return "no axis"
