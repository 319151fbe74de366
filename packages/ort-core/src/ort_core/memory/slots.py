"""Slots: the values of a graph by number, so that a run is one list: what it starts with, and who frees what.

Plans of a session, partitions of the CPU provider and graphs of kernels are all steps over slots, numbered here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

from ort_core.frozen import frozen
from ort_core.ir.graph import Graph
from ort_core.ir.values import Value
from ort_core.memory.liveness import StepUse, last_readers
from ort_core.tensors.runtime_value import RuntimeValue

ABSENT = -1
"""The slot of an optional value that is left out: the last of a run's list, which is always ``None``."""


@frozen
class SlotUse:
    """The slots that one step reads, writes, and frees behind it."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    frees: tuple[int, ...]


class ValueSlots:
    """Numbers the values of a graph as they are met, its inputs first.

    Attributes:
        captures: values of enclosing graphs that were met, with their slots.
    """

    def __init__(self, graph: Graph) -> None:
        self.captures: list[tuple[Value, int]] = []
        self._graph = graph
        self._numbers: dict[Value, int] = {}
        self._start: list[RuntimeValue] = []
        self.of(graph.inputs)

    def of(self, values: Iterable[Value | None]) -> tuple[int, ...]:
        """Return the slot of each value, ``ABSENT`` for ``None``."""
        return tuple([ABSENT if value is None else self._number(value) for value in values])

    def uses(self, steps: Sequence[StepUse[Value | None]]) -> list[SlotUse]:
        """Return what each step reads, writes and frees: what steps wrote, nobody needs behind it, and is no output."""
        present = [StepUse(_present(step.reads), _present(step.writes)) for step in steps]
        frees = last_readers(present, self._graph.outputs)
        return [SlotUse(self.of(s.reads), self.of(s.writes), self.of(f)) for s, f in zip(steps, frees, strict=True)]

    def template(self) -> list[RuntimeValue]:
        """Return what every run starts with, once all values have been met: the graph's constants, else ``None``."""
        return [*self._start, None]

    @functools.cached_property
    def _made(self) -> set[Value]:
        """What the graph's nodes make; asked for where a value of another graph is met, which is seldom."""
        return {value for node in self._graph for value in node.present_outputs()}

    def _number(self, value: Value) -> int:
        if value not in self._numbers:
            slot = self._numbers[value] = len(self._start)
            own = value.graph is self._graph
            self._start.append(value.constant.array() if own and value.constant is not None else None)
            if not own and value not in self._made:
                self.captures.append((value, slot))
        return self._numbers[value]


def picker(slots: Sequence[int]) -> Callable[[Sequence[RuntimeValue]], Sequence[RuntimeValue]]:
    """Return what takes the values of some slots out of all, in order, without a loop in Python.

    >>> picker([2, 0])("abc"), list(picker([1])("abc")), list(picker([])("abc"))
    (('c', 'a'), ['b'], [])
    """
    if len(slots) > 1:
        return itemgetter(*slots)
    start = slots[0] if slots else 0
    return itemgetter(slice(start, (start + 1) or None) if slots else slice(0, 0))


def _present(values: Iterable[Value | None]) -> tuple[Value, ...]:
    return tuple([value for value in values if value is not None])
