"""Operators of rows: softmax, normalizations, reductions. What they compute is in ``loops.row_operators``.

Rows of floats that lie in memory as such are one row nest, with the expression in front taken in. Over other axes each
reduction is a step, and what is left of the formula is an expression that the reader takes in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from ort_core.cpu.lowering.images.layout_steps import is_channels_last
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import MAX_INPUTS, FusionState, PendingElementwise, as_it_is, known_order
from ort_core.cpu.lowering.rows.formula_steps import reduced_over
from ort_core.cpu.lowering.rows.reducing import ReductionOperand, operand_of
from ort_core.cpu.lowering.rows.row_steps import store_rows
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import axis_place, tensor_type
from ort_core.cpu.lowering.views import View, broadcast_strides, count_of
from ort_core.plugin import loops
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import Scalar, element, is_of_row, scheduled

F32 = DataType.FLOAT
FLOATS = (F32, DataType.DOUBLE)
_FIRST_WITH_AXES = 9  # of MeanVarianceNormalization
_SUMS = frozenset({"ReduceSum", "ReduceL1", "ReduceSumSquare"})
_ONE_PASS = frozenset({*_SUMS, "ReduceMean", "ReduceL2", "ReduceMax", "ReduceMin"})
_SUMMED_INTEGERS = frozenset(
    {DataType.INT8, DataType.INT16, DataType.INT32, DataType.UINT8, DataType.UINT16, DataType.UINT32}
)
Formula = Callable[..., Sequence[Scalar]]  # of the elements and the operands: an expression for each output
Shape = Sequence[KnownDim]


def softmax(lowering: Lowering, node: Node) -> None:
    """Softmax and LogSoftmax over an axis (before opset 13: over all from ``axis`` on)."""
    value = float_input(node, *FLOATS)
    _, shape = tensor_type(node.output)
    opset = lowering.opset_of(node)
    axis = axis_place(node.int_attribute("axis", -1 if opset >= 13 else 1), len(shape))
    function = loops.log_softmax if node.op_type == "LogSoftmax" else loops.softmax
    if opset < 13 or axis == len(shape) - 1:
        _along_rows(lowering, node, value, axis, lambda x: [function(x)], work=12)
    else:
        _over_axes(lowering, node, lowering.view(value), [axis], lambda x: [function(x)])


def layer_normalization(lowering: Lowering, node: Node) -> None:
    """LayerNormalization, RMSNormalization and their com.microsoft forms with a residual in front."""
    value, has_residual = float_input(node, *FLOATS), node.op_type.startswith("Skip")
    _, shape = tensor_type(node.output)
    axis, is_centered = node.int_attribute("axis", -1), node.op_type in ("LayerNormalization", "SkipLayerNormalization")
    if not -len(shape) <= axis < len(shape):
        raise NotLowered("the axis is none of the input's")
    if has_residual and any(output is not None for output in node.outputs[1:3]):
        raise NotLowered("mean and deviation are asked for")
    first = 2 if has_residual else 1
    affine = [node.input(first), node.input(first + 1) if is_centered else None]
    added = [node.input(k) for k in (1, first + 1 + is_centered)] if has_residual else []
    operands = [*added, *affine]
    epsilon = node.float_attribute("epsilon", 1e-12 if has_residual else 1e-5)

    def formula(x: Scalar, *read: Scalar) -> list[Scalar]:
        given = iter(read)
        found = [next(given) if operand is not None else None for operand in operands]
        for other in found[: len(added)]:
            x = x if other is None else x + other
        normal = loops.normalized(x, epsilon, *found[len(added) :], is_centered=is_centered)
        if has_residual:
            return [normal.result, normal.inverse, normal.inverse, x]
        return [normal.result, *([] if normal.mean is None else [normal.mean]), normal.inverse]

    start = axis % len(shape)
    present = [operand for operand in operands if operand is not None]
    if any(len(tensor_type(operand)[1]) > len(shape) for operand in present):
        raise NotLowered("an operand has more dimensions than the input")
    if all(_fits_rows(operand, shape, start, tensor_type(value)[0]) for operand in present):
        key = (epsilon, tuple(operand is not None for operand in operands))
        _along_rows(lowering, node, value, start, formula, present, key=key, work=4)
    else:
        views = [lowering.operands.spread(lowering.view(operand), shape) for operand in present]
        _over_axes(lowering, node, lowering.view(value), range(start, len(shape)), formula, views)


def normalized_rows(
    lowering: Lowering, node: Node, rows: Sequence[View], scale: Value | None, bias: Value | None, epsilon: float
) -> None:
    """Set a node's first output to the layer normalization, over the last axis, of the sum of views."""
    _, shape = tensor_type(node.output)
    state = FusionState()
    x = state.add(rows[0])
    for view in rows[1:]:
        x = x + state.add(view)
    affine = [v for v in (scale, bias) if v is not None]
    if not all(_fits_rows(v, shape, len(shape) - 1, F32) for v in affine):
        raise NotLowered("an operand does not lie along the rows")
    found = [state.add(_row_view(lowering, v, shape)) for v in affine]
    read = [found.pop(0) if v is not None else None for v in (scale, bias)]
    normal = loops.normalized(x, epsilon, *read)
    target = lowering.result_view(node.output)
    work = count_of(shape) * 4
    schedule = scheduled([normal.result], len(state.inputs))
    store_rows(lowering, schedule, state.inputs, shape, [target], [], (node,), work)
    lowering.set(node.output, target)


def instance_normalization(lowering: Lowering, node: Node) -> None:
    """InstanceNormalization: each channel of each image is a row with one scale and one bias."""
    _, declared = tensor_type(node.output)
    view = lowering.contiguous(float_input(node))
    shape = (declared[0], declared[1], count_of(declared[2:]))
    state, epsilon = FusionState(), node.float_attribute("epsilon", 1e-5)
    x = state.add(view.reshaped(shape))
    affine = [state.add(lowering.contiguous(node.input(i)).reshaped((declared[1], 1))) for i in (1, 2)]
    _store(
        lowering, node, state, [x, *affine], shape, lambda x, s, b: [loops.normalized(x, epsilon, s, b).result],
        (epsilon,), 3,
    )  # fmt: skip


def normalizer(lowering: Lowering, node: Node) -> None:
    """Normalizer of ai.onnx.ml: rows over their largest value, sum of magnitudes, or length; over 0 they stay."""
    value = float_input(node)
    _, shape = tensor_type(value)
    if len(shape) not in (1, 2):
        raise NotLowered("Normalizer of more than two dimensions is not generated")
    norm = node.string_attribute("norm", "MAX")
    _along_rows(
        lowering, node, value, len(shape) - 1, lambda x: [loops.normalizer(x, norm)], key=(norm,), work=2
    )  # fmt: skip


def mean_variance_normalization(lowering: Lowering, node: Node) -> None:
    """MeanVarianceNormalization over its axes."""
    value = float_input(node, *FLOATS)
    rank = len(tensor_type(value)[1])
    axes = sorted({axis_place(axis, rank) for axis in (node.ints_attribute("axes") or (0, 2, 3))})
    if lowering.opset_of(node) < _FIRST_WITH_AXES:
        if rank < 3 or not node.int_attribute("normalize_variance", 1):
            raise NotLowered("MeanVarianceNormalization without variances is not generated")
        axes = [axis for axis in range(min(rank, 4)) if axis != 1 or node.int_attribute("across_channels", 0)]
    _normalize(lowering, node, value, axes, lambda x: [loops.mean_variance_normalized(x)])


def lp_normalization(lowering: Lowering, node: Node) -> None:
    """LpNormalization: elements over their norm along an axis; nothing stays nothing."""
    value, p = float_input(node, *FLOATS), node.int_attribute("p", 2)
    axis = axis_place(node.int_attribute("axis", -1), len(tensor_type(value)[1]))
    _normalize(lowering, node, value, [axis], lambda x: [loops.lp_normalized(x, p)], key=(p,))


def _normalize(
    lowering: Lowering, node: Node, value: Value, axes: Sequence[int], formula: Formula, key: Hashable = ()
) -> None:
    rank = len(tensor_type(value)[1])
    if _is_trailing(axes, rank) and not known_order(lowering.pending(value)):
        _along_rows(lowering, node, value, axes[0], formula, key=key, work=4)
    else:
        _over_axes(lowering, node, lowering.view(value), axes, formula)


def reduce(lowering: Lowering, node: Node) -> None:
    """Reduce over any axes; what runs along rows of floats is a row nest, with the expression in front taken in."""
    value = required(node, 0)
    dtype, shape = tensor_type(value)
    axes = reduced_axes(lowering, node, len(shape))
    if not axes:
        raise NotLowered("nothing is reduced")
    if not _is_reducible(dtype, node.op_type):
        raise NotLowered(f"{node.op_type} of {dtype.text} is not generated")
    is_pool = axes == (2, 3) and len(shape) == 4 and node.op_type in ("ReduceMean", "ReduceMax")
    if is_pool and dtype is F32 and is_channels_last(images := lowering.view(value)):
        from ort_core.cpu.lowering.rules.images.pooling import pool_whole  # of images alone

        pool_whole(lowering, node, images, is_maximum=node.op_type == "ReduceMax")
        return
    is_row = _is_trailing(axes, len(shape)) and (is_pool or not known_order(lowering.pending(value)))
    if dtype in FLOATS and is_row and not _is_short(lowering, node, shape, axes):
        _along_rows(lowering, node, value, axes[0], lambda x: [loops.reduction_of(node.op_type, x)], work=1)
        return
    operand = taken_operand(lowering, value)
    root = loops.reduction_of(node.op_type, operand.expression)
    target = lowering.result_view(node.output)
    (result,) = reduced_over(lowering, [root], operand.inputs, operand.shape, axes, (node,), [target])
    _set(lowering, node, node.output, result)


def _is_short(lowering: Lowering, node: Node, shape: Sequence[KnownDim], axes: Sequence[int]) -> bool:
    """Return whether rows shorter than two vectors are reduced in one pass: many at once are faster than each alone."""
    length = count_of([shape[axis] for axis in axes])
    return node.op_type in _ONE_PASS and isinstance(length, int) and length < 2 * lowering.target.lanes


def _is_reducible(dtype: DataType, op_type: str) -> bool:
    if (op_type in _SUMS or op_type == "ReduceMean") and dtype in _SUMMED_INTEGERS:
        return True
    if op_type in ("ReduceSum", "ReduceMean") and dtype is DataType.INT64:
        return True
    if op_type in ("ReduceProd", "ReduceL2") and dtype.is_integer:
        return op_type == "ReduceProd" or dtype is not DataType.UINT64
    return dtype in FLOATS or op_type in ("ReduceMax", "ReduceMin")


def _is_trailing(axes: Sequence[int], rank: int) -> bool:
    return list(axes) == list(range(rank - len(axes), rank))


def reduced_axes(lowering: Lowering, node: Node, rank: int) -> tuple[int, ...]:
    """Return the axes of a reduction, an attribute or a constant input, in order; none for all, unless none is meant.

    Raises:
        NotLowered: they are not constant.
    """
    given = node.ints_attribute("axes")
    if given is None and node.input(1) is not None:
        array = lowering.constant_of(node.input(1))
        if array is None:
            raise NotLowered("the axes are not constant")
        given = tuple(int(a) for a in array.reshape(-1))
    if not given:
        if node.int_attribute("noop_with_empty_axes", 0):
            raise NotLowered("nothing is reduced")
        return tuple(range(rank))
    return tuple(sorted(axis_place(a, rank) for a in given))


# how formulas become steps --------------------------------------------------------------------------------------------


def _along_rows(
    lowering: Lowering, node: Node, value: Value, first: int, formula: Formula, operands: Sequence[Value] = (), *,
    key: Hashable = (), work: int,
) -> None:  # fmt: skip
    """Store a node's outputs by one row nest, over all axes of a value from ``first`` on."""
    _, shape = tensor_type(value)
    rows = (*shape[:first], count_of(shape[first:]))
    state, x = _fused_operand(lowering, value, rows, len(shape) - first == 1, MAX_INPUTS - len(operands))
    read = [state.add(_row_view(lowering, operand, rows)) for operand in operands]
    _store(lowering, node, state, [x, *read], rows, formula, key, work)


def _store(
    lowering: Lowering, node: Node, state: FusionState, read: Sequence[Scalar], rows: Shape, formula: Formula,
    key: Hashable, work: int,
) -> None:  # fmt: skip
    outputs = {k: value for k, value in enumerate(node.outputs) if value is not None}
    if any(tensor_type(value)[0] is not read[0].dtype for value in outputs.values()):
        raise NotLowered("the result has another type than the input")

    def made() -> tuple[loops.RowSchedule, list[bool]]:
        roots = formula(*read)
        wanted = [roots[k] for k in outputs]
        return scheduled(wanted, len(state.inputs)), [is_of_row(root) for root in wanted]

    places = tuple((operand.dtype, operand.index) for operand in read[1:])
    what = (node.op_type, key, tuple(outputs), places, len(state.inputs))
    schedule, of_row = lowering.expressions.once(what, read[0], made)
    views = {k: lowering.result_view(value) for k, value in outputs.items()}
    elements = [view.reshaped(rows) for view, narrow in zip(views.values(), of_row) if not narrow]
    scalars = [view for view, narrow in zip(views.values(), of_row) if narrow]
    store_rows(lowering, schedule, state.inputs, rows, elements, scalars, (node,), count_of(rows) * work)
    for k, value in outputs.items():
        lowering.set(value, views[k])


def _over_axes(
    lowering: Lowering, node: Node, x: View, axes: Sequence[int], formula: Formula, operands: Sequence[View] = ()
) -> None:
    """Write the steps of a node's reductions, and set its outputs to what is left of the formulas."""
    views = [x, *operands]
    roots = formula(*[element(k, view.dtype) for k, view in enumerate(views)])
    outputs = {k: value for k, value in enumerate(node.outputs) if value is not None}
    found = reduced_over(lowering, [roots[k] for k in outputs], views, x.shape, axes, (node,))
    for value, result in zip(outputs.values(), found):
        if result.dtype is not tensor_type(value)[0]:
            raise NotLowered("the result has another type than the input")
        _set(lowering, node, value, result)


def _set(lowering: Lowering, node: Node, value: Value, result: ReductionOperand) -> None:
    """Set a value to what was computed of it; axes that were reduced may have gone."""
    _, shape = tensor_type(value)
    views = tuple(view.reshaped(shape) if view.shape == result.shape != shape else view for view in result.inputs)
    if result.expression.operation == "input":
        lowering.set(value, views[0])
    else:
        lowering.set(value, PendingElementwise(result.expression, views, shape, (node,)))


# how rows read their operands -----------------------------------------------------------------------------------------


def required(node: Node, index: int) -> Value:
    """Return an input that must be there."""
    value = node.input(index)
    if value is None:
        raise NotLowered("a required input is missing")
    return value


def float_input(node: Node, *types: DataType) -> Value:
    """Return the first input of a node; ``NotLowered`` where it is not of these types, float32 if none is named."""
    value = required(node, 0)
    wanted = types or (F32,)
    if tensor_type(value)[0] not in wanted:
        raise NotLowered(f"only {' and '.join(dtype.numpy.name for dtype in wanted)} is generated")
    return value


def taken_operand(lowering: Lowering, value: Value) -> ReductionOperand:
    """Return a value as an operand, with the expression in front if nobody else needs it."""
    known = lowering.pending(value)
    if isinstance(known, PendingElementwise) and lowering.is_single_use(value):
        state = FusionState()
        return ReductionOperand(state.inlined(known), tuple(state.inputs), known.shape)
    return operand_of(lowering.view(value))


def _fused_operand(
    lowering: Lowering, value: Value, shape: Shape, same_shape: bool, most: int
) -> tuple[FusionState, Scalar]:
    """Return how the row's elements are read; an expression in front is taken in if it keeps the shape.

    Args:
        lowering: what is being lowered.
        value: whose rows are read.
        shape: of the rows.
        same_shape: whether the value has it.
        most: operands of an expression that is taken in; others are computed before.
    """
    state = FusionState()
    if same_shape:
        known = lowering.pending(value)
        is_taken = isinstance(known, PendingElementwise) and lowering.is_single_use(value)
        if isinstance(known, PendingElementwise) and is_taken and len(known.inputs) <= most and _row_wise(known, shape):
            return state, state.continued(known, as_it_is)
        view = lowering.view(value)
        if view.strides and view.strides[-1] == 1:
            return state, state.add(view)
    view = lowering.contiguous(value)
    return state, state.add(view.reshaped(shape))


def _row_wise(pending: PendingElementwise, shape: Shape) -> bool:
    """Return whether rows can take an expression in: it reads elements, and they lie along the rows.

    A formula of a constant would read no element and count as one value a row.
    """
    if is_of_row(pending.expression):
        return False
    for view in pending.inputs:
        strides = broadcast_strides(view, shape)
        if strides is None or strides[-1] not in (0, 1):
            return False
    return True


def _fits_rows(value: Value, shape: Shape, first: int, of: DataType) -> bool:
    """Return whether an operand is read along the rows that the axes from ``first`` on make, or is one number a row."""
    dtype, own = tensor_type(value)
    inner = shape[first:]
    if dtype is not of or len(own) > len(shape):
        return False
    if count_of(own) == count_of(inner):  # as many by chance is another thing: it broadcasts otherwise
        return _without_leading_ones(own) == _without_leading_ones(inner)
    if len(inner) > 1:
        return count_of(own) == 1 or (len(own) > 1 and count_of(own) == count_of(shape))
    aligned = shape[len(shape) - len(own) :]
    return all(size in (1, wanted) for size, wanted in zip(own, aligned))


def _without_leading_ones(shape: Shape) -> tuple[KnownDim, ...]:
    first = next((axis for axis, size in enumerate(shape) if size != 1), len(shape))
    return tuple(shape[first:])


def _row_view(lowering: Lowering, value: Value, rows: Shape) -> View:
    """Return an operand that fits rows as they read it."""
    view = lowering.contiguous(value)
    if len(view.shape) > 1 and count_of(view.shape) == count_of(rows):
        return view.reshaped(rows)
    return view.reshaped((rows[-1],)) if count_of(view.shape) == rows[-1] else view
