"""Operators over rows: softmax, normalizations, reductions over trailing axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ort_core.cpu.codegen.nests.elementwise_nests import BROADCAST, DENSE, NestInput
from ort_core.cpu.codegen.nests.row_nests import Reduction, RowNest, RowNestPass, row_kernel
from ort_core.cpu.lowering.layout_steps import is_channels_last
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingElementwise
from ort_core.cpu.lowering.rules.pooling import pool_whole
from ort_core.cpu.lowering.steps import Argument, KernelText, NotLowered, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, broadcast_strides, collapse, count_of, moved_nbytes
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import Scalar, binary, element, exp, log, row_value, select, unary

F32 = DataType.FLOAT


def softmax(lowering: Lowering, node: Node) -> None:
    """Softmax and LogSoftmax over the last axis (before opset 13: over all from ``axis`` on)."""
    value = _float_input(lowering, node)
    _, shape = tensor_type(node.output)
    opset = lowering.opset_of(node)
    axis = node.int_attribute("axis", -1 if opset >= 13 else 1) % max(len(shape), 1)
    if opset >= 13 and axis != len(shape) - 1:
        raise NotLowered("softmax over an inner axis")
    rows, length = shape[:axis], count_of(shape[axis:])
    state, x = _fused_operand(lowering, value, (*rows, length), len(shape) - axis == 1)
    is_log, count = node.op_type != "Softmax", len(state.inputs)
    passes = lowering.expressions.once(("softmax", is_log, count), x, lambda: _softmax_passes(x, count, is_log))
    _emit_rows(lowering, node, state, (*rows, length), passes, (node.output,), work=12)


def _softmax_passes(x: Scalar, result: int, is_log: bool) -> tuple[RowNestPass, ...]:
    """Return the passes over the elements ``x``; what they store is read back as input ``result``."""
    peak = RowNestPass(reductions=(Reduction("max", x, 1),))
    shifted = x - row_value(1)
    if is_log:
        total = RowNestPass((), (Reduction("sum", exp(shifted), 2),), ((3, log(row_value(2))),))
        return peak, total, RowNestPass(((0, shifted - row_value(3)),))
    # The exponential is stored and reduced in one pass: the same object, printed once.
    e = exp(shifted)
    total = RowNestPass(((0, e),), (Reduction("sum", e, 2),), ((3, 1.0 / row_value(2)),))
    return peak, total, RowNestPass(((0, element(result, F32) * row_value(3)),))


def layer_normalization(lowering: Lowering, node: Node) -> None:
    """LayerNormalization, RMSNormalization and their com.microsoft forms with a residual in front."""
    skip = node.op_type.startswith("Skip")
    value = _float_input(lowering, node)
    _, shape = tensor_type(node.output)
    axis = node.int_attribute("axis", -1)
    if not -len(shape) <= axis < len(shape):
        raise NotLowered("the axis is none of the input's")
    axis %= len(shape)
    length = count_of(shape[axis:])
    rows = shape[:axis]
    is_rms = node.op_type in ("RMSNormalization", "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization")
    separate = len(shape) - axis == 1
    state, x = _fused_operand(lowering, value, (*rows, length), separate)
    if skip:
        others = [node.input(1), node.input(3 if is_rms else 4)]
        for other in others:
            if other is not None:
                x = x + _row_operand(lowering, state, other, (*rows, length), separate)
    scale = node.input(2 if skip else 1)
    bias = None if is_rms else node.input(3 if skip else 2)
    for operand in (scale, bias):
        _check_operand(operand, shape[axis:], len(shape))
    epsilon = node.float_attribute("epsilon", 1e-12 if skip else 1e-5)
    passes: list[RowNestPass] = []
    outputs: list[Value] = [node.output]
    if skip:
        total_output = node.outputs[3] if len(node.outputs) > 3 else None
        if any(v is not None for v in node.outputs[1:3]):
            raise NotLowered("mean and deviation are asked for")
        if total_output is not None:
            outputs.append(total_output)
    elif any(v is not None for v in node.outputs[1:]):
        raise NotLowered("mean and deviation are asked for")
    n = row_value(0)
    if skip and len(outputs) > 1:
        passes.append(
            RowNestPass(
                ((1, x),), () if is_rms else (Reduction("sum", x, 1),), () if is_rms else ((2, row_value(1) / n),)
            )
        )
        x = element(_count(state, scale, bias, lowering, (*rows, length), separate) + 1, F32)
    elif not is_rms:
        passes.append(RowNestPass((), (Reduction("sum", x, 1),), ((2, row_value(1) / n),)))
    centred = x if is_rms else x - row_value(2)
    deviation = (4, 1.0 / unary("sqrt", row_value(3) / n + epsilon))
    passes.append(RowNestPass((), (Reduction("sum", centred * centred, 3),), (deviation,)))
    y = centred * row_value(4)
    if scale is not None:
        y = y * _row_operand(lowering, state, scale, (*rows, length), separate)
    if bias is not None:
        y = y + _row_operand(lowering, state, bias, (*rows, length), separate)
    passes.append(RowNestPass(((0, y),)))
    _emit_rows(lowering, node, state, (*rows, length), tuple(passes), tuple(outputs), work=4)


def _check_operand(value: Value | None, inner: Sequence[KnownDim], rank: int) -> None:
    """Refuse an operand that has as many elements as a row by chance, and broadcasts otherwise, or beyond the rank."""
    if value is None:
        return
    _, own = tensor_type(value)
    if len(own) > rank:
        raise NotLowered("an operand has more dimensions than the input")
    if count_of(own) == count_of(inner) and _without_leading_ones(own) != _without_leading_ones(inner):
        raise NotLowered("an operand broadcasts within the rows")


def _without_leading_ones(shape: Sequence[KnownDim]) -> tuple[KnownDim, ...]:
    first = next((axis for axis, size in enumerate(shape) if size != 1), len(shape))
    return tuple(shape[first:])


def normalized_rows(
    lowering: Lowering, node: Node, rows: Sequence[View], scale: Value | None, bias: Value | None, epsilon: float
) -> None:
    """Set a node's output to the layer normalization, over the last axis, of the sum of views that broadcast to it."""
    _, shape = tensor_type(node.output)
    state = FusionState()
    x = state.add(rows[0])
    for view in rows[1:]:
        x = x + state.add(view)
    n, centred = row_value(0), x - row_value(2)
    y = centred * row_value(4)
    if scale is not None:
        y = y * _row_operand(lowering, state, scale, shape, True)
    if bias is not None:
        y = y + _row_operand(lowering, state, bias, shape, True)
    passes = (
        RowNestPass((), (Reduction("sum", x, 1),), ((2, row_value(1) / n),)),
        RowNestPass(
            (), (Reduction("sum", centred * centred, 3),), ((4, 1.0 / unary("sqrt", row_value(3) / n + epsilon)),)
        ),
        RowNestPass(((0, y),)),
    )
    _emit_rows(lowering, node, state, shape, passes, (node.output,), work=4)


def instance_normalization(lowering: Lowering, node: Node) -> None:
    """InstanceNormalization: each channel of each image is a row with one scale and one bias."""
    value = _float_input(lowering, node)
    _, declared = tensor_type(node.output)
    view = lowering.contiguous(value)
    shape = (declared[0], declared[1], count_of(declared[2:]))
    state = FusionState()
    x = state.add(view.reshaped(shape))
    scale, bias = (state.add(lowering.contiguous(node.input(i)).reshaped((declared[1], 1))) for i in (1, 2))
    n = row_value(0)
    centred = x - row_value(2)
    deviation = 1.0 / unary("sqrt", row_value(3) / n + node.float_attribute("epsilon", 1e-5))
    passes = (
        RowNestPass((), (Reduction("sum", x, 1),), ((2, row_value(1) / n),)),
        RowNestPass((), (Reduction("sum", centred * centred, 3),), ((4, deviation),)),
        RowNestPass(((0, centred * row_value(4) * scale + bias),)),
    )
    _emit_rows(lowering, node, state, shape, passes, (node.output,), work=3)


def normalizer(lowering: Lowering, node: Node) -> None:
    """Normalizer of ai.onnx.ml: rows over their largest value, sum of magnitudes, or length; over 0 they stay."""
    value = _float_input(lowering, node)
    _, shape = tensor_type(value)
    if len(shape) not in (1, 2):
        raise NotLowered("Normalizer of more than two dimensions")
    kind, before, after = _REDUCTIONS[_NORMS[node.string_attribute("norm", "MAX")]]
    state, x = _fused_operand(lowering, value, shape, True)
    norm = after(row_value(1), row_value(0))
    divisor = (2, select(binary("eq", norm, 0.0), 1.0, norm))
    passes = (RowNestPass((), (Reduction(kind, before(x), 1),), (divisor,)), RowNestPass(((0, x / row_value(2)),)))
    _emit_rows(lowering, node, state, shape, passes, (node.output,), work=2)


_NORMS = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}


def reduce(lowering: Lowering, node: Node) -> None:
    """Reductions (sum, mean, max, min, norms) over trailing axes; of channels-last images, over whole images."""
    value = _float_input(lowering, node)
    _, shape = tensor_type(value)
    axes = _reduced_axes(lowering, node, len(shape))
    if node.op_type in ("ReduceMean", "ReduceMax") and axes == (2, 3) and len(shape) == 4:
        images = lowering.view(value)
        if is_channels_last(images):
            pool_whole(lowering, node, images, is_maximum=node.op_type == "ReduceMax")
            return
    first = len(shape) - len(axes)
    if not axes or axes != tuple(range(first, len(shape))):
        raise NotLowered("only trailing axes are reduced natively")
    rows, length = shape[:first], count_of(shape[first:])
    state, x = _fused_operand(lowering, value, (*rows, length), len(axes) == 1)
    kind, before, after = _REDUCTIONS[node.op_type]
    body = RowNestPass((), (Reduction(kind, before(x), 1),), ((2, after(row_value(1), row_value(0))),))
    _emit_scalars(lowering, node, state, (*rows, length), (body,), 2)


_REDUCTIONS: dict[str, tuple[str, Callable[[Scalar], Scalar], Callable[[Scalar, Scalar], Scalar]]] = {
    "ReduceSum": ("sum", lambda x: x, lambda r, n: r),
    "ReduceMean": ("sum", lambda x: x, lambda r, n: r / n),
    "ReduceMax": ("max", lambda x: x, lambda r, n: r),
    "ReduceMin": ("min", lambda x: x, lambda r, n: r),
    "ReduceSumSquare": ("sum", lambda x: x * x, lambda r, n: r),
    "ReduceL1": ("sum", lambda x: unary("abs", x), lambda r, n: r),
    "ReduceL2": ("sum", lambda x: x * x, lambda r, n: unary("sqrt", r)),
}


def _reduced_axes(lowering: Lowering, node: Node, rank: int) -> tuple[int, ...]:
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
    return tuple(sorted(a % rank for a in given))


def _float_input(lowering: Lowering, node: Node) -> Value:
    value = node.input(0)
    if value is None or tensor_type(value)[0] is not F32:
        raise NotLowered("only float32 rows are generated")
    return value


def _fused_operand(
    lowering: Lowering, value: Value, shape: Sequence[KnownDim], same_shape: bool
) -> tuple[FusionState, Scalar]:
    """Return how the row's elements are read; an expression in front is taken in when it keeps the shape."""
    state = FusionState()
    if same_shape:
        known = lowering.pending(value)
        if isinstance(known, PendingElementwise) and lowering.is_single_use(value) and _row_wise(known, shape):
            return state, state.continued(known, lambda view: view)
        view = lowering.view(value)
        if view.strides and view.strides[-1] == 1:
            return state, state.add(view)
    view = lowering.contiguous(value)
    return state, state.add(view.reshaped(shape))


def _row_wise(pending: PendingElementwise, shape: Sequence[KnownDim]) -> bool:
    for view in pending.inputs:
        strides = broadcast_strides(view, shape)
        if strides is None or strides[-1] not in (0, 1):
            return False
    return True


def _row_operand(
    lowering: Lowering, state: FusionState, value: Value, shape: Sequence[KnownDim], separate: bool
) -> Scalar:
    """Return how the rows' elements read an operand; ``separate`` when rows are one axis, not several merged."""
    view = lowering.contiguous(value)
    length = shape[-1]
    if len(view.shape) > 1 and count_of(view.shape) == count_of(shape):
        view = view.reshaped(shape)
    elif count_of(view.shape) == length:
        view = view.reshaped((length,))
    elif count_of(view.shape) != 1 and not separate:
        raise NotLowered("an operand broadcasts within the rows")
    if view.dtype is not F32 or broadcast_strides(view, shape) is None:
        raise NotLowered("an operand does not lie along the rows")
    return state.add(view)


def _count(
    state: FusionState,
    scale: Value | None,
    bias: Value | None,
    lowering: Lowering,
    shape: Sequence[KnownDim],
    separate: bool,
) -> int:
    """Return the number of inputs once scale and bias are added, so that outputs can be read back behind them."""
    for value in (scale, bias):
        if value is not None:
            _row_operand(lowering, state, value, shape, separate)
    return len(state.inputs)


def _emit_rows(
    lowering: Lowering,
    node: Node,
    state: FusionState,
    shape: Sequence[KnownDim],
    passes: tuple[RowNestPass, ...],
    outputs: Sequence[Value],
    work: int,
) -> None:
    targets = [lowering.result_view(value).reshaped(shape) for value in outputs]
    sizes, strides = _rows_only(shape, [*(t.strides for t in targets), *_input_strides(state, shape)])
    count = len(targets)
    inputs = _nest_inputs(state, strides[count:])
    nest = RowNest(len(sizes), inputs, tuple(F32 for _ in targets), passes)
    kernel = _kernel(lowering, nest)
    arguments: list[Argument] = [*(pointer(t) for t in targets), *(pointer(v) for v in state.inputs), *sizes]
    for each in strides:
        arguments.extend(each[:-1])
    elements = count_of(shape)
    lowering.emit(
        kernel, arguments, [v.buffer for v in state.inputs], [t.buffer for t in targets],
        elements * work, (node,), elements * work, moved_nbytes([*targets, *state.inputs]),
    )  # fmt: skip
    for value, target in zip(outputs, targets):
        _, declared = tensor_type(value)
        lowering.set(value, target.reshaped(declared))


def _kernel(lowering: Lowering, nest: RowNest) -> KernelText:
    def write() -> KernelText:
        kernel = row_kernel(nest, lowering.target)
        return KernelText(kernel.name, kernel)

    return lowering.kernel(nest, write)


def _emit_scalars(
    lowering: Lowering,
    node: Node,
    state: FusionState,
    shape: Sequence[KnownDim],
    passes: tuple[RowNestPass, ...],
    row: int,
) -> None:
    target = lowering.result_view(node.output)
    sizes, strides = _rows_only(shape, _input_strides(state, shape))
    nest = RowNest(len(sizes), _nest_inputs(state, strides), (), passes, (row,))
    kernel = _kernel(lowering, nest)
    arguments: list[Argument] = [pointer(target), *(pointer(v) for v in state.inputs), *sizes]
    for each in strides:
        arguments.extend(each[:-1])
    lowering.emit(
        kernel, arguments, [v.buffer for v in state.inputs], [target.buffer], count_of(shape),
        (node,), count_of(shape), moved_nbytes([target, *state.inputs]),
    )  # fmt: skip
    lowering.set(node.output, target)


def _rows_only(
    shape: Sequence[KnownDim], operands: Sequence[Sequence[KnownDim]]
) -> tuple[list[KnownDim], list[list[KnownDim]]]:
    """Merge the outer dimensions and keep the innermost apart, whatever its size."""
    sizes, strides = collapse(shape[:-1], [o[:-1] for o in operands])
    return [*sizes, shape[-1]], [[*s, o[-1]] for s, o in zip(strides, operands)]


def _input_strides(state: FusionState, shape: Sequence[KnownDim]) -> list[tuple[KnownDim, ...]]:
    found = []
    for view in state.inputs:
        strides = broadcast_strides(view, shape)
        if strides is None or strides[-1] not in (0, 1):
            raise NotLowered("an operand is not read along the rows")
        found.append(strides)
    return found


def _nest_inputs(state: FusionState, strides: Sequence[Sequence[KnownDim]]) -> tuple[NestInput, ...]:
    return tuple(NestInput(v.dtype, BROADCAST if s[-1] == 0 else DENSE) for v, s in zip(state.inputs, strides))
