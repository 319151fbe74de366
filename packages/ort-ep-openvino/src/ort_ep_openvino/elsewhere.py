"""Elsewhere: a partition's graph by numpy kernels, for runs whose values OpenVINO would compute wrongly."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from ort_core.plugin import CompileRequest, KernelPartition, RunState
from ort_core.plugin.kernels import BoundGraph, RuntimeValue

log = logging.getLogger(__name__)


class ElsewhereState:
    """Kernels of a partition, bound when the first run needs them. Safe from threads."""

    def __init__(self, request: CompileRequest) -> None:
        self._request = request
        self._lock = threading.Lock()
        self._kernels: KernelPartition | None = None

    def run(
        self, reason: str, inputs: Sequence[RuntimeValue], outputs: list[RuntimeValue], run_state: RunState
    ) -> None:
        """Run once.

        Args:
            reason: the input that OpenVINO cannot be given.
            inputs: those of the partition.
            outputs: as ``CompiledPartition.run`` takes them.
            run_state: of the run.
        """
        kernels = self._bound(reason)
        kernels.run(kernels.plan([], {}), inputs, outputs, {}, run_state)

    def _bound(self, reason: str) -> KernelPartition:
        with self._lock:
            if self._kernels is None:
                log.warning(
                    "input %r of partition %r holds values or sizes that OpenVINO does not compute rightly: "
                    "runs with such inputs are computed by numpy kernels",
                    reason,
                    self._request.name,
                )
                self._kernels = KernelPartition(BoundGraph(self._request.graph, self._request.context))
            return self._kernels
