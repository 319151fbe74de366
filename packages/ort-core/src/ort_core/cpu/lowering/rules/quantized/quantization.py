"""QuantizeLinear and DequantizeLinear: pending expressions over integers in memory.

    real -> QuantizeLinear -> integers        round(real / scale) + zero_point, saturated
    integers -> DequantizeLinear -> real      (integers - zero_point) * scale

A real value that is integers on one grid is noted, so that its readers can work on the integers themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.cpu.lowering.broadcasting import known_strides
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, Pending, PendingAnchor, PendingElementwise
from ort_core.cpu.lowering.products.quantized import (
    F32,
    STORED_TYPES,
    QuantizedValue,
    as_float,
    constant_grid,
    dequantized,
    dequantized_constant,
    quantized_expression,
    quantized_value,
)
from ort_core.cpu.lowering.rules.quantized.blocks import by_blocks
from ort_core.cpu.lowering.rules.quantized.integer_anchors import MAX_OPERANDS
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import axis_place, tensor_type
from ort_core.cpu.lowering.views import Place, View, count_of
from ort_core.plugin.ir import DataType, KnownDim, Node, TensorType, Value
from ort_core.plugin.loops import SMALL_TYPES, Scalar, binary, cast, fma, packed, select, substitute, unary, unpacked

SMALL_CONSTANT = 1 << 14  # elements up to which a constant is made real at load: larger ones stay in few bits
OWN_OPERANDS = 3  # that a quantization adds: a scale, a zero point, and a scale divided by another


def quantize_linear(lowering: Lowering, node: Node) -> None:
    """QuantizeLinear to 2 to 16 bits, by one scale, one for each index of an axis, or one for each block of one."""
    value = node.input(0)
    dtype, shape = tensor_type(node.output)
    if (
        value is None
        or tensor_type(value)[0] is not F32
        or dtype not in (STORED_TYPES | SMALL_TYPES) - {DataType.INT32}
    ):
        raise NotLowered("only float32 is quantized natively, to 2, 4, 8 and 16 bits")
    if node.int_attribute("precision", F32) not in (0, F32):
        raise NotLowered("another precision than float32 is not generated")
    if lowering.opset_of(node) >= 23 and not node.domain and _is_rounded(node):
        raise NotLowered("a quotient that is rounded to 16 bits is not generated")
    saturate = bool(node.int_attribute("saturate", 1))
    if node.int_attribute("block_size", 0):
        _store_if_anchor(lowering, value)
        by_blocks(lowering, node, value, lambda real, scale, zero: _quantized(real, scale, zero, dtype, saturate))
        return
    if dtype in SMALL_TYPES:
        state, (real,) = lowering.operands.fuse(node, [value], shape)
        scale, zero = _parameters(lowering, state, node, shape)
        _set(lowering, node, state, _quantized(real, scale, zero, dtype, saturate), shape)
        return
    grid = constant_grid(lowering, node.input(1), node.input(2), dtype)
    known = quantized_value(lowering, value)
    if grid is not None and known is not None and known.grid.equals(grid):
        lowering.set(node.output, known.view(lowering))  # back to the integers that it came from
        return
    _store_if_crowded(lowering, value)
    state, (real,) = lowering.operands.fuse(node, [value], shape)
    if grid is not None:
        folded = None if state.anchor is None else _divided(lowering, state, real, np.float32(grid.scale))
        result = quantized_expression(lowering, state, real if folded is None else folded, grid, folded is not None)
    else:
        result = _quantized(real, *_parameters(lowering, state, node, shape), dtype, saturate)
    _set(lowering, node, state, result, shape)


def _is_rounded(node: Node) -> bool:
    """Return whether the quotient has the type of a scale of 16 bits, as nothing else is said from opset 23 on."""
    scale = node.input(1)
    found = None if scale is None else scale.type
    is_half = isinstance(found, TensorType) and found.dtype in (DataType.FLOAT16, DataType.BFLOAT16)
    return is_half and not node.int_attribute("precision", 0)


def dequantize_linear(lowering: Lowering, node: Node) -> None:
    """DequantizeLinear of up to 32 bits to float32, by one scale, one for each index of an axis, or one for a block."""
    value = node.input(0)
    dtype, shape = tensor_type(node.output)
    assert value is not None
    source = tensor_type(value)[0]
    if dtype is not F32:
        raise NotLowered(f"values are dequantized natively to float32, not to {dtype.text}")
    is_small = value.producer is None and count_of(shape) in range(SMALL_CONSTANT + 1)
    if source not in STORED_TYPES or node.int_attribute("block_size", 0) or is_small:
        constant = dequantized_constant(lowering, node)
        if constant is not None:
            lowering.set(node.output, lowering.constant_view(constant, F32))
            return
    if source not in STORED_TYPES | SMALL_TYPES:
        raise NotLowered(f"{source.text} is made real at load, as a constant")
    if node.int_attribute("block_size", 0):
        _store_if_anchor(lowering, value)
        by_blocks(lowering, node, value, _dequantized)
        return
    if source in SMALL_TYPES:
        state, (stored,) = lowering.operands.fuse(node, [value], shape)
        result = _dequantized(stored, *_parameters(lowering, state, node, shape))
        _set(lowering, node, state, result, shape)
        return
    grid = constant_grid(lowering, node.input(1), node.input(2), source)
    if not lowering.is_single_use(node.output):
        _store_if_anchor(lowering, value)  # the readers take fewer bytes than reals have
    _store_if_crowded(lowering, value)
    state, (stored,) = lowering.operands.fuse(node, [value], shape)
    if grid is not None:
        result = dequantized(lowering, state, stored, grid)
        lowering.quantized[node.output] = QuantizedValue(value, grid)
    else:
        result = _dequantized(stored, *_parameters(lowering, state, node, shape))
    _set(lowering, node, state, result, shape)


def _quantized(real: Scalar, scale: Scalar, zero: Scalar | None, dtype: DataType, saturate: bool) -> Scalar:
    quotient = real / scale
    levels = unary("rint", quotient) if dtype.is_integer else quotient
    if dtype in SMALL_TYPES:
        offset = None if zero is None else unpacked(zero)
        if offset is not None and not dtype.is_integer:
            offset = select(binary("eq", offset, 0.0), -0.0, offset)  # to add it leaves the sign of a zero
        return packed(levels if offset is None else levels + offset, dtype, saturate=saturate)
    return cast(levels if zero is None else levels + cast(zero, F32), dtype)


def _dequantized(stored: Scalar, scale: Scalar, zero: Scalar | None) -> Scalar:
    if stored.dtype is DataType.INT32:
        return cast(stored if zero is None else stored - zero, F32) * scale
    if stored.dtype in SMALL_TYPES:
        real = unpacked(stored)
        return (real if zero is None else real - unpacked(zero)) * scale
    real = as_float(stored)
    return (real if zero is None else real - cast(zero, F32)) * scale


def _store_if_anchor(lowering: Lowering, value: Value) -> None:
    """Compute a value now, if it is an anchor's, so that what follows is not part of it."""
    if isinstance(lowering.pending(value), PendingAnchor):
        lowering.view(value)


def _store_if_crowded(lowering: Lowering, value: Value) -> None:
    """Compute a value now whose anchor would not take the operands of another quantization."""
    known = lowering.pending(value)
    if isinstance(known, PendingAnchor) and len(known.inputs) > MAX_OPERANDS - OWN_OPERANDS:
        lowering.view(value)


def _set(lowering: Lowering, node: Node, state: FusionState, result: Scalar, shape: Sequence[KnownDim]) -> None:
    core = None if state.anchor is not None else lowering.expressions.core_of(result, state.core)
    if core is not None and len(core.leaves) == len(state.inputs):
        result, inputs = core.root, tuple(state.inputs)
    else:
        core, (result, inputs) = None, _pruned(result, state.inputs, 0 if state.anchor is None else 1)
    for view in inputs:
        known_strides(view, shape)
    pending: Pending
    if state.anchor is None:
        pending = PendingElementwise(result, inputs, tuple(shape), (node,), core)
    else:
        anchor = state.anchor
        if not anchor.anchor.can_fuse(shape, inputs):
            raise NotLowered("the scales do not lie along the channels of the result")
        pending = PendingAnchor(anchor.anchor, result, inputs, tuple(shape), (*anchor.operators, node))
    lowering.set(node.output, pending)


def _pruned(expression: Scalar, inputs: Sequence[View], shift: int) -> tuple[Scalar, tuple[View, ...]]:
    """Return the expression and the inputs that it reads, renumbered; ``shift`` inputs in front stay."""
    used: dict[int, Scalar] = {}
    stack, seen = [expression], set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        stack.extend(node.arguments)
        if node.operation == "input" and node.index >= shift:
            used.setdefault(node.index, node)
    order = sorted(used)
    renamed = {old: Scalar("input", used[old].dtype, index=new + shift) for new, old in enumerate(order)}
    return substitute(expression, renamed), tuple(inputs[old - shift] for old in order)


def _parameters(
    lowering: Lowering, state: FusionState, node: Node, shape: Sequence[KnownDim]
) -> tuple[Scalar, Scalar | None]:
    """Return the scale and the zero point as operands that broadcast along the node's axis."""
    stated = node.int_attribute("axis", 1)
    found: list[Scalar | None] = []
    for value in (node.input(1), node.input(2)):
        if value is None:
            found.append(None)
            continue
        view = lowering.contiguous(value)
        if count_of(view.shape) == 1:
            view = view.reshaped(())
        elif len(view.shape) == 1:
            axis = axis_place(stated, len(shape))
            lowering.require_equal(view.shape[0], shape[axis])
            view = view.reshaped((shape[axis], *[1] * (len(shape) - axis - 1)))
        else:
            raise NotLowered("scales of more than one dimension are not generated")
        found.append(state.add(view))
    scale, zero = found
    if scale is None or scale.dtype is not F32:
        raise NotLowered("the scale is not float32")
    return scale, zero


def _divided(lowering: Lowering, state: FusionState, value: Scalar, divisor: np.float32) -> Scalar | None:
    """Return an anchor's scaled integers divided by a scale, the division folded into their own constant scales.

    That is how onnxruntime's integer operators round, too. ``None`` where the value is not a sum of such products.
    """
    if value.operation == "mul":
        left, right = value.arguments
        view = state.inputs[right.index - 1] if right.operation == "input" and right.index else None
        if view is None or view.buffer.place is not Place.CONSTANT or not _is_whole_sum(left):
            return None
        assert view.buffer.array is not None
        scaled = lowering.constant_view(np.ascontiguousarray(view.buffer.array / divisor, np.float32), F32)
        return left * state.add(View(scaled.buffer, view.shape, view.strides, view.offset, view.order))
    if value.operation in ("add", "sub"):
        parts = [_divided(lowering, state, argument, divisor) for argument in value.arguments]
        if parts[0] is None or parts[1] is None:
            return None
        if value.operation == "add" and parts[0].operation == "mul":
            levels, scale = parts[0].arguments
            return fma(levels, scale, parts[1])
        return binary(value.operation, parts[0], parts[1])
    if value.operation == "max" and value.arguments[1].operation == "constant" and value.arguments[1].value == 0:
        part = _divided(lowering, state, value.arguments[0], divisor)
        side = "max" if divisor > 0 else "min"  # what is above zero is below it in levels of a scale below zero
        return None if part is None else binary(side, part, 0.0)
    return None


def _is_whole_sum(value: Scalar) -> bool:
    """Return whether a float is an integer's value, possibly less a zero point, or limited."""
    if value.operation == "cast":
        return not value.arguments[0].dtype.is_float
    if value.operation in ("min", "max", "sub"):
        return _is_whole_sum(value.arguments[0])
    if value.operation == "select":  # between limits
        return _is_whole_sum(value.arguments[1])
    return value.operation in ("add", "rint")
