"""Reductions of expressions over any axes into new tensors: what normalizations and softmax are made of.

Trailing axes of floats go to row nests, others to reduction nests. Leading and trailing axes at once are two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ort_core.cpu.codegen.nests.along_nests import AlongNest, along_kernel
from ort_core.cpu.codegen.nests.elementwise_nests import BROADCAST, DENSE, STRIDED, NestInput
from ort_core.cpu.codegen.nests.reduction_nests import COUNT, INDEX, STATES, ReductionNest, reduction_kernel
from ort_core.cpu.codegen.nests.row_nests import JOINED
from ort_core.cpu.lowering.broadcasting import known_strides
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingElementwise, order_of
from ort_core.cpu.lowering.rows.row_steps import emit_row_nest
from ort_core.cpu.lowering.steps import Argument, KernelText, NotLowered, Operators, pointer
from ort_core.cpu.lowering.views import View, collapse, count_of, dense_strides
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, KnownDim
from ort_core.plugin.loops import (
    RowPass,
    RowReduction,
    RowSchedule,
    Scalar,
    binary,
    cast,
    element,
    neutral_value,
    row_value,
    select,
    substitute,
    unary,
)

F32, F64, I64 = DataType.FLOAT, DataType.DOUBLE, DataType.INT64
After = Callable[[Scalar, Scalar], Scalar]  # (result, number of elements) -> what is stored


@frozen
class ReductionOperand:
    """An expression over views, each of which broadcasts to ``shape``."""

    expression: Scalar
    inputs: tuple[View, ...]
    shape: tuple[KnownDim, ...]

    @property
    def dtype(self) -> DataType:
        """The element type."""
        return self.expression.dtype


def operand_of(view: View) -> ReductionOperand:
    """Return a view's own elements as an operand."""
    return ReductionOperand(element(0, view.dtype), (view,), view.shape)


def combined(shape: Sequence[KnownDim], expression: Callable[..., Scalar], *views: View) -> ReductionOperand:
    """Return an expression over the elements of views that broadcast to ``shape``."""
    state = FusionState()
    scalars = [state.add(view) for view in views]
    return ReductionOperand(expression(*scalars), tuple(state.inputs), tuple(shape))


def store_operand(
    lowering: Lowering, operand: ReductionOperand, operators: Operators, target: View | None = None
) -> View:
    """Compute an operand into memory: a given place, or memory of its own."""
    pending = PendingElementwise(operand.expression, operand.inputs, operand.shape, operators)
    target = target or lowering.new_view(operand.dtype, operand.shape, order_of(pending))
    return lowering.stores.store_elementwise(pending, target)


def kept_shape(shape: Sequence[KnownDim], axes: Sequence[int]) -> tuple[KnownDim, ...]:
    """Return a shape with the given axes reduced to size 1."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(shape))


def reduce_operand(
    lowering: Lowering,
    operand: ReductionOperand,
    axes: Sequence[int],
    kind: str,
    after: After | None = None,
    target: View | None = None,
    operators: Operators = (),
) -> View:
    """Reduce an expression (``sum``, ``prod``, ``max`` or ``min``) and return the result, reduced axes kept as 1.

    ``target`` is a contiguous place for it, of any shape with as many elements.
    """
    if any(axis not in range(len(operand.shape)) for axis in axes):
        raise NotLowered(f"axes {list(axes)} are not those of a tensor of rank {len(operand.shape)}")
    final = kept_shape(operand.shape, axes)
    order = _memory_order(operand)
    kept = [axis for axis in order if axis not in axes and operand.shape[axis] != 1]
    if order:
        operand, axes = _ordered(operand, order), sorted(order.index(axis) for axis in axes)
    if kept != sorted(kept):  # turned once it is small: what lies apart in memory is slow to read, all of it
        made = _reduced(lowering, operand, axes, kind, after, None, operators)
        turned = made.transposed(tuple(order.index(axis) for axis in range(len(order))))
        place = lowering.new_view(made.dtype, final) if target is None else target
        store_operand(lowering, operand_of(turned), operators, place.reshaped(final))
        return place
    made = _reduced(lowering, operand, axes, kind, after, target, operators)
    return made if target is not None else made.reshaped(final)


def _reduced(
    lowering: Lowering, operand: ReductionOperand, axes: Sequence[int], kind: str, after: After | None,
    target: View | None, operators: Operators,
) -> View:  # fmt: skip
    final = kept_shape(operand.shape, axes)
    rank = len(operand.shape)
    chosen = [a for a in range(rank) if a in axes or operand.shape[a] == 1]  # reducing one element changes nothing
    trailing = [axis for axis in chosen if all(a in chosen for a in range(axis, rank))]
    length = count_of([operand.shape[axis] for axis in trailing])
    is_short = isinstance(length, int) and length < 2 * lowering.target.lanes
    is_float = operand.dtype in (F32, F64)
    by_rows = is_float and kind != "prod" and trailing and not is_short and _runs_along(operand, trailing)
    outer = [axis for axis in chosen if axis not in trailing and operand.shape[axis] != 1]
    if by_rows and outer:
        inner = _reduced(lowering, operand, trailing, kind, None, None, operators)
        total = count_of([operand.shape[axis] for axis in chosen])
        place = target if after is None else None
        folded = _fold(lowering, operand_of(inner), outer, kind, None, place, operators, final)
        return folded if after is None else _after(lowering, folded, total, after, target, operators)
    if by_rows:
        return _rows(lowering, operand, trailing, kind, after, target, operators, final)
    return _fold(lowering, operand, chosen, kind, after, target, operators, final)


def _memory_order(operand: ReductionOperand) -> tuple[int, ...]:
    """Return the axes of an operand as they lie in memory; nothing where that is their own order."""
    orders = (view.order for view in operand.inputs if len(view.order) == len(operand.shape))
    return next(orders, ())


def _ordered(operand: ReductionOperand, order: tuple[int, ...]) -> ReductionOperand:
    views = tuple(_with_rank(view, len(order)).transposed(order) for view in operand.inputs)
    return ReductionOperand(operand.expression, views, tuple(operand.shape[axis] for axis in order))


def _with_rank(view: View, rank: int) -> View:
    missing = rank - len(view.shape)
    return View(view.buffer, (1,) * missing + view.shape, (0,) * missing + view.strides, view.offset)


def reduced_by_states(
    lowering: Lowering,
    operand: ReductionOperand,
    axes: Sequence[int],
    initial: tuple[tuple[DataType, float | int], ...],
    updates: tuple[Scalar, ...],
    results: tuple[tuple[Scalar, DataType], ...],
    targets: Sequence[View],
    operators: Operators,
    joins: tuple[Scalar, ...] = (),
) -> None:
    """Fold an expression's elements into states; see ``ReductionNest``. ``updates`` read the element as input 0.

    With ``joins``, see ``AlongNest``, elements that lie side by side are folded side by side.
    """
    shape, rank = operand.shape, len(operand.shape)
    kept = [axis for axis in range(rank) if axis not in axes]
    strides = [known_strides(view, shape) for view in operand.inputs]
    out = dense_strides([shape[axis] for axis in kept])
    kept_sizes, kept_strides = collapse([shape[a] for a in kept], [out, *([s[a] for a in kept] for s in strides)])
    if kept_strides[0][-1] not in (0, 1):
        raise NotLowered("the innermost result is not dense")
    folded_sizes, folded_strides = collapse([shape[a] for a in axes], [[s[a] for a in axes] for s in strides])
    is_along = bool(joins) and _lies_along(folded_sizes[-1], folded_strides, lowering.target.lanes)
    inner = [s[-1] for s in (folded_strides if is_along else kept_strides[1:])]
    inputs = tuple(
        NestInput(view.dtype, BROADCAST if step == 0 else DENSE if step == 1 else STRIDED)
        for view, step in zip(operand.inputs, inner)
    )
    bound = tuple(substitute(update, {0: operand.expression}) for update in updates)
    nest = ReductionNest(len(kept_sizes), len(folded_sizes), inputs, initial, bound, results)
    machine = lowering.target
    kernel = along_kernel(AlongNest(nest, joins), machine) if is_along else reduction_kernel(nest, machine)
    arguments: list[Argument] = [*(pointer(t) for t in targets), *(pointer(v) for v in operand.inputs)]
    arguments.extend((*kept_sizes, *folded_sizes))
    for _ in targets:
        arguments.extend(kept_strides[0][:-1])
    for near, far in zip(kept_strides[1:], folded_strides):
        arguments.extend((*near, *far))
    lowering.emit(
        KernelText(kernel.name, kernel), arguments, [v.buffer for v in operand.inputs], [t.buffer for t in targets],
        count_of(shape), operators, count_of(shape),
    )  # fmt: skip


def _lies_along(length: KnownDim, strides: Sequence[Sequence[KnownDim]], lanes: int) -> bool:
    """Return whether rows of the innermost reduced dimension are dense, and long enough for vectors of states."""
    steps = [each[-1] for each in strides]
    is_short = isinstance(length, int) and length < 2 * lanes
    return not is_short and 1 in steps and all(step in (0, 1) for step in steps)


def extreme_index(
    lowering: Lowering,
    operand: ReductionOperand,
    axis: int,
    *,
    largest: bool,
    last: bool,
    target: View,
    operators: Operators,
) -> None:
    """Store the index of the largest (or smallest) element along an axis; a NaN counts as the most extreme."""
    x, best, index = element(0, operand.dtype), row_value(STATES, operand.dtype), row_value(STATES + 1, I64)
    comparison = ("ge" if largest else "le") if last else ("gt" if largest else "lt")
    takes = binary(comparison, x, best)
    if operand.dtype.is_float:
        is_nan = unary("is_nan", x)
        takes = binary("or", takes, is_nan if last else binary("and", is_nan, unary("not", unary("is_nan", best))))
    updates = (select(takes, x, best), select(takes, row_value(INDEX, I64), index))
    initial = ((operand.dtype, neutral_value("max" if largest else "min", operand.dtype)), (I64, 0))
    reduced_by_states(
        lowering, operand, [axis], initial, updates, ((index, I64),), [target], operators,
        _joined_extremes(operand.dtype, largest=largest, last=last),
    )  # fmt: skip


def _joined_extremes(dtype: DataType, *, largest: bool, last: bool) -> tuple[Scalar, Scalar]:
    """Return the better of two best elements with its index; of equal ones, NaNs too, the first or the last."""
    best, other = row_value(STATES, dtype), row_value(STATES + 2, dtype)
    index, other_index = row_value(STATES + 1, I64), row_value(STATES + 3, I64)
    is_better = binary("gt" if largest else "lt", other, best)
    is_equal = binary("eq", other, best)
    if dtype.is_float:
        of_best, of_other = unary("is_nan", best), unary("is_nan", other)
        is_better = binary("or", is_better, binary("and", of_other, unary("not", of_best)))
        is_equal = binary("or", is_equal, binary("and", of_other, of_best))
    goes_on = binary("and", is_equal, binary("gt" if last else "lt", other_index, index))
    takes = binary("or", is_better, goes_on)
    return select(takes, other, best), select(takes, other_index, index)


def _fold(
    lowering: Lowering, operand: ReductionOperand, axes: Sequence[int], kind: str, after: After | None,
    target: View | None, operators: Operators, final: Sequence[KnownDim],
) -> View:  # fmt: skip
    dtype = operand.dtype
    state = row_value(STATES, dtype)
    count = cast(row_value(COUNT, I64), dtype)
    result = after(state, count) if after is not None else state
    place = target or lowering.new_view(result.dtype, final)
    update = JOINED[kind](state, element(0, dtype))
    initial = ((dtype, neutral_value(kind, dtype)),)
    join = JOINED[kind](state, row_value(STATES + 1, dtype))
    reduced_by_states(
        lowering, operand, axes, initial, (update,), ((result, result.dtype),), [place], operators, (join,)
    )
    return place if target is not None else place.reshaped(final)


def _after(
    lowering: Lowering, folded: View, total: KnownDim, after: After, target: View | None, operators: Operators
) -> View:
    """Store what is made of a reduction that took two steps."""
    count = lowering.stores.stored_sizes((total,)).reshaped(())
    finished = combined(folded.shape, lambda r, n: after(r, cast(n, r.dtype)), folded, count)
    place = target.reshaped(folded.shape) if target is not None else lowering.new_view(finished.dtype, folded.shape)
    pending = PendingElementwise(finished.expression, finished.inputs, finished.shape, operators)
    lowering.stores.store_elementwise(pending, place)
    return target or place


def _rows(
    lowering: Lowering, operand: ReductionOperand, axes: Sequence[int], kind: str, after: After | None,
    target: View | None, operators: Operators, final: Sequence[KnownDim],
) -> View:  # fmt: skip
    first, dtype = axes[0], operand.dtype
    result = row_value(1, dtype)
    derived = ((2, after(result, row_value(0, dtype))),) if after else ()
    if derived and derived[0][1].dtype is not dtype:
        return _fold(lowering, operand, axes, kind, after, target, operators, final)
    body = RowPass((), (RowReduction(kind, operand.expression, 1),), derived)
    place = target or lowering.new_view(dtype, final)
    strides = [known_strides(view, operand.shape) for view in operand.inputs]
    length, inner = collapse(operand.shape[first:], [s[first:] for s in strides])
    emit_row_nest(
        lowering, RowSchedule((body,), (2 if after else 1,)), operand.inputs, (*operand.shape[:first], length[0]),
        [(*s[:first], step[-1]) for s, step in zip(strides, inner)], (), (place,), operators, count_of(operand.shape),
    )  # fmt: skip
    return place


def _runs_along(operand: ReductionOperand, axes: Sequence[int]) -> bool:
    """Return whether all inputs step through the trailing axes as through one, densely or not at all."""
    first = axes[0]
    strides = [known_strides(view, operand.shape)[first:] for view in operand.inputs]
    sizes, merged = collapse(operand.shape[first:], strides)
    return len(sizes) == 1 and all(each[-1] in (0, 1) for each in merged)
