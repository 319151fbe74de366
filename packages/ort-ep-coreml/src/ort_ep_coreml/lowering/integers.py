"""Products of quantized factors: of integers as such, and of floats between dequantizing and quantizing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ort_core.plugin.claims import dtype_of, is_static
from ort_core.plugin.ir import DataType, Node, Value
from ort_ep_coreml.lowering.emission import EmissionState, mil_type
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of
from ort_ep_coreml.lowering.products import matrix_product
from ort_ep_coreml.lowering.quantization import BLOCKWISE_TARGET, axis_shape, blockwise, quantized
from ort_ep_coreml.lowering.rule import FLOATS, INTS, NARROW, Lower, Rule
from ort_ep_coreml.lowering.terms import Term, first
from ort_ep_coreml.lowering.windows import convolved, window_conditions
from ort_ep_coreml.mil import Operand

_INT32 = np.dtype(np.int32)
_EXACT = 2**24  # integers up to this are float32 without a loss
_WIDTHS = {4: DataType.UINT4.numpy, 8: np.dtype(np.uint8)}
_BYTE = 255  # the largest factor of 8 bits less a zero point


def _less_zero(to: EmissionState, node: Node, place: int, zero_place: int, is_row: bool) -> Term:
    """Return a factor as int32 less its zero point, which is of all, of rows or of columns."""
    value, zero = node.input(place), node.input(zero_place)
    found = _as_int32(to, value)
    if zero is None:
        return found
    shift = _as_int32(to, zero)
    if rank_of(zero) == 1 and is_row:
        shift = _reshaped(shift, (-1, 1))
    return found - shift


def _as_int32(to: EmissionState, value: Value | None) -> Term:
    operand = to.operand(value)
    if isinstance(operand, np.ndarray):
        return Term(to, operand.astype(np.int32), _INT32)
    return Term(to, to.emit("cast", x=operand, dtype="int32"), _INT32)


def _reshaped(x: Term, sizes: tuple[int, ...]) -> Term:
    if isinstance(x.operand, np.ndarray):
        return Term(x.to, x.operand.reshape(sizes), x.dtype)
    return x.reshaped(*sizes)


def _matmul_integer(to: EmissionState, node: Node) -> Operand:
    """Lower to a product of floats where that is exact, which leaves the weights at 8 bits, else to one of int32."""
    ranks = rank_of(node.input(0)), rank_of(node.input(1))
    a, weight = _less_zero(to, node, 0, 2, True), _fixed_factor(to.context, node)
    if weight is None or not _sums_are_exact(to.context, weight, weight.ndim - 2):
        return matrix_product(a, _less_zero(to, node, 1, 3, False), ranks).operand
    wide = np.dtype(np.float32)
    found = matrix_product(a.cast(wide, "fp32"), _as_floats(to, node), ranks)
    return found.cast(_INT32, "int32").operand


def _fixed_factor(context: LoweringContext, node: Node) -> np.ndarray | None:
    """Return the second factor less its zero point as int32, [..., rows, columns]; None where it is not a constant."""
    weight, zero = context.constant(node.input(1)), context.constant(node.input(3))
    if weight is None or weight.ndim < 2 or (node.input(3) is not None and zero is None):
        return None
    return weight.astype(np.int32) - (0 if zero is None else zero.astype(np.int32))


def _as_floats(to: EmissionState, node: Node) -> Term:
    """Return the second factor less its zero point as float32; the package holds it with 8 bits an element."""
    weight, zero = to.context.constant(node.input(1)), to.context.constant(node.input(3))
    assert weight is not None, "_fixed_factor was asked"
    shift = np.zeros((), weight.dtype) if zero is None else zero.reshape(() if zero.size == 1 else -1)
    operand = to.emit(
        "constexpr_affine_dequantize", quantized_data=weight, zero_point=shift,
        scale=np.ones(shift.shape, np.float32), axis=np.array(weight.ndim - 1, np.int32),
    )  # fmt: skip
    return Term(to, operand, np.dtype(np.float32))


def _sums_are_exact(context: LoweringContext, weight: np.ndarray, axes: int | tuple[int, ...]) -> bool:
    """Return whether float32 holds each sum of products of 8 bit factors with weights over axes, in any order."""
    return context.precision == "FLOAT32" and int(np.abs(weight).sum(axis=axes).max(initial=0)) * _BYTE <= _EXACT


def _zero_points_are_flat(context: LoweringContext, node: Node) -> str | None:
    if any(rank_of(node.input(place)) > 1 for place in (2, 3)):
        return f"{node.op_type} with zero points of more than one dimension is not lowered"
    return None if min(rank_of(node.input(0)), rank_of(node.input(1))) >= 1 else "a factor is a scalar"


def _conv_integer(to: EmissionState, node: Node) -> Operand:
    x = _less_zero(to, node, 0, 2, False).cast(np.dtype(np.float32), "fp32")
    found = convolved(to, node, x.operand, _filters(to.context, node).astype(np.float32), None)
    return to.emit("cast", x=found, dtype="int32")


def _filters(context: LoweringContext, node: Node) -> np.ndarray:
    """Return the filters of a convolution less their zero points, as int32."""
    weight, zero = context.constant(node.input(1)), context.constant(node.input(3))
    assert weight is not None, "read beforehand"
    shift = 0 if zero is None else zero.astype(np.int32).reshape([-1] + [1] * (weight.ndim - 1))
    return weight.astype(np.int32) - shift


def _is_exact(context: LoweringContext, node: Node) -> str | None:
    weight = _filters(context, node)
    if _sums_are_exact(context, weight, tuple(range(1, weight.ndim))):
        return None
    terms = int(np.prod(weight.shape[1:]))
    return f"Core ML has convolutions of floats only, and sums of these {terms} products are not exact as such"


def _dequantized(to: EmissionState, node: Node, place: int, dtype: np.dtype, axis: int | None = None) -> Term:
    """Return the quantized input at a position, with its scale and zero point behind it, as floats."""
    data, scale, zero = to.operand(node.input(place)), _values(to, node, place + 1), _values(to, node, place + 2)
    if scale.size > 1 and axis is not None and isinstance(data, np.ndarray):
        shape = axis_shape(scale.size, axis % data.ndim, data.ndim)
        scale, zero = scale.reshape(shape), zero.reshape(shape) if zero.size > 1 else zero.reshape(())
    else:
        scale, zero = scale.reshape(()), zero.reshape(())
    scale = scale.astype(dtype)
    if isinstance(data, np.ndarray):
        return Term(to, ((data.astype(dtype) - zero.astype(dtype)) * scale).astype(dtype), dtype)
    return Term(to, to.emit("dequantize", input=data, scale=scale, zero_point=zero), dtype)


def _values(to: EmissionState, node: Node, place: int) -> np.ndarray:
    found = to.context.constant(node.input(place))
    if found is None:  # an absent zero point
        dtype = dtype_of(node.input(place - 2))
        assert dtype is not None, "types were asked"
        return np.zeros((), dtype.numpy)
    return found


def _requantized(to: EmissionState, node: Node, x: Term, place: int) -> Operand:
    """Return floats quantized by the scale and zero point at a position."""
    scale, zero = _values(to, node, place).reshape(()), to.context.constant(node.input(place + 1))
    shift = 0 if zero is None else int(zero.reshape(-1)[0])
    return quantized(x / float(scale), shift, mil_type(node.output)).operand


def _qlinear_matmul(to: EmissionState, node: Node) -> Operand:
    dtype = np.dtype(np.float32)
    a, b = _dequantized(to, node, 0, dtype), _dequantized(to, node, 3, dtype, axis=-1)
    found = matrix_product(a, b, (rank_of(node.input(0)), rank_of(node.input(3))))
    return _requantized(to, node, found, 6)


def _qlinear_conv(to: EmissionState, node: Node) -> Operand:
    dtype = np.dtype(np.float32)
    x, w = _dequantized(to, node, 0, dtype), _dequantized(to, node, 3, dtype, axis=0)
    bias = to.context.constant(node.input(8))
    if bias is not None:
        bias = (bias * (_values(to, node, 1) * _values(to, node, 4)).reshape(-1)).astype(np.float32)
    return _requantized(to, node, Term(to, convolved(to, node, x.operand, w.operand, bias), dtype), 6)


def _one_scale(*places: int) -> Callable[[LoweringContext, Node], str | None]:
    def check(context: LoweringContext, node: Node) -> str | None:
        for place in places:
            scale = context.constant(node.input(place))
            if scale is not None and scale.size > 1:
                return f"{node.op_type} with several scales at input {place} is not lowered"
        return None

    return check


def _weights_are_fixed(place: int) -> Callable[[LoweringContext, Node], str | None]:
    def check(context: LoweringContext, node: Node) -> str | None:
        scale = context.constant(node.input(place + 1))
        if scale is not None and scale.size > 1 and context.constant(node.input(place)) is None:
            return f"{node.op_type} with several scales of a factor that is not a constant is not lowered"
        return None

    return check


def _binary(kind: str) -> Lower:
    def lower(to: EmissionState, node: Node) -> Operand:
        a, b = (_dequantized(to, node, place, np.dtype(np.float32)) for place in (0, 3))
        return _requantized(to, node, a.with_(kind, b), 6)

    return lower


def _unary(compute: Callable[[Term, Node], Term]) -> Lower:
    def lower(to: EmissionState, node: Node) -> Operand:
        return _requantized(to, node, compute(_dequantized(to, node, 0, np.dtype(np.float32)), node), 3)

    return lower


def _leaky(x: Term, node: Node) -> Term:
    return x.do("leaky_relu", alpha=x.number(node.float_attribute("alpha", 0.01)))


def _nbits(to: EmissionState, node: Node) -> Operand:
    """Lower MatMulNBits: weights [columns, blocks, bytes] of 4 or 8 bits, with a scale for each block."""
    packed, scale = to.context.constant(node.input(1)), to.context.constant(node.input(2))
    assert packed is not None, "read beforehand"
    assert scale is not None, "read beforehand"
    rows, columns = node.int_attribute("K", 0), node.int_attribute("N", 0)
    bits, block = node.int_attribute("bits", 4), node.int_attribute("block_size", 0)
    x = first(to, node)
    count = -(-rows // block)
    data = _unpacked(packed.reshape(columns, -1), bits)[:, :rows]
    scale = scale.reshape(columns, count).astype(x.dtype)
    zero = _zero_points(to, node, columns, count, bits)
    if to.context.target == BLOCKWISE_TARGET and rows % block == 0:
        narrow = _WIDTHS[bits]
        weight = blockwise(to, data.astype(narrow), scale, zero.astype(narrow))
    else:
        wide = (each.repeat(block, 1)[:, :rows] for each in (zero.astype(x.dtype), scale))
        shifts, factors = wide
        weight = ((data.astype(x.dtype) - shifts) * factors).astype(x.dtype)
    found = to.emit("matmul", x=x.operand, y=weight, transpose_y=True)
    bias = node.input(5)
    return found if bias is None else to.emit("add", x=found, y=to.operand(bias))


def _unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Return the elements of rows of bytes, the lower half of a byte first."""
    if bits == 8:
        return packed
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], -1)


def _zero_points(to: EmissionState, node: Node, columns: int, count: int, bits: int) -> np.ndarray:
    given = to.context.constant(node.input(3))
    if given is None:
        return np.full((columns, count), 2 ** (bits - 1), np.uint8)
    return _unpacked(given.reshape(columns, -1), bits)[:, :count]


def _nbits_as_lowered(context: LoweringContext, node: Node) -> str | None:
    if node.int_attribute("bits", 4) not in _WIDTHS:
        return f"MatMulNBits of {node.int_attribute('bits', 4)} bits is not lowered: 4 and 8 are"
    if node.input(4) is not None:
        return "MatMulNBits with g_idx is not lowered"
    zero, packed = context.constant(node.input(3)), context.constant(node.input(1))
    if zero is not None and zero.dtype != np.uint8:
        return "MatMulNBits with zero points of floats is not lowered"
    return None if packed is not None and is_static(node.input(1)) else "its weights are not a constant"


INTEGERS: Mapping[str, Rule] = {
    "MatMulInteger": Rule(
        _matmul_integer, NARROW, results={0: INTS}, conditions=(_zero_points_are_flat,), required=2
    ),
    "ConvInteger": Rule(
        _conv_integer, NARROW, results={0: INTS}, beforehand=(1, 3), conditions=(*window_conditions(), _is_exact),
        required=2,
    ),
    "QLinearMatMul": Rule(
        _qlinear_matmul, NARROW, beforehand=(1, 2, 4, 5, 6, 7), conditions=(_one_scale(1, 6), _weights_are_fixed(3)),
        required=8,
    ),
    "QLinearConv": Rule(
        _qlinear_conv, NARROW, beforehand=(1, 2, 3, 4, 5, 6, 7, 8), conditions=(_one_scale(1, 6), *window_conditions()),
        required=8,
    ),
}  # fmt: skip
"""Rules by operator of ``ai.onnx``."""

CONTRIBUTED_INTEGERS: Mapping[str, Rule] = {
    **{
        name: Rule(_binary(kind), NARROW, beforehand=(1, 2, 4, 5, 6, 7), conditions=(_one_scale(1, 4, 6),), required=7)
        for name, kind in {"QLinearAdd": "add", "QLinearMul": "mul"}.items()
    },
    **{
        name: Rule(_unary(compute), NARROW, beforehand=(1, 2, 3, 4), conditions=(_one_scale(1, 3),), required=4)
        for name, compute in {
            "QLinearSigmoid": lambda x, node: x.do("sigmoid"),
            "QLinearLeakyRelu": _leaky,
        }.items()
    },
    "MatMulNBits": Rule(_nbits, FLOATS, beforehand=(1, 2, 3, 4), conditions=(_nbits_as_lowered,), required=3),
}
"""Rules by operator of ``com.microsoft``."""
