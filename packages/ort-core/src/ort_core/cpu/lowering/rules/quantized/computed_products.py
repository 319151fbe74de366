"""QLinearMatMul and MatMulInteger of two computed sides, as attention has them, and of a constant right one.

    y = saturate(round(sum (a - z_a) (b - z_b) * (s_a s_b / s_y)) + z_y)
    y = sum (a - z_a) (b - z_b)

So are products between DequantizeLinear nodes, whose sums are scaled by ``s_a s_b``. The sums are exact.
"""

from __future__ import annotations

import numpy as np

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor
from ort_core.cpu.lowering.products.byte_products import ZeroPoint, byte_sum
from ort_core.cpu.lowering.products.quantized import (
    BYTES,
    F32,
    Grid,
    constant_grid,
    float_constant,
    quantized_value,
)
from ort_core.cpu.lowering.rules.quantized.integer_convolutions import requantized
from ort_core.cpu.lowering.rules.quantized.integer_products import matmul_integer as product_with_constant_integers
from ort_core.cpu.lowering.rules.quantized.integer_products import product_with_constant
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, count_of
from ort_core.plugin.ir import Node
from ort_core.plugin.loops import Scalar, cast, element


def qlinear_matmul(lowering: Lowering, node: Node) -> None:
    """QLinearMatMul: the sums on the output's grid."""
    if lowering.constant_of(node.input(3)) is not None:
        product_with_constant(lowering, node)
        return
    out, _ = tensor_type(node.output)
    (left, left_grid), (right, right_grid) = (_operand(lowering, node, first) for first in (0, 3))
    result_grid = constant_grid(lowering, node.input(6), node.input(7), out)
    if result_grid is None:
        raise NotLowered("the output's scale or zero point is not one constant")
    scale = np.float32(left_grid.scale) * np.float32(right_grid.scale) / np.float32(result_grid.scale)
    pending = _scaled(lowering, node, (left, right), (left_grid.zero_point, right_grid.zero_point), float(scale))
    result, operands = requantized(lowering, pending.expression, list(pending.inputs), result_grid)
    _set(lowering, node, PendingAnchor(pending.anchor, result, operands, pending.shape, (node,)))


def matmul_integer(lowering: Lowering, node: Node) -> None:
    """MatMulInteger: the int32 sums themselves."""
    if lowering.constant_of(node.input(1)) is not None:
        product_with_constant_integers(lowering, node)
        return
    _, shape = tensor_type(node.output)
    sides = lowering.view(node.input(0)), lowering.view(node.input(1))
    points = _zero_point(lowering, node, sides[0], 0), _zero_point(lowering, node, sides[1], 1)
    sums = byte_sum(lowering, *sides, points, shape, node.op_type)
    _set(lowering, node, PendingAnchor(sums.anchor, sums.total, sums.inputs, shape, (node,)))


def dequantized_product(lowering: Lowering, node: Node) -> bool:
    """Lower a MatMul of two computed sides that are dequantized bytes; return whether it is one."""
    left, right = quantized_value(lowering, node.input(0)), quantized_value(lowering, node.input(1))
    if left is None or right is None or not {left.grid.dtype, right.grid.dtype} <= BYTES:
        return False
    if any(len(tensor_type(value)[1]) < 2 for value in node.present_inputs()):
        return False
    scale = np.float32(left.grid.scale) * np.float32(right.grid.scale)
    points = left.grid.zero_point, right.grid.zero_point
    _set(lowering, node, _scaled(lowering, node, (left.view(lowering), right.view(lowering)), points, float(scale)))
    return True


def _scaled(
    lowering: Lowering, node: Node, sides: tuple[View, View], points: tuple[int, int], scale: float
) -> PendingAnchor:
    """Return the sums as floats, times a number."""
    _, shape = tensor_type(node.output)
    sums = byte_sum(lowering, *sides, points, shape, node.op_type)
    inputs = (*sums.inputs, float_constant(lowering, scale))
    value: Scalar = cast(sums.total, F32) * element(len(inputs), F32)
    return PendingAnchor(sums.anchor, value, inputs, shape, (node,))


def _set(lowering: Lowering, node: Node, pending: PendingAnchor) -> None:
    if not pending.anchor.can_fuse(pending.shape, pending.inputs):
        raise NotLowered("how zero points repeat over columns is only known at run time")
    lowering.set(node.output, pending)


def _zero_point(lowering: Lowering, node: Node, view: View, side: int) -> ZeroPoint:
    """Return a zero point of MatMulInteger: one number, or one for each row (left) or column (right)."""
    value = node.input(2 + side)
    if value is None:
        return 0
    known = lowering.constant_of(value)
    if known is not None and known.size == 1:
        return int(known.reshape(-1)[0])
    zero = lowering.contiguous(value)
    if count_of(zero.shape) == 1:
        return zero.reshaped(())
    if len(zero.shape) != 1 or len(view.shape) < 2:
        raise NotLowered("zero points of more than one dimension are not generated")
    lowering.require_equal(zero.shape[0], view.shape[-2 + side])
    return zero.reshaped((zero.shape[0], 1) if side == 0 else zero.shape)


def _operand(lowering: Lowering, node: Node, first: int) -> tuple[View, Grid]:
    """Return the operand whose bytes, scale and zero point stand from ``first`` on."""
    value = node.input(first)
    if value is None:
        raise NotLowered("an operand is missing")
    dtype, shape = tensor_type(value)
    grid = constant_grid(lowering, node.input(first + 1), node.input(first + 2), dtype)
    if grid is None or dtype not in BYTES or len(shape) < 2:
        raise NotLowered("a side is not bytes of rank 2 or more with one constant scale and zero point")
    return lowering.view(value), grid
