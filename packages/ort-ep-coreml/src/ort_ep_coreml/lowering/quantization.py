"""Quantizing and dequantizing. Constants of 8 bits stay narrow in a package; 4 bits do from iOS18 on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import DataType, Node, Value
from ort_ep_coreml.lowering.emission import EmissionState, mil_type
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of, sizes_of
from ort_ep_coreml.lowering.rule import FLOATS, INTS, NARROW, Rule
from ort_ep_coreml.lowering.terms import Term, first, term
from ort_ep_coreml.mil import Operand, Size

NIBBLES = frozenset({DataType.INT4, DataType.UINT4})
LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}
BLOCKWISE_TARGET = "iOS18"


def axis_shape(count: int, axis: int, rank: int) -> tuple[int, ...]:
    """Return the shape in which a vector of ``count`` elements belongs to an axis."""
    return tuple(count if place == axis else 1 for place in range(rank))


def per_axis(to: EmissionState, node: Node, place: int) -> Term:
    """Return a scale or zero point as it broadcasts against the first input."""
    value, rank = node.input(place), rank_of(node.input(0))
    found = term(to, value)
    if rank_of(value) == 0:
        return found
    axis, count = node.int_attribute("axis", 1) % rank, sizes_of(value)[0]  # type: ignore[arg-type]  # present
    if count == 1:
        return found.do("squeeze", axes=np.array([0], np.int32)) if not is_array(found) else _flat(found)
    assert isinstance(count, int), "_quantizes_as_lowered was asked"
    return found.reshaped(*axis_shape(count, axis, rank)) if not is_array(found) else _shaped(found, count, axis, rank)


def is_array(found: Term) -> bool:
    """Return whether a term is a constant."""
    return isinstance(found.operand, np.ndarray)


def _flat(found: Term) -> Term:
    return Term(found.to, np.asarray(found.operand).reshape(()), found.dtype)


def _shaped(found: Term, count: int, axis: int, rank: int) -> Term:
    return Term(found.to, np.asarray(found.operand).reshape(axis_shape(count, axis, rank)), found.dtype)


def _quantize(to: EmissionState, node: Node) -> Operand:
    kind = mil_type(node.output)
    scale, zero = to.context.constant(node.input(1)), to.context.constant(node.input(2))
    x = first(to, node)
    if scale is None or (node.input(2) is not None and zero is None):
        shift = per_axis(to, node, 2).cast(x.dtype, mil_type(node.input(0))) if node.input(2) is not None else 0
        return quantized(x / per_axis(to, node, 1), shift, kind).operand
    inputs: dict[str, Operand] = {"input": x.operand, "scale": _own_form(scale), "output_dtype": kind}
    if zero is not None:
        inputs["zero_point"] = _own_form(zero)
    if scale.size > 1:
        inputs["axis"] = node.int_attribute("axis", 1) % rank_of(node.input(0))
    return to.emit("quantize", **inputs)


def quantized(x: Term, zero: Term | int, kind: str) -> Term:
    """Return elements, over their scale already, as 8 bit integers."""
    low, high = LIMITS[kind]
    rounded = x.do("round") + zero
    return rounded.with_("maximum", low).with_("minimum", high).cast(np.dtype(kind), kind)


def _own_form(array: np.ndarray) -> np.ndarray:
    """Return a scale or zero point as MIL takes it: a scalar, or a vector of the axis."""
    return array.reshape(()) if array.size == 1 else array.reshape(-1)


def _dequantize(to: EmissionState, node: Node) -> Operand:
    constant = to.context.constant(node.input(0))
    if constant is not None:
        return _dequantized_constant(to, node, constant)
    scale, zero = to.context.constant(node.input(1)), to.context.constant(node.input(2))
    is_own = scale is not None and (node.input(2) is None or zero is not None) and dtype_of(node.input(0)) in NARROW
    if not is_own:
        return _dequantized_formula(to, node).operand
    assert scale is not None, "is_own"
    inputs: dict[str, Operand] = {"input": to.operand(node.input(0)), "scale": _own_form(scale)}
    if zero is not None:
        inputs["zero_point"] = _own_form(zero)
    if scale.size > 1:
        inputs["axis"] = node.int_attribute("axis", 1) % rank_of(node.input(0))
    return to.emit("dequantize", **inputs)


def _dequantized_formula(to: EmissionState, node: Node) -> Term:
    scale = per_axis(to, node, 1)
    kind = mil_type(node.input(1))
    x = first(to, node).cast(scale.dtype, kind)
    return (x if node.input(2) is None else x - per_axis(to, node, 2).cast(scale.dtype, kind)) * scale


def _dequantized_constant(to: EmissionState, node: Node, data: np.ndarray) -> Operand:
    """Return a constant that stays narrow where MIL has a form for it, else its floats."""
    scale = to.context.constant(node.input(1))
    assert scale is not None, "_quantizes_as_lowered was asked"
    zero = to.context.constant(node.input(2))
    axis, block = node.int_attribute("axis", 1), node.int_attribute("block_size", 0)
    if data.ndim and not block and data.dtype in (np.int8, np.uint8):
        shift = np.zeros(scale.shape, data.dtype) if zero is None else zero
        place = axis % data.ndim
        return to.emit(
            "constexpr_affine_dequantize", quantized_data=data, zero_point=_own_form(shift), scale=_own_form(scale),
            axis=np.array(place, np.int32),
        )  # fmt: skip
    spread_scale = spread(scale, data.shape, axis, block)
    spread_zero = 0 if zero is None else spread(zero, data.shape, axis, block).astype(scale.dtype)
    if dtype_of(node.input(0)) in NIBBLES and to.context.target == BLOCKWISE_TARGET and data.ndim:
        return blockwise(to, data, _blocks(scale, data, axis), None if zero is None else _blocks(zero, data, axis))
    return ((data.astype(scale.dtype) - spread_zero) * spread_scale).astype(scale.dtype)


def spread(values: np.ndarray, shape: tuple[int, ...], axis: int, block: int) -> np.ndarray:
    """Return scales or zero points for every element of a shape: of all, of an axis, or of blocks along it."""
    if block:
        return values.repeat(block, axis)[tuple(slice(size) for size in shape)]
    if values.size == 1:
        return values.reshape([1] * len(shape))
    return values.reshape(axis_shape(values.size, axis % len(shape), len(shape)))


def _blocks(values: np.ndarray, data: np.ndarray, axis: int) -> np.ndarray:
    """Return scales or zero points with as many dimensions as the data."""
    if values.ndim == data.ndim and values.size > 1:
        return values
    if values.size == 1:
        return values.reshape([1] * data.ndim)
    return values.reshape(axis_shape(values.size, axis % data.ndim, data.ndim))


def blockwise(to: EmissionState, data: np.ndarray, scale: np.ndarray, zero: np.ndarray | None) -> Operand:
    """Append a constant of 4 or 8 bits with a scale, and a zero point, for each block of it."""
    inputs: dict[str, Operand] = {"data": data, "scale": scale}
    if zero is not None:
        inputs["offset"] = zero
    return to.emit("constexpr_blockwise_shift_scale", **inputs)


def _quantizes_as_lowered(context: LoweringContext, node: Node) -> str | None:
    scale, data = node.input(1), context.constant(node.input(0))
    if data is not None and (context.constant(scale) is None or _is_open(context, node.input(2))):
        return f"{node.op_type} of a constant by a scale that is none"
    if data is not None:
        return _blocks_divide(context, node, data)
    if node.int_attribute("block_size", 0) or rank_of(scale) > 1:
        return f"{node.op_type} in blocks is lowered of constants only"
    if rank_of(scale) == 1 and not isinstance(sizes_of(scale)[0], int):  # type: ignore[arg-type]  # required
        return f"how many scales {node.op_type} has is not known beforehand"
    if rank_of(scale) == 1 and sizes_of(scale)[0] != 1 and not isinstance(_axis_size(node), int):  # type: ignore[arg-type]  # required
        return f"how many places the axis of {node.op_type} has is not known beforehand"
    if node.op_type == "QuantizeLinear" and dtype_of(node.input(0)) is not dtype_of(scale):
        return "QuantizeLinear by a scale of another element type is not lowered"
    return None


def _axis_size(node: Node) -> Size:
    sizes = sizes_of(node.inputs[0])  # type: ignore[arg-type]  # required
    return sizes[node.int_attribute("axis", 1) % max(1, len(sizes))] if sizes else "?"


def _is_open(context: LoweringContext, value: Value | None) -> bool:
    return value is not None and context.constant(value) is None


def _blocks_divide(context: LoweringContext, node: Node, data: np.ndarray) -> str | None:
    block, axis = node.int_attribute("block_size", 0), node.int_attribute("axis", 1)
    if block and data.shape[axis] % block and context.target == BLOCKWISE_TARGET:
        return "DequantizeLinear of a constant whose last block is not whole is not lowered"
    return None


def _dynamic(to: EmissionState, node: Node) -> list[Operand]:
    """Lower to its formula: the range of the elements with 0 in it is spread over 0 to 255."""
    x, axes = first(to, node), range(rank_of(node.input(0)))
    high = x.reduced("reduce_max", *axes, keeps=False).with_("maximum", 0)
    low = x.reduced("reduce_min", *axes, keeps=False).with_("minimum", 0)
    scale = (high - low) / 255
    is_flat = scale.with_("equal", 0)
    divisor = Term(to, to.emit("select", cond=is_flat.operand, a=x.number(1), b=scale.operand), x.dtype)
    zero = (-low / divisor).do("round").with_("maximum", 0).with_("minimum", 255)
    found = quantized(x / divisor, zero, "uint8")
    return [found.operand, scale.operand, zero.cast(np.dtype(np.uint8), "uint8").operand]


def _has_an_axis(context: LoweringContext, node: Node) -> str | None:
    return None if rank_of(node.input(0)) else "DynamicQuantizeLinear of a scalar is not lowered"


QUANTIZATION: Mapping[str, Rule] = {
    "QuantizeLinear": Rule(
        _quantize, FLOATS, ports={2: NARROW}, results={0: NARROW}, conditions=(_quantizes_as_lowered,), required=2
    ),
    "DequantizeLinear": Rule(
        _dequantize,
        NARROW | INTS,
        ports={1: FLOATS},
        results={0: FLOATS},
        conditions=(_quantizes_as_lowered,),
        required=2,
        of_constants=NIBBLES,
    ),
    "DynamicQuantizeLinear": Rule(_dynamic, results={0: NARROW, 2: NARROW}, conditions=(_has_an_axis,), outputs=3),
}
"""Rules by operator."""
