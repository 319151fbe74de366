"""QLinearMatMul and MatMulInteger of two computed sides, as attention has them, and of a constant right one.

    y = saturate(round(sum (a - z_a) (b - z_b) * (s_a s_b / s_y)) + z_y)
    y = sum (a - z_a) (b - z_b)

Both sides are made whole numbers in float32 and multiplied as such. Products of bytes have at most 16 bits, so that
sums of 258 are exact whatever the bytes are. Larger sums of QLinearMatMul are rounded like those of a float32 product,
by less than one step of the result's grid; those of MatMulInteger are sums of exact ones, or computed in int32.
"""

from __future__ import annotations

import numpy as np

from ort_core.cpu.lowering.broadcasting import known_strides
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
from ort_core.cpu.lowering.rules.integer_matrices import integer_product
from ort_core.cpu.lowering.rules.products import computed_product
from ort_core.cpu.lowering.rules.quantized.integer_products import matmul_integer as product_with_constant_integers
from ort_core.cpu.lowering.rules.quantized.integer_products import product_with_constant
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, count_of
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import cast, element

_EXACT = 256  # terms whose sum float32 holds exactly, whatever the bytes are
_MOST_PARTS = 8  # of a longer sum; from there on int32 is computed in


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


def matmul_integer(lowering: Lowering, node: Node) -> None:
    """MatMulInteger: the int32 sums themselves."""
    if lowering.constant_of(node.input(1)) is not None:
        product_with_constant_integers(lowering, node)
        return
    _, shape = tensor_type(node.output)
    sizes = [() if value is None else tensor_type(value)[1] for value in (node.input(0), node.input(1))]
    if any(len(each) < 2 for each in sizes):
        raise NotLowered("only matrices of bytes, or stacks of them, are multiplied natively")
    depth = sizes[0][-1]
    if not isinstance(depth, int) or depth > _EXACT * _MOST_PARTS or depth == 0:
        left, right = (_less_zero_point(lowering, node, side, DataType.INT32) for side in range(2))
        integer_product(lowering, node, left, right)
        return
    left, right = (_less_zero_point(lowering, node, side, F32) for side in range(2))
    state, total = FusionState(), None
    for first in range(0, depth, _EXACT):
        count = min(_EXACT, depth - first)
        product = computed_product(
            lowering, _part(left, len(left.shape) - 1, first, count), _part(right, len(right.shape) - 2, first, count),
            node.op_type,
        )  # fmt: skip
        sums = lowering.new_view(F32, shape)
        product.store(lowering, PendingAnchor(product, element(0, F32), (), shape, (node,)), sums)
        part = cast(state.add(sums), DataType.INT32)
        total = part if total is None else total + part
    assert total is not None  # there is a part
    lowering.set(node.output, PendingElementwise(total, tuple(state.inputs), shape, (node,)))


def _part(view: View, axis: int, first: int, count: int) -> View:
    """Return some indices of an axis."""
    shape = (*view.shape[:axis], count, *view.shape[axis + 1 :])
    return View(view.buffer, shape, view.strides, view.offset + view.strides[axis] * first)


def _less_zero_point(lowering: Lowering, node: Node, side: int, dtype: DataType) -> View:
    """Return a side of MatMulInteger less its zero point: one number, or one for each row (left) or column (right)."""
    value, point = node.input(side), node.input(2 + side)
    assert value is not None  # the caller looks
    view, state = lowering.view(value), FusionState()
    if view.dtype not in BYTES:
        raise NotLowered(f"a side of type {view.dtype.text} is not generated")
    number = cast(state.add(view), dtype)
    if point is not None:
        zero = lowering.contiguous(point)
        if count_of(zero.shape) == 1:
            zero = zero.reshaped(())
        elif len(zero.shape) == 1:
            lowering.require_equal(zero.shape[0], view.shape[-2 + side])
            zero = zero.reshaped((zero.shape[0], 1) if side == 0 else zero.shape)
        else:
            raise NotLowered("zero points of more than one dimension are not generated")
        known_strides(zero, view.shape)
        number = number - cast(state.add(zero), dtype)
    return lowering.computed(number, state.inputs)


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
