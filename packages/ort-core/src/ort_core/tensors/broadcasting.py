"""Broadcasting of shapes and arrays of up to 64 axes, which is what an array may have.

numpy's ``broadcast_shapes`` and ``broadcast_arrays`` stop at 32; its ``broadcast_to``, ufuncs and indexing do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_NUMPYS_AXES = 32


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that shapes broadcast to.

    Raises:
        ValueError: they do not go together.
    """
    rank = max(map(len, shapes), default=0)
    if rank <= _NUMPYS_AXES:
        return np.broadcast_shapes(*map(tuple, shapes))
    found = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, start=rank - len(shape)):
            if found[axis] not in (1, size) and size != 1:
                raise ValueError(f"sizes {found[axis]} and {size} of axis {axis} do not broadcast")
            if size != 1:
                found[axis] = size
    return tuple(found)


def broadcast_arrays(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return views of arrays that have their common shape.

    Raises:
        ValueError: they do not go together.
    """
    shape = broadcast_shapes(*(array.shape for array in arrays))
    return tuple(np.broadcast_to(array, shape) for array in arrays)
