"""Elementwise com.microsoft operators on quantized tensors, and QLinearConcat.

Each computes on the real values and rounds once to the output's grid.
"""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingElementwise
from ort_core.cpu.lowering.products.quantized import Grid, constant_grid, dequantized, quantized_expression
from ort_core.cpu.lowering.rules.indexing.views import require_joinable
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import axis_place, tensor_type
from ort_core.cpu.lowering.views import View
from ort_core.plugin.ir import KnownDim, Node, Value
from ort_core.plugin.loops import Scalar, meaning_of

_MEANINGS = {
    "QLinearAdd": "Add", "QLinearMul": "Mul", "QLinearLeakyRelu": "LeakyRelu", "QLinearSigmoid": "Sigmoid",
}  # fmt: skip


def quantized_elementwise(lowering: Lowering, node: Node) -> None:
    """QLinearAdd, QLinearMul, QLinearLeakyRelu, QLinearSigmoid."""
    operands = 2 if node.op_type in ("QLinearAdd", "QLinearMul") else 1
    dtype, shape = tensor_type(node.output)
    state = FusionState()
    reals = [_real(lowering, state, node, 3 * index, shape) for index in range(operands)]
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    value = meaning_of("", _MEANINGS[node.op_type], reals, attributes)
    if not isinstance(value, Scalar):
        raise NotLowered(value.reason)
    grid = constant_grid(lowering, node.input(3 * operands), node.input(3 * operands + 1), dtype)
    result = quantized_expression(lowering, state, value, _known(grid), divided=False, shifted=operands == 2)
    lowering.set(node.output, PendingElementwise(result, tuple(state.inputs), shape, (node,)))


def quantized_concat(lowering: Lowering, node: Node) -> None:
    """QLinearConcat: each part is brought to the result's grid in its place."""
    dtype, shape = tensor_type(node.output)
    axis = axis_place(node.int_attribute("axis", 1), len(shape))
    out = _known(constant_grid(lowering, node.input(0), node.input(1), dtype))
    target = lowering.result_view(node.output)
    parts = [(index, part) for index in range(2, len(node.inputs), 3) if (part := node.input(index)) is not None]
    sizes = [tensor_type(part)[1] for _, part in parts]
    require_joinable(lowering, sizes, axis, shape)
    start: KnownDim = 0
    for (index, _), size in zip(parts, sizes, strict=True):
        state = FusionState()
        real = _real(lowering, state, node, index, size)
        result = quantized_expression(lowering, state, real, out, divided=False)
        place = View(target.buffer, size, target.strides, target.offset + start * target.strides[axis])
        first = len(lowering.steps)
        lowering.stores.store_elementwise(PendingElementwise(result, tuple(state.inputs), size, (node,)), place)
        lowering.note_part(first, target.buffer)
        start = start + size[axis]
    lowering.set(node.output, target)


def _real(lowering: Lowering, state: FusionState, node: Node, first: int, shape: Sequence[KnownDim]) -> Scalar:
    """Return the real value of an operand whose tensor, scale and zero point stand from ``first`` on."""
    value: Value | None = node.input(first)
    if value is None:
        raise NotLowered("an operand is missing")
    view = lowering.operands.spread(lowering.view(value), shape)
    grid = _known(constant_grid(lowering, node.input(first + 1), node.input(first + 2), view.dtype))
    return dequantized(lowering, state, state.add(view), grid)


def _known(grid: Grid | None) -> Grid:
    if grid is None:
        raise NotLowered("a scale or zero point is not one constant")
    return grid
