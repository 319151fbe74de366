"""Convolutions of quantized images: Conv between DequantizeLinear nodes, QLinearConv and ConvInteger."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor
from ort_core.cpu.lowering.products.quantized import (
    BYTES,
    F32,
    Grid,
    constant_grid,
    float_constant,
    quantized_constant,
    quantized_value,
)
from ort_core.cpu.lowering.rules.images.images import open_pads_of, pair
from ort_core.cpu.lowering.rules.quantized.integer_anchors import (
    IntegerAnchor,
    IntegerWeights,
    exact_sum,
    integer_weights,
    scale_operand,
)
from ort_core.cpu.lowering.rules.quantized.integer_images import byte_images, emit_byte_border, own_bordered
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View
from ort_core.plugin import frozen
from ort_core.plugin.ir import Node, Value
from ort_core.plugin.loops import Scalar, cast, element, unary

BIAS_TOLERANCE = 1e-4  # of a bias' scale against the product of the operands': float32 rounds at 6e-8


def quantized_convolution(lowering: Lowering, node: Node) -> bool:
    """Lower a Conv of dequantized bytes and constant dequantized weights; return whether it is one."""
    x = quantized_value(lowering, node.input(0))
    weights = quantized_constant(lowering, node.input(1))
    if x is None or weights is None or x.grid.dtype not in BYTES or weights.integers.dtype.itemsize != 1:
        return False
    if weights.integers.ndim not in (3, 4) or (weights.axis != 0 and weights.scales.size > 1):
        return False
    groups = node.int_attribute("group", 1)
    made = integer_weights(weights.integers, weights.zero_points, groups)
    if made.zero_points is not None and groups != 1:
        return False
    scales = np.float32(x.grid.scale) * weights.scales
    bias = None
    if node.input(2) is not None:
        bias = integer_bias(lowering, node.input(2), scales)
        if bias is None:
            return False
    _, shape = tensor_type(node.output)
    anchor = _anchor(lowering, node, x.source, made, x.grid.zero_point)
    total, inputs = exact_sum(lowering, anchor, made, x.grid.zero_point, bias, shape)
    value = cast(total, F32) * scale_operand(lowering, anchor, inputs, scales)
    lowering.set(node.output, PendingAnchor(anchor, value, tuple(inputs), shape, (node,)))
    return True


def qlinear_convolution(lowering: Lowering, node: Node) -> None:
    """QLinearConv with constant weights and scales."""
    x, dtype = node.input(0), tensor_type(node.output)[0]
    assert x is not None
    grid = constant_grid(lowering, node.input(1), node.input(2), tensor_type(x)[0])
    out = constant_grid(lowering, node.input(6), node.input(7), dtype)
    w = _WeightInputs.of(lowering, node, 3, 5)
    scales = lowering.constant_of(node.input(4))
    bias = lowering.constant_of(node.input(8))
    if grid is None or out is None or scales is None or (bias is None and node.input(8) is not None):
        raise NotLowered("scales, zero points or the bias are not constant")
    made = integer_weights(w.integers, w.zero_points, node.int_attribute("group", 1))
    _, shape = tensor_type(node.output)
    anchor = _anchor(lowering, node, x, made, grid.zero_point)
    total, inputs = exact_sum(lowering, anchor, made, grid.zero_point, bias, shape)
    combined = np.float32(grid.scale) * scales.reshape(-1) / np.float32(out.scale)
    value = cast(total, F32) * scale_operand(lowering, anchor, inputs, combined)
    result, operands = requantized(lowering, value, inputs, out)
    lowering.set(node.output, PendingAnchor(anchor, result, operands, shape, (node,)))


def integer_convolution(lowering: Lowering, node: Node) -> None:
    """ConvInteger with constant weights: the int32 sums themselves."""
    x = node.input(0)
    assert x is not None
    w = _WeightInputs.of(lowering, node, 1, 3)
    made = integer_weights(w.integers, w.zero_points, node.int_attribute("group", 1))
    zero: int | View = 0
    if node.input(2) is not None:
        array = lowering.constant_of(node.input(2))
        zero = lowering.contiguous(node.input(2)) if array is None else int(array.reshape(-1)[0])
    _, shape = tensor_type(node.output)
    anchor = _anchor(lowering, node, x, made, zero)
    total, inputs = exact_sum(lowering, anchor, made, zero, None, shape)
    lowering.set(node.output, PendingAnchor(anchor, total, tuple(inputs), shape, (node,)))


@frozen
class _WeightInputs:
    """Constant weights of a node and their zero points."""

    integers: np.ndarray
    zero_points: np.ndarray

    @classmethod
    def of(cls, lowering: Lowering, node: Node, weights: int, zero_points: int) -> _WeightInputs:
        integers = lowering.constant_of(node.input(weights))
        zeros: np.ndarray | None = np.zeros(1, np.int32)
        if node.input(zero_points) is not None:
            zeros = lowering.constant_of(node.input(zero_points))
        if integers is None or zeros is None:
            raise NotLowered("the weights or their zero points are not constant")
        if integers.dtype.itemsize != 1 or integers.dtype.kind not in "iu":
            raise NotLowered(f"weights of type {integers.dtype} are not generated")
        return cls(integers, zeros)


def requantized(
    lowering: Lowering, value: Scalar, inputs: Sequence[View], grid: Grid
) -> tuple[Scalar, tuple[View, ...]]:
    """Return a value over an anchor and ``inputs`` that is divided by its grid's scale already, as integers."""
    views = list(inputs)
    whole = unary("rint", value)
    if grid.zero_point:
        views.append(float_constant(lowering, grid.zero_point))
        whole = whole + element(len(views), F32)
    return cast(whole, grid.dtype), tuple(views)


def _anchor(
    lowering: Lowering, node: Node, source: Value | View, weights: IntegerWeights, zero_point: int | View
) -> IntegerAnchor:
    integers = weights.bytes
    rank = integers.ndim
    if rank not in (3, 4):
        raise NotLowered("only 1-D and 2-D convolutions of bytes are generated")
    window, groups = integers.shape[2:], node.int_attribute("group", 1)
    dilations, strides = pair(node.ints_attribute("dilations"), rank), pair(node.ints_attribute("strides"), rank)
    x = own_bordered(lowering, node, source, zero_point) if rank == 4 else None
    if x is None:
        x = byte_images(lowering, source)
        pads = open_pads_of(node, rank, window, x.shape[2:])
        if any(pads):
            x = emit_byte_border(lowering, x, pads, zero_point)
    if rank == 3:
        integers = integers.reshape(*integers.shape[:2], 1, integers.shape[2])
    return IntegerAnchor(x, integers, True, rank, node.op_type, strides, dilations, groups)


def is_row(bias: np.ndarray) -> bool:
    """Return whether numbers lie along the last axis alone: a column has one for each row of a product."""
    return bias.size == bias.shape[-1] if bias.ndim else True


def integer_bias(lowering: Lowering, value: Value | None, scales: np.ndarray) -> np.ndarray | None:
    """Return a dequantized bias' integers if they are on the grid of the sums, one for each column or channel."""
    bias = quantized_constant(lowering, value)
    if bias is None or np.any(bias.zero_points) or bias.integers.dtype != np.int32 or not is_row(bias.integers):
        return None
    if not np.allclose(bias.scales, scales, rtol=BIAS_TOLERANCE, atol=0.0):
        return None
    return bias.integers.reshape(-1)
