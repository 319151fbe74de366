"""Parameters that a file holds quantized: a DequantizeLinear of constants is a constant, where it is read as numbers.

Tools write every parameter of a node so that they quantize. Products read quantized weights as they are; what folds its
parameters into others, as BatchNormalization does, needs their numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ort_core.plugin.ir import Value

if TYPE_CHECKING:
    from ort_core.cpu.lowering.lowering import Lowering

_MOST = 1 << 16  # elements: parameters of channels, no weights


def parameter_of(lowering: Lowering, value: Value | None) -> np.ndarray | None:
    """Return the numbers of a parameter that no run changes, ``None`` where it has none."""
    found = lowering.constant_of(value)
    if found is not None or value is None or value.producer is None:
        return found
    node = value.producer
    if node.op_type != "DequantizeLinear" or node.domain not in ("", "com.microsoft"):
        return None
    numbers, scale, point = (lowering.constant_of(node.input(place)) for place in range(3))
    has_point = node.input(2) is not None
    if numbers is None or scale is None or (has_point and point is None) or numbers.size > _MOST:
        return None
    if node.int_attribute("block_size", 0) or numbers.dtype.kind not in "iu" or scale.dtype != np.float32:
        return None
    if scale.size > 1:
        along = [1] * numbers.ndim
        along[node.int_attribute("axis", 1)] = scale.size
        scale = scale.reshape(along)
        point = None if point is None else point.reshape(along)
    shifted = numbers.astype(np.int64) - (0 if point is None else point.astype(np.int64))
    return shifted.astype(np.float32) * scale
