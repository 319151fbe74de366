"""Reductions, softmax and normalizations: the formulas of ``ort_core.loops`` over rows of views."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence

from ort_core.plugin.ir import DataType, Node, Value
from ort_core.plugin.loops import (
    Normalized,
    Scalar,
    binary,
    cast,
    log_softmax,
    lp_normalized,
    normalized,
    reduction_of,
    select,
    softmax,
    unary,
    value_range,
)
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.elements.elementwise import along_axis
from ort_ep_cuda.lowering.libraries.normalizations import as_library_step
from ort_ep_cuda.lowering.node_facts import LoweredNode, axis_of
from ort_ep_cuda.lowering.program import Launch
from ort_ep_cuda.lowering.values.tensors import LazyTensor, combine, join
from ort_ep_cuda.lowering.values.views import Shape, TensorView
from ort_ep_cuda.lowering.writing.double_math import ROW_FUNCTIONS, logarithm
from ort_ep_cuda.lowering.writing.row_kernel import launch_rows

_REAL = frozenset({"ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd"})
"""Those of reals alone; a product of integers stops at the ends of its type, and a kernel's would wrap around."""


def refuse_reduction(node: Node) -> str | None:
    """Return why a reduction of these types is not generated."""
    dtype = _input_type(node)
    return f"{node.op_type} of {dtype.text} is not generated" if node.op_type in _REAL and not dtype.is_float else None


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
    reduce(facts, x, reduced, kept, facts.node.op_type)


def reduce(facts: LoweredNode, x: LazyTensor, reduced: set[int], shape: Shape, op_type: str) -> None:
    """Add the launch that reduces some axes of ``x`` as an operator does, into the node's output of the given shape."""
    rows = [axis for axis in range(len(x.shape)) if axis not in reduced]
    order = [*rows, *sorted(reduced)]
    out = facts.builder.result(facts.output, shape)
    flat = TensorView.dense(out.buffer, out.dtype, tuple(x.shape[axis] for axis in rows))
    x = _with_operand(facts, x).moved(lambda view: view.permuted(order), tuple(x.shape[axis] for axis in order))
    if not flat.size:
        return
    if not reduced:
        facts.builder.stored(_mapped(x, facts.node.op_type), out)
        return
    root = reduction_of(op_type, x.root, ROW_FUNCTIONS)
    facts.builder.add(launch_rows([root], x.operands, [flat], len(rows)))


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


def _same(x: Scalar) -> Scalar:
    return x


def lower_global_pool(facts: LoweredNode) -> None:
    """Reduce all axes behind the channels by their mean or maximum."""
    x = facts.tensor(0)
    is_mean = facts.node.op_type == "GlobalAveragePool"
    axes = set(range(2, len(x.shape)))
    reduce(facts, x, axes, (*x.shape[:2], *[1] * len(axes)), "ReduceMean" if is_mean else "ReduceMax")


def lower_softmax(facts: LoweredNode) -> None:
    """Store ``exp(x - max) / sum``, or its logarithm, along one axis; before opset 13 along all axes from it on."""
    x = _with_operand(facts, facts.tensor(0))
    rank = len(x.shape)
    axis = axis_of(facts.node.int_attribute("axis", -1 if facts.opset >= 13 else 1), rank)
    axes = [axis] if facts.opset >= 13 else list(range(axis, rank))
    function = log_softmax if facts.node.op_type == "LogSoftmax" else softmax
    _store_rows(facts, x.operands, x.shape, axes, function(x.root, ROW_FUNCTIONS))


def lower_layer_norm(facts: LoweredNode) -> None:
    """Store ``(x - mean) / sqrt(variance + epsilon) * scale + bias`` over the last axes, with the statistics wanted."""
    x = _with_operand(facts, facts.tensor(0))
    axes = range(axis_of(facts.node.int_attribute("axis", -1), len(x.shape)), len(x.shape))
    affine = [facts.tensor(k) for k in (1, 2) if facts.has(k)]
    if not any(value is not None for value in facts.node.outputs[1:]):
        _normalize(facts, x, axes, affine, is_centered=True)
        return
    normal, operands = _normalized(facts, x, affine, is_centered=True)
    assert normal.mean is not None
    flat, outs, roots = x.shape[: axes[0]], [facts.builder.result(facts.output, x.shape)], [normal.result]
    for value, result in zip(facts.node.outputs[1:], (normal.mean, normal.inverse), strict=False):
        if value is not None:
            out = facts.builder.result(value, (*flat, *[1] * len(axes)))
            outs.append(TensorView.dense(out.buffer, out.dtype, flat))
            roots.append(result)
    if math.prod(flat):
        facts.builder.add(launch_rows(roots, operands, outs, len(flat)))


def refuse_skip_norm(node: Node) -> str | None:
    """Return why a normalization of a sum is not generated as a whole; its body may be."""
    if any(value is not None for value in node.outputs[1:3]):
        return f"{node.op_type} with statistics as outputs is not generated"
    return refuse_real(node)


def lower_skip_norm(facts: LoweredNode) -> None:
    """Store the normalization of ``x + skip + bias`` over the last axis, and that sum where it is asked for."""
    is_centered = facts.node.op_type == "SkipLayerNormalization"
    gamma, beta, bias = (2, 3, 4) if is_centered else (2, None, 3)
    shape = facts.tensor(0).shape
    parts = [facts.tensor(k).broadcast_to(shape) for k in (0, 1, bias) if facts.has(k)]
    affine = [facts.tensor(k) for k in (gamma, beta) if k is not None and facts.has(k)]
    total = combine(parts, functools.partial(functools.reduce, operator.add), element_type(facts.output))
    normal, operands = _normalized(facts, _with_operand(facts, total), affine, is_centered=is_centered)
    wanted = facts.node.outputs[3] if len(facts.node.outputs) > 3 else None
    outs, roots = [facts.builder.result(facts.output, shape)], [normal.result]
    if wanted is not None:
        outs.append(facts.builder.result(wanted, shape))
        roots.append(join([total])[0][0])
    if math.prod(shape):
        facts.builder.add(launch_rows(roots, operands, outs, len(shape) - 1))


def lower_lp_normalization(facts: LoweredNode) -> None:
    """Store ``x / norm`` along an axis, by the sum of magnitudes or the root of that of squares; 0 where it is 0."""
    x = _with_operand(facts, facts.tensor(0))
    axis = axis_of(facts.node.int_attribute("axis", -1), len(x.shape))
    _store_rows(facts, x.operands, x.shape, [axis], lp_normalized(x.root, facts.node.int_attribute("p", 2)))


def lower_dynamic_quantize(facts: LoweredNode) -> None:
    """Quantize to 8 bits by the range of all elements, zero included; scale and zero point are outputs."""
    x = _with_operand(facts, facts.tensor(0))
    least, largest = value_range(x.root)
    scale = (largest - least) / 255.0
    scale = select(binary("eq", scale, 0.0), 1.0, scale)
    outputs = [facts.output, *facts.node.outputs[1:]]
    views = [facts.builder.result(value, ()) for value in outputs[1:] if value is not None]
    point = cast(unary("rint", binary("min", binary("max", -least / scale, 0.0), 255.0)), DataType.INT32)
    facts.builder.add(launch_rows([scale, cast(point, DataType.UINT8)], x.operands, views, 0))
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
    _normalize(facts, x, range(axis, len(x.shape)), [facts.tensor(1)], is_centered=False)


def lower_instance_norm(facts: LoweredNode) -> None:
    """Normalize each channel of each image; scale and bias belong to channels."""
    x = _with_operand(facts, facts.tensor(0))
    affine = [along_axis(facts.tensor(k), x.shape, 1) for k in (1, 2)]
    _normalize(facts, x, range(2, len(x.shape)), affine, is_centered=True)


def _normalize(
    facts: LoweredNode, x: LazyTensor, axes: Sequence[int], affine: Sequence[LazyTensor], *, is_centered: bool
) -> None:
    normal, operands = _normalized(facts, x, affine, is_centered=is_centered)
    out = facts.builder.result(facts.output, x.shape)
    if not out.size:
        return
    launch = _row_launch(operands, x.shape, axes, normal.result, out)
    step = as_library_step(facts, x, affine, axes, out, launch, is_centered=is_centered)
    facts.builder.add(launch if step is None else step)


def _normalized(
    facts: LoweredNode, x: LazyTensor, affine: Sequence[LazyTensor], *, is_centered: bool
) -> tuple[Normalized, tuple[TensorView, ...]]:
    """Return a node's normalization, and the operands that its formulas read."""
    roots, operands = join([x, *(tensor.broadcast_to(x.shape) for tensor in affine)])
    epsilon = facts.node.float_attribute("epsilon", 1e-5)
    return normalized(roots[0], epsilon, *roots[1:], is_centered=is_centered), operands


def _store_rows(
    facts: LoweredNode, operands: Sequence[TensorView], shape: Shape, axes: Sequence[int], root: Scalar
) -> None:
    out = facts.builder.result(facts.output, shape)
    if out.size:
        facts.builder.add(_row_launch(operands, shape, axes, root, out))


def _row_launch(
    operands: Sequence[TensorView], shape: Shape, axes: Sequence[int], root: Scalar, out: TensorView
) -> Launch:
    rows = [axis for axis in range(len(shape)) if axis not in axes]
    order = [*rows, *axes]
    permuted = [view.permuted(order) for view in operands]
    return launch_rows([root], permuted, [out.permuted(order)], len(rows))


def lower_group_norm(facts: LoweredNode) -> None:
    """Normalize groups of channels of each image; scale and bias belong to channels."""
    x = facts.builder.dense(facts.value(0))
    groups = facts.node.int_attribute("num_groups", 1)
    split = (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    affine = [along_axis(facts.tensor(k), x.shape, 1) for k in (1, 2)]
    affine = [t.moved(lambda view: _split_channels(view, split), split) for t in affine]
    grouped = LazyTensor.of(x.regrouped(split))
    out = facts.builder.result(facts.output, x.shape)
    normal, operands = _normalized(facts, grouped, affine, is_centered=True)
    if out.size:
        target = TensorView.dense(out.buffer, out.dtype, split)
        facts.builder.add(launch_rows([normal.result], operands, [target], 2))


def _split_channels(view: TensorView, shape: Shape) -> TensorView:
    step = view.strides[1]
    return TensorView(
        view.buffer, view.dtype, shape, (view.strides[0], step * shape[2], step, *view.strides[2:]), view.offset
    )


def _input_type(node: Node) -> DataType:
    value = node.input(0)
    assert isinstance(value, Value)
    return element_type(value)
