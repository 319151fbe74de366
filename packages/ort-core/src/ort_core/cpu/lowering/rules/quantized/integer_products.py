"""Products of quantized matrices with constant right sides.

MatMul and Gemm between DequantizeLinear nodes, QLinearMatMul, QGemm, and MatMulInteger and its com.microsoft forms
that scale the sums. Everything that follows up to the store is fused; see ``integer_anchors`` for the arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor
from ort_core.cpu.lowering.products.quantized import (
    BYTES,
    F32,
    QuantizedConstant,
    constant_grid,
    quantized_constant,
    quantized_value,
)
from ort_core.cpu.lowering.rules.quantized.dynamic_quantization import (
    DynamicGrid,
    store_levels,
)
from ort_core.cpu.lowering.rules.quantized.integer_anchors import (
    IntegerAnchor,
    IntegerWeights,
    exact_sum,
    integer_weights,
    scale_operand,
)
from ort_core.cpu.lowering.rules.quantized.integer_convolutions import integer_bias, is_row, requantized
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, collapse, count_of
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import Scalar, cast, element


def quantized_product(lowering: Lowering, node: Node) -> bool:
    """Lower a MatMul, FusedMatMul or Gemm of bytes and constant weights, both dequantized; return whether it is one."""
    x, weights = quantized_value(lowering, node.input(0)), quantized_constant(lowering, node.input(1))
    if x is None or weights is None or x.grid.dtype not in BYTES or weights.integers.dtype.itemsize != 1:
        return False
    is_gemm = node.op_type == "Gemm"
    moved = ("transA", "transBatchA", "transBatchB")
    if weights.integers.ndim != 2 or any(node.int_attribute(name, 0) for name in moved):
        return False
    alpha = node.float_attribute("alpha", 1.0)  # of Gemm and FusedMatMul, as transB is
    if is_gemm and (alpha, node.float_attribute("beta", 1.0)) != (1.0, 1.0):
        return False
    outputs_first = node.int_attribute("transB", 0) != 0
    if weights.scales.size > 1 and weights.axis != (0 if outputs_first else 1):
        return False
    made = _weights(weights, outputs_first)
    scales = np.float32(x.grid.scale) * weights.scales
    bias = None
    if is_gemm and node.input(2) is not None:
        bias = integer_bias(lowering, node.input(2), scales)
        if bias is None or bias.size != made.bytes.shape[0]:
            return False
    _, shape = tensor_type(node.output)
    anchor = _anchor(lowering, x.view(lowering), made, shape, node.op_type)
    total, inputs = exact_sum(lowering, anchor, made, x.grid.zero_point, bias, shape)
    value = cast(total, F32) * scale_operand(lowering, anchor, inputs, scales)
    if alpha != 1.0:
        value = value * alpha
    lowering.set(node.output, PendingAnchor(anchor, value, tuple(inputs), shape, (node,)))
    return True


def matmul_integer(lowering: Lowering, node: Node) -> None:
    """MatMulInteger: the int32 sums themselves."""
    anchor, total, inputs, shape = _integer_sum(lowering, node, node.input(2), node.input(3))
    lowering.set(node.output, PendingAnchor(anchor, total, tuple(inputs), shape, (node,)))


def matmul_integer_to_float(lowering: Lowering, node: Node) -> None:
    """MatMulIntegerToFloat: the sums, scaled, with a bias."""
    pending = scaled_integer_product(lowering, node, scales=(2, 3), zero_points=(4, 5), bias=6)
    lowering.set(node.output, pending)


def dynamic_quantize_matmul(lowering: Lowering, node: Node) -> None:
    """DynamicQuantizeMatMul: the left side on the grid that its own range gives, then as MatMulIntegerToFloat."""
    value = node.input(0)
    if value is None or tensor_type(value)[0] is not F32:
        raise NotLowered("only float32 is quantized natively")
    real = lowering.contiguous(value)
    grid = DynamicGrid(lowering.new_view(F32, ()), lowering.new_view(DataType.UINT8, ()))
    x = store_levels(lowering, node, real, grid, lowering.new_view(DataType.UINT8, real.shape))
    made = _constant_weights(lowering, node.input(1), node.input(3), outputs_first=False)
    shape = (*real.shape[:-1], made.bytes.shape[0])
    anchor = _anchor(lowering, x, made, shape, node.op_type)
    total, inputs = exact_sum(lowering, anchor, made, grid.zero_point, None, shape)
    scaled = _scaled(lowering, total, inputs, [grid.scale, lowering.contiguous(node.input(2))], node.input(4))
    lowering.set(node.output, _fusable(anchor, scaled, inputs, shape, node))


def scaled_integer_product(
    lowering: Lowering, node: Node, *, scales: tuple[int, int], zero_points: tuple[int, int], bias: int
) -> PendingAnchor:
    """Return the product of inputs 0 and 1, bytes, scaled to float32, with a bias; the others stand at positions."""
    a_zero, b_zero = (node.input(index) for index in zero_points)
    anchor, total, inputs, shape = _integer_sum(lowering, node, a_zero, b_zero)
    factors = [lowering.contiguous(node.input(index)) for index in scales]
    value = _scaled(lowering, total, inputs, factors, node.input(bias))
    return _fusable(anchor, value, inputs, shape, node)


def _scaled(
    lowering: Lowering, total: Scalar, inputs: list[View], scales: Sequence[View], bias: Value | None
) -> Scalar:
    """Return sums times scales plus a bias, which are appended to the operands."""
    value = cast(total, F32)
    for scale in scales:
        value = value * _vector(inputs, scale)
    return value if bias is None else value + _vector(inputs, lowering.contiguous(bias))


def _fusable(
    anchor: IntegerAnchor, value: Scalar, inputs: list[View], shape: Sequence[KnownDim], node: Node
) -> PendingAnchor:
    if not anchor.can_fuse(shape, inputs):
        raise NotLowered("scales or the bias do not lie along the columns")
    return PendingAnchor(anchor, value, tuple(inputs), tuple(shape), (node,))


def product_with_constant(lowering: Lowering, node: Node) -> None:
    """QLinearMatMul with a constant right side: the sums on the output's grid."""
    _requantized_product(lowering, node, (1, 2), (4, 5), (6, 7), None, np.float32(1.0), outputs_first=False)


def quantized_gemm(lowering: Lowering, node: Node) -> None:
    """QGemm: the sums with an int32 bias, scaled, on the output's grid where it has one."""
    if node.int_attribute("transA", 0):
        raise NotLowered("the left side is transposed")
    if (node.input(7) is None) != (node.input(8) is None):
        raise NotLowered("the result has a scale without a zero point, or a zero point without a scale")
    bias = None
    if node.input(6) is not None:
        bias = lowering.constant_of(node.input(6))
        if bias is None:
            raise NotLowered("the bias is not constant")
    alpha, outputs_first = np.float32(node.float_attribute("alpha", 1.0)), node.int_attribute("transB", 0) != 0
    out = (7, 8) if node.input(7) is not None else None
    _requantized_product(lowering, node, (1, 2), (4, 5), out, bias, alpha, outputs_first=outputs_first)


def _requantized_product(
    lowering: Lowering, node: Node, left: tuple[int, int], right: tuple[int, int], out: tuple[int, int] | None,
    bias: np.ndarray | None, alpha: np.float32, *, outputs_first: bool,
) -> None:  # fmt: skip
    x, w = node.input(0), node.input(3)
    assert x is not None
    grid = constant_grid(lowering, node.input(left[0]), node.input(left[1]), tensor_type(x)[0])
    scales = lowering.constant_of(node.input(right[0]))
    if grid is None or scales is None or scales.dtype != np.float32:
        raise NotLowered("scales or zero points are not constant, or the left side has more than one")
    made = _constant_weights(lowering, w, node.input(right[1]), outputs_first)
    _, shape = tensor_type(node.output)
    anchor = _anchor(lowering, lowering.view(x), made, shape, node.op_type)
    flat = None if bias is None else bias.reshape(-1)
    if bias is not None and (bias.size != made.bytes.shape[0] or not is_row(bias)):
        raise NotLowered("the bias is not one number for each column")
    total, inputs = exact_sum(lowering, anchor, made, grid.zero_point, flat, shape)
    combined = alpha * np.float32(grid.scale) * scales.reshape(-1)
    if combined.size not in (1, made.bytes.shape[0]):
        raise NotLowered("scales of the right side are not one, or one for each column")
    if out is None:
        value = cast(total, F32) * scale_operand(lowering, anchor, inputs, combined)
        lowering.set(node.output, PendingAnchor(anchor, value, tuple(inputs), shape, (node,)))
        return
    result_grid = constant_grid(lowering, node.input(out[0]), node.input(out[1]), tensor_type(node.output)[0])
    if result_grid is None:
        raise NotLowered("the output's scale or zero point is not one constant")
    value = cast(total, F32) * scale_operand(lowering, anchor, inputs, combined / np.float32(result_grid.scale))
    result, operands = requantized(lowering, value, inputs, result_grid)
    lowering.set(node.output, PendingAnchor(anchor, result, operands, shape, (node,)))


def _integer_sum(
    lowering: Lowering, node: Node, a_zero: Value | None, b_zero: Value | None
) -> tuple[IntegerAnchor, Scalar, list[View], tuple[KnownDim, ...]]:
    x = node.input(0)
    made = _constant_weights(lowering, node.input(1), b_zero, outputs_first=False)
    zero: int | View = 0
    if a_zero is not None:
        array = lowering.constant_of(a_zero)
        if count_of(tensor_type(a_zero)[1]) != 1:
            raise NotLowered("the left side has a zero point for each row")
        zero = lowering.contiguous(a_zero) if array is None else int(array.reshape(-1)[0])
    view = lowering.view(x)
    shape = (*view.shape[:-1], made.bytes.shape[0])
    anchor = _anchor(lowering, view, made, shape, node.op_type)
    total, inputs = exact_sum(lowering, anchor, made, zero, None, shape)
    return anchor, total, inputs, shape


def _constant_weights(
    lowering: Lowering, value: Value | None, zero_point: Value | None, outputs_first: bool
) -> IntegerWeights:
    integers = lowering.constant_of(value)
    zeros: np.ndarray | None = np.zeros(1, np.int32)
    if zero_point is not None:
        zeros = lowering.constant_of(zero_point)
    if integers is None or zeros is None or integers.ndim != 2:
        raise NotLowered("the right side or its zero points are not a constant matrix")
    if integers.dtype.itemsize != 1 or integers.dtype.kind not in "iu":
        raise NotLowered(f"a right side of type {integers.dtype} is not generated")
    if zeros.size not in (1, integers.shape[0 if outputs_first else 1]):
        raise NotLowered("zero points of the right side are not one, or one for each column")
    return _weights(QuantizedConstant(integers, np.ones(1, np.float32), zeros, 1), outputs_first)


def _weights(constant: QuantizedConstant, outputs_first: bool) -> IntegerWeights:
    integers = constant.integers if outputs_first else constant.integers.T
    return integer_weights(integers[:, :, None, None], constant.zero_points)


def _anchor(
    lowering: Lowering, x: View, weights: IntegerWeights, shape: Sequence[KnownDim], operator: str
) -> IntegerAnchor:
    if x.dtype not in BYTES:
        raise NotLowered(f"a left side of type {x.dtype.text} is not generated")
    if len(x.shape) < 2 or len(x.shape) != len(shape):
        raise NotLowered("only matrices, or stacks of them on the left, are multiplied natively")
    lowering.require_equal(x.shape[-1], weights.bytes.shape[1])
    sizes, _ = collapse(x.shape[:-1], [x.strides[:-1]])
    if x.strides[-1] != 1 or len(sizes) > 3:
        x = lowering.copied(x)
    return IntegerAnchor(x, weights.bytes, False, len(shape), operator)


def _vector(inputs: list[View], view: View) -> Scalar:
    """Append a float vector or number to the operands and return how it is read."""
    if view.dtype is not F32 or len(view.shape) > 1:
        raise NotLowered("a scale or bias is not a float32 vector")
    inputs.append(view.reshaped(()) if count_of(view.shape) == 1 else view)
    return element(len(inputs), F32)
