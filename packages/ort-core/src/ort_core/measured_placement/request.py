"""MeasureRequest: what is to be placed, and with what it is measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from ort_core.copy_costs import CopyCosts
from ort_core.frozen import frozen
from ort_core.ir.model import Model
from ort_core.partitioning.assign import Exclusions, Restored
from ort_core.partitioning.partition import partition_graph
from ort_core.providers.provider import ExecutionProvider
from ort_core.runtime.plan import ExecutionPlan
from ort_core.runtime.schedule import BuildSettings, build_plan

Clock = Callable[[], int]
"""Nanoseconds from some beginning."""


@frozen
class MeasureRequest:
    """What is to be placed, and with what it is measured.

    ``exclusions`` are nodes that providers have lost already; ``given`` are the caller's sample inputs; ``copies``
    knows what copies cost.
    """

    model: Model
    providers: Sequence[ExecutionProvider]
    build: BuildSettings
    copies: CopyCosts
    given: Mapping[str, object] = field(default_factory=dict)
    exclusions: Exclusions = field(default_factory=dict)
    restored: Restored = field(default_factory=dict)
    clock: Clock = time.perf_counter_ns

    def plan(self, model: Model, exclusions: Exclusions, restored: Restored) -> ExecutionPlan:
        """Return a plan of a model under further exclusions.

        Raises:
            OrtError: nobody takes a node, or a provider fails to compile.
        """
        context = self.build.context
        partitioned = partition_graph(model, model.graph, self.providers, context, exclusions, restored=restored)
        return build_plan(partitioned, self.build)

    def release(self, plan: ExecutionPlan) -> None:
        """Close a plan that was measured, unless it holds restored partitions, which the session still needs."""
        if not self.restored:
            plan.close()
