"""Operators that pick, place or count elements by index: Gather, Scatter, OneHot, NonZero, Compress, Unique."""

from __future__ import annotations

import numpy as np

from ort_core.ir.dims import Dim, product
from ort_core.ir.types import DataType
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.symbolic_values import MAX_ELEMENTS, Element, SymbolicValue


@infer_rule("Gather")
def infer_gather(ctx: InferenceContext) -> None:
    """The axis is replaced by the shape of the indices."""
    shape, indices = ctx.shape_min_rank(0, 1), ctx.shape(1)
    if shape is None:
        return
    axis = ctx.axis(ctx.int_of("axis"), len(shape))
    if indices is None:
        return
    ctx.set_shape(0, (*shape[:axis], *indices, *shape[axis + 1 :]))
    value, places = ctx.value(0), ctx.value(1)
    if value is None or places is None or not all(isinstance(i, int) for i in places.reshape(-1)):
        return
    size = value.shape[axis]
    if any(not -size <= i < size for i in places.reshape(-1)):
        ctx.refuse(f"indices {places.tolist()} are outside an axis of size {size}")
    picked = np.empty((*value.shape[:axis], *places.shape, *value.shape[axis + 1 :]), object)
    picked[...] = np.take(value, places.astype(np.int64), axis)
    ctx.set_value(0, picked)


@infer_rule("GatherElements")
def infer_gather_elements(ctx: InferenceContext) -> None:
    """The shape of the indices."""
    ctx.set_shape(0, ctx.shape(1))


@infer_rule("GatherND")
def infer_gather_nd(ctx: InferenceContext) -> None:
    """The last axis of the indices addresses leading axes of the data."""
    data, indices = ctx.shape_min_rank(0, 1), ctx.shape_min_rank(1, 1)
    batch = ctx.int_of("batch_dims")
    if data is None or indices is None or not isinstance(indices[-1], int):
        return
    depth = indices[-1] + batch
    if depth > len(data) or batch < 0:
        ctx.refuse(f"indices address {depth} axes of data of rank {len(data)}")
    ctx.set_shape(0, (*indices[:-1], *data[depth:]))


@infer_rule("Scatter", "ScatterElements", "ScatterND", "TensorScatter")
def infer_scatter(ctx: InferenceContext) -> None:
    """The shape of the data. In a vector, such as a shape of which a size is replaced, the contents are placed, too."""
    ctx.set_shape(0, ctx.shape(0))
    value, places, updates = ctx.value(0), ctx.value(1), ctx.value(2)
    if value is None or places is None or updates is None or value.ndim != 1:
        return
    if ctx.node.op_type == "TensorScatter" or ctx.node.string_attribute("reduction", "none") != "none":
        return
    given, found = updates.reshape(-1), value.copy()
    at = [place for place in places.reshape(-1) if isinstance(place, int) and -len(found) <= place < len(found)]
    is_known = len(at) == places.size == given.size
    if is_known and len({place % len(found) for place in at}) == len(at):
        found[at] = given
        ctx.set_value(0, found)


@infer_rule("OneHot")
def infer_one_hot(ctx: InferenceContext) -> None:
    """A new axis of the given depth."""
    shape = ctx.shape(0)
    if shape is None:
        return
    axis = ctx.axis(ctx.int_of("axis", -1), len(shape) + 1)
    depth = ctx.scalar(1)
    ctx.set_shape(0, (*shape[:axis], None if isinstance(depth, float) else depth, *shape[axis:]))
    places, pair = ctx.value(0), ctx.elements(2)
    if places is None or pair is None or len(pair) != 2 or not isinstance(depth, int):
        return
    if places.size * depth <= MAX_ELEMENTS and all(isinstance(i, int) for i in places.reshape(-1)):
        ctx.set_value(0, _one_hot(places.astype(np.int64), depth, pair, axis))


def _one_hot(places: np.ndarray, depth: int, pair: tuple[Element, ...], axis: int) -> SymbolicValue:
    """Return the second of a pair at each place, and the first elsewhere; places below zero count from the end."""
    found = np.empty((*places.shape, depth), object)
    found[...] = pair[0]
    for where, place in np.ndenumerate(places):
        if -depth <= place < depth:
            found[(*where, place)] = pair[1]
    return np.moveaxis(found, -1, axis)


@infer_rule("NonZero")
def infer_non_zero(ctx: InferenceContext) -> None:
    """One row per axis, one column per element that is not zero."""
    shape = ctx.shape(0)
    ctx.set_output(0, DataType.INT64, (None if shape is None else len(shape), None))


@infer_rule("Compress")
def infer_compress(ctx: InferenceContext) -> None:
    """As many entries of the axis as the condition has true elements, of which those beyond the axis do not count."""
    shape = ctx.shape(0)
    axis = ctx.optional_int_of("axis")
    place = None if axis is None or shape is None else ctx.axis(axis, len(shape))
    size = None if shape is None else product(shape) if place is None else shape[place]
    condition = ctx.constant(1)
    count: Dim = None
    if condition is not None and (isinstance(size, int) or not condition.any()):
        flat = condition.reshape(-1)
        count = int(np.count_nonzero(flat[:size] if isinstance(size, int) else flat))
    if axis is None:
        ctx.set_shape(0, (count,))
    elif shape is not None and place is not None:
        ctx.set_shape(0, (*shape[:place], count, *shape[place + 1 :]))


@infer_rule("Unique")
def infer_unique(ctx: InferenceContext) -> None:
    """An unknown number of entries; the inverse has one entry per input entry."""
    shape = ctx.shape(0)
    axis = ctx.optional_int_of("axis")
    inverse: Dim = None
    if axis is None:
        ctx.set_shape(0, (None,))
        inverse = None if shape is None else product(shape)
    elif shape is not None:
        place = ctx.axis(axis, len(shape))
        ctx.set_shape(0, (*shape[:place], None, *shape[place + 1 :]))
        inverse = shape[place]
    for index, size in ((1, None), (2, inverse), (3, None)):
        ctx.set_output(index, DataType.INT64, (size,))
