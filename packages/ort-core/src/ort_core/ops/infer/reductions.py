"""Operators that reduce or order along axes: Reduce*, ArgMax, TopK."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from ort_core.ir.dims import Dim
from ort_core.ir.types import DataType
from ort_core.ops import symbolic_values as sym
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.symbolic_values import Element

_FOLDS: dict[str, Callable[[Element, Element], Element]] = {
    "ReduceProd": sym.multiply, "ReduceSum": sym.add, "ReduceMax": sym.larger, "ReduceMin": sym.smaller,
}  # fmt: skip


@infer_rule(
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
def infer_reduce(ctx: InferenceContext) -> None:
    """Some axes (all by default) become 1 or disappear."""
    shape = ctx.shape(0)
    keep = ctx.int_of("keepdims", 1) != 0
    axes = ctx.integers(1) if ctx.has_input(1) else ctx.ints_of("axes")
    if shape is None:
        if not keep and not ctx.has_input(1) and axes is None and not ctx.int_of("noop_with_empty_axes"):
            ctx.set_shape(0, ())
        return
    if axes is None and ctx.has_input(1):
        _set_rank(ctx, len(shape), keep)
        return
    if not axes:
        if ctx.int_of("noop_with_empty_axes"):
            ctx.set_shape(0, shape)
            return
        axes = tuple(range(len(shape)))
    gone = {ctx.axis(axis, len(shape)) for axis in axes}
    result: list[Dim] = [1 if i in gone else d for i, d in enumerate(shape) if keep or i not in gone]
    ctx.set_shape(0, result)
    fold = _FOLDS.get(ctx.node.op_type)
    value = ctx.value(0)
    if value is not None and fold is not None and len(gone) == value.ndim and value.size:
        folded = np.empty((1,) * value.ndim if keep else (), object)
        folded.reshape(-1)[0] = functools.reduce(fold, value.reshape(-1))
        ctx.set_value(0, folded)


def _set_rank(ctx: InferenceContext, rank: int, keep: bool) -> None:
    """Say how many axes are left when it is only known how many are reduced."""
    counts = ctx.shape(1)
    if keep:
        ctx.set_shape(0, (None,) * rank)
    elif counts is not None and len(counts) == 1 and isinstance(counts[0], int) and 0 < counts[0] <= rank:
        ctx.set_shape(0, (None,) * (rank - counts[0]))


@infer_rule("ArgMax", "ArgMin")
def infer_arg(ctx: InferenceContext) -> None:
    """One axis becomes 1 or disappears; the result holds indices."""
    shape = ctx.shape(0)
    if shape is None:
        ctx.set_output(0, DataType.INT64, None)
        return
    axis = ctx.axis(ctx.int_of("axis"), len(shape))
    middle = (1,) if ctx.int_of("keepdims", 1) else ()
    ctx.set_output(0, DataType.INT64, (*shape[:axis], *middle, *shape[axis + 1 :]))


@infer_rule("TopK")
def infer_top_k(ctx: InferenceContext) -> None:
    """One axis keeps ``k`` elements."""
    shape = ctx.shape(0)
    ctx.set_output(1, DataType.INT64, None)
    if shape is None:
        return
    axis = ctx.axis(ctx.int_of("axis", -1), len(shape))
    count = ctx.int_of("k") if ctx.opset < 10 else ctx.scalar(1)
    size: Dim = None if isinstance(count, float) else count
    if isinstance(size, int) and (size < 0 or (isinstance(shape[axis], int) and size > shape[axis])):  # type: ignore[operator]  # narrowed
        ctx.refuse(f"k is {size}, but axis {axis} has size {shape[axis]}")
    result = (*shape[:axis], size, *shape[axis + 1 :])
    ctx.set_output(0, ctx.dtype(0), result)
    ctx.set_output(1, DataType.INT64, result)
