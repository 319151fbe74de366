"""Movement of elements: order, shape, parts, copies."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.operands import fixed
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value


@family(4)
def transpose(g: GraphWriter) -> Value:
    value = g.pick()
    order = g.random.sample(range(value.rank), value.rank)
    return g.node("Transpose", [value], perm=order if g.chance(0.9) and value.rank else None)


@family(3)
def reshape(g: GraphWriter) -> Value:
    value = g.pick()
    kind = g.random.random()
    if kind < 0.35 and value.rank >= 2:
        shape = [0] * value.rank
        start = g.random.randrange(value.rank - 1)
        shape[start : start + 2] = [-1]
        return g.node("Reshape", [value, g.constant(fixed(shape))]) if not value.is_empty else _flat(g, value)
    if kind < 0.55:
        return _flat(g, value)
    sizes = value.sizes(*range(value.rank))
    count = int(np.prod(sizes))
    if count == 0:
        return g.node(
            "Reshape", [value, g.constant(fixed([0, g.choice((1, 3))]))], allowzero=1 if g.opset >= 14 else None
        )
    shape = []
    while count > 1 and len(shape) < 4:
        factor = g.choice([d for d in range(1, count + 1) if count % d == 0][:12])
        shape.append(factor)
        count //= factor
    shape.append(count)
    if g.chance(0.4):
        shape[g.random.randrange(len(shape))] = -1
    return g.node("Reshape", [value, g.constant(fixed(shape))])


def _flat(g: GraphWriter, value: Value) -> Value:
    if g.chance(0.5):
        return g.node("Flatten", [value], axis=g.random.randint(0, value.rank))
    return g.node("Reshape", [value, g.constant(fixed([-1]))])


@family()
def computed_reshape(g: GraphWriter) -> Value:
    """A shape that the graph computes, as exporters write it."""
    value = g.pick(et.F32, et.I64, et.BOOL, least=2)
    shape = g.node("Shape", [value])
    first = g.node("Gather", [shape, g.constant(np.asarray(0, np.int64))])
    first = g.node("Unsqueeze", [first, g.constant(fixed([0]))])
    rest = g.constant(fixed([int(np.prod(value.sizes(*range(1, value.rank))))]))
    return g.node("Reshape", [value, g.node("Concat", [first, rest], axis=0)], allowzero=1 if g.opset >= 14 else None)


@family(2)
def squeeze(g: GraphWriter) -> Value:
    value = g.pick()
    ones = [axis for axis in range(value.rank) if all(shape[axis] == 1 for shape in value.shapes)]
    if g.chance(0.15):
        return g.node("Squeeze", [value])  # ones of this run
    if g.chance(0.5) and ones:
        axes = g.random.sample(ones, g.random.randint(1, len(ones)))
        return g.node("Squeeze", [value, g.constant(fixed(axes))] if g.chance(0.9) else [value])
    if value.rank > 4:
        raise Refused("enough axes")
    axes = g.random.sample(range(value.rank + 1), 1) if value.rank else [0]
    return g.node("Unsqueeze", [value, g.constant(fixed([a if g.chance(0.7) else a - value.rank - 1 for a in axes]))])


@family(3)
def concat(g: GraphWriter) -> Value:
    value = g.pick(least=1)
    axis = g.axis(value)

    def meets(other: Value) -> bool:
        if other.dtype is not value.dtype or other.rank != value.rank:
            return False
        place = axis % value.rank
        rests = [[s[:place] + s[place + 1 :] for s in v.shapes] for v in (value, other)]
        return rests[0] == rests[1]

    parts = [value, *(g.pick(where=meets) for _ in range(g.choice((0, 1, 1, 2, 3))))]
    if g.chance(0.1):  # and what is behind the last element: nothing, as exporters write it
        end = g.constant(fixed([max(shape[axis] for shape in value.shapes)]))
        parts.append(g.node("Slice", [value, end, g.constant(fixed([LIMITS[0]])), g.constant(fixed([axis]))]))
    return g.node("Concat", g.random.sample(parts, len(parts)), axis=axis)


@family(2)
def encoded_positions(g: GraphWriter) -> Value:
    """Functions of multiples of a few columns, side by side, as positions and times are encoded."""
    value = g.pick(et.F32, et.F32, et.F16, least=1, filled=True)
    parts = [value] if g.chance(0.7) else []
    for _ in range(g.choice((2, 3, 5))):
        scaled = g.node("Mul", [value, g.constant(g.choice((0.5, 1.0, 2.0)), value.dtype)])
        parts.append(g.node(g.choice(("Sin", "Cos", "Sigmoid", "Tanh", "Erf", "Softplus", "Exp")), [scaled]))
    return g.node("Concat", parts, axis=value.rank - 1)


@family(3)
def split(g: GraphWriter) -> list[Value]:
    value = g.pick(least=1)
    axis = g.axis(value)
    size = value.size(axis)
    if g.chance(0.3) and g.opset >= 18 and size:
        return _even(g, value, axis, size)
    first = g.random.randint(0, size)
    second = g.random.randint(0, size - first)
    parts = [first, second, size - first - second][: g.choice((2, 3, 3))]
    parts[-1] = size - sum(parts[:-1])
    return g.node("Split", [value, g.constant(fixed(parts))], len(parts), axis=axis)


def _even(g: GraphWriter, value: Value, axis: int, size: int) -> list[Value]:
    count = g.choice([n for n in (1, 2, 3, 4) if -(-size // n) * (n - 1) <= size])
    return g.node("Split", [value], [True] * count, axis=axis, num_outputs=count)


LIMITS = (2**63 - 1, -(2**63), 2**31 - 1)  # which models write for "to the end"


@family(4)
def slice_(g: GraphWriter) -> Value:
    value = g.pick(least=1)
    count = g.random.randint(1, min(2, value.rank))
    axes = g.random.sample(range(value.rank), count)
    starts = [g.choice((0, 0, 1, -1, -2, 2, -100)) for _ in axes]
    ends = [g.choice((1, 2, 3, -1, 100, 2**62, -(2**62), *LIMITS)) for _ in axes]
    steps = [g.choice((1, 1, 1, 2, 3, -1, -2)) for _ in axes]
    operands = [value, g.constant(fixed(starts)), g.constant(fixed(ends)), g.constant(fixed(axes))]
    return g.node("Slice", operands if g.chance(0.3) else [*operands, g.constant(fixed(steps))])


@family(2)
def pad(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F32, et.F16, et.F64, et.I64, et.I32, et.U8, et.I8, et.BOOL, least=1, most=5)
    mode = g.choice(("constant", "constant", "edge", "reflect", *(("wrap",) if g.opset >= 19 else ())))
    if mode != "constant" and value.is_empty:
        raise Refused("nothing to repeat")
    sizes = [min(shape[a] for shape in value.shapes) for a in range(value.rank)]
    most = [min(2, max(s - 1, 0)) if mode in ("reflect", "wrap") else 3 for s in sizes] * 2
    least = [-1 if mode == "constant" and s > 3 and g.chance(0.3) else 0 for s in sizes] * 2
    pads = [g.random.randint(low, high) for low, high in zip(least, most, strict=True)]
    filled = g.constant(g.numbers_of(value.dtype, ())) if mode == "constant" and g.chance(0.6) else None
    return g.node("Pad", [value, g.constant(fixed(pads)), filled], mode=mode)


@family(2)
def expand(g: GraphWriter) -> Value:
    value = g.pick(most=4)
    shape = [g.choice((1, 2, 3)) if all(s[a] == 1 for s in value.shapes) else 1 for a in range(value.rank)]
    shape = [g.choice((1, 2))] * g.choice((0, 0, 1)) + shape
    return g.node("Expand", [value, g.constant(fixed(shape))])


@family()
def tile(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.I64, et.BOOL, et.U8, et.F64, most=4)
    return g.node("Tile", [value, g.constant(fixed([g.choice((1, 1, 2, 3, 0)) for _ in range(value.rank)]))])


@family()
def triangle(g: GraphWriter) -> Value:
    if g.opset < 14:
        raise Refused("a newer operator")
    value = g.pick(et.F32, et.F64, et.I64, et.BOOL, least=2)
    return g.node("Trilu", [value, g.constant(np.asarray(g.random.randint(-3, 3), np.int64))], upper=g.choice((0, 1)))


@family()
def reverse_sequence(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.I64, et.F64, least=2, filled=True)
    batch_axis = g.choice((0, 1))
    batch, longest = value.size(batch_axis), min(shape[1 - batch_axis] for shape in value.shapes)
    lengths = g.constant(g.numbers.integers(1, longest + 1, batch))
    return g.node("ReverseSequence", [value, lengths], batch_axis=batch_axis, time_axis=1 - batch_axis)
