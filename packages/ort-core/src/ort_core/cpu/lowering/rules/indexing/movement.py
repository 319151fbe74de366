"""Operators that place elements: fills, ranges, triangles, one-hot rows, borders, repetitions, blocks.

None has a kernel of its own: a fill is an expression without inputs, index conditions compare the integers from 0 on,
borders and repetitions are copies between views.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingElementwise
from ort_core.cpu.lowering.rows.reducing import combined
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import axis_place, stored_type, tensor_type
from ort_core.cpu.lowering.views import View, count_of
from ort_core.plugin.ir import DataType, KnownDim, Node, SymbolicDim, Value, ceil_div, maximum, minimum
from ort_core.plugin.loops import Scalar, binary, cast, converted, element, lift, select

I64 = DataType.INT64
RANGES = (I64, DataType.INT32, DataType.FLOAT, DataType.DOUBLE)
MOST_EXACT = 1 << 53  # beyond it float64 skips whole numbers


def constant_of_shape(lowering: Lowering, node: Node) -> None:
    """ConstantOfShape: an expression that reads nothing."""
    dtype, shape = lowering.type_of(node.output)
    wanted = lowering.elements_of(node.input(0))
    if wanted is None or len(wanted) != len(shape):
        raise NotLowered("the shape is only known at run time")
    for found, declared in zip(wanted, shape):
        lowering.require_equal(found, declared)
    value = node.attribute("value")
    array = value.array() if value is not None else np.zeros(1, np.float32)  # type: ignore[attr-defined]  # a Constant
    array = lowering.elements_as_they_lie(array)
    _fill(lowering, node, lift(array.reshape(-1)[0].item(), dtype), shape)


def arithmetic_range(lowering: Lowering, node: Node) -> None:
    """Range between whole bounds that follow from sizes: a multiple of each place, and the first number."""
    dtype, shape = tensor_type(node.output)
    bounds = [_whole_number(lowering, node.input(i)) for i in range(3)]
    if dtype not in RANGES or any(bound is None for bound in bounds):
        raise NotLowered("its bounds are only known at run time, or are not whole numbers")
    start, limit, step = (bound for bound in bounds if bound is not None)
    if not isinstance(step, int) or step == 0:
        raise NotLowered("the step is not a number known before a run, or zero")
    distance = limit - start if step > 0 else start - limit
    lowering.require_equal(maximum(ceil_div(distance, abs(step)), 0), shape[0])
    numbers = lowering.iota(shape[0])
    if isinstance(start, int):
        _set(lowering, node, shape, lambda i: cast(i * step + start, dtype), numbers)
    else:
        first = lowering.contiguous(node.input(0)).reshaped(())
        _set(lowering, node, shape, lambda i, s: cast(i * step, dtype) + s, numbers, first)


def _whole_number(lowering: Lowering, value: Value | None) -> KnownDim | None:
    """Return the one element of a tensor of any type, if it is a whole number that is known, or follows from sizes."""
    array = lowering.constant_of(value)
    known = array if array is not None else lowering.contents.get(value) if value is not None else None
    if known is None or known.size != 1:
        return None
    (only,) = known.reshape(-1).tolist()
    if isinstance(only, float) and only.is_integer() and abs(only) <= MOST_EXACT:
        return int(only)
    return only if isinstance(only, (int, SymbolicDim)) else None


def triangle(lowering: Lowering, node: Node) -> None:
    """Trilu: elements on one side of a diagonal."""
    view = lowering.view(node.input(0))
    dtype, shape = view.dtype, view.shape
    diagonal = lowering.elements_of(node.input(1)) if node.input(1) is not None else (0,)
    if diagonal is None or len(diagonal) != 1 or not isinstance(diagonal[0], int):
        raise NotLowered("the diagonal is only known at run time")
    k, keeps_upper = diagonal[0], bool(node.int_attribute("upper", 1))
    zero = lift(False if dtype is DataType.BOOL else 0, dtype)

    def chosen(x: Scalar, row: Scalar, column: Scalar) -> Scalar:
        return select(binary("ge" if keeps_upper else "le", column - row, k), x, zero)

    _set(lowering, node, shape, chosen, view, _along(lowering, shape, -2), _along(lowering, shape, -1))


def eye_like(lowering: Lowering, node: Node) -> None:
    """EyeLike: ones where column minus row is k."""
    dtype, (rows, columns) = tensor_type(node.output)
    k = node.int_attribute("k", 0)
    target = lowering.result_view(node.output)
    one, zero = (lift(flag if dtype is DataType.BOOL else int(flag), dtype) for flag in (True, False))
    _store(lowering, PendingElementwise(zero, (), target.shape, (node,)), target)
    first = max(k, 0) - min(k, 0) * columns
    length = maximum(minimum(rows + min(k, 0), columns - max(k, 0)), 0)
    diagonal = View(target.buffer, (length,), (columns + 1,), target.offset + first)
    _store(lowering, PendingElementwise(one, (), diagonal.shape, (node,)), diagonal)
    lowering.set(node.output, target)


def one_hot(lowering: Lowering, node: Node) -> None:
    """OneHot: each index compared with all positions of the new axis; negative ones count from the end."""
    indices, values = lowering.view(node.input(0)), lowering.contiguous(node.input(2))
    _, shape = tensor_type(node.output)
    depth = lowering.elements_of(node.input(1))
    if depth is None or len(depth) != 1 or indices.dtype not in (I64, DataType.INT32):
        raise NotLowered("the depth is only known at run time, or the indices are not integers")
    axis = axis_place(node.int_attribute("axis", -1), len(shape))
    lowering.require_equal(depth[0], shape[axis])
    lowering.require_equal(maximum(depth[0], 1), depth[0])
    spread = View(
        indices.buffer, (*indices.shape[:axis], 1, *indices.shape[axis:]),
        (*indices.strides[:axis], 0, *indices.strides[axis:]), indices.offset,
    )  # fmt: skip
    off, on = (View(values.buffer, (), (), values.offset + number) for number in (0, 1))
    count = depth[0]
    if not isinstance(count, int):
        raise NotLowered("the depth is only known at run time")

    def chosen(index: Scalar, position: Scalar, low: Scalar, high: Scalar) -> Scalar:
        wide = cast(index, I64)
        return select(binary("eq", select(binary("lt", wide, 0), wide + count, wide), position), high, low)

    _set(lowering, node, shape, chosen, spread, _along(lowering, shape, axis), off, on)


def pad(lowering: Lowering, node: Node) -> None:
    """Pad: the inside is copied, then the border axis by axis from views of what is there already."""
    source = lowering.view(node.input(0))
    before, after = _pads(lowering, node, len(source.shape))
    inner, mode = source, node.string_attribute("mode", "constant")
    least = 0 if mode == "constant" else 1  # other modes must have something left to repeat
    for axis, sides in enumerate(zip(before, after)):
        low, high = (maximum(-amount, 0) for amount in sides)  # what is cut off
        if low != 0 or high != 0:
            inner = _part(inner, axis, low, inner.shape[axis] - low - high)
            lowering.require_equal(maximum(inner.shape[axis], least), inner.shape[axis])
    low_sides, high_sides = ([maximum(amount, 0) for amount in side] for side in (before, after))
    target = lowering.result_view(node.output)
    wanted = [size + low + high for size, low, high in zip(inner.shape, low_sides, high_sides)]
    for found, declared in zip(wanted, target.shape):
        lowering.require_equal(found, declared)
    if mode == "constant":
        _store(lowering, _fill_value(lowering, node, target), target)
    elif mode not in ("edge", "reflect", "wrap"):
        raise NotLowered(f"the mode {mode!r} is not generated")
    inside = target
    for axis, low in enumerate(low_sides):
        inside = _part(inside, axis, low, inner.shape[axis])
    _store(lowering, PendingElementwise(element(0, source.dtype), (inner,), inner.shape, (node,)), inside)
    if mode != "constant":
        _extend(lowering, node, target, inner.shape, low_sides, high_sides, mode)
    lowering.set(node.output, target)


def _extend(
    lowering: Lowering, node: Node, target: View, inner: Sequence[KnownDim], low: Sequence[KnownDim],
    high: Sequence[KnownDim], mode: str,
) -> None:  # fmt: skip
    """Fill the border of all axes in turn; those done count with their full length for the ones behind."""
    starts: list[KnownDim] = list(low)
    sizes: list[KnownDim] = list(inner)
    for axis, size in enumerate(inner):
        before, after = low[axis], high[axis]
        if before or after:
            least = {"edge": 1, "reflect": maximum(before, after) + 1, "wrap": maximum(before, after)}[mode]
            lowering.require_equal(maximum(size, least), size)  # what is repeated must exist
            direction = {"edge": 0, "reflect": -1, "wrap": 1}[mode]
            first = {"edge": 0, "reflect": before, "wrap": size - before}[mode]
            final = {"edge": size - 1, "reflect": size - 2, "wrap": 0}[mode]
            for amount, place, origin in ((before, 0, first), (after, before + size, final)):
                if amount:
                    goal = _box(target, starts, sizes, axis, place, amount)
                    source = _box(target, starts, sizes, axis, before + origin, amount, direction)
                    copy = PendingElementwise(element(0, target.dtype), (source,), goal.shape, (node,))
                    _store(lowering, copy, goal)
        starts[axis], sizes[axis] = 0, before + size + after


def _box(
    target: View, starts: Sequence[KnownDim], sizes: Sequence[KnownDim], axis: int, start: KnownDim, size: KnownDim,
    direction: int = 1,
) -> View:  # fmt: skip
    """Return the part of a view at ``starts``, but along one axis from ``start``, forwards, backwards or standing."""
    offset = target.offset + start * target.strides[axis]
    for other, begin in enumerate(starts):
        if other != axis:
            offset = offset + begin * target.strides[other]
    shape = (*sizes[:axis], size, *sizes[axis + 1 :])
    strides = (*target.strides[:axis], direction * target.strides[axis], *target.strides[axis + 1 :])
    return View(target.buffer, shape, strides, offset)


def _pads(lowering: Lowering, node: Node, rank: int) -> tuple[list[KnownDim], list[KnownDim]]:
    """Return how much stands before and behind each axis; what is less than 0 is cut off."""
    given = lowering.elements_of(node.input(1)) if node.input(1) is not None else node.ints_attribute("pads")
    axes = lowering.elements_of(node.input(3)) if node.input(3) is not None else tuple(range(rank))
    if given is None or axes is None or len(given) != 2 * len(axes):
        raise NotLowered("the pads are only known at run time")
    before: list[KnownDim] = [0] * rank
    after: list[KnownDim] = [0] * rank
    for place, axis in enumerate(axes):
        if not isinstance(axis, int):
            raise NotLowered("the padded axes depend on sizes")
        at = axis_place(axis, rank)
        before[at], after[at] = given[place], given[place + len(axes)]
    return before, after


def _part(view: View, axis: int, start: KnownDim, size: KnownDim) -> View:
    shape = (*view.shape[:axis], size, *view.shape[axis + 1 :])
    return View(view.buffer, shape, view.strides, view.offset + start * view.strides[axis])


def _fill_value(lowering: Lowering, node: Node, target: View) -> PendingElementwise:
    """Return an expression over the target that gives Pad's constant."""
    dtype = target.dtype
    value = node.input(2)
    if value is None:
        number = lift(False if dtype is DataType.BOOL else _border_of(lowering, node), dtype)
        return PendingElementwise(number, (), target.shape, (node,))
    constant = lowering.operands.constant_scalar(value)
    if constant is not None:
        return PendingElementwise(constant, (), target.shape, (node,))
    view = lowering.contiguous(value)
    if count_of(view.shape) != 1:
        raise NotLowered("the value of the border is not a single element")
    return PendingElementwise(element(0, dtype), (view.reshaped(()),), target.shape, (node,))


def _border_of(lowering: Lowering, node: Node) -> float | int:
    """Return the number that an attribute gives for the border, as the group has elements of the node's type."""
    dtype = stored_type(node.output)[0].numpy
    found: float | int = lowering.elements_as_they_lie(np.array(node.float_attribute("value", 0.0), dtype)).item()
    return found


def tile(lowering: Lowering, node: Node) -> None:
    """Tile: one copy in which each axis has a second one of stride 0 in front."""
    source = lowering.view(node.input(0))
    repeats = lowering.elements_of(node.input(1))
    if repeats is None or len(repeats) != len(source.shape):
        raise NotLowered("the repeats are only known at run time")
    target = lowering.result_view(node.output)
    shape: list[KnownDim] = []
    near: list[KnownDim] = []
    far: list[KnownDim] = []
    for axis, (count, size) in enumerate(zip(repeats, source.shape)):
        lowering.require_equal(count * size, target.shape[axis])
        lowering.require_equal(maximum(count, 0), count)
        shape.extend((count, size))
        near.extend((0, source.strides[axis]))
        far.extend((size * target.strides[axis], target.strides[axis]))
    wide = View(source.buffer, tuple(shape), tuple(near), source.offset)
    copy = PendingElementwise(element(0, source.dtype), (wide,), wide.shape, (node,))
    _store(lowering, copy, View(target.buffer, wide.shape, tuple(far), target.offset))
    lowering.set(node.output, target)


def depth_to_space(lowering: Lowering, node: Node) -> None:
    """DepthToSpace and SpaceToDepth: blocks as axes of their own, moved to their other place by one copy."""
    source = lowering.contiguous(node.input(0))
    batch, channels, height, width = source.shape
    size = node.int_attribute("blocksize", 1)
    _, shape = tensor_type(node.output)
    target = lowering.result_view(node.output)
    is_block_first = node.string_attribute("mode", "DCR") == "DCR"
    if node.op_type == "SpaceToDepth":
        lowering.require_equal(shape[2] * size, height)
        lowering.require_equal(shape[3] * size, width)
        order = (0, 3, 5, 1, 2, 4) if is_block_first else (0, 1, 3, 5, 2, 4)
        view = source.reshaped((batch, channels, shape[2], size, shape[3], size)).transposed(order)
    else:
        depth = shape[1]
        lowering.require_equal(depth * (size * size), channels)
        if is_block_first:
            view = source.reshaped((batch, size, size, depth, height, width)).transposed((0, 3, 4, 1, 5, 2))
        else:
            view = source.reshaped((batch, depth, size, size, height, width)).transposed((0, 1, 4, 2, 5, 3))
    copy = PendingElementwise(element(0, source.dtype), (view,), view.shape, (node,))
    _store(lowering, copy, target.reshaped(view.shape))
    lowering.set(node.output, target)


def cast_like(lowering: Lowering, node: Node) -> None:
    """CastLike: Cast to the type of the second input, which is not read."""
    value = node.input(0)
    assert value is not None
    dtype, shape = tensor_type(node.output)
    state = FusionState()
    scalar = lowering.operands.operand(value, state, shape)
    expression = converted(scalar, dtype, saturate=bool(node.int_attribute("saturate", 1)))
    if not isinstance(expression, Scalar):
        raise NotLowered(expression.reason)
    lowering.set(node.output, PendingElementwise(expression, tuple(state.inputs), shape, (node,)))


def _along(lowering: Lowering, shape: Sequence[KnownDim], axis: int) -> View:
    """Return the positions along one axis of a shape, of size 1 along the others behind it."""
    axis %= len(shape)
    return lowering.iota(shape[axis]).reshaped((shape[axis], *(1 for _ in shape[axis + 1 :])))


def _fill(lowering: Lowering, node: Node, number: Scalar, shape: Sequence[KnownDim]) -> None:
    lowering.set(node.output, PendingElementwise(number, (), tuple(shape), (node,)))


def _set(
    lowering: Lowering, node: Node, shape: Sequence[KnownDim], expression: Callable[..., Scalar], *views: View
) -> None:
    operand = combined(shape, expression, *views)
    lowering.set(node.output, PendingElementwise(operand.expression, operand.inputs, operand.shape, (node,)))


def _store(lowering: Lowering, pending: PendingElementwise, target: View) -> None:
    lowering.stores.store_elementwise(pending, target)
