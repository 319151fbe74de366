"""Fake providers of known cost: every run advances a fake clock by what its operators are said to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ort_core.plugin import CompiledPartition, CompileRequest, KernelPartition, PartitionPlan, RunState
from ort_core.plugin.kernels import BoundGraph, RuntimeValue
from ort_core.testing.fake_providers import EchoProvider


@dataclass(slots=True)
class FakeClockState:
    """A clock that stands until somebody advances it. ``now_ns`` is its time; ``reads`` counts the looks at it."""

    now_ns: int = 0
    reads: int = 0

    def __call__(self) -> int:
        """Return the time in nanoseconds."""
        self.reads += 1
        return self.now_ns


class _TimedPartition(KernelPartition):
    def __init__(self, bound: BoundGraph, clock: FakeClockState, cost_ns: int) -> None:
        super().__init__(bound)
        self._clock, self._cost_ns = clock, cost_ns

    def run(
        self,
        plan: PartitionPlan,
        inputs: Sequence[RuntimeValue],
        outputs: list[RuntimeValue],
        run_state: RunState,
    ) -> None:
        self._clock.now_ns += self._cost_ns
        super().run(plan, inputs, outputs, run_state)


class TimedProvider(EchoProvider):
    """Runs its operators by reference kernels; each partition costs ``overhead_ns`` and each node ``costs_ns``."""

    clock: ClassVar[FakeClockState]
    costs_ns: ClassVar[Mapping[str, int]] = {}
    overhead_ns: ClassVar[int] = 0

    def compile(self, request: CompileRequest) -> CompiledPartition:
        """Bind the reference kernels and add up the cost."""
        type(self).compiled.append(tuple(node.op_type for node in request.graph))
        cost = self.overhead_ns + sum(self.costs_ns.get(node.op_type, 0) for node in request.graph)
        return _TimedPartition(BoundGraph(request.graph, request.context), self.clock, cost)


def timed_of(
    name: str, clock: FakeClockState, costs_ns: Mapping[str, int], overhead_ns: int = 0, **attributes: object
) -> type[TimedProvider]:
    """Return a new class that runs exactly the operators in ``costs_ns``."""
    own = {
        "name": name, "clock": clock, "costs_ns": dict(costs_ns), "overhead_ns": overhead_ns,
        "operators": frozenset(costs_ns), "compiled": [], **attributes,
    }  # fmt: skip
    return type("Timed", (TimedProvider,), own)
