"""Products with one row or one column: sums along rows that are read once, where tiles would be mostly empty."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.rows.reducing import combined, reduce_operand
from ort_core.cpu.lowering.views import View
from ort_core.plugin.ir import DataType, KnownDim, Node

LEAST_DEPTH = 8  # below it tiles are as fast: adding up the lanes of a row costs more than its products


def vector_product(
    lowering: Lowering,
    node: Node,
    left: View,
    right: tuple[View, np.ndarray | None],
    shape: Sequence[KnownDim],
    *,
    is_result: bool,
) -> View | None:
    """Return ``left @ right`` as a contiguous view of ``shape``, or ``None`` where it is not a product with a vector.

    Args:
        lowering: receives the step.
        node: what is computed.
        left: shape (..., m, k).
        right: shape (..., k, n), and the elements where they are constant.
        shape: of the product, (..., m, n).
        is_result: whether the product is what the node returns.
    """
    other, constant = right
    if constant is not None:
        if other.shape[-1] != 1 or constant.dtype != left.dtype.numpy:
            return None
        if left.dtype is DataType.FLOAT and lowering.uses_bfloat16:
            return None
        other = lowering.constant_view(constant.reshape(-1), left.dtype).reshaped(constant.shape)
    if not _runs_along_vectors(left, other):
        return None
    lowering.require_equal(left.shape[-1], other.shape[-2])
    depth, turned = left.shape[-1], (*range(len(other.shape) - 2), -1, -2)
    a = _spread(left, -1, depth)
    b = _spread(other.transposed(turned), -2, depth)
    products = combined((*shape, depth), lambda x, y: x * y, a, b)
    target = lowering.result_view(node.output) if is_result else lowering.new_view(left.dtype, shape)
    return reduce_operand(lowering, products, (len(shape),), "sum", None, target, (node,))


def _runs_along_vectors(left: View, right: View) -> bool:
    """Return whether one side is a vector, or a stack of them, and both lie densely along what is summed."""
    depth = left.shape[-1]
    if left.dtype is not right.dtype or (isinstance(depth, int) and depth < LEAST_DEPTH):
        return False
    is_vector = right.shape[-1] == 1 or left.shape[-2] == 1
    return is_vector and left.strides[-1] == 1 and right.strides[-2] == 1


def _spread(view: View, axis: int, depth: KnownDim) -> View:
    """Return a view (..., vectors, depth) with an axis of size 1 before ``axis``."""
    vectors, step = view.shape[-2], view.strides[-2]
    middle, steps = ((vectors, 1), (step, 0)) if axis == -1 else ((1, vectors), (0, step))
    return View(view.buffer, (*view.shape[:-2], *middle, depth), (*view.strides[:-2], *steps, 1), view.offset)
