"""Quantized values: which real numbers the integers in memory stand for, ``(integer - zero_point) * scale``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingElementwise
from ort_core.cpu.lowering.views import Place, View
from ort_core.plugin.ir import DataType, Node, Value
from ort_core.plugin.loops import Scalar, binary, cast, minimum, select, unary

F32 = DataType.FLOAT
BYTES = frozenset({DataType.UINT8, DataType.INT8})
DEQUANTIZE = frozenset({("", "DequantizeLinear"), ("com.microsoft", "DequantizeLinear")})
STORED_TYPES = BYTES | {DataType.UINT16, DataType.INT16, DataType.INT32}


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """One scale and one zero point for a whole tensor."""

    dtype: DataType
    scale: float
    zero_point: int

    def equals(self, other: Grid) -> bool:
        """Return whether equal integers stand for equal numbers."""
        mine, its = (self.dtype, self.scale, self.zero_point), (other.dtype, other.scale, other.zero_point)
        return mine == its


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedValue:
    """A real value that is ``source``'s integers on a grid; ``source`` is a value of the group, or a view."""

    source: Value | View
    grid: Grid

    def view(self, lowering: Lowering) -> View:
        """Return the integers in memory, computing them now if they are pending."""
        return self.source if isinstance(self.source, View) else lowering.view(self.source)

    def expression(self, lowering: Lowering) -> PendingElementwise:
        """Return the real values as an expression over the integers."""
        state = FusionState()
        view = self.view(lowering)
        value = dequantized(lowering, state, state.add(view), self.grid)
        return PendingElementwise(value, tuple(state.inputs), view.shape)


def set_quantized(lowering: Lowering, value: Value, view: View, grid: Grid) -> None:
    """Say that a real value is integers that lie in memory."""
    quantized = lowering.quantized[value] = QuantizedValue(view, grid)
    lowering.set(value, quantized.expression(lowering))


def dequantized(lowering: Lowering, state: FusionState, value: Scalar, grid: Grid) -> Scalar:
    """Return ``(value - zero_point) * scale``; an integer that was just rounded from a float is not converted twice.

    Scales are operands, not constants of the expression: so layers that differ only in them share their code.
    """
    return dequantized_levels(lowering, state, value, grid) * state.add(float_constant(lowering, grid.scale))


def dequantized_levels(lowering: Lowering, state: FusionState, value: Scalar, grid: Grid) -> Scalar:
    """Return ``value - zero_point`` as float32."""
    if grid.dtype is DataType.INT32:
        return cast(value - grid.zero_point if grid.zero_point else value, F32)
    return _less_zero_point(lowering, state, value, grid) if grid.zero_point else as_float(value)


def _less_zero_point(lowering: Lowering, state: FusionState, value: Scalar, grid: Grid) -> Scalar:
    """Return a narrow integer less its zero point as float32.

    An anchor's that was rounded just before never has the zero point added: its limits are moved instead.
    """
    whole = _rounded_around(state, value, grid.zero_point)
    if whole is None:
        return as_float(value) - state.add(float_constant(lowering, grid.zero_point))
    low, high = (state.add(float_constant(lowering, limit - grid.zero_point)) for limit in limits(value.dtype))
    above = select(binary("gt", whole, low), whole, low)  # an operand is no NaN, of which maximum() would not know
    return select(binary("lt", above, high), above, high)


def _rounded_around(state: FusionState, value: Scalar, zero_point: int) -> Scalar | None:
    """Return the whole number of an anchor that an integer was made of by adding a zero point, if it was."""
    total = value.arguments[0] if value.operation == "cast" and state.anchor is not None else value
    if total.operation != "add" or total.dtype is not F32:
        return None
    whole, zero = total.arguments
    if whole.operation != "rint" or zero.operation != "input" or not zero.index:
        return None
    buffer = state.inputs[zero.index - 1].buffer
    added = buffer.array if buffer.place is Place.CONSTANT else None
    return whole if added is not None and added.size == 1 and added.item() == zero_point else None


def quantized_expression(
    lowering: Lowering, state: FusionState, value: Scalar, grid: Grid, divided: bool, *, shifted: bool = False
) -> Scalar:
    """Return ``saturate(round(value / scale) + zero_point)``; ``divided`` when the scale is in the value already.

    With ``shifted`` the zero point is added before the rounding: it decides which of two whole numbers is even.
    """
    if not divided:
        value = value / state.add(float_constant(lowering, grid.scale))
    if shifted and grid.zero_point:
        value = value + state.add(float_constant(lowering, grid.zero_point))
    whole = unary("rint", value)
    if grid.zero_point and not shifted:
        whole = whole + state.add(float_constant(lowering, grid.zero_point))
    return cast(whole, grid.dtype)


def float_constant(lowering: Lowering, value: float) -> View:
    """Return a view of one float32."""
    return lowering.constant_view(np.array(value, np.float32), F32)


def as_float(value: Scalar) -> Scalar:
    """Return a narrow integer as float32, exactly; the limits of a rounded float are kept, its conversion is not.

    Not a number is the lower limit, which it would be converted to.
    """
    if value.operation == "cast" and value.arguments[0].dtype is F32 and is_whole(value.arguments[0]):
        whole, (low, high) = value.arguments[0], limits(value.dtype)
        return minimum(select(binary("gt", whole, float(low)), whole, float(low)), float(high))
    return cast(value, F32)


def is_whole(value: Scalar) -> bool:
    """Return whether a float expression gives whole numbers."""
    if value.operation in ("rint", "floor", "ceil", "trunc"):
        return True
    if value.operation in ("constant", "input"):  # an operand in such a sum is a zero point
        return value.operation == "input" or float(value.value).is_integer()
    return value.operation in ("add", "sub") and all(is_whole(argument) for argument in value.arguments)


def limits(dtype: DataType) -> tuple[int, int]:
    """Return the least and the greatest integer of a type of at most 32 bits."""
    found = np.iinfo(dtype.numpy)
    return int(found.min), int(found.max)


def constant_grid(lowering: Lowering, scale: Value | None, zero_point: Value | None, dtype: DataType) -> Grid | None:
    """Return the grid that two constants of one element give, ``None`` if they are not that."""
    array = lowering.constant_of(scale)
    if array is None or array.size != 1 or array.dtype != np.float32:
        return None
    offset = 0
    if zero_point is not None:
        zero = lowering.constant_of(zero_point)
        if zero is None or zero.size != 1:
            return None
        offset = int(zero.reshape(-1)[0])
    return Grid(dtype, float(array.reshape(-1)[0]), offset)


def quantized_value(lowering: Lowering, value: Value | None) -> QuantizedValue | None:
    """Return the integers that a real value stands for, if it does."""
    found = lowering.quantized.get(value) if value is not None else None
    return found if isinstance(found, QuantizedValue) else None


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedConstant:
    """Constant integers with their scales and zero points, each of one element or one for each index of ``axis``."""

    integers: np.ndarray
    scales: np.ndarray
    zero_points: np.ndarray
    axis: int

    def real(self) -> np.ndarray:
        """Return the float32 values."""
        shape = [1] * self.integers.ndim
        if self.scales.size > 1 or self.zero_points.size > 1:
            shape[self.axis] = -1
        scales = self.scales.reshape(shape) if self.scales.size > 1 else self.scales.reshape(())
        zeros = self.zero_points.reshape(shape) if self.zero_points.size > 1 else self.zero_points.reshape(())
        return (self.integers.astype(np.int64) - zeros).astype(np.float32) * scales


def quantized_constant(lowering: Lowering, value: Value | None) -> QuantizedConstant | None:
    """Return the integers of a constant that a DequantizeLinear makes real; one scale, or one for each channel."""
    node = value.producer if value is not None else None
    if node is None or (node.domain, node.op_type) not in DEQUANTIZE:
        return None
    integers, scales = lowering.constant_of(node.input(0)), lowering.constant_of(node.input(1))
    if integers is None or scales is None or scales.dtype != np.float32 or integers.dtype.kind not in "iu":
        return None
    if integers.dtype.itemsize > 4 or node.int_attribute("block_size", 0) or scales.ndim > 1:
        return None
    zeros: np.ndarray | None = np.zeros(1, np.int64)
    if node.input(2) is not None:
        zeros = lowering.constant_of(node.input(2))
    axis = node.int_attribute("axis", 1) % max(integers.ndim, 1)
    if zeros is None or any(a.size not in (1, integers.shape[axis] if integers.ndim else 1) for a in (scales, zeros)):
        return None
    return QuantizedConstant(integers, scales.reshape(-1), zeros.reshape(-1).astype(np.int64), axis)


def dequantized_constant(lowering: Lowering, node: Node | None) -> np.ndarray | None:
    """Return the float32 values of constants that a DequantizeLinear makes real: of any type, also in blocks.

    ``None`` where something is not constant, or the shapes do not fit.
    """
    if node is None or (node.domain, node.op_type) not in DEQUANTIZE:
        return None
    stored, scales = lowering.constant_of(node.input(0)), lowering.constant_of(node.input(1))
    zeros = None if node.input(2) is None else lowering.constant_of(node.input(2))
    if stored is None or scales is None or (zeros is None and node.input(2) is not None):
        return None
    factor, offset = (each if each is None else _spread(node, each, stored.shape) for each in (scales, zeros))
    if factor is None or (offset is None and zeros is not None):
        return None
    real = stored.astype(np.float32)  # exact for types of up to 16 bits
    if offset is not None:
        real -= offset
    real *= factor
    return real


def _spread(node: Node, given: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return scales or zero points as float32 that broadcast to a shape, ``None`` if they do not fit."""
    block, wide = node.int_attribute("block_size", 0), given.astype(np.float32)
    if not block and wide.size == 1:
        return wide.reshape(())
    axis = node.int_attribute("axis", 1) % max(len(shape), 1)
    if not block and wide.shape == shape[axis : axis + 1]:
        return wide.reshape(-1, *[1] * (len(shape) - axis - 1))
    fitting = tuple(-(-size // block) if a == axis else size for a, size in enumerate(shape)) if block else ()
    if not block or wide.shape != fitting:
        return None
    rows: np.ndarray = np.take(wide, np.arange(shape[axis]) // block, axis=axis)
    return rows
