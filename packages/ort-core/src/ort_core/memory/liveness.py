"""Liveness: between which steps of a schedule a value must keep its place."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from ort_core.frozen import frozen

V = TypeVar("V", bound=Hashable)


@frozen
class StepUse(Generic[V]):
    """What one step reads and writes."""

    reads: tuple[V, ...]
    writes: tuple[V, ...]


@frozen
class Interval:
    """Steps ``first`` to ``last``, both inclusive, during which a value is alive."""

    first: int
    last: int

    def overlaps(self, other: Interval) -> bool:
        """Return whether both are alive at one step."""
        return self.first <= other.last and other.first <= self.last


def live_intervals(steps: Sequence[StepUse[V]], kept: Iterable[V] = ()) -> dict[V, Interval]:
    """Return the interval of every value that a step writes.

    A value is alive from the step that writes it to the last that reads it; one in ``kept`` to the end. Values that
    no step writes (inputs, constants) are not in the result: their place is not ours to give.
    """
    first: dict[V, int] = {}
    last: dict[V, int] = {}
    for index, step in enumerate(steps):
        for value in step.reads:
            if value in first:
                last[value] = index
        for value in step.writes:
            first.setdefault(value, index)
            last[value] = max(last.get(value, index), index)
    for value in kept:
        if value in first:
            last[value] = len(steps)
    return {value: Interval(first[value], last[value]) for value in first}


def last_readers(steps: Sequence[StepUse[V]], kept: Iterable[V] = ()) -> list[tuple[V, ...]]:
    """Return for each step the values that nobody needs behind it, written but never read ones included."""
    released: list[list[V]] = [[] for _ in steps]
    for value, interval in live_intervals(steps, kept).items():
        if interval.last < len(steps):
            released[interval.last].append(value)
    return [tuple(values) for values in released]
