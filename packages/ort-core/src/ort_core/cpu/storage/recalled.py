"""RecalledPartition: a CPU partition that is one native program, taken out of bytes without lowering a graph.

Where the program gives way (sizes that are not as declared, an index out of bounds) or somebody asks for more than
results, the partition is compiled the ordinary way, once, and does it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.cpu.program.program import DataError, NativeProgram, SizesDiffer
from ort_core.plugin import AllocationLimitExceeded, CompiledPartition, DirectCalls, EagerPartition, Rejection, RunState
from ort_core.plugin.forks import new_lock, no_fork

if TYPE_CHECKING:
    from ort_core.plugin import NodeExecution, StepFacts
    from ort_core.plugin.kernels import RuntimeValue

log = logging.getLogger(__name__)


class RecalledPartition(EagerPartition):
    """A native program between the inputs and outputs of a partition.

    Args:
        program: what runs.
        reads: for each input of the program the number of the partition's input.
        writes: for each output of the partition the number of the program's output.
        compile_anew: compiles the partition from the model.
    """

    def __init__(
        self, program: NativeProgram, reads: Sequence[int], writes: Sequence[int],
        compile_anew: Callable[[], CompiledPartition],
    ) -> None:  # fmt: skip
        super().__init__(len(writes))
        self.program = program
        self._reads, self._writes = tuple(reads), tuple(writes)
        self._compile_anew = compile_anew
        self._compiled: CompiledPartition | None = None
        self._lock = new_lock()

    def compute(self, inputs: Sequence[RuntimeValue], run_state: RunState) -> Sequence[RuntimeValue]:
        """Return the results of the program, or of the ordinary partition where it does not fit."""
        results = None if run_state.observer is not None else self._results(inputs, run_state)
        if results is not None:
            return [results[number] for number in self._writes]
        outputs: list[RuntimeValue] = [None] * len(self._writes)
        self._ordinary().run(self._plan, inputs, outputs, run_state)
        return outputs

    def direct_calls(self, sources: Sequence[str | np.ndarray], order: Sequence[int]) -> DirectCalls | Rejection:
        """Offer direct calls of the program."""
        from ort_core.cpu.direct.direct_calls import build_direct_calls  # a run asks, no load does

        return build_direct_calls(
            self.program, [sources[number] for number in self._reads], [self._writes[number] for number in order]
        )

    def executions(self) -> Sequence[NodeExecution]:
        """Return what the ordinary partition does."""
        return self._ordinary().executions()

    def steps(self, sizes: Mapping[str, int]) -> Sequence[StepFacts]:
        """Return those of the ordinary partition."""
        return self._ordinary().steps(sizes)

    def code(self, form: str, kernel: str | None = None) -> Mapping[str, str] | Rejection:
        """Return that of the ordinary partition."""
        return self._ordinary().code(form, kernel)

    def serialize(self) -> bytes | Rejection:
        """Return what the ordinary partition does."""
        return self._ordinary().serialize()

    def _results(self, inputs: Sequence[RuntimeValue], run_state: RunState) -> list[np.ndarray] | None:
        arrays = [inputs[number] for number in self._reads]
        run_state.guard.check()
        try:
            contiguous = [a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays]
            return self.program.run(contiguous, run_state.guard, is_whole=True)
        except (SizesDiffer, DataError, AllocationLimitExceeded) as reason:  # the ordinary one names its nodes
            log.debug("a recalled program gives way to the ordinary partition: %s", reason)
            return None

    def _ordinary(self) -> CompiledPartition:
        with no_fork(), self._lock:
            if self._compiled is None:
                self._compiled = self._compile_anew()
            return self._compiled
