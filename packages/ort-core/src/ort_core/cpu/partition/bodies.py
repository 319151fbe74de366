"""CompiledBody: the body of an If, Loop or Scan as a partition of its own, with captured values as further inputs.

    body(i, cond, x) reads w of the graph around it   ->   partition(x, w)

Constants of the graphs around a body are constants of its partition, so that their products are packed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np

from ort_core.plugin import EagerPartition, frozen
from ort_core.plugin.ir import Graph, extract
from ort_core.plugin.kernels import Observer, RunGuard, RuntimeValue, Scope
from ort_core.plugin.memory import ValueSlots, picker

Compiled = TypeVar("Compiled", bound=EagerPartition)


@frozen
class BodyRunState:
    """The run state of the partition that is a body: what the control-flow node was given."""

    guard: RunGuard
    observer: Observer | None

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return a new buffer, after asking the guard."""
        self.guard.check_allocation(int(np.prod(shape)) * dtype.itemsize, f"an output of shape {list(shape)}")
        return np.empty(shape, dtype)


class PlainBody(Generic[Compiled]):
    """A body that runs by kernels, with the partition that tells reports why; it is compiled when one asks."""

    def __init__(self, graph: Graph, compile_body: Callable[[Graph], Compiled], known: Compiled | None = None) -> None:
        self.graph = graph
        self._compile_body, self._known = compile_body, known

    @property
    def partition(self) -> Compiled:
        """The body as a partition, of which nothing is native."""
        if self._known is None:
            self._known = self._compile_body(extract(self.graph.nodes, self.graph.name)[0])
        return self._known


class CompiledBody(Generic[Compiled]):
    """A body that runs as one compiled partition: a ``RunnableBody``."""

    def __init__(self, graph: Graph, compile_body: Callable[[Graph], Compiled]) -> None:
        self.graph = graph
        own, border = extract(graph.nodes, graph.name)
        self.partition = compile_body(own)
        made = {value: index for index, value in enumerate(border.outputs)}
        passed = [value for value in graph.outputs if value not in made]
        slots = ValueSlots(graph)
        reads, kept = slots.of(border.inputs), dict(zip(passed, slots.of(passed), strict=True))
        self._pick = picker(reads)
        self._template, self._captured = slots.template(), tuple(slots.captures)
        self.reads = border.inputs
        self._results = tuple((True, made[v]) if v in made else (False, kept[v]) for v in graph.outputs)
        self._output_count = len(border.outputs)

    def made(self, index: int) -> int | None:
        """Return which output of the partition an output of the body is, ``None`` for a value that passes through."""
        is_made, number = self._results[index]
        return number if is_made else None

    def run(
        self, inputs: Sequence[RuntimeValue], outer: Scope, guard: RunGuard, observe: Observer | None = None
    ) -> tuple[RuntimeValue, ...]:
        """Return the body's outputs for its formal inputs; ``outer`` holds what it captures."""
        values = self._template.copy()
        for index, value in enumerate(inputs):
            if value is not None:
                values[index] = value
        for value, number in self._captured:
            values[number] = outer[value]
        outputs: Sequence[RuntimeValue] = ()
        if self._output_count:
            outputs = self.partition.compute(self._pick(values), BodyRunState(guard, observe))
        return tuple([outputs[index] if is_made else values[index] for is_made, index in self._results])
