"""Quantized operators: numbers in 8 bits with scales and zero points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_core.plugin.ir import Node
from ort_ep_directml.lowering.attributes import axis_of
from ort_ep_directml.lowering.elementwise import binary, clamp, unary
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.lowering_context import element_type
from ort_ep_directml.lowering.operand import Operand, broadcast, expanded
from ort_ep_directml.lowering.plan import Sizes
from ort_ep_directml.lowering.products import matrices
from ort_ep_directml.lowering.reductions import reduced
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.rule import Rule
from ort_ep_directml.lowering.windows import channel_shaped, window_of
from ort_ep_directml.schema.element_types import ElementType
from ort_ep_directml.schema.enumerators import ReduceFunction, RoundingMode

_OPTIONAL_ZERO_LEVEL = 0x6200


def _spread(to: EmissionState, part: Operand, node: Node, x: Operand) -> tuple[Operand, Sizes]:
    """Return a scale or zero point over the elements of ``x``, and the sizes that both are then seen with."""
    block = node.int_attribute("block_size", 0)
    if part.rank == 0 or (part.sizes == (1,) and not block):  # one number for all, whatever the axis
        return expanded(to.reshape(part, ()), x.sizes), x.sizes
    axis = axis_of(node, x.rank, 1)
    if part.rank == 1 and not (block and x.rank == 1):
        shaped = to.reshape(part, [part.sizes[0] if place == axis else 1 for place in range(x.rank)])
        return expanded(shaped, x.sizes), x.sizes
    blocks = part.sizes[axis]
    if not block or x.sizes[axis] != blocks * block:
        raise Refused("blocks of a quantization that do not divide the dimension are left to others")
    sizes = x.sizes[:axis] + (blocks, block) + x.sizes[axis + 1 :]
    shaped = to.reshape(part, part.sizes[: axis + 1] + (1,) + part.sizes[axis + 1 :])
    return expanded(shaped, sizes), sizes


def _zero(to: EmissionState, node: Node, x: Operand, dtype: ElementType) -> Operand | None:
    if node.input(2) is not None:
        return _spread(to, to.operand(node.input(2)), node, x)[0]
    if to.context.level >= _OPTIONAL_ZERO_LEVEL:
        return None
    _, sizes = _spread(to, to.operand(node.input(1)), node, x)
    return expanded(to.scalar(dtype, 0), sizes)


def _quantize(to: EmissionState, node: Node) -> Operand:
    x, dtype = to.operand(node.input(0)), element_type(node.output)
    if dtype is None:
        raise Refused("DirectML quantizes to 8 bits alone")
    scale, sizes = _spread(to, to.operand(node.input(1)), node, x)
    zero = _zero(to, node, x, dtype)
    wide = to.reshape(to.cast(x, scale.dtype), sizes)
    made = to.emit("ELEMENT_WISE_QUANTIZE_LINEAR", (dtype, sizes), Input=wide, Scale=scale, ZeroPoint=zero)
    return to.reshape(made, x.sizes)


def _dequantize(to: EmissionState, node: Node) -> Operand:
    x = to.operand(node.input(0))
    scale, sizes = _spread(to, to.operand(node.input(1)), node, x)
    zero, wide = _zero(to, node, x, x.dtype), to.reshape(x, sizes)
    made = to.emit("ELEMENT_WISE_DEQUANTIZE_LINEAR", (scale.dtype, sizes), Input=wide, Scale=scale, ZeroPoint=zero)
    return to.reshape(made, x.sizes)


def _dynamic_quantize(to: EmissionState, node: Node) -> list[Operand]:
    """Lower step by step as ONNX defines it: DirectML's own operator rounds some quotients otherwise."""
    x = to.operand(node.input(0))
    flat = to.reshape(x, x.sizes or (1,))
    axes, zero = tuple(range(flat.rank)), to.scalar(x.dtype, 0)
    low = binary(to, "ELEMENT_WISE_MIN", to.reshape(reduced(to, flat, ReduceFunction.MIN, axes), ()), zero)
    high = binary(to, "ELEMENT_WISE_MAX", to.reshape(reduced(to, flat, ReduceFunction.MAX, axes), ()), zero)
    extent = binary(to, "ELEMENT_WISE_SUBTRACT", high, low)
    steps = binary(to, "ELEMENT_WISE_DIVIDE", extent, to.scalar(x.dtype, 255))
    is_zero = binary(to, "ELEMENT_WISE_LOGICAL_EQUALS", extent, zero, ElementType.UINT8)
    parts = {"Condition": is_zero, "A": to.scalar(x.dtype, 1), "B": steps}
    scale = to.emit("ELEMENT_WISE_IF", (x.dtype, ()), **parts)
    place = binary(to, "ELEMENT_WISE_DIVIDE", binary(to, "ELEMENT_WISE_SUBTRACT", zero, low), scale)
    even = int(RoundingMode.HALVES_TO_NEAREST_EVEN)
    rounded = unary(to, "ELEMENT_WISE_ROUND", clamp(to, place, 0.0, 255.0), RoundingMode=even)
    point = to.cast(rounded, ElementType.UINT8)
    spread = {"Input": x, "Scale": expanded(scale, x.sizes), "ZeroPoint": expanded(point, x.sizes)}
    return [to.emit("ELEMENT_WISE_QUANTIZE_LINEAR", (ElementType.UINT8, x.sizes), **spread), scale, point]


def _of_matrix(to: EmissionState, part: Operand | None, rank: int, *, rows: bool) -> Operand | None:
    """Return a scale or zero point of a factor: one number, or one for each row or column."""
    if part is None:
        return None
    count = max(part.sizes, default=1)
    if count > 1 and sum(size != 1 for size in part.sizes) > 1:
        raise Refused("scales that differ between matrices of a batch are left to others")
    return to.reshape(part, (*(1,) * (rank - 2), *((count, 1) if rows else (1, count))))


def _optional(to: EmissionState, node: Node, place: int) -> Operand | None:
    return None if node.input(place) is None else to.operand(node.input(place))


def _alike(scale: Operand | None, zero: Operand | None) -> tuple[Operand, Operand]:
    """Return a scale and a zero point of one number of elements, as which DirectML takes them."""
    assert scale is not None, "required"
    assert zero is not None, "required"
    sizes = broadcast(scale.sizes, zero.sizes)
    return expanded(scale, sizes), expanded(zero, sizes)


def _matmul_integer(to: EmissionState, node: Node) -> Operand:
    a, b = matrices(to, to.operand(node.input(0)), to.operand(node.input(1)))
    zero_a = _of_matrix(to, _optional(to, node, 2), a.rank, rows=True)
    zero_b = _of_matrix(to, _optional(to, node, 3), a.rank, rows=False)
    made = (ElementType.INT32, (*a.sizes[:-1], b.sizes[-1]))
    parts = {"A": a, "AZeroPoint": zero_a, "B": b, "BZeroPoint": zero_b}
    return to.reshape(to.emit("MATRIX_MULTIPLY_INTEGER", made, **parts), to.sizes(node.output))


def _qlinear_matmul(to: EmissionState, node: Node) -> Operand:
    inputs = to.operands(node)
    a, b = matrices(to, inputs[0], inputs[3])
    scale_a, zero_a = _alike(*(_of_matrix(to, each, a.rank, rows=True) for each in inputs[1:3]))
    scale_b, zero_b = _alike(*(_of_matrix(to, each, a.rank, rows=False) for each in inputs[4:6]))
    scale, zero = _alike(*(_of_matrix(to, each, a.rank, rows=True) for each in inputs[6:8]))
    parts = {
        "A": a, "AScale": scale_a, "AZeroPoint": zero_a, "B": b, "BScale": scale_b, "BZeroPoint": zero_b,
        "OutputScale": scale, "OutputZeroPoint": zero,
    }  # fmt: skip
    made = (inputs[7].dtype, (*a.sizes[:-1], b.sizes[-1]))
    return to.reshape(to.emit("QUANTIZED_LINEAR_MATRIX_MULTIPLY", made, **parts), to.sizes(node.output))


def _window_fields(to: EmissionState, node: Node, x: Operand, filters: Operand) -> dict[str, object]:
    window = window_of(node, filters.sizes[2:], x.sizes[2:])
    return {"Dilations": window.dilations, "GroupCount": node.int_attribute("group", 1), **window.fields()}


def _channels(to: EmissionState, parts: Sequence[Operand | None], rank: int) -> list[Operand | None]:
    return [None if part is None else channel_shaped(to, part, rank) for part in parts]


def _conv_integer(to: EmissionState, node: Node) -> Operand:
    x, filters = to.operand(node.input(0)), to.operand(node.input(1))
    zero_x, zero_filters = _channels(to, [_optional(to, node, 2), _optional(to, node, 3)], x.rank)
    parts = {"Input": x, "InputZeroPoint": zero_x, "Filter": filters, "FilterZeroPoint": zero_filters}
    made = (ElementType.INT32, to.sizes(node.output))
    return to.emit("CONVOLUTION_INTEGER", made, **parts, **_window_fields(to, node, x, filters))


def _qlinear_conv(to: EmissionState, node: Node) -> Operand:
    x, filters = to.operand(node.input(0)), to.operand(node.input(3))
    places = (1, 2, 4, 5, 8, 6, 7)
    shaped = _channels(to, [_optional(to, node, place) for place in places], x.rank)
    names = ("InputScale", "InputZeroPoint", "FilterScale", "FilterZeroPoint", "Bias", "OutputScale", "OutputZeroPoint")
    parts = {"Input": x, "Filter": filters, **dict(zip(names, shaped, strict=True))}
    dtype = element_type(node.output)
    if dtype is None:
        raise Refused("DirectML quantizes to 8 bits alone")
    fields = _window_fields(to, node, x, filters)
    return to.emit("QUANTIZED_LINEAR_CONVOLUTION", (dtype, to.sizes(node.output)), **parts, **fields)


QUANTIZATION: Mapping[str, Rule] = {
    "ConvInteger": Rule(_conv_integer, required=2),
    "DequantizeLinear": Rule(_dequantize, required=2),
    "DynamicQuantizeLinear": Rule(_dynamic_quantize, outputs=3),
    "MatMulInteger": Rule(_matmul_integer, required=2),
    "QLinearConv": Rule(_qlinear_conv, required=8),
    "QLinearMatMul": Rule(_qlinear_matmul, required=8),
    "QuantizeLinear": Rule(_quantize, required=2),
}
"""Rules by operator."""
