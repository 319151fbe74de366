"""What loads do once for several: values that read nothing and are read many times, and nearly equal layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import numpy_helper

from random_graphs import element_types as et
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value

_NUMBERS = (0.0, -0.0, 0.5, 1.0, -1.75, 3.0)
_PAIRS = ("Add", "Sub", "Mul", "Max", "Min", "Concat", "Where", "Sum")
_UNARY = ("Tanh", "Sigmoid", "Abs", "Neg", "Sin", "Identity", "Relu")
_ROWS = ("Softmax", "LogSoftmax", "ReduceMean", "ReduceMax")
_MOST_LAYERS = 6


@family(2)
def read_nothing(g: GraphWriter) -> Value:
    """A value whose shape alone decides it, which one node reads in several places, and several nodes do."""
    made = _made_of_nothing(g, g.pick(et.F32, least=1, most=3, filled=True))
    for _ in range(g.choice((0, 0, 1, 2))):
        made = g.node(g.choice(_UNARY), [made])
    read = [_pair(g, g.choice(_PAIRS), made, made) for _ in range(g.choice((1, 2, 3)))]
    for _ in range(g.choice((0, 1, 4))):  # doublings
        read.append(_pair(g, g.choice(("Add", "Sub", "Max")), read[-1], read[-1]))
    total = read[0]
    for each in read[1:]:
        if each.shapes == total.shapes:
            total = g.node("Add", [total, each])
    return g.node("Tanh", [total])


def _made_of_nothing(g: GraphWriter, like: Value) -> Value:
    kind, number = g.choice(("fill", "fill", "range", "diagonal", "spread", "sizes")), g.choice(_NUMBERS)
    if kind == "range":
        steps = [g.constant(np.asarray(0, np.int64)), g.node("Size", [like]), g.constant(np.asarray(1, np.int64))]
        return g.node("Sin", [g.node("Cast", [g.node("Range", steps)], to=like.dtype.onnx)])
    if kind == "diagonal" and like.rank == 2:
        return g.node("EyeLike", [like], k=g.choice((None, 0, 1, -1)))
    sizes = g.node("Shape", [like])
    if kind == "sizes":
        return g.node("Cast", [sizes], to=like.dtype.onnx)
    if kind == "spread":
        return g.node("Expand", [g.constant(number, like.dtype), sizes])
    filled = np.array([number], like.dtype.numpy)
    return g.node("ConstantOfShape", [sizes], value=numpy_helper.from_array(filled, "value"))


def _pair(g: GraphWriter, op_type: str, left: Value, right: Value) -> Value:
    if op_type == "Concat":
        return g.node(op_type, [left, right, left], axis=0)
    if op_type == "Where":
        return g.node(op_type, [g.node("Less", [left, right]), left, right])
    if op_type == "Sum":
        return g.node(op_type, [left, right, left])
    return g.node(op_type, [left, right])


@dataclass(frozen=True)
class _Step:
    """A node of a layer: an operator, which values so far it reads, a number among them, and how that lies."""

    op_type: str
    reads: tuple[int, int]  # 0: what the layer is given; then what it has made
    number: float | None = None
    sizes: tuple[int, ...] = ()
    axis: int = -1
    is_read: bool = False  # by one more node, which nobody else reads


@family(3)
def nearly_equal_layers(g: GraphWriter) -> Value:
    """A layer two to six times, one of them with another number, sign of zero, axis, operator, order or reader."""
    value = g.pick(et.F32, least=1, most=3, filled=True)
    steps = [_drawn(g, number) for number in range(g.choice((2, 3, 4)))]
    layers = [list(steps) for _ in range(g.random.randint(2, _MOST_LAYERS))]
    changed, place = g.choice(layers), g.random.randrange(len(steps))
    if g.chance(0.8):
        changed[place] = _changed(g, changed[place])
    has_kernel = g.opset >= 13 and g.chance(0.6)  # between layers: each is a group by itself
    for layer in layers:
        value = _layer(g, layer, value)
        if has_kernel:
            value = _behind_a_kernel(g, value)
    return value


def _drawn(g: GraphWriter, made: int) -> _Step:
    reads = (g.random.randint(max(0, made - 1), made), g.random.randint(0, made))
    kind = g.choice(("number", "number", "pair", "unary", "rows"))
    if kind == "number":
        return _Step(g.choice(("Add", "Mul", "Max", "Sub")), reads, g.choice(_NUMBERS), g.choice(((), (1,), (1, 1))))
    return _Step(g.choice({"pair": ("Add", "Sub", "Mul", "Max"), "unary": _UNARY, "rows": _ROWS}[kind]), reads)


def _changed(g: GraphWriter, step: _Step) -> _Step:
    kind = g.choice(("number", "sizes", "axis", "operator", "order", "reader"))
    if kind == "number" and step.number is not None:
        return replace(step, number=-step.number if g.chance(0.4) else g.choice(_NUMBERS))
    if kind == "sizes" and step.number is not None:
        return replace(step, sizes=g.choice(((), (1,), (1, 1))))
    if kind == "axis":
        return replace(step, axis=0)
    if kind == "operator":
        group = next(each for each in (_UNARY, _ROWS, ("Add", "Mul", "Max", "Sub")) if step.op_type in each)
        return replace(step, op_type=g.choice(group))
    if kind == "order":
        return replace(step, reads=(step.reads[1], step.reads[0]))
    return replace(step, is_read=True)


def _layer(g: GraphWriter, steps: Sequence[_Step], value: Value) -> Value:
    made = [value]
    for step in steps:
        left, right = (made[place] for place in step.reads)
        if step.number is not None:
            right = g.constant(np.full(step.sizes, step.number), value.dtype)
        if step.op_type in _UNARY:
            result = g.node(step.op_type, [left])
        elif step.op_type in _ROWS:
            result = _of_rows(g, step, left)
        else:
            result = g.node(step.op_type, [left, right])
        if step.is_read:
            g.node("Abs", [result])
        made.append(result)
    return g.node("Tanh", [g.node("Add", [value, made[-1]])])


def _of_rows(g: GraphWriter, step: _Step, value: Value) -> Value:
    if "Softmax" in step.op_type:
        return g.node(step.op_type, [value], axis=step.axis)
    if g.opset >= 18:
        return g.node(step.op_type, [value, g.constant([step.axis])], keepdims=1)
    return g.node(step.op_type, [value], axes=[step.axis], keepdims=1)


def _behind_a_kernel(g: GraphWriter, value: Value) -> Value:
    """Return a value times a number that numpy's kernel computes of it."""
    largest = g.node("ReduceMax", [value], keepdims=0)
    whole = g.node("Det", [g.node("Reshape", [largest, g.constant([1, 1])])])
    found = g.node("Mul", [value, g.node("Sigmoid", [whole])])
    if found.shapes != value.shapes:
        raise Refused("a scalar broadcasts to more axes")
    return found
