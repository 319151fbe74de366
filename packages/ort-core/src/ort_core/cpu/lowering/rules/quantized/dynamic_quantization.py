"""DynamicQuantizeLinear: a tensor on the grid of unsigned bytes that its own range gives."""

from __future__ import annotations

from dataclasses import dataclass

from ort_core.cpu.codegen.quantized.dynamic_range import BLOCK, block_ranges_kernel, grid_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingElementwise
from ort_core.cpu.lowering.products.quantized import F32
from ort_core.cpu.lowering.steps import KernelText, NotLowered, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, count_of, ordered_strides
from ort_core.plugin.ir import DataType, Node, Value, ceil_div
from ort_core.plugin.loops import cast, unary


def dynamic_quantize_linear(lowering: Lowering, node: Node) -> None:
    """Two steps for the scale and the zero point; the quantization itself stays pending.

    A range is that of all elements in whatever order they lie: images between convolutions stay channels-last.
    """
    value = node.input(0)
    if value is None or tensor_type(value)[0] is not F32:
        raise NotLowered("only float32 is quantized natively")
    x = _without_gaps(lowering, value)
    scale, zero = (
        _result(lowering, output, dtype) for output, dtype in zip(node.outputs[1:3], (F32, DataType.UINT8), strict=True)
    )
    grid = DynamicGrid(scale, zero)
    emit_dynamic_grid(lowering, node, x, grid)
    for output, view in zip(node.outputs[1:], (scale, zero)):
        if output is not None:
            lowering.set(output, view)
    rounded = dynamically_quantized(x, grid)
    lowering.set(node.outputs[0], PendingElementwise(rounded.expression, rounded.inputs, x.shape, (node,)))


@dataclass(frozen=True, slots=True)
class DynamicGrid:
    """The scale (float32) and the zero point (uint8) of a tensor, in memory, known when a run has come there."""

    scale: View
    zero_point: View


def dynamically_quantized(x: View, grid: DynamicGrid) -> PendingElementwise:
    """Return a tensor's levels on its grid as an expression."""
    state = FusionState()
    real = state.add(x)
    whole = unary("rint", real / state.add(grid.scale)) + cast(state.add(grid.zero_point), F32)
    return PendingElementwise(cast(whole, DataType.UINT8), tuple(state.inputs), x.shape)


def emit_dynamic_grid(lowering: Lowering, node: Node, x: View, grid: DynamicGrid) -> None:
    """Write the steps that find the grid of a float32 tensor that fills memory without gaps."""
    count = count_of(x.shape)
    ranges = lowering.new_view(F32, (ceil_div(count, BLOCK) * 2,))
    name, function = block_ranges_kernel(lowering.target)
    lowering.emit(
        KernelText(name, function), (pointer(x), pointer(ranges), count), (x.buffer,), (ranges.buffer,), count, (node,),
        count,
    )  # fmt: skip
    name, function = grid_kernel()
    words = (pointer(ranges), pointer(grid.scale), pointer(grid.zero_point), count)
    writes = (grid.scale.buffer, grid.zero_point.buffer)
    lowering.emit(KernelText(name, function), words, (ranges.buffer,), writes, 1, (node,))


def _without_gaps(lowering: Lowering, value: Value) -> View:
    view = lowering.view(value)
    is_ordered = bool(view.order) and view.strides == ordered_strides(view.shape, view.order)
    return view if is_ordered else lowering.contiguous(value)


def _result(lowering: Lowering, output: Value | None, dtype: DataType) -> View:
    return lowering.new_view(dtype, ()) if output is None else lowering.result_view(output, ())
