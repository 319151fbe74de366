"""Sequences and optionals."""

from __future__ import annotations

import numpy as np

from ort_core.ir.dims import Dim
from ort_core.ir.types import DataType, OptionalType, SequenceType, TensorType, ValueType
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.merge_types import join_types


@infer_rule("SequenceConstruct")
def infer_sequence_construct(ctx: InferenceContext) -> None:
    """The element type has what all inputs agree on."""
    joined: ValueType | None = None
    for index in range(ctx.input_count):
        found = ctx.type_of(index)
        if found is None:
            return
        joined = found if index == 0 else join_types(joined, found)
        if joined is None:
            ctx.refuse("the inputs of a sequence differ in element type")
    if joined is not None:
        ctx.set_type(0, SequenceType(joined))


@infer_rule("SequenceEmpty")
def infer_sequence_empty(ctx: InferenceContext) -> None:
    """The element type is an attribute."""
    dtype = ctx.data_type_of("dtype", DataType.FLOAT)
    if dtype is not None:
        ctx.set_type(0, SequenceType(TensorType(dtype)))


@infer_rule("SequenceAt")
def infer_sequence_at(ctx: InferenceContext) -> None:
    """An element."""
    ctx.set_type(0, ctx.element_type(0))


@infer_rule("SequenceErase")
def infer_sequence_erase(ctx: InferenceContext) -> None:
    """The same sequence type."""
    ctx.set_type(0, ctx.type_of(0))


@infer_rule("SequenceInsert")
def infer_sequence_insert(ctx: InferenceContext) -> None:
    """What the elements and the new one agree on."""
    element, new = ctx.element_type(0), ctx.type_of(1)
    if element is None:
        return
    joined = element if new is None else join_types(element, new)
    if joined is None:
        ctx.refuse(f"a {new} cannot be inserted into a sequence of {element}")
    ctx.set_type(0, SequenceType(joined))


@infer_rule("SequenceLength")
def infer_sequence_length(ctx: InferenceContext) -> None:
    """A scalar."""
    ctx.set_output(0, DataType.INT64, ())


@infer_rule("ConcatFromSequence")
def infer_concat_from_sequence(ctx: InferenceContext) -> None:
    """As Concat, or with ``new_axis`` a stack, of an unknown number of elements."""
    element = ctx.element_type(0)
    if not isinstance(element, TensorType):
        return
    if element.shape is None:
        ctx.set_output(0, element.dtype, None)
        return
    new_axis = ctx.int_of("new_axis")
    rank = len(element.shape) + (1 if new_axis else 0)
    axis = ctx.axis(ctx.int_of("axis"), rank)
    rest = element.shape[axis:] if new_axis else element.shape[axis + 1 :]
    ctx.set_output(0, element.dtype, (*element.shape[:axis], None, *rest))


@infer_rule("SplitToSequence")
def infer_split_to_sequence(ctx: InferenceContext) -> None:
    """Elements agree in all but the axis, which slices lose where ``keepdims`` is 0."""
    dtype, shape = ctx.dtype(0), ctx.shape(0)
    if dtype is None:
        return
    if shape is None:
        ctx.set_type(0, SequenceType(TensorType(dtype)))
        return
    axis = ctx.axis(ctx.int_of("axis"), len(shape))
    size: Dim = None
    keep = ctx.int_of("keepdims", 1) != 0
    if not ctx.has_input(1):
        size = 1
    else:
        parts, given = ctx.constant(1), ctx.shape(1)
        if not keep and parts is None and not given:  # it may be the one number 1
            ctx.set_type(0, SequenceType(TensorType(dtype)))
            return
        keep = keep or parts is None or parts.ndim != 0 or int(parts) != 1
        size = _common_part(ctx, shape[axis])
    middle = (size,) if keep else ()
    ctx.set_type(0, SequenceType(TensorType(dtype, (*shape[:axis], *middle, *shape[axis + 1 :]))))


def _common_part(ctx: InferenceContext, size: Dim) -> Dim:
    parts = ctx.constant(1)
    if parts is None or parts.dtype.kind not in "iu" or parts.ndim > 1:
        return None
    if parts.ndim == 0:
        chunk = int(parts)
        return chunk if isinstance(size, int) and chunk > 0 and size % chunk == 0 else None
    return int(parts[0]) if parts.size and np.all(parts == parts[0]) else None


@infer_rule("Optional")
def infer_optional(ctx: InferenceContext) -> None:
    """The type of the input, or of the attribute when there is none."""
    found = ctx.type_of(0) if ctx.has_input(0) else ctx.attribute("type")
    if isinstance(found, OptionalType):
        ctx.set_type(0, found)
    elif isinstance(found, ValueType):
        ctx.set_type(0, OptionalType(found))


@infer_rule("OptionalHasElement")
def infer_optional_has_element(ctx: InferenceContext) -> None:
    """A scalar."""
    ctx.set_output(0, DataType.BOOL, ())


@infer_rule("OptionalGetElement")
def infer_optional_get_element(ctx: InferenceContext) -> None:
    """The type inside (since opset 18 the input may be no optional at all)."""
    found = ctx.type_of(0)
    ctx.set_type(0, found.element if isinstance(found, OptionalType) else found)
