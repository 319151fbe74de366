"""Elementwise com.microsoft operators on quantized tensors, and QLinearConcat.

Each computes on the real values and rounds once to the output's grid. Of sums and products the scales are joined:

    sum       a * factor_a + b * factor_b + (zero - zero_a * factor_a - zero_b * factor_b), factor_x = scale_x / scale
    product   (a - zero_a) * (b - zero_b) * (scale_a * scale_b / scale) + zero
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingElementwise
from ort_core.cpu.lowering.products.quantized import (
    Grid,
    as_float,
    constant_grid,
    dequantized,
    dequantized_levels,
    float_constant,
    quantized_expression,
)
from ort_core.cpu.lowering.rules.indexing.views import require_joinable
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import axis_place, tensor_type
from ort_core.cpu.lowering.views import View
from ort_core.plugin.ir import KnownDim, Node, Value
from ort_core.plugin.loops import Scalar, cast, fma, meaning_of, unary

_MEANINGS = {
    "QLinearAdd": "Add", "QLinearMul": "Mul", "QLinearLeakyRelu": "LeakyRelu", "QLinearSigmoid": "Sigmoid",
}  # fmt: skip
_LEAST_FACTOR = np.finfo(np.float32).smallest_normal
_MOST_FACTOR = 16.0  # of a sum: parts of up to 256 times as much cancel, and a step is still exact to 1/2048 of it


def quantized_elementwise(lowering: Lowering, node: Node) -> None:
    """QLinearAdd, QLinearMul, QLinearLeakyRelu, QLinearSigmoid."""
    operands = 2 if node.op_type in ("QLinearAdd", "QLinearMul") else 1
    dtype, shape = tensor_type(node.output)
    grid = constant_grid(lowering, node.input(3 * operands), node.input(3 * operands + 1), dtype)
    state = FusionState()
    if operands == 2 and (joined := _joined(lowering, state, node, shape, _known(grid))) is not None:
        result = cast(unary("rint", joined), dtype)
        lowering.set(node.output, PendingElementwise(result, tuple(state.inputs), shape, (node,)))
        return
    reals = [_real(lowering, state, node, 3 * index, shape) for index in range(operands)]
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    value = meaning_of("", _MEANINGS[node.op_type], reals, attributes)
    if not isinstance(value, Scalar):
        raise NotLowered(value.reason)
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


def _joined(lowering: Lowering, state: FusionState, node: Node, shape: Sequence[KnownDim], out: Grid) -> Scalar | None:
    """Return a sum or product on the result's grid, to be rounded; ``None`` where joined scales would lose digits."""
    grids = [_known(_grid_of(lowering, node, first)) for first in (0, 3)]
    factors = [np.float32(each.scale) for each in grids]
    with np.errstate(all="ignore"):
        if node.op_type == "QLinearMul":
            factors = [factors[0] * factors[1]]
        factors = [factor / np.float32(out.scale) for factor in factors]
    most = _MOST_FACTOR if node.op_type == "QLinearAdd" else np.finfo(np.float32).max
    if not all(_LEAST_FACTOR <= factor <= most for factor in factors):
        return None
    stored = [state.add(_spread(lowering, node, first, shape)) for first in (0, 3)]
    factor, *rest = (state.add(float_constant(lowering, float(each))) for each in factors)
    if node.op_type == "QLinearMul":
        left, right = (dequantized_levels(lowering, state, x, grid) for x, grid in zip(stored, grids, strict=True))
        return fma(left * right, factor, state.add(float_constant(lowering, out.zero_point)))
    zero = out.zero_point - sum(float(f) * grid.zero_point for f, grid in zip(factors, grids, strict=True))
    below = fma(as_float(stored[0]), factor, state.add(float_constant(lowering, zero)))
    return fma(as_float(stored[1]), rest[0], below)


def _real(lowering: Lowering, state: FusionState, node: Node, first: int, shape: Sequence[KnownDim]) -> Scalar:
    """Return the real value of an operand whose tensor, scale and zero point stand from ``first`` on."""
    view = _spread(lowering, node, first, shape)
    return dequantized(lowering, state, state.add(view), _known(_grid_of(lowering, node, first)))


def _spread(lowering: Lowering, node: Node, first: int, shape: Sequence[KnownDim]) -> View:
    """Return the bytes of an operand."""
    return lowering.operands.spread(lowering.view(_operand(node, first)), shape)


def _grid_of(lowering: Lowering, node: Node, first: int) -> Grid | None:
    """Return the grid of an operand."""
    dtype, _ = tensor_type(_operand(node, first))
    return constant_grid(lowering, node.input(first + 1), node.input(first + 2), dtype)


def _operand(node: Node, first: int) -> Value:
    value = node.input(first)
    if value is None:
        raise NotLowered("an operand is missing")
    return value


def _known(grid: Grid | None) -> Grid:
    if grid is None:
        raise NotLowered("a scale or zero point is not one constant")
    return grid
