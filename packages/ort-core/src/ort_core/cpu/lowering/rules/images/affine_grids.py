"""AffineGrid of a known size: what affine maps make of an even grid, as one expression.

grid[n, (z,) y, x, k] = theta[n, k, 0] x + theta[n, k, 1] y (+ theta[n, k, 2] z) + theta[n, k, last]
"""

from __future__ import annotations

import numpy as np

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingElementwise
from ort_core.cpu.lowering.rows.reducing import operand_of, store_operand
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import fma


def affine_grid(lowering: Lowering, node: Node) -> None:
    """Describe the grid as an expression over the maps and the coordinates of each axis."""
    size = lowering.constant_of(node.input(1))
    dtype, shape = tensor_type(node.output)
    theta = lowering.contiguous(node.input(0))
    if size is None or size.ndim != 1 or len(size) not in (4, 5) or len(shape) != len(size):
        raise NotLowered("the size of the grid is not constant")
    sizes, rank = [int(each) for each in size], len(size) - 2
    if dtype not in (DataType.FLOAT, DataType.DOUBLE) or theta.dtype is not dtype or min(sizes) < 1:
        raise NotLowered(f"grids of {dtype.text} are not generated")
    if len(theta.shape) != 3 or theta.shape[1:] != (rank, rank + 1):
        raise NotLowered("the maps do not fit the size")
    lowering.require_equal(theta.shape[0], sizes[0])
    columns = store_operand(lowering, operand_of(theta.transposed((0, 2, 1))), (node,))
    state, ones = FusionState(), (1,) * rank

    def column(number: int) -> View:
        step = columns.strides[0]
        strides = (step, *(0 for _ in ones), 1)
        return View(columns.buffer, (sizes[0], *ones, rank), strides, columns.offset + number * rank)

    total = state.add(column(rank))
    for number, count in enumerate(reversed(sizes[2:])):
        points = _even(count, bool(node.int_attribute("align_corners", 0))).astype(dtype.numpy)
        along = (1,) * (rank - 1 - number) + (count,) + (1,) * (number + 1)
        line = lowering.constant_view(points.reshape(along), dtype)
        total = fma(state.add(column(number)), state.add(line), total)
    final = (sizes[0], *sizes[2:], rank)
    lowering.set(node.output, PendingElementwise(total, tuple(state.inputs), final, (node,)))


def _even(count: int, is_aligned: bool) -> np.ndarray:
    """Return ``count`` coordinates over [-1, 1]: from end to end, or the centers of equal parts."""
    return np.linspace(-1, 1, count) if is_aligned else (2 * np.arange(count) + 1) / count - 1
