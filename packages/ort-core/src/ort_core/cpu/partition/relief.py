"""Relief: what runs the nodes of a native program in runs whose sizes the program was not made for.

A run breaks what the code of a node takes for granted (a mask as long as the keys, a slice that begins behind the
start). The numpy kernels of the whole group do that run. Where they can, the group is compiled a second time, without
the nodes whose code does not fit: later runs like it have programs before and behind those. The first program stays
for the runs that it fits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from ort_core.cpu.partition.segments import described
from ort_core.plugin import CompileRequest, EagerPartition, OrtError, output_names, raise_interruption
from ort_core.plugin.forks import new_lock, no_fork
from ort_core.plugin.ir import extract

if TYPE_CHECKING:
    from ort_core.cpu.partition.segments import LazyKernels
    from ort_core.cpu.program.program import SizesDiffer
    from ort_core.plugin import RunState
    from ort_core.plugin.ir import Graph, Node
    from ort_core.plugin.kernels import RuntimeValue

log = logging.getLogger(__name__)
Compiled = TypeVar("Compiled", bound=EagerPartition)
MAX_COMPILED = 4  # second compilations of a partition, those of its bodies among them: runs wait for them
MAX_WARNINGS = 8  # a model may have thousands of bodies that all differ


class ReliefLimitsState:
    """How often the runs of one partition have compiled and warned, its bodies' included."""

    def __init__(self) -> None:
        self._compiled = self._warned = 0
        self._lock = new_lock()

    def may_compile(self) -> bool:
        """Count a compilation, and return whether it may be made."""
        with self._lock:
            self._compiled += 1
            return self._compiled <= MAX_COMPILED

    def warn(self, text: str) -> None:
        """Log a warning; one too many is a message for those who debug."""
        with self._lock:
            self._warned += 1
            level = logging.WARNING if self._warned <= MAX_WARNINGS else logging.DEBUG
        log.log(level, "%s", text)


class Relief(Generic[Compiled]):
    """What stands in for one native program. Safe from many threads.

    Args:
        kernels: of the program's nodes.
        request: by which the program was compiled.
        compile_without: compiles a copy of the nodes, without those that it is told and why; ``None`` where nothing
            of it is native.
        limits: of the partition.

    Attributes:
        partition: what was compiled, ``None`` while nothing is.
        reasons: what keeps some runs from the program, by the first output of the node that does, for reports.
    """

    def __init__(
        self, kernels: LazyKernels, request: CompileRequest,
        compile_without: Callable[[Graph, Mapping[Node, str]], Compiled | None], limits: ReliefLimitsState,
    ) -> None:  # fmt: skip
        self.partition: Compiled | None = None
        self.reasons: Mapping[str, str] = {}
        self._kernels, self._request = kernels, request
        self._compile_without, self._limits = compile_without, limits
        self._has_tried = False
        self._lock = new_lock()

    def run(
        self, differ: SizesDiffer, arguments: Sequence[RuntimeValue], run_state: RunState
    ) -> Sequence[RuntimeValue]:
        """Return the results of a run that the program does not fit, for the inputs of its kernels.

        What the model itself does not allow is the kernels' error, and changes nothing. The run that compiles takes as
        long as that, whatever its limit on time; other runs like it wait.
        """
        partition = self.partition
        if partition is not None:
            return partition.compute(arguments, run_state)
        results = self._kernels.run(arguments, run_state)
        if self._is_done_with(differ) and self.partition is None:
            return results
        with no_fork(), self._lock:
            if not self._is_done_with(differ):
                self._relieve(differ)
        if self.partition is None or run_state.observer is not None:
            return results  # an observer is told of each node once
        return self.partition.compute(arguments, run_state)  # to the very bits of later runs like it

    def _is_done_with(self, differ: SizesDiffer) -> bool:
        return self._has_tried if differ.nodes else bool(self.reasons)

    def _relieve(self, differ: SizesDiffer) -> None:
        nodes = self._kernels.nodes
        found = self._compiled(differ) if 0 < len(differ.nodes) < len(nodes) and self._limits.may_compile() else None
        blamed = differ.nodes or nodes[-1:]
        all_of_it = "it runs" if len(nodes) == 1 else f"all {len(nodes)} nodes of its program run"
        way = f"{all_of_it} by numpy kernels" if found is None else "it runs outside of its program"
        told = {name: f"in runs where {differ}, {way}" for node in blamed for name in output_names(node)[:1]}
        self.partition = found  # at once for all threads; runs under way are done by what they began with
        self.reasons = {**self.reasons, **told}
        self._has_tried = self._has_tried or bool(differ.nodes)  # last: until then other threads wait
        what = "run by numpy kernels" if found is None else "were compiled again without it"
        self._limits.warn(
            f"{described(blamed)}: its compiled code does not fit runs where {differ}; for these the nodes of its "
            f"native program ({len(nodes)}) {what}"
        )

    def _compiled(self, differ: SizesDiffer) -> Compiled | None:
        nodes = self._kernels.nodes
        try:
            graph, _ = extract(nodes, f"{self._request.name}/relief", self._kernels.border)
            left = [copy for node, copy in zip(nodes, graph, strict=True) if node in differ.nodes]
            return self._compile_without(graph, dict.fromkeys(left, f"in a run {differ}"))
        except OrtError:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of the compiler, at which a run must not fail
            raise_interruption(error)
            text = f"the CPU compiler failed on {described(nodes)}; some runs have them by numpy kernels"
            self._request.faults.note(text, error)
            return None
