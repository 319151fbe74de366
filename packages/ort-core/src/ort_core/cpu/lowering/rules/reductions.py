"""Reductions over any axes, extremes' indices, running sums, and what is composed of them: softmax, normalizations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ort_core.cpu.codegen.nests.scans import Scan, scan_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingElementwise, known_order, order_of
from ort_core.cpu.lowering.reducing import (
    ReductionOperand,
    combined,
    extreme_index,
    operand_of,
    reduce_operand,
)
from ort_core.cpu.lowering.rules import rows
from ort_core.cpu.lowering.steps import KernelText, NotLowered, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, count_of
from ort_core.plugin.ir import DataType, KnownDim, Node, Value, minimum
from ort_core.plugin.loops import Scalar, binary, cast, exp, log, select, unary

F32, F64, I64 = DataType.FLOAT, DataType.DOUBLE, DataType.INT64
_NARROW_INTEGERS = frozenset(
    {DataType.INT8, DataType.INT16, DataType.INT32, DataType.UINT8, DataType.UINT16, DataType.UINT32}
)
_KINDS: dict[str, tuple[str, Callable[[Scalar], Scalar], Callable[[Scalar, Scalar], Scalar]]] = {
    "ReduceSum": ("sum", lambda x: x, lambda r, n: r),
    "ReduceMean": ("sum", lambda x: x, lambda r, n: r / n),
    "GlobalAveragePool": ("sum", lambda x: x, lambda r, n: r / n),
    "ReduceMax": ("max", lambda x: x, lambda r, n: r),
    "ReduceMin": ("min", lambda x: x, lambda r, n: r),
    "ReduceProd": ("prod", lambda x: x, lambda r, n: r),
    "ReduceSumSquare": ("sum", lambda x: x * x, lambda r, n: r),
    "ReduceL1": ("sum", lambda x: unary("abs", x), lambda r, n: r),
    "ReduceL2": ("sum", lambda x: x * x, lambda r, n: unary("sqrt", r)),
    "ReduceLogSum": ("sum", lambda x: x, lambda r, n: log(r)),
}


def reduce(lowering: Lowering, node: Node) -> None:
    """Reduce over any axes; what runs along rows of float32 goes there, with the expression in front taken in."""
    value = _present(node, 0)
    dtype, shape = tensor_type(value)
    axes = rows._reduced_axes(lowering, node, len(shape))
    if not axes:
        raise NotLowered("nothing is reduced")
    is_trailing = axes == tuple(range(len(shape) - len(axes), len(shape)))
    is_pool = axes == (2, 3) and node.op_type in ("ReduceMean", "ReduceMax")
    is_row = is_trailing and (is_pool or not known_order(lowering.pending(value)))
    if dtype is F32 and is_row and node.op_type in rows._REDUCTIONS:
        rows.reduce(lowering, node)
        return
    if node.op_type == "ReduceLogSumExp":
        _log_sum_exp(lowering, node, axes)
        return
    kind, before, after = _KINDS[node.op_type]
    operand = _operand(lowering, value, shape)
    expression = before(operand.expression)
    if dtype in _NARROW_INTEGERS and node.op_type == "ReduceSum":  # the sum of less than 2**31 of them fits 64 bits
        expression, after = cast(expression, I64), lambda r, n: _saturated(r, dtype)
    elif not _is_reducible(dtype, node.op_type, kind):
        raise NotLowered(f"{node.op_type} of {dtype.text} is not generated")
    target = lowering.result_view(node.output)
    chosen = ReductionOperand(expression, operand.inputs, operand.shape)
    reduce_operand(lowering, chosen, axes, kind, after, target, (node,))
    lowering.set(node.output, target)


def _is_reducible(dtype: DataType, op_type: str, kind: str) -> bool:
    if dtype is F32:
        return True
    if dtype is F64:
        return op_type != "ReduceLogSum"
    return kind in ("max", "min") and dtype is not DataType.BOOL


def _saturated(total: Scalar, dtype: DataType) -> Scalar:
    low, high = (0, 2**dtype.bits - 1) if dtype.text.startswith("uint") else _signed_range(dtype.bits)
    limited = select(binary("gt", total, high), high, select(binary("lt", total, low), low, total), I64)
    return cast(limited, dtype)


def _signed_range(bits: int) -> tuple[int, int]:
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _log_sum_exp(lowering: Lowering, node: Node, axes: tuple[int, ...]) -> None:
    view = float_view(lowering, node)
    peak = reduce_operand(lowering, operand_of(view), axes, "max", lambda r, n: _finite(r), operators=(node,))
    shifted = combined(view.shape, lambda x, m: exp(x - m), view, peak)
    total = reduce_operand(lowering, shifted, axes, "sum", lambda r, n: log(r), operators=(node,))
    _, declared = tensor_type(node.output)
    views = (total.reshaped(declared), peak.reshaped(declared))
    _finish(lowering, node, node.output, combined(declared, lambda t, m: t + m, *views))


def _finite(x: Scalar) -> Scalar:
    """Return 0 for infinities: inf - inf would be NaN."""
    return select(binary("eq", unary("abs", x), float("inf")), 0.0, x)


def arg_extreme(lowering: Lowering, node: Node) -> None:
    """ArgMax and ArgMin: a reduction that keeps the best element and its index."""
    value = _present(node, 0)
    _, shape = tensor_type(value)
    if not shape:
        raise NotLowered("of a scalar")
    axis = node.int_attribute("axis", 0) % len(shape)
    lowering.require_equal(minimum(shape[axis], 1), 1)  # nothing has no extreme
    target = lowering.result_view(node.output)
    extreme_index(
        lowering, _operand(lowering, value, shape), axis, largest=node.op_type == "ArgMax",
        last=bool(node.int_attribute("select_last_index", 0)), target=target, operators=(node,),
    )  # fmt: skip
    lowering.set(node.output, target)


def softmax(lowering: Lowering, node: Node) -> None:
    """Softmax and LogSoftmax: rows where the axis is the last one, else reduction nests and fused elementwise steps."""
    _, shape = tensor_type(node.output)
    opset = lowering.opset_of(node)
    axis = node.int_attribute("axis", -1 if opset >= 13 else 1) % max(len(shape), 1)
    if opset < 13 or axis == len(shape) - 1:
        rows.softmax(lowering, node)
        return
    view = float_view(lowering, node)
    peak = reduce_operand(lowering, operand_of(view), [axis], "max", operators=(node,))
    powers = combined(shape, lambda x, m: exp(x - m), view, peak)
    if node.op_type == "LogSoftmax":
        total = reduce_operand(lowering, powers, [axis], "sum", lambda r, n: log(r), operators=(node,))
        _finish(lowering, node, node.output, combined(shape, lambda x, m, t: x - m - t, view, peak, total))
        return
    stored = store_operand(lowering, powers, node)
    total = reduce_operand(lowering, operand_of(stored), [axis], "sum", lambda r, n: 1.0 / r, operators=(node,))
    _finish(lowering, node, node.output, combined(shape, lambda e, t: e * t, stored, total))


def hardmax(lowering: Lowering, node: Node) -> None:
    """Hardmax: one at the first of the largest elements, zero elsewhere."""
    view = lowering.contiguous(_present(node, 0))
    dtype, shape = tensor_type(node.output)
    opset = lowering.opset_of(node)
    axis = node.int_attribute("axis", -1 if opset >= 13 else 1) % max(len(shape), 1)
    if opset < 13:
        view, axis = view.reshaped((count_of(shape[:axis]), count_of(shape[axis:]))), 1
    flat = view.shape
    lowering.require_equal(minimum(flat[axis], 1), 1)
    best = lowering.new_view(I64, tuple(1 if a == axis else s for a, s in enumerate(flat)))
    extreme_index(lowering, operand_of(view), axis, largest=True, last=False, target=best, operators=(node,))
    along = lowering.iota(flat[axis]).reshaped((flat[axis], *(1 for _ in flat[axis + 1 :])))
    marks = combined(flat, lambda i, b: cast(binary("eq", i, b), dtype), along, best)
    if len(flat) != len(shape):
        lowering.set(node.output, store_operand(lowering, marks, node).reshaped(shape))
    else:
        _finish(lowering, node, node.output, marks)


def layer_normalization(lowering: Lowering, node: Node) -> None:
    """LayerNormalization by rows; with mean or deviation asked for, as reductions and a fused expression."""
    if node.op_type.startswith("Skip") or not any(v is not None for v in node.outputs[1:]):
        rows.layer_normalization(lowering, node)
        return
    view = float_view(lowering, node)
    axes = range(node.int_attribute("axis", -1) % len(view.shape), len(view.shape))
    epsilon = node.float_attribute("epsilon", 1e-5)
    is_rms = node.op_type == "SimplifiedLayerNormalization"
    if any(tensor_type(v)[0] is not F32 for v in node.present_outputs()):
        raise NotLowered("statistics of another type")
    mean = None if is_rms else mean_along(lowering, view, axes, node)
    inverse = inverse_deviation(lowering, view, mean, axes, epsilon, node)
    scale, bias = node.input(1), None if is_rms else node.input(2)
    operands = [v for v in (scale, bias) if v is not None]
    views = [lowering.operands.spread(lowering.view(v), view.shape) for v in operands]

    def result(x: Scalar, d: Scalar, *rest: Scalar) -> Scalar:
        others = list(rest)
        y = (x if mean is None else x - others.pop(0)) * d
        y = y * others.pop(0) if scale is not None else y
        return y + others.pop(0) if bias is not None else y

    statistics = [inverse] if mean is None else [inverse, mean]
    _finish(lowering, node, node.output, combined(view.shape, result, view, *statistics, *views))
    wanted = [(inverse,), (mean, inverse)][mean is not None]
    for output, statistic in zip(node.outputs[1:], wanted):
        if output is not None:
            assert statistic is not None
            lowering.set(output, statistic.reshaped(tensor_type(output)[1]))


def mean_variance_normalization(lowering: Lowering, node: Node) -> None:
    """MeanVarianceNormalization: ``(x - mean) / (deviation + 1e-9)`` over its axes."""
    view = float_view(lowering, node)
    axes = [axis % len(view.shape) for axis in (node.ints_attribute("axes") or (0, 2, 3))]
    mean = mean_along(lowering, view, axes, node)
    squares = combined(view.shape, lambda x, m: (x - m) * (x - m), view, mean)
    deviation = reduce_operand(
        lowering, squares, axes, "sum", lambda r, n: 1.0 / (unary("sqrt", r / n) + 1e-9), operators=(node,)
    )
    _finish(lowering, node, node.output, combined(view.shape, lambda x, m, d: (x - m) * d, view, mean, deviation))


def lp_normalization(lowering: Lowering, node: Node) -> None:
    """LpNormalization: elements over their norm along an axis; nothing stays nothing."""
    view = float_view(lowering, node)
    axis = node.int_attribute("axis", -1) % len(view.shape)
    is_first = node.int_attribute("p", 2) == 1
    sizes = combined(view.shape, lambda x: unary("abs", x) if is_first else x * x, view)
    norm = reduce_operand(
        lowering, sizes, [axis], "sum", lambda r, n: r if is_first else unary("sqrt", r), operators=(node,)
    )
    _finish(
        lowering, node, node.output,
        combined(view.shape, lambda x, d: select(binary("eq", d, 0.0), 0.0, x / d), view, norm),
    )  # fmt: skip


def cumulative(lowering: Lowering, node: Node) -> None:
    """CumSum and CumProd: scans; backwards with negative strides."""
    value = _present(node, 0)
    dtype, shape = tensor_type(value)
    axes = lowering.constant_of(node.input(1))
    if axes is None or axes.size != 1 or not shape:
        raise NotLowered("the axis is not constant")
    if dtype not in (F32, F64, DataType.INT32, I64):
        raise NotLowered(f"running sums of {dtype.text}")
    axis = int(axes.reshape(-1)[0]) % len(shape)
    source = lowering.contiguous(value)
    target = lowering.result_view(node.output)
    inner, length = count_of(shape[axis + 1 :]), shape[axis]
    operation = "add" if node.op_type == "CumSum" else "mul"
    state = F64 if dtype is F32 else dtype
    scan = Scan(operation, dtype, state, bool(node.int_attribute("exclusive", 0)), inner != 1)
    name, function = scan_kernel(scan, lowering.target)
    step: KnownDim = inner
    start: KnownDim = 0
    if node.int_attribute("reverse", 0):
        start, step = (length - 1) * inner, -inner
    strides = (length * inner, step, 1)
    moved = [View(v.buffer, v.shape, v.strides, v.offset + start) for v in (target, source)]
    lowering.emit(
        KernelText(name, function),
        (pointer(moved[0]), pointer(moved[1]), count_of(shape[:axis]), length, inner, *strides, *strides),
        (source.buffer,), (target.buffer,), count_of(shape), (node,), count_of(shape),
    )  # fmt: skip
    lowering.set(node.output, target)


def mean_along(lowering: Lowering, view: View, axes: Sequence[int], node: Node) -> View:
    """Return the means along axes, which stay with size 1."""
    return reduce_operand(lowering, operand_of(view), axes, "sum", lambda r, n: r / n, operators=(node,))


def inverse_deviation(
    lowering: Lowering, view: View, mean: View | None, axes: Sequence[int], epsilon: float, node: Node
) -> View:
    """Return ``1 / sqrt(v + epsilon)``, ``v`` the mean square of the distance to the mean (or to 0)."""
    if mean is None:
        squares = combined(view.shape, lambda x: x * x, view)
    else:
        squares = combined(view.shape, lambda x, m: (x - m) * (x - m), view, mean)
    return reduce_operand(
        lowering,
        squares,
        list(axes),
        "sum",
        lambda r, n: 1.0 / unary("sqrt", r / n + epsilon),
        operators=(node,),
    )


def _operand(lowering: Lowering, value: Value, shape: tuple[KnownDim, ...]) -> ReductionOperand:
    """Return a value as an operand, with the expression in front if nobody else needs it."""
    known = lowering.pending(value)
    if isinstance(known, PendingElementwise) and lowering.is_single_use(value):
        state = FusionState()
        return ReductionOperand(state.inlined(known), tuple(state.inputs), shape)
    return operand_of(lowering.view(value))


def store_operand(lowering: Lowering, operand: ReductionOperand, node: Node, value: Value | None = None) -> View:
    """Compute an operand into memory: that of a value, or memory of its own."""
    pending = PendingElementwise(operand.expression, operand.inputs, operand.shape, (node,))
    if value is None:
        target = lowering.new_view(operand.dtype, operand.shape, order_of(pending))
    else:
        target = lowering.result_view(value, operand.shape)
    return lowering.stores.store_elementwise(pending, target)


def _finish(lowering: Lowering, node: Node, value: Value, operand: ReductionOperand) -> None:
    lowering.set(value, PendingElementwise(operand.expression, operand.inputs, operand.shape, (node,)))


def float_view(lowering: Lowering, node: Node) -> View:
    """Return the first input of a node; ``NotLowered`` where it is not float32."""
    return lowering.view(_float_value(node))


def _float_value(node: Node) -> Value:
    value = _present(node, 0)
    if tensor_type(value)[0] is not F32:
        raise NotLowered("only float32 is generated")
    return value


def _present(node: Node, index: int) -> Value:
    value = node.input(index)
    if value is None:
        raise NotLowered("a required input is missing")
    return value
