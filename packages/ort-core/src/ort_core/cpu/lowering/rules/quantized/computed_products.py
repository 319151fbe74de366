"""QLinearMatMul of two computed sides, as the attention of a quantized transformer has it, and of a constant right one.

    y = saturate(round(sum (a - z_a) (b - z_b) * (s_a s_b / s_y)) + z_y)

Both sides are made whole numbers in float32 and multiplied as such. Products of bytes have at most 16 bits, so that
sums of 258 are exact whatever the bytes are; larger sums are rounded like those of a float32 product, by less than one
step of the result's grid.
"""

from __future__ import annotations

import numpy as np

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingAnchor, PendingElementwise
from ort_core.cpu.lowering.products.quantized import (
    BYTES,
    F32,
    Grid,
    constant_grid,
    float_constant,
    quantized_expression,
)
from ort_core.cpu.lowering.rules.products import computed_product
from ort_core.cpu.lowering.rules.quantized.integer_products import product_with_constant
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View
from ort_core.plugin.ir import Node
from ort_core.plugin.loops import cast, element


def qlinear_matmul(lowering: Lowering, node: Node) -> None:
    """QLinearMatMul: the sums on the output's grid."""
    if lowering.constant_of(node.input(3)) is not None:
        product_with_constant(lowering, node)
        return
    out, shape = tensor_type(node.output)
    left, right = (_centered(lowering, node, first) for first in (0, 3))
    result_grid = constant_grid(lowering, node.input(6), node.input(7), out)
    if result_grid is None:
        raise NotLowered("the output's scale or zero point is not one constant")
    product = computed_product(lowering, left[0], right[0], node.op_type)
    sums = lowering.new_view(F32, shape)
    product.store(lowering, PendingAnchor(product, element(0, F32), (), shape, (node,)), sums)
    scale = np.float32(left[1].scale) * np.float32(right[1].scale) / np.float32(result_grid.scale)
    state = FusionState()
    value = state.add(sums) * state.add(float_constant(lowering, float(scale)))
    result = quantized_expression(lowering, state, value, result_grid, divided=True)
    lowering.set(node.output, PendingElementwise(result, tuple(state.inputs), shape, (node,)))


def _centered(lowering: Lowering, node: Node, first: int) -> tuple[View, Grid]:
    """Return the operand whose bytes, scale and zero point stand from ``first`` on: less its zero point, in float32."""
    value = node.input(first)
    if value is None:
        raise NotLowered("an operand is missing")
    dtype, shape = tensor_type(value)
    grid = constant_grid(lowering, node.input(first + 1), node.input(first + 2), dtype)
    if grid is None or dtype not in BYTES or len(shape) < 2:
        raise NotLowered("a side is not bytes of rank 2 or more with one constant scale and zero point")
    state = FusionState()
    real = cast(state.add(lowering.view(value)), F32)
    if grid.zero_point:
        real = real - state.add(float_constant(lowering, grid.zero_point))
    return lowering.computed(real, state.inputs), grid
