"""Reductions, softmax and normalizations as stages over rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ort_core.plugin.ir import DataType, Node, Value
from ort_core.plugin.loops import Scalar, binary, cast, lift, row_value, select, unary
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.double_math import exponential, logarithm
from ort_ep_cuda.lowering.elementwise import along_axis
from ort_ep_cuda.lowering.node_facts import LoweredNode, axis_of
from ort_ep_cuda.lowering.normalizations import as_library_step
from ort_ep_cuda.lowering.preamble import compute_type
from ort_ep_cuda.lowering.program import Launch
from ort_ep_cuda.lowering.row_kernel import ROW_LENGTH, RowStage, launch_rows
from ort_ep_cuda.lowering.tensors import LazyTensor, combine, join
from ort_ep_cuda.lowering.views import Shape, TensorView

F32 = DataType.FLOAT
_BOUNDS = {DataType.INT8: (-128, 127), DataType.UINT8: (0, 255)}
Values = Callable[[Scalar], tuple[Sequence[RowStage], Scalar]]

LOGARITHMIC = frozenset({"ReduceLogSum", "ReduceLogSumExp"})
REDUCTIONS = frozenset(
    {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
     *LOGARITHMIC}
)  # fmt: skip


def refuse_reduction(node: Node) -> str | None:
    """Return why a reduction of these types is not generated."""
    dtype = _input_type(node)
    is_real = node.op_type in ("ReduceMean", "ReduceL2", *LOGARITHMIC)
    return f"{node.op_type} of {dtype.text} is not generated" if is_real and not dtype.is_float else None


def refuse_real(node: Node) -> str | None:
    """Return why an operator on real numbers is not generated for others."""
    dtype = _input_type(node)
    return None if dtype.is_float else f"{node.op_type} of {dtype.text} is not generated"


def lower_reduction(facts: LoweredNode) -> None:
    """Reduce over axes given by an attribute or an input."""
    x = facts.tensor(0)
    axes = facts.integers(1, "axes") or ()
    rank = len(x.shape)
    if not axes:
        if facts.node.int_attribute("noop_with_empty_axes", 0):
            facts.builder.define(facts.output, _mapped(x, facts.node.op_type))
            return
        axes = tuple(range(rank))
    reduced = {axis_of(axis, rank) for axis in axes}
    keep = facts.node.int_attribute("keepdims", 1)
    kept = tuple(1 if a in reduced else s for a, s in enumerate(x.shape) if keep or a not in reduced)
    reduce(facts, x, reduced, kept, _REDUCERS[facts.node.op_type])


def reduce(facts: LoweredNode, x: LazyTensor, reduced: set[int], shape: Shape, values: Values) -> None:
    """Add the launch that reduces some axes of ``x`` into the node's output of the given shape."""
    rows = [axis for axis in range(len(x.shape)) if axis not in reduced]
    order = [*rows, *sorted(reduced)]
    out = facts.builder.result(facts.output, shape)
    flat = TensorView.dense(out.buffer, out.dtype, tuple(x.shape[axis] for axis in rows))
    x = _with_operand(facts, x).moved(lambda view: view.permuted(order), tuple(x.shape[axis] for axis in order))
    stages, result = values(x.root)
    if not flat.size:
        return
    if not reduced:
        facts.builder.stored(_mapped(x, facts.node.op_type), out)
        return
    facts.builder.add(launch_rows(stages, cast(result, compute_type(out.dtype)), x.operands, flat, len(rows)))


def _with_operand(facts: LoweredNode, x: LazyTensor) -> LazyTensor:
    """A row kernel takes its shape from an operand: a tensor made of constants alone is stored first."""
    return x if x.operands else LazyTensor.of(facts.builder.stored(x))


def _mapped(x: LazyTensor, op_type: str) -> LazyTensor:
    """Return what a reduction over no axis leaves of each element."""
    functions: dict[str, Callable[[Scalar], Scalar]] = {
        "ReduceL1": lambda v: unary("abs", v), "ReduceL2": lambda v: unary("abs", v), "ReduceLogSum": logarithm,
        "ReduceSumSquare": lambda v: v * v,
    }  # fmt: skip
    return combine([x], lambda roots: functions.get(op_type, _same)(roots[0]), x.dtype)


def _simple(combine_by: str, before: Callable[[Scalar], Scalar], after: Callable[[Scalar], Scalar]) -> Values:
    def values(x: Scalar) -> tuple[Sequence[RowStage], Scalar]:
        stage = before(x)
        return [RowStage(combine_by, stage)], after(row_value(0, stage.dtype))

    return values


def _same(x: Scalar) -> Scalar:
    return x


def _wide(x: Scalar) -> Scalar:
    return x if x.dtype in (F32, DataType.DOUBLE, DataType.INT32, DataType.INT64) else cast(x, DataType.INT32)


def _extreme(combine_by: str) -> Values:
    """The largest or least element; where there is none, the least or largest of the type."""

    def values(x: Scalar) -> tuple[Sequence[RowStage], Scalar]:
        stage = RowStage(combine_by, _wide(x))
        found = row_value(0, stage.value.dtype)
        if x.dtype is DataType.BOOL:
            return [stage], binary("gt", found, 0)
        low, high = _BOUNDS.get(x.dtype, (None, None))
        if low is not None and high is not None:
            found = binary("min", binary("max", found, low), high)
        return [stage], found

    return values


def _mean_of(total: Scalar) -> Scalar:
    return total / row_value(ROW_LENGTH, total.dtype)


def _log_sum_exp(x: Scalar) -> tuple[Sequence[RowStage], Scalar]:
    finite = _finite(row_value(0, x.dtype))
    total = row_value(1, x.dtype)
    return [RowStage("max", x), RowStage("add", exponential(x - finite))], logarithm(total) + finite


def _finite(largest: Scalar) -> Scalar:
    """An infinite maximum is taken as 0: infinity less itself would be NaN."""
    return select(binary("lt", unary("abs", largest), math.inf), largest, lift(0.0, largest.dtype))


_REDUCERS: dict[str, Values] = {
    "ReduceSum": _simple("add", _wide, _same), "ReduceMean": _simple("add", _same, _mean_of),
    "ReduceMax": _extreme("max"), "ReduceMin": _extreme("min"),
    "ReduceProd": _simple("mul", _wide, _same), "ReduceL1": _simple("add", lambda x: unary("abs", _wide(x)), _same),
    "ReduceL2": _simple("add", lambda x: x * x, lambda total: unary("sqrt", total)),
    "ReduceSumSquare": _simple("add", lambda x: _wide(x) * _wide(x), _same),
    "ReduceLogSum": _simple("add", _same, logarithm), "ReduceLogSumExp": _log_sum_exp,
}  # fmt: skip


def lower_global_pool(facts: LoweredNode) -> None:
    """Reduce all axes behind the channels by their mean or maximum."""
    x = facts.tensor(0)
    is_mean = facts.node.op_type == "GlobalAveragePool"
    axes = set(range(2, len(x.shape)))
    reduce(facts, x, axes, (*x.shape[:2], *[1] * len(axes)), _REDUCERS["ReduceMean" if is_mean else "ReduceMax"])


def lower_softmax(facts: LoweredNode) -> None:
    """Store ``exp(x - max) / sum``, or its logarithm, along one axis; before opset 13 along all axes from it on."""
    x = _with_operand(facts, facts.tensor(0))
    rank = len(x.shape)
    axis = axis_of(facts.node.int_attribute("axis", -1 if facts.opset >= 13 else 1), rank)
    axes = [axis] if facts.opset >= 13 else list(range(axis, rank))
    largest, total = row_value(0, x.root.dtype), row_value(1, x.root.dtype)
    stages = [RowStage("max", x.root), RowStage("add", exponential(x.root - largest))]
    is_log = facts.node.op_type == "LogSoftmax"
    result = x.root - largest - logarithm(total) if is_log else exponential(x.root - largest) / total
    _store_rows(facts, x.operands, x.shape, axes, stages, result)


def lower_layer_norm(facts: LoweredNode) -> None:
    """Store ``(x - mean) / sqrt(variance + epsilon) * scale + bias`` over the last axes."""
    x = _with_operand(facts, facts.tensor(0))
    axis = axis_of(facts.node.int_attribute("axis", -1), len(x.shape))
    axes = range(axis, len(x.shape))
    _normalize(facts, x, axes, [facts.tensor(k) for k in (1, 2) if facts.has(k)], is_centred=True)
    _store_statistics(facts, x, axes)


def _store_statistics(facts: LoweredNode, x: LazyTensor, axes: Sequence[int]) -> None:
    """Store the mean and the reciprocal deviation of rows where they are outputs, too."""
    mean = _mean_of(row_value(0, x.root.dtype))
    centred = x.root - mean
    stages = [RowStage("add", x.root), RowStage("add", centred * centred)]
    variance = _mean_of(row_value(1, x.root.dtype)) + facts.node.float_attribute("epsilon", 1e-5)
    rows = x.shape[: axes[0]]
    for value, result in zip(facts.node.outputs[1:], (mean, 1.0 / unary("sqrt", variance)), strict=False):
        if value is not None:
            out = facts.builder.result(value, (*rows, *[1] * len(axes)))
            flat = TensorView.dense(out.buffer, out.dtype, rows)
            read = stages[:1] if result is mean else stages
            if flat.size:
                wanted = cast(result, compute_type(out.dtype))
                facts.builder.add(launch_rows(read, wanted, x.operands, flat, len(rows)))


def lower_lp_normalization(facts: LoweredNode) -> None:
    """Store ``x / norm`` along an axis, by the sum of magnitudes or the root of that of squares; 0 where it is 0."""
    x = _with_operand(facts, facts.tensor(0))
    axis = axis_of(facts.node.int_attribute("axis", -1), len(x.shape))
    is_first = facts.node.int_attribute("p", 2) == 1
    total = row_value(0, x.root.dtype)
    norm = total if is_first else unary("sqrt", total)
    stages = [RowStage("add", unary("abs", x.root) if is_first else x.root * x.root)]
    result = select(binary("eq", norm, 0.0), lift(0.0, norm.dtype), x.root / norm)
    _store_rows(facts, x.operands, x.shape, [axis], stages, result)


def lower_dynamic_quantize(facts: LoweredNode) -> None:
    """Quantize to 8 bits by the range of all elements, zero included; scale and zero point are outputs."""
    x = _with_operand(facts, facts.tensor(0))
    zero = lift(0.0, x.root.dtype)
    least, largest = (binary(c, row_value(k), zero) for k, c in enumerate(("min", "max")))
    stages = [RowStage("min", x.root), RowStage("max", x.root)]
    scale = (largest - least) / 255.0
    scale = select(binary("eq", scale, 0.0), lift(1.0, zero.dtype), scale)
    outputs = [facts.output, *facts.node.outputs[1:]]
    views = [facts.builder.result(value, ()) for value in outputs[1:] if value is not None]
    point = cast(unary("rint", binary("min", binary("max", -least / scale, 0.0), 255.0)), DataType.INT32)
    for view, result in zip(views, (scale, cast(point, DataType.UINT8)), strict=True):
        facts.builder.add(launch_rows(stages, result, x.operands, view, 0))
    tensors = [x, *(LazyTensor.of(view).broadcast_to(x.shape) for view in views)]

    def meaning(roots: Sequence[Scalar]) -> Scalar:
        shifted = unary("rint", roots[0] / roots[1]) + cast(roots[2], roots[0].dtype)
        bounded = binary("min", binary("max", shifted, 0.0), 255.0)
        return cast(cast(bounded, DataType.INT32), DataType.UINT8)

    facts.builder.define(facts.output, combine(tensors, meaning, DataType.UINT8))


def lower_rms_norm(facts: LoweredNode) -> None:
    """Store ``x / sqrt(mean of squares + epsilon) * scale`` over the last axes."""
    x = _with_operand(facts, facts.tensor(0))
    axis = axis_of(facts.node.int_attribute("axis", -1), len(x.shape))
    _normalize(facts, x, range(axis, len(x.shape)), [facts.tensor(1)], is_centred=False)


def lower_instance_norm(facts: LoweredNode) -> None:
    """Normalize each channel of each image; scale and bias belong to channels."""
    x = _with_operand(facts, facts.tensor(0))
    affine = [along_axis(facts.tensor(k), x.shape, 1) for k in (1, 2)]
    _normalize(facts, x, range(2, len(x.shape)), affine, is_centred=True)


def _normalize(
    facts: LoweredNode, x: LazyTensor, axes: Sequence[int], affine: Sequence[LazyTensor], *, is_centred: bool
) -> None:
    epsilon = facts.node.float_attribute("epsilon", 1e-5)
    roots, operands = join([x, *(tensor.broadcast_to(x.shape) for tensor in affine)])
    dtype = roots[0].dtype
    stages = [RowStage("add", roots[0])] if is_centred else []
    centred = roots[0] - _mean_of(row_value(0, dtype)) if is_centred else roots[0]
    squares = row_value(len(stages), dtype)
    stages.append(RowStage("add", centred * centred))
    result = centred / unary("sqrt", _mean_of(squares) + epsilon)
    for number, part in enumerate(cast(root, dtype) for root in roots[1:]):
        result = result + part if number else result * part
    out = facts.builder.result(facts.output, x.shape)
    if not out.size:
        return
    launch = _row_launch(operands, x.shape, axes, stages, result, out)
    step = as_library_step(facts, x, affine, axes, out, launch, is_centred=is_centred)
    facts.builder.add(launch if step is None else step)


def _store_rows(
    facts: LoweredNode,
    operands: Sequence[TensorView],
    shape: Shape,
    axes: Sequence[int],
    stages: Sequence[RowStage],
    result: Scalar,
) -> None:
    out = facts.builder.result(facts.output, shape)
    if out.size:
        facts.builder.add(_row_launch(operands, shape, axes, stages, result, out))


def _row_launch(
    operands: Sequence[TensorView],
    shape: Shape,
    axes: Sequence[int],
    stages: Sequence[RowStage],
    result: Scalar,
    out: TensorView,
) -> Launch:
    rows = [axis for axis in range(len(shape)) if axis not in axes]
    order = [*rows, *axes]
    permuted = [view.permuted(order) for view in operands]
    return launch_rows(stages, result, permuted, out.permuted(order), len(rows))


def lower_group_norm(facts: LoweredNode) -> None:
    """Normalize groups of channels of each image; scale and bias belong to channels."""
    x = facts.builder.dense(facts.value(0))
    groups = facts.node.int_attribute("num_groups", 1)
    split = (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    affine = [along_axis(facts.tensor(k), x.shape, 1) for k in (1, 2)]
    affine = [t.moved(lambda view: _split_channels(view, split), split) for t in affine]
    grouped = LazyTensor.of(x.regrouped(split))
    out = facts.builder.result(facts.output, x.shape)
    roots, operands = join([grouped, *affine])
    dtype = roots[0].dtype
    mean, squares = _mean_of(row_value(0, dtype)), row_value(1, dtype)
    centred = roots[0] - mean
    stages = [RowStage("add", roots[0]), RowStage("add", centred * centred)]
    scaled = centred / unary("sqrt", _mean_of(squares) + facts.node.float_attribute("epsilon", 1e-5))
    if out.size:
        target = TensorView.dense(out.buffer, out.dtype, split)
        result = scaled * cast(roots[1], dtype) + cast(roots[2], dtype)
        facts.builder.add(launch_rows(stages, result, operands, target, 2))


def _split_channels(view: TensorView, shape: Shape) -> TensorView:
    step = view.strides[1]
    return TensorView(
        view.buffer, view.dtype, shape, (view.strides[0], step * shape[2], step, *view.strides[2:]), view.offset
    )


def _input_type(node: Node) -> DataType:
    value = node.input(0)
    assert isinstance(value, Value)
    return element_type(value)
