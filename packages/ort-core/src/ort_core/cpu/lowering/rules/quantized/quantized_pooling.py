"""QLinearAveragePool and QLinearGlobalAveragePool: means of the real values, rounded once to the output's grid."""

from __future__ import annotations

from ort_core.cpu.codegen.images.pooling import Pooling
from ort_core.cpu.lowering.images.layout_steps import as_images
from ort_core.cpu.lowering.images.pooling_steps import emit_pooling
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingElementwise
from ort_core.cpu.lowering.products.quantized import F32, Grid, constant_grid, dequantized, quantized_expression
from ort_core.cpu.lowering.rules.images.pooling import pool_windows
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, channels_last
from ort_core.plugin.ir import Node


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
    x = _real_images(lowering, node, stored.transposed(to_first) if is_last else stored)
    first = tuple(shape[axis] for axis in to_first) if is_last else shape
    if node.op_type == "QLinearGlobalAveragePool":
        pooled = lowering.new_view(F32, (*x.shape[:2], 1, 1), channels_last(4))
        channels = x.shape[1]
        assert isinstance(channels, int)
        emit_pooling(lowering, node, Pooling(channels, None, is_maximum=False), x, pooled)
        if rank == 3:
            pooled = View(pooled.buffer, first, pooled.strides[:3], pooled.offset)
    else:
        pooled = pool_windows(lowering, node, x, first, is_maximum=False)
    state = FusionState()
    mean = state.add(pooled.transposed(to_last) if is_last else pooled)
    grid = _known(constant_grid(lowering, node.input(3), node.input(4), dtype))
    shifted = node.op_type == "QLinearAveragePool"
    result = quantized_expression(lowering, state, mean, grid, divided=False, shifted=shifted)
    lowering.set(node.output, PendingElementwise(result, tuple(state.inputs), shape, (node,)))


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
