"""Reading and writing at indices, and results whose sizes depend on values."""

from __future__ import annotations

import numpy as np

from random_graphs import element_types as et
from random_graphs.families.operands import fixed
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Value

SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (3,), (2, 2), (0,), (17,))


def indices(g: GraphWriter, limit: int, shape: tuple[int, ...], *, repeated: bool = True) -> Value:
    """Return a constant of valid indices, negative ones among them, of either integer type."""
    if repeated:
        found = g.numbers.integers(-limit, limit, shape)
    else:
        found = g.numbers.permutation(limit)[: int(np.prod(shape))].reshape(shape)
    return g.constant(found.astype(g.choice((np.int64, np.int64, np.int32))))


@family(3)
def gather(g: GraphWriter) -> Value:
    value = g.pick(least=1, filled=True)
    axis = g.axis(value)
    limit = min(shape[axis] for shape in value.shapes)
    return g.node("Gather", [value, indices(g, limit, g.choice(SHAPES))], axis=axis)


@family()
def gather_by_value(g: GraphWriter) -> Value:
    """Indices that the graph computes, or is fed."""
    found = g.pick(et.I64, et.I32, most=2)
    lowest = min(int(s.truth.min()) if s.truth.size else 0 for s in found.samples)
    highest = max(int(s.truth.max()) if s.truth.size else 0 for s in found.samples)
    value = g.pick(
        et.F32, et.F16, et.I64, least=1, where=lambda v: all(-s[0] <= lowest and highest < s[0] for s in v.shapes)
    )
    return g.node("Gather", [value, found], axis=0)


@family()
def gather_elements(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.I64, et.U8, et.F16, et.F64, et.BOOL, least=1, filled=True)
    axis = g.axis(value)
    shape = [min(s[a] for s in value.shapes) for a in range(value.rank)]
    limit = shape[axis]
    shape[axis] = g.choice((1, 2, limit, limit + 1))
    return g.node("GatherElements", [value, indices(g, limit, tuple(shape))], axis=axis)


@family()
def gather_nd(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.I64, et.F64, et.BOOL, least=1, filled=True)
    depth = g.random.randint(1, value.rank)
    limits = [min(s[a] for s in value.shapes) for a in range(depth)]
    rows = g.choice((1, 3, 5))
    found = np.stack([g.numbers.integers(-limit, limit, rows) for limit in limits], axis=-1)
    return g.node("GatherND", [value, g.constant(found.astype(np.int64))])


@family()
def scatter_elements(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F32, et.I64, et.F64, least=1, filled=True)
    axis = g.axis(value)
    shape = [min(s[a] for s in value.shapes) for a in range(value.rank)]
    limit = shape[axis]
    shape[axis] = g.random.randint(1, limit)
    one_by_one = np.argsort(
        g.numbers.random(shape[: axis % value.rank] + [limit] + shape[axis % value.rank + 1 :]), axis=axis
    )
    found = np.take(one_by_one, range(shape[axis]), axis=axis)
    reduction = g.choice((None, None, "add", "mul")) if g.opset >= 16 else None
    if reduction and g.opset >= 18 and g.chance(0.4):
        reduction = g.choice(("max", "min"))
    updates = g.weights(value.dtype, *shape)
    return g.node(
        "ScatterElements", [value, g.constant(found.astype(np.int64)), updates], axis=axis, reduction=reduction
    )


@family()
def scatter_nd(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F32, et.I64, et.F64, et.BOOL, least=1, filled=True)
    rest = value.sizes(*range(1, value.rank))
    first = min(shape[0] for shape in value.shapes)
    rows = g.random.randint(1, first)
    found = g.numbers.permutation(first)[:rows].reshape(rows, 1)
    reduction = g.choice((None, None, "add", "mul")) if g.opset >= 16 and value.dtype is not et.BOOL else None
    updates = g.weights(value.dtype, rows, *rest)
    return g.node("ScatterND", [value, g.constant(found.astype(np.int64)), updates], reduction=reduction)


@family()
def one_hot(g: GraphWriter) -> Value:
    value = g.pick(et.I64, et.I32, most=3)
    depth = g.constant(np.asarray(g.choice((1, 4, 10)), np.int64))
    values = g.constant(np.asarray([0, 1], g.choice((np.float32, np.int64))))
    return g.node("OneHot", [value, depth, values], axis=g.random.randint(-value.rank - 1, value.rank))


@family()
def sizes_by_value(g: GraphWriter) -> Value | list[Value]:
    kind = g.choice(("NonZero", "Unique", "Compress"))
    if kind == "NonZero":
        return g.node("NonZero", [g.pick(et.F32, et.I64, et.BOOL, et.I32, least=1)])
    if kind == "Unique":
        value = g.pick(et.F32, et.I64, least=1, filled=True)
        return g.node("Unique", [value], 4, sorted=g.choice((0, 1)))
    value = g.pick(least=1, filled=True, where=lambda v: v.dtype not in et.NARROW)
    axis = g.axis(value)
    length = min(shape[axis] for shape in value.shapes) + g.choice((0, 0, 2))  # what is beyond the axis does not count
    return g.node("Compress", [value, g.constant(g.numbers.random(length) < 0.5)], axis=axis)


@family()
def embedding(g: GraphWriter) -> Value:
    """A table of rows, read by indices as tokens are."""
    found = g.pick(et.I64, et.I32, most=2)
    wrapped = g.node("Mod", [found, g.constant(np.asarray(9), found.dtype)])
    wrapped = g.node("Gather", [g.weights(g.choice((et.F32, et.F32, et.F16)), 9, g.choice((1, 8, 17))), wrapped])
    if g.chance(0.4):
        wrapped = g.node("Unsqueeze", [wrapped, g.constant(fixed([0]))])
    return wrapped
