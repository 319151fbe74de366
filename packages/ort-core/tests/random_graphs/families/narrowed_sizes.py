"""Sizes and places that go through narrow types on their way: what does not fit them comes out as another number.

A size cast to uint8 is taken modulo 256, to int8 it may be below zero, to float16 it may be rounded, to bool it is one.
Whoever follows sizes through a graph has to follow that, too.
"""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value

NARROW = (et.U8, et.I8, et.F16, et.BOOL, et.I16, et.U16, et.I32, et.U32, et.F32, et.F64, et.U64, et.BF16, et.TEXT)
MOST = 40


def _size(g: GraphWriter) -> Value:
    """Return one size as a number of int64: of an axis, or the count of elements."""
    value = g.pick(least=1)
    if g.chance(0.3):
        return g.node("Size", [value])
    axis = g.random.randrange(value.rank)
    if g.opset >= 15 and g.chance(0.4):
        part = g.node("Shape", [value], start=axis, end=axis + 1)
        return g.node("Reshape", [part, g.constant(np.zeros(0, np.int64))])
    return g.node("Gather", [g.node("Shape", [value]), g.constant(axis)], axis=0)


def _computed(g: GraphWriter, size: Value) -> Value:
    """Return a number through a narrow type, with arithmetic of that type."""
    dtype = g.choice(NARROW)
    found = g.node("Cast", [size], to=dtype.onnx)
    if dtype in (et.BOOL, et.TEXT):
        return g.node("Cast", [found], to=et.I64.onnx)
    for _ in range(g.choice((0, 1, 1, 2))):
        op_type, number = g.choice(("Add", "Mul", "Sub", "Div", "Max", "Min")), g.choice((1, 2, 3, 5, 7, 100))
        if not dtype.is_float and dtype.numpy.itemsize == 1:
            number = min(number, 100)
        found = g.node(op_type, [found, g.constant(number, dtype)])
    if g.chance(0.3):
        found = g.node("Cast", [found], to=g.choice((et.I32, et.U8, et.F32, et.I8)).onnx)
    return g.node("Cast", [found], to=et.I64.onnx)


def _bounded(g: GraphWriter, number: Value, least: int = 0) -> Value:
    """Return a number between a least one and ``MOST``, by limits that leave what lies between as it is."""
    number = g.node("Max", [number, g.constant(np.int64(least))])
    return g.node("Min", [number, g.constant(np.int64(MOST))])


def _row(g: GraphWriter, number: Value) -> Value:
    return g.node("Reshape", [number, g.constant(np.ones(1, np.int64))])


@family(3)
def size_through_a_narrow_type(g: GraphWriter) -> Value:
    """A shape, a limit, a count or an index that a narrow type had."""
    if g.opset < 9:
        raise Refused("Min of integers is newer")
    number = _computed(g, _size(g))
    for _ in range(g.choice((0, 0, 1))):
        number = _computed(g, number)
    if g.opset < 12:  # limits of integers are newer
        return number
    kind = g.choice(("fill", "range", "tile", "slice", "expand", "gather", "reshape", "pad", "plain", "top", "shape"))
    if kind == "plain":
        return number
    bounded = _bounded(g, number, 1 if kind in ("tile", "expand", "reshape", "shape") else 0)
    if kind == "fill":
        return g.node("ConstantOfShape", [_row(g, bounded)])
    if kind == "range":
        return g.node("Range", [g.constant(np.int64(0)), bounded, g.constant(np.int64(g.choice((1, 2))))])
    if kind in ("tile", "expand"):
        count = _row(g, bounded)
        if kind == "tile":
            return g.node("Tile", [g.weights(et.F32, 3), count])
        made = g.node("Expand", [g.weights(et.F32, 2, 1), count])
        return g.node("Relu", [made])
    if kind == "reshape":
        filled = g.node("ConstantOfShape", [g.node("Concat", [_row(g, bounded), g.constant([3])], axis=0)])
        turned = g.node("Concat", [g.constant([3]), _row(g, bounded)], axis=0)
        return g.node("Reshape", [filled, turned])
    if kind == "shape":
        filled = g.node("Cast", [g.node("ConstantOfShape", [_row(g, bounded)])], to=et.F32.onnx)
        return g.node("Sqrt", [g.node("Add", [filled, g.node("Cast", [bounded], to=et.F32.onnx)])])
    return _applied(g, kind, number, bounded)


def _applied(g: GraphWriter, kind: str, number: Value, bounded: Value) -> Value:
    value = g.pick(et.F32, et.I64, least=1, most=3, filled=True)
    axis = g.random.randrange(value.rank)
    if kind == "slice":
        ends = [g.constant([0]), _row(g, number)] if g.chance(0.5) else [_row(g, number), g.constant([2**40])]
        return g.node("Slice", [value, *ends, g.constant([axis])])
    if kind == "gather":
        count = g.node("Gather", [g.node("Shape", [value]), g.constant(axis)], axis=0)
        return g.node("Gather", [value, g.node("Mod", [number, count])], axis=axis)
    if kind == "pad":
        zeros = [g.constant(np.zeros(count, np.int64)) for count in (axis, value.rank - 1, value.rank - 1 - axis)]
        short = _row(g, g.node("Min", [bounded, g.constant(np.int64(3))]))
        pads = g.node("Concat", [zeros[0], short, zeros[1], short, zeros[2]], axis=0)
        return g.node("Pad", [value, pads], mode=g.choice(("constant", "edge")))
    count = g.node("Gather", [g.node("Shape", [value]), g.constant(axis)], axis=0)
    return g.node("TopK", [value, _row(g, g.node("Min", [bounded, count]))], 2, axis=axis)[0]


@family(2)
def places_through_a_narrow_type(g: GraphWriter) -> Value:
    """Indices of a search, of a range or of non-zero elements, cast to and fro, choose again."""
    value = g.pick(et.F32, least=1, most=3, filled=True)
    axis = g.random.randrange(value.rank)
    kind = g.choice(("range", "greatest", "least"))
    if kind == "range":
        count = g.node("Gather", [g.node("Shape", [value]), g.constant(axis)], axis=0)
        places = g.node("Range", [g.constant(np.int64(0)), count, g.constant(np.int64(1))])
    else:
        places = g.node("ArgMax" if kind == "greatest" else "ArgMin", [value], axis=axis, keepdims=0)
    narrow = g.choice((et.U8, et.I8, et.F16, et.BOOL, et.I32, et.U16, et.F32))
    places = g.node("Cast", [g.node("Cast", [places], to=narrow.onnx)], to=g.choice((et.I64, et.I32)).onnx)
    if g.chance(0.4):
        return places
    return g.node("Gather", [value, places], axis=axis)
