"""DynamicQuantizeLinear: a tensor on the grid of unsigned bytes that its own range gives."""

from __future__ import annotations

from ort_core.cpu.codegen.quantized.dynamic_range import (
    BLOCK,
    block_ranges_kernel,
    dynamic_bytes_kernel,
    grid_kernel,
    level,
)
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingElementwise
from ort_core.cpu.lowering.products.quantized import F32
from ort_core.cpu.lowering.steps import Argument, KernelText, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import Buffer, View, count_of, moved_nbytes, ordered_strides
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, Node, Value, ceil_div

_PRODUCTS = frozenset({"MatMulInteger", "MatMulIntegerToFloat"})


def dynamic_quantize_linear(lowering: Lowering, node: Node) -> None:
    """One step or more for the scale and the zero point; the bytes are written with them if products read them alone.

    A range is that of all elements in whatever order they lie: images between convolutions stay channels-last, and
    their quantization stays pending.
    """
    value = node.input(0)
    if value is None or tensor_type(value)[0] is not F32:
        raise NotLowered("only float32 is quantized natively")
    x = _without_gaps(lowering, value)
    scale, zero = (
        _result(lowering, output, dtype) for output, dtype in zip(node.outputs[1:3], (F32, DataType.UINT8), strict=True)
    )
    grid, levels = DynamicGrid(scale, zero), node.outputs[0]
    for output, view in zip(node.outputs[1:], (scale, zero)):
        if output is not None:
            lowering.set(output, view)
    if levels is not None and x.is_contiguous and all(reader.op_type in _PRODUCTS for reader in levels.consumers()):
        lowering.set(levels, store_levels(lowering, node, x, grid, lowering.result_view(levels)))
        return
    _emit_grid(lowering, node, x, grid)
    rounded = dynamically_quantized(x, grid)
    lowering.set(levels, PendingElementwise(rounded.expression, rounded.inputs, x.shape, (node,)))


@frozen
class DynamicGrid:
    """The scale (float32) and the zero point (uint8) of a tensor, in memory, known when a run has come there."""

    scale: View
    zero_point: View


def dynamically_quantized(x: View, grid: DynamicGrid) -> PendingElementwise:
    """Return a tensor's levels on its grid as an expression."""
    state = FusionState()
    real, scale, zero = (state.add(each) for each in (x, grid.scale, grid.zero_point))
    return PendingElementwise(level(real, scale, zero), tuple(state.inputs), x.shape)


def store_levels(lowering: Lowering, node: Node, x: View, grid: DynamicGrid, target: View) -> View:
    """Write the steps that find the grid of a contiguous float32 tensor and write its levels; return these."""
    words, reads = _joined(lowering, node, x, grid)
    count = count_of(x.shape)
    name, function = dynamic_bytes_kernel(lowering.target)
    lowering.emit(
        KernelText(name, function), [*words, pointer(x), pointer(target), count], [*reads, x.buffer],
        [grid.scale.buffer, grid.zero_point.buffer, target.buffer], count, (node,), 4 * count,
        moved_nbytes([x, target]),
    )  # fmt: skip
    return target


def _emit_grid(lowering: Lowering, node: Node, x: View, grid: DynamicGrid) -> None:
    """Write the steps that find the grid of a float32 tensor that fills memory without gaps."""
    words, reads = _joined(lowering, node, x, grid)
    name, function = grid_kernel(lowering.target)
    writes = (grid.scale.buffer, grid.zero_point.buffer)
    lowering.emit(KernelText(name, function), words, reads, writes, 1, (node,))


def _joined(lowering: Lowering, node: Node, x: View, grid: DynamicGrid) -> tuple[list[Argument], list[Buffer]]:
    """Write the step that finds the ranges of blocks; return what kernels are given that join them into a grid."""
    count = count_of(x.shape)
    blocks = ceil_div(count, BLOCK)
    ranges = lowering.new_view(F32, (2, blocks))
    least, greatest = pointer(ranges), Pointer(ranges.buffer, blocks)
    name, function = block_ranges_kernel(lowering.target)
    words = (pointer(x), least, greatest, count)
    lowering.emit(KernelText(name, function), words, (x.buffer,), (ranges.buffer,), count, (node,), count)
    return [least, greatest, blocks, pointer(grid.scale), pointer(grid.zero_point)], [ranges.buffer]


def _without_gaps(lowering: Lowering, value: Value) -> View:
    view = lowering.view(value)
    is_ordered = bool(view.order) and view.strides == ordered_strides(view.shape, view.order)
    return view if is_ordered else lowering.contiguous(value)


def _result(lowering: Lowering, output: Value | None, dtype: DataType) -> View:
    return lowering.new_view(dtype, ()) if output is None else lowering.result_view(output, ())
