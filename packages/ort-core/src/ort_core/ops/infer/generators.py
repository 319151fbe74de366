"""Operators that make tensors from nothing but sizes: Constant, ConstantOfShape, Range, random numbers, windows."""

from __future__ import annotations

import numpy as np

from ort_core.ir.attributes import SparseConstant
from ort_core.ir.constants import Constant
from ort_core.ir.dims import Dim
from ort_core.ir.types import DataType, Shape, SparseTensorType
from ort_core.ops import symbolic_values as sym
from ort_core.ops.constant_node import constant_from_attribute
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.shape_arithmetic import MAX_RANK, fixed_sizes


@infer_rule("Constant")
def infer_constant(ctx: InferenceContext) -> None:
    """The value stands in one of several attributes."""
    for name, found in ctx.node.attributes.items():
        value = ctx.attribute(name)
        if isinstance(value, SparseConstant) and name == "value":  # stays sparse, as onnxruntime's tools mean it
            ctx.set_type(0, SparseTensorType(value.dtype, value.shape))
            return
        if isinstance(value, SparseConstant):
            ctx.set_output(0, value.dtype, value.shape)
            return
        constant = constant_from_attribute(name, value)
        if constant is not None:
            ctx.set_output(0, constant.dtype, constant.shape)
            ctx.set_constant(0, constant)
            return
        if found.reference is not None:
            return
    ctx.refuse("Constant needs an attribute value, sparse_value, value_float(s), value_int(s) or value_string(s)")


def shape_from_input(ctx: InferenceContext, index: int) -> Shape | None:
    """Return the shape that an input spells out; refuses negative sizes."""
    dims = ctx.dims(index)
    if dims is not None:
        if any(isinstance(d, int) and d < 0 for d in dims):
            ctx.refuse(f"the shape {dims} has a negative size")
        return dims
    return shape_of_length(ctx, index)


def shape_of_length(ctx: InferenceContext, index: int) -> Shape | None:
    """Return unknown sizes, as many as an input has elements."""
    lengths = ctx.shape(index)
    if lengths is not None and len(lengths) == 1 and isinstance(lengths[0], int) and lengths[0] <= MAX_RANK:
        return (None,) * lengths[0]
    return None


@infer_rule("ConstantOfShape")
def infer_constant_of_shape(ctx: InferenceContext) -> None:
    """A tensor of a given shape, filled with one value."""
    fill = ctx.attribute("value")
    shape = shape_from_input(ctx, 0)
    dtype = fill.dtype if isinstance(fill, Constant) else DataType.FLOAT
    ctx.set_output(0, dtype, shape)
    sizes = fixed_sizes(shape)
    if sizes is None or sym.counted(sizes) > sym.MAX_ELEMENTS:
        return
    element = sym.as_elements(fill.array().reshape(-1)[:1]) if isinstance(fill, Constant) else sym.make_value((0.0,))
    if element is not None and element.size == 1:
        ctx.set_value(0, np.broadcast_to(element, (*sizes, 1))[..., 0])


@infer_rule("Range")
def infer_range(ctx: InferenceContext) -> None:
    """``max(0, ceil((limit - start) / delta))`` elements."""
    start, limit, delta = (sym.whole(ctx.scalar(i)) for i in range(3))
    size: Dim = None
    if delta == 0 and delta is not None:
        ctx.refuse("'delta' in Range may not be zero")
    if isinstance(delta, int) and delta > 0 and isinstance(start, int) and start == 0 and not isinstance(limit, float):
        size = None if limit is None else sym.ceil_div(limit, delta)
        if not sym.is_non_negative(size):
            size = sym.larger(size, 0)  # type: ignore[assignment]  # no float comes from ints
    elif isinstance(delta, (int, float)) and isinstance(start, (int, float)) and isinstance(limit, (int, float)):
        count = np.ceil((limit - start) / delta)
        size = max(0, int(count)) if np.isfinite(count) else None
    elif isinstance(delta, int):
        difference = sym.subtract(limit, start) if delta > 0 else sym.subtract(start, limit)
        if difference is not None and not isinstance(difference, float):
            size = sym.larger(sym.ceil_div(difference, abs(delta)), 0)  # type: ignore[assignment]  # no float
    ctx.set_output(0, ctx.dtype(0), (size,))
    if isinstance(size, int) and size <= sym.MAX_ELEMENTS and isinstance(start, int) and isinstance(delta, int):
        ctx.set_value(0, tuple(start + i * delta for i in range(size)))


@infer_rule("RandomNormal", "RandomUniform")
def infer_random(ctx: InferenceContext) -> None:
    """A tensor of the shape in an attribute."""
    ctx.set_output(0, ctx.data_type_of("dtype", DataType.FLOAT), _non_negative(ctx, ctx.ints_of("shape")))


def _non_negative(ctx: InferenceContext, shape: tuple[int, ...] | None) -> Shape | None:
    if shape is not None and any(d < 0 for d in shape):
        ctx.refuse(f"the shape {shape} has a negative size")
    return shape


@infer_rule("RandomNormalLike", "RandomUniformLike", "EyeLike", "Bernoulli")
def infer_like(ctx: InferenceContext) -> None:
    """The shape of the input, and its element type unless an attribute gives one."""
    ctx.set_output(0, ctx.data_type_of("dtype", ctx.dtype(0)), ctx.shape(0))


@infer_rule("GivenTensorFill")
def infer_given_tensor_fill(ctx: InferenceContext) -> None:
    """The shape in an attribute, unless an input gives it."""
    shape = ctx.ints_of("shape")
    if shape is not None and not ctx.int_of("input_as_shape"):
        whole = (*shape, *(ctx.ints_of("extra_shape") or ()))
        ctx.set_output(0, ctx.dtype(0) or DataType.FLOAT, _non_negative(ctx, whole))


@infer_rule("Multinomial")
def infer_multinomial(ctx: InferenceContext) -> None:
    """A number of samples per row."""
    shape = ctx.shape_of_rank(0, 2)
    rows = None if shape is None else shape[0]
    ctx.set_output(0, ctx.data_type_of("dtype", DataType.INT32), (rows, ctx.int_of("sample_size", 1)))


@infer_rule("BlackmanWindow", "HammingWindow", "HannWindow")
def infer_window(ctx: InferenceContext) -> None:
    """A vector of the given size."""
    size = ctx.scalar(0)
    ctx.set_output(0, ctx.data_type_of("output_datatype", DataType.FLOAT), (None if isinstance(size, float) else size,))


@infer_rule("MelWeightMatrix")
def infer_mel_weight_matrix(ctx: InferenceContext) -> None:
    """``dft_length // 2 + 1`` rows, one column per mel bin."""
    bins, length = ctx.scalar(0), ctx.scalar(1)
    rows = sym.add(sym.divide_integers(length, 2), 1)
    dims = tuple(None if isinstance(d, float) else d for d in (rows, bins))
    ctx.set_output(0, ctx.data_type_of("output_datatype", DataType.FLOAT), dims)
