"""PartitionSegment: what a CPU partition does next: a native program, a native call, or reference kernels."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.cpu.direct.direct_calls import DirectStep, build_direct_step
from ort_core.cpu.partition.native_calls import NativeCall
from ort_core.cpu.program.program import NativeProgram
from ort_core.plugin import AllocationLimitExceeded, CompileRequest, PlainFunction, Rejection, RunState, frozen
from ort_core.plugin.ir import Border, Graph, Node, Value, border_of, extract
from ort_core.plugin.kernels import BoundGraph, RuntimeValue, Scope
from ort_core.plugin.memory import picker

if TYPE_CHECKING:
    from ort_core.cpu.partition.partition import CpuPartition
    from ort_core.cpu.partition.relief import Relief

log = logging.getLogger(__name__)
_NO_SCOPE: Scope = {}


@frozen
class PartitionSegment:
    """A native program (``program``) with kernels to fall back on, or kernels alone."""

    kernels: LazyKernels
    program: NativeProgram | None
    direct: DirectStep | None
    call: NativeCall | None  # nodes that are native but no program
    reads: tuple[int, ...]  # of the kernels
    native_reads: tuple[int, ...]  # of the program or the call; -1: absent
    writes: tuple[int, ...]
    frees: tuple[int, ...]
    counted: tuple[int, ...] = ()  # which of ``native_reads`` are numbers that a program takes for sizes
    relief: Relief[CpuPartition] | None = None  # of a program


@frozen
class WholeProgram:
    """The one native program that is a whole partition.

    ``reads`` are the inputs of the partition that it reads, ``writes`` says which of its outputs are the partition's.
    """

    program: NativeProgram
    reads: tuple[int, ...]
    writes: tuple[int, ...]


class LazyKernels:
    """The reference kernels of a group, whose nodes are copied and bound when they are first needed.

    Args:
        nodes: the group.
        request: whose kernels these are.
        border: of the nodes, where the caller has it.
    """

    def __init__(self, nodes: Sequence[Node], request: CompileRequest, border: Border | None = None) -> None:
        self.nodes, self.border = nodes, border or border_of(nodes)
        self._request = request
        self._bound: BoundGraph | None = None

    @functools.cached_property
    def graph(self) -> Graph:
        """The nodes in a graph of their own."""
        return extract(self.nodes, border=self.border)[0]

    def originals(self) -> Mapping[Value, Value]:
        """Return by the values that ``graph`` is given, constants among them, those that they are copies of."""
        given = {value.name: value for value in (*self.border.inputs, *self.border.constants)}
        return {copy: given[copy.name] for copy in (*self.graph.inputs, *self.graph.initializers)}

    def run(self, arguments: Sequence[RuntimeValue], run_state: RunState) -> tuple[RuntimeValue, ...]:
        """Run them; bound first if nobody has yet."""
        if self._bound is None:
            self._bound = BoundGraph(self.graph, self._request.context)
        return self._bound.run(arguments, {}, run_state.guard, run_state.observer)

    def plain_function(self, reads: Sequence[int]) -> PlainFunction:
        """Return a function of a partition's inputs, of which the kernels read some."""
        assert self._bound is not None, "bound at load, where no program runs in their place"
        run = self._bound.run
        pick = picker(reads)

        def compute(inputs: Sequence[RuntimeValue], run_state: RunState) -> tuple[RuntimeValue, ...]:
            return run(pick(inputs), _NO_SCOPE, run_state.guard, run_state.observer)

        return compute

    def bind(self) -> None:
        """Bind now, so that a missing kernel is an error at load."""
        self._bound = BoundGraph(self.graph, self._request.context)


def described(nodes: Sequence[Node]) -> str:
    """Return the words by which messages speak of a group: its first node, and how many more there are."""
    return nodes[0].describe() + (f" and {len(nodes) - 1} more" if len(nodes) > 1 else "")


def direct_step_of(program: NativeProgram | None, is_alone: bool) -> DirectStep | None:
    """Return the direct calls of a program among others, or alone; ``None`` where there are none."""
    found = None if program is None else build_direct_step(program, is_alone)
    if isinstance(found, Rejection):
        log.debug("no direct calls: %s", found)
        return None
    return found


def run_directly(direct: DirectStep, arrays: Sequence[RuntimeValue], run_state: RunState) -> list[np.ndarray] | None:
    """Return the results of a signature that is known, ``None`` for every other."""
    try:
        run_state.guard.check_allocation(direct.nbytes, "a native program")
    except AllocationLimitExceeded:
        return None  # the ordinary run asks for what this very signature takes
    return direct.call(*arrays)
