"""KernelFallbackState: a partition by numpy kernels, for runs that its provider would get wrong, or not do at all."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ort_core.forks import new_lock
from ort_core.providers.kernel_provider import KernelPartition

if TYPE_CHECKING:
    from ort_core.providers.compiled import CompileRequest, RunState
    from ort_core.tensors.runtime_value import RuntimeValue

log = logging.getLogger(__name__)
MAX_REASONS = 16  # said of one partition; reasons may hold a run's sizes


class KernelFallbackState:
    """Kernels of a partition, bound when the first run needs them. Safe from threads.

    A partition that finds in ``run`` that it cannot do this one hands it on:
    ``self._fallback.run("input 0 is too large", inputs, outputs, run_state)``.

    Args:
        request: the partition.
    """

    def __init__(self, request: CompileRequest) -> None:
        self._request = request
        self._lock = new_lock()
        self._kernels: KernelPartition | None = None
        self._said: set[str] = set()

    def run(
        self, reason: str, inputs: Sequence[RuntimeValue], outputs: list[RuntimeValue], run_state: RunState
    ) -> None:
        """Run once, and say why in the log: each reason once.

        Args:
            reason: what keeps the provider from it.
            inputs: those of the partition.
            outputs: as ``CompiledPartition.run`` takes them.
            run_state: of the run.
        """
        self.say(reason)
        kernels = self._bound()
        kernels.run(kernels.plan([], {}), inputs, outputs, run_state)

    def say(self, reason: str) -> None:
        """Warn that runs are computed elsewhere, unless that was said of this partition and reason."""
        with self._lock:
            if reason in self._said or len(self._said) == MAX_REASONS:
                return
            self._said.add(reason)
        log.warning("partition %r runs by numpy kernels: %s", self._request.name, reason)

    def _bound(self) -> KernelPartition:
        from ort_core.kernels.evaluator import BoundGraph  # most partitions never need it

        with self._lock:
            if self._kernels is None:
                self._kernels = KernelPartition(BoundGraph(self._request.graph, self._request.context))
            return self._kernels
