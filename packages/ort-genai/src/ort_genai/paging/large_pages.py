"""Memory of large pages, where the system has them: caches of many texts are short pieces far apart.

A processor knows where some two thousand pages lie. Of 4 KiB they are fewer than a step of eight texts reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ort_core.plugin.memory import large_memory

_LINE = 64  # bytes of a cache line


def large_zeros(shapes: Sequence[tuple[tuple[int, ...], np.dtype]]) -> list[np.ndarray]:
    """Return arrays of zeros that lie side by side in one piece of memory; it goes with the last of them.

    Args:
        shapes: of each array, and its type.
    """
    sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in shapes]
    starts = np.cumsum([0, *(-(-size // _LINE) * _LINE for size in sizes)]).tolist()
    memory = np.frombuffer(large_memory(max(starts[-1], 1)), np.uint8)
    return [
        memory[start : start + size].view(dtype).reshape(shape)
        for start, size, (shape, dtype) in zip(starts, sizes, shapes, strict=False)
    ]
