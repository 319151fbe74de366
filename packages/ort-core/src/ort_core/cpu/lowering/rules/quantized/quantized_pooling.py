"""QLinearAveragePool and QLinearGlobalAveragePool: means of the real values, rounded once to the output's grid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.cpu.lowering.images.layout_steps import as_images
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingElementwise
from ort_core.cpu.lowering.products.quantized import F32, Grid, constant_grid, dequantized, quantized_expression
from ort_core.cpu.lowering.rows.reducing import combined, reduce_operand
from ort_core.cpu.lowering.rules.images.pooling import pool_windows
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, channels_last, count_of
from ort_core.plugin.ir import DataType, Node, minimum
from ort_core.plugin.loops import Scalar, cast

_MOST_PIXELS = (1 << 31) // 256  # whose sums have 32 bits


def quantized_pooling(lowering: Lowering, node: Node) -> None:
    """Pool bytes channels-first or, with ``channels_last``, channels-last."""
    if node.int_attribute("ceil_mode", 0):
        raise NotLowered("windows that end outside of the images are not generated")
    value = node.input(0)
    if value is None:
        raise NotLowered("the input is missing")
    dtype, shape = tensor_type(node.output)
    rank = len(shape)
    if rank not in (3, 4):
        raise NotLowered("only 1-D and 2-D images are pooled natively")
    is_last = node.int_attribute("channels_last", 0) != 0
    to_first, to_last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    stored = lowering.view(value)
    state = FusionState()
    if node.op_type == "QLinearGlobalAveragePool":
        mean = _mean(lowering, node, stored, range(1, rank - 1) if is_last else range(2, rank), state)
    else:
        x = _real_images(lowering, node, stored.transposed(to_first) if is_last else stored)
        first = tuple(shape[axis] for axis in to_first) if is_last else shape
        pooled = pool_windows(lowering, node, x, first, is_maximum=False)
        mean = state.add(pooled.transposed(to_last) if is_last else pooled)
    grid = _known(constant_grid(lowering, node.input(3), node.input(4), dtype))
    shifted = node.op_type == "QLinearAveragePool"
    result = quantized_expression(lowering, state, mean, grid, divided=False, shifted=shifted)
    lowering.set(node.output, PendingElementwise(result, tuple(state.inputs), shape, (node,)))


def _mean(lowering: Lowering, node: Node, stored: View, axes: Sequence[int], state: FusionState) -> Scalar:
    """Return the mean of images over axes: of exact sums, and rounded once."""
    grid = _known(constant_grid(lowering, node.input(1), node.input(2), stored.dtype))
    count = count_of([stored.shape[axis] for axis in axes])
    lowering.require_equal(minimum(count, _MOST_PIXELS), count)
    bytes_ = combined(stored.shape, lambda each: cast(each, DataType.INT32), stored)
    sums = state.add(reduce_operand(lowering, bytes_, axes, "sum", operators=(node,)))
    if isinstance(count, int):
        factor = state.add(_double(lowering, grid.scale / max(count, 1)))
        excess: Scalar | int = grid.zero_point * count
    else:
        number = state.add(lowering.stores.stored_sizes((count,)).reshaped(()))
        factor = state.add(_double(lowering, grid.scale)) / cast(number, DataType.DOUBLE)
        excess = cast(number * grid.zero_point, DataType.INT32)
    return cast(cast(sums - excess, DataType.DOUBLE) * factor, F32)


def _double(lowering: Lowering, value: float) -> View:
    return lowering.constant_view(np.array(value, np.float64), DataType.DOUBLE)


def _real_images(lowering: Lowering, node: Node, stored: View) -> View:
    """Return the dequantized images, of rank 4 and channels-last."""
    if not isinstance(stored.shape[1], int):
        raise NotLowered("the number of channels is not known")
    state = FusionState()
    grid = _known(constant_grid(lowering, node.input(1), node.input(2), stored.dtype))
    real = dequantized(lowering, state, state.add(stored), grid)
    pending = PendingElementwise(real, tuple(state.inputs), stored.shape, (node,))
    target = lowering.new_view(F32, stored.shape, channels_last(len(stored.shape)))
    return as_images(lowering.stores.store_elementwise(pending, target))


def _known(grid: Grid | None) -> Grid:
    if grid is None:
        raise NotLowered("a scale or zero point is not one constant")
    return grid
