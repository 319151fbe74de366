"""What would run where, were every provider that is asked for able to run here: claims are asked for, nothing compiled.

A provider decides what it claims by rules, and by its SDK where that is installed; for that the hardware need not be
here. What cannot be told without it, the provider says in its rejections.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ort_core.custom_ops.sources import load_libraries
from ort_core.environment import Environment
from ort_core.errors import EPFail, OrtError, ProviderUnavailable
from ort_core.frozen import frozen
from ort_core.interruptions import raise_interruption
from ort_core.ir.model import Model
from ort_core.ir.rejection import Rejection
from ort_core.kernels.evaluation_context import EvaluationContext
from ort_core.options import SessionOptions
from ort_core.partitioning.partition import Partition, PartitionedGraph, partition_graph
from ort_core.partitioning.report import PlacementReport
from ort_core.providers.compile_faults import CompileFaultsState
from ort_core.providers.compiled import CompileRequest
from ort_core.providers.provider import ExecutionProvider
from ort_core.providers.thread_options import ThreadOptions
from ort_core.stages.optimizing import evaluation_context, optimize_cached
from ort_core.stages.planning import check_strict
from ort_core.stages.preparing import expand_contexts
from ort_core.stages.selection import ProviderRequest, ProviderSelection, last_resorts
from ort_core.stages.settings import PrepareSettings


@frozen
class ForeseenPlacement:
    """An optimized model, and where its nodes would run. A session may place otherwise what then fails to compile."""

    model: Model
    report: PlacementReport
    partitions: tuple[Partition, ...]
    context: EvaluationContext
    services: Mapping[str, object]

    def build(self, provider: str) -> Rejection | None:
        """Let a provider build all of its partitions without its device; returns why it builds none.

        Raises:
            EPFail: a partition cannot be built.
        """
        for part in self.partitions:
            if part.provider.name != provider:
                continue
            graph = part.own_graph(self.context)
            request = CompileRequest(part.name, graph, self.context, ThreadOptions(), None, self.services)
            try:
                refused = part.provider.build(request)
            except Exception as error:
                raise_interruption(error)
                raise EPFail(f"{provider} could not build partition {part.name}: {error}") from error
            if refused is not None:
                return refused
        return None


def foresee(
    model: Model,
    options: SessionOptions,
    environment: Environment,
    providers: ProviderRequest,
    folder: Path | None = None,
) -> ForeseenPlacement:
    """Place a loaded model as if all of ``providers`` could run here. The model given is used up.

    Compiled partitions inside the model are placed anew; providers are asked by priority, whatever the policy is.

    Raises:
        ProviderUnavailable: a provider is not installed, or cannot be made without its hardware; or ``strict``.
        OrtError: the model is invalid, or nobody would take a node.
    """
    environment = environment.with_libraries(load_libraries(options.custom_op_libraries))
    environment.operators.adopt(model)
    settings = PrepareSettings.of(options, environment)
    selection = _select(providers, environment, settings)
    expand_contexts(model, environment, settings, folder)
    ready = optimize_cached(model, environment, settings).model.freeze()
    context = evaluation_context(ready, environment, settings.seed, settings.threads.num_threads)
    faults = CompileFaultsState()
    partitioned = partition_graph(ready, ready.graph, selection.providers, context, faults=faults)
    if settings.strict:
        check_strict(partitioned, selection)
    report = PlacementReport(
        partitioned.placements, selection.names, selection.unavailable, faults.report(), is_foreseen=True,
        notes=ready.notes,
    )  # fmt: skip
    services = {"weights": environment.weights, "devices": environment.devices}
    return ForeseenPlacement(ready, report, tuple(partitions_of(partitioned)), context, services)


def partitions_of(graph: PartitionedGraph) -> Iterator[Partition]:
    """Yield the partitions of a graph, those of bodies that are partitioned themselves included."""
    return (step for step in graph.every_step() if isinstance(step, Partition))


def _select(providers: ProviderRequest, environment: Environment, settings: PrepareSettings) -> ProviderSelection:
    chosen: list[ExecutionProvider] = []
    unavailable: list[tuple[str, str]] = []
    for name, options in providers:
        if any(provider.name == name for provider in chosen):
            continue
        state = environment.check(name)
        if not state:
            unavailable.append((name, str(state)))
        cls = environment.provider_classes().get(name)
        if cls is None:
            raise ProviderUnavailable(f"{name} cannot be asked what it would run: {state}")
        try:
            chosen.append(cls(options))
        except OrtError:  # an option that is not known, or does not parse
            raise
        except Exception as error:
            raise_interruption(error)
            raise ProviderUnavailable(
                f"{name} cannot be asked what it would run: making it failed with {type(error).__name__}: {error}. "
                f"It is not available here: {state}"
            ) from error
    return ProviderSelection((*chosen, *last_resorts(chosen, environment, settings)), tuple(unavailable))
