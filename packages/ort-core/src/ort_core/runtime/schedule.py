"""build_plan(): from a partitioned graph to an ExecutionPlan, every partition compiled by its provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from ort_core.errors import EPFail, OrtError
from ort_core.frozen import frozen
from ort_core.interruptions import raise_interruption
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.traversal import reads_of
from ort_core.ir.values import Value
from ort_core.kernels.evaluation_context import EvaluationContext
from ort_core.memory.liveness import StepUse
from ort_core.memory.slots import ValueSlots
from ort_core.ops.last_inference import LastInference
from ort_core.partitioning.partition import ControlFlow, Partition, PartitionedGraph
from ort_core.providers.compile_faults import CompileFaultsState
from ort_core.providers.compiled import CompiledPartition, CompileRequest
from ort_core.providers.result_border import ResultBorder
from ort_core.providers.thread_options import ThreadOptions
from ort_core.runtime.control_flow import ControlFlowStep
from ort_core.runtime.plan import ExecutionPlan, PartitionStep, PlannedStep, PlanStep

Fuse = Callable[[Partition, Graph], LastInference]  # applies a provider's fusions to the partition's own graph


class CompileFailed(EPFail):
    """A provider failed to compile a partition; ``partition`` says which, so that its nodes can go elsewhere."""

    def __init__(self, message: str, partition: Partition | None = None) -> None:
        super().__init__(message)
        self.partition = partition


@frozen
class BuildSettings:
    """What compilation needs beyond the graph."""

    context: EvaluationContext
    threads: ThreadOptions = field(default_factory=ThreadOptions)
    services: Mapping[str, Any] = field(default_factory=dict)  # Any: each service has its own type
    fuse: Fuse | None = None
    faults: CompileFaultsState = field(default_factory=CompileFaultsState)
    short_cuts: bool = True


def build_plan(partitioned: PartitionedGraph, settings: BuildSettings) -> ExecutionPlan:
    """Compile every partition and lay out the slots.

    Raises:
        CompileFailed: a provider failed on a partition that it had claimed.
    """
    graph = partitioned.graph
    slots = ValueSlots(graph)
    uses: list[StepUse[Value | None]] = []
    steps: list[PlanStep] = []
    for part in partitioned.steps:
        if isinstance(part, Partition):
            reads, writes = part.reads, part.writes
            compiled = compile_partition(part, settings) if part.restored is None else part.restored.compiled
            border = ResultBorder(part.provider.name, f"partition {part.name!r}", reads, writes)
            steps.append(PartitionStep(part.name, part.provider.name, compiled, len(writes), border))
        else:
            reads, writes = reads_of(part.node), tuple(part.node.present_outputs())
            steps.append(_control_flow(part, reads, settings))
        uses.append(StepUse(reads, writes))
    planned = tuple(
        PlannedStep(step, use.reads, use.writes, use.frees) for step, use in zip(steps, slots.uses(uses), strict=True)
    )
    outputs = {value.name: slots.of((value,))[0] for value in graph.outputs}
    inputs = {value.name: slots.of((value,))[0] for value in graph.inputs}
    return ExecutionPlan(graph, planned, slots.template(), inputs, outputs, tuple(slots.captures))


def compile_partition(part: Partition, settings: BuildSettings) -> CompiledPartition:
    """Compile one partition.

    Raises:
        CompileFailed: its provider failed.
    """
    graph = part.own_graph(settings.context)
    inferred = LastInference() if settings.fuse is None else settings.fuse(part, graph)
    request = CompileRequest(
        part.name,
        graph,
        settings.context,
        settings.threads,
        settings.context.seed,
        settings.services,
        settings.faults,
        settings.short_cuts,
        inferred,
    )
    try:
        compiled = part.provider.compile(request)
    except (KeyboardInterrupt, SystemExit):
        raise
    except Exception as error:  # the border to providers
        raise_interruption(error)
        reason = str(error) if isinstance(error, OrtError) else f"{type(error).__name__}: {error}"
        raise CompileFailed(
            f"{part.provider.name} failed to compile partition {part.name!r} ({_first(part.nodes)}): {reason}", part
        ) from error
    finally:
        inferred.forget()
    if not isinstance(compiled, CompiledPartition):
        raise CompileFailed(
            f"{part.provider.name}.compile returned a {type(compiled).__name__} for partition {part.name!r}, "
            "not a CompiledPartition",
            part,
        )
    return compiled


def _control_flow(part: ControlFlow, reads: tuple[Value, ...], settings: BuildSettings) -> ControlFlowStep:
    plans = {name: build_plan(body, settings) for name, body in part.bodies.items()}
    return ControlFlowStep(part.name, part.node, plans, reads, settings.context)


def _first(nodes: tuple[Node, ...]) -> str:
    more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
    return f"{nodes[0].describe()}{more}"
