"""Second operands that fit a first one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from random_graphs.writer import GraphWriter, Value


def broadcasts(left: Value, right: Value) -> bool:
    """Return whether two values have a common shape under every assignment of sizes."""
    return all(_fit(a, b) for a, b in zip(left.shapes, right.shapes, strict=True))


def _fit(left: Sequence[int], right: Sequence[int]) -> bool:
    return all(1 in pair or pair[0] == pair[1] for pair in zip(reversed(left), reversed(right), strict=False))


def partner(g: GraphWriter, value: Value, low: float = -2, high: float = 2) -> Value:
    """Return a value so far, or a constant, of the same type, that broadcasts with another."""
    if g.chance(0.5):
        fitting = [other for other in g.visible() if other.dtype is value.dtype and broadcasts(other, value)]
        if fitting:
            return g.choice(fitting)
    return g.constant(g.numbers_of(value.dtype, broadcast_shape(g, value), low, high))


def broadcast_shape(g: GraphWriter, value: Value) -> list[int]:
    """Return a fixed shape that broadcasts with a value under every assignment."""
    shape = []
    for axis in range(value.rank):
        sizes = {each[axis] for each in value.shapes}
        larger = sizes == {1} and g.chance(0.1)  # the result has the constant's size then
        shape.append(g.choice((2, 3)) if larger else sizes.pop() if len(sizes) == 1 and g.chance(0.6) else 1)
    cut = g.random.randrange(value.rank + 1) if value.rank and g.chance(0.4) else 0
    return shape[cut:]


def lowest(g: GraphWriter, least: float, largest: float) -> float:
    """Return where scales of weights begin: above zero, or, as many tools write them, as far below zero as above."""
    return -largest if g.chance(0.4) else least


def fixed(values: Sequence[int]) -> np.ndarray:
    """Return int64 numbers for axes, shapes and the like."""
    return np.asarray(values, np.int64)
