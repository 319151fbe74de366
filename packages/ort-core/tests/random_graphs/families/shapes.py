"""What the graph computes from shapes, and values made of nothing."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from random_graphs import element_types as et
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value


@family(3)
def shape(g: GraphWriter) -> Value:
    value = g.pick()
    kind = g.choice(("Shape", "Shape", "Size", "Part"))
    if kind == "Part" and g.opset >= 15:
        return g.node("Shape", [value], start=g.choice((None, 0, 1, -1)), end=g.choice((None, 1, -1, 3)))
    return g.node("Shape" if kind == "Part" else kind, [value])


@family()
def constant_of_shape(g: GraphWriter) -> Value:
    value = g.pick(most=4)
    filled = np.asarray([g.choice((0, 1, 3))], g.choice((np.float32, np.int64, np.bool_, np.float64)))
    given = numpy_helper.from_array(filled, "value") if g.chance(0.8) else None
    return g.node("ConstantOfShape", [g.node("Shape", [value])], value=given)


@family()
def constant_node(g: GraphWriter) -> Value:
    dtype = g.choice((et.F32, et.F32, et.I64, et.F64, et.BOOL))
    array = g.numbers_of(dtype, [g.some_size() for _ in range(g.choice((0, 1, 2)))])
    return g.node("Constant", [], value=numpy_helper.from_array(array, "value"))


@family()
def eye_like(g: GraphWriter) -> Value:
    return g.node("EyeLike", [g.pick(et.F32, et.I64, rank=2)], k=g.choice((None, -2, 0, 1)))


@family()
def range_(g: GraphWriter) -> Value:
    value = g.pick(where=lambda v: all(s.truth.size <= 2000 for s in v.samples))
    step = g.constant(np.asarray(g.choice((1, 2, 7)), np.int64))
    return g.node("Range", [g.constant(np.asarray(0, np.int64)), g.node("Size", [value]), step])


def size_along(g: GraphWriter, value: Value, axis: int) -> Value:
    return g.node("Gather", [g.node("Shape", [value]), g.constant([axis])])


@family()
def window_of_a_table(g: GraphWriter) -> Value:
    """A window as long as a size tells, from the middle of a table less the size: from the end beyond the table."""
    if g.opset < 10:
        raise Refused("bounds that are computed")
    value = g.pick(least=1, most=4)
    length = size_along(g, value, g.random.randrange(value.rank))
    longest = g.choice((1, 3, 6, 40))
    start = g.node("Sub", [g.constant([longest]), length]) if g.chance(0.8) else g.node("Neg", [length])
    end = (
        g.node("Add", [g.constant([longest - 1]), length])
        if g.chance(0.6)
        else g.constant([g.choice((2**63 - 1, -1, 2))])
    )
    table = g.constant(g.numbers_of(g.choice((et.F32, et.F32, et.I64)), [2 * longest - 1, g.some_size()]))
    return g.node("Slice", [table, start, end, g.constant([0]), g.constant([g.choice((1, 1, 2))])])


@family()
def filled_up(g: GraphWriter) -> Value:
    """An axis filled up to whole blocks, or brought to one length, whichever of the two a size asks for."""
    if g.opset < 13:
        raise Refused("pads that are computed")
    value = g.pick(et.F32, et.F32, et.I64, least=1, most=4, filled=True)
    axis, block = g.random.randrange(value.rank), g.choice((1, 3, 4, 16))
    amount = g.node("Sub", [g.constant([block]), size_along(g, value, axis)])
    if g.chance(0.6):
        amount = g.node("Mod", [amount, g.constant([block])])
    none = g.constant([0])
    pads = [none] * (2 * value.rank)
    pads[axis + (value.rank if g.chance(0.7) else 0)] = amount
    mode = g.choice(("constant", "constant", None, "edge", "reflect"))
    return g.node("Pad", [value, g.node("Concat", pads, axis=0)], mode=mode)


@family()
def center(g: GraphWriter) -> Value:
    if g.opset < 18:
        raise Refused("a newer operator")
    value = g.pick(et.F32, et.I64, least=1, most=4, filled=True)
    axis = g.random.randrange(value.rank)
    return g.node("CenterCropPad", [value, g.constant([g.choice((1, 4, 9))])], axes=[axis])


@family()
def many_axes(g: GraphWriter) -> Value:
    """A value among up to 64 axes, which is what an array may have; parts of numpy stop at 32."""
    value = g.pick(least=1, most=4)
    rank = g.choice((33, 40, 64))
    kept = sorted(g.random.sample(range(rank), value.rank))
    axes = [axis for axis in range(rank) if axis not in kept]
    wide = g.node("Unsqueeze", [value, g.constant(axes)]) if g.opset >= 13 else g.node("Unsqueeze", [value], axes=axes)
    kind = g.choice(("Transpose", "Concat", "Equal", "Gather", "Identity"))
    if kind == "Transpose":
        wide = g.node(kind, [wide], perm=g.random.sample(range(rank), rank))
    elif kind == "Concat":
        wide = g.node(kind, [wide, wide], axis=g.choice(axes))
    elif kind == "Equal":
        wide = g.node(kind, [wide, wide if g.chance(0.5) else value])
    elif kind == "Gather":
        wide = g.node(kind, [wide, g.constant([0, 0])], axis=g.choice(axes))
    return wide if g.chance(0.5) else g.node("Reshape", [wide, g.constant([-1])])
