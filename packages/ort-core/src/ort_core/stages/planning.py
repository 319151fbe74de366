"""Partitioning, compiling, and the plan that runs."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ort_core.copy_costs import CopyCosts
from ort_core.environment import Environment
from ort_core.errors import ProviderUnavailable
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.measured_placement import MeasureRequest, measure_placement
from ort_core.ops.inference_report import InferenceReport
from ort_core.options import GraphOptimizationLevel
from ort_core.partitioning.assign import Restored
from ort_core.partitioning.partition import PartitionedGraph, partition_graph
from ort_core.partitioning.report import PlacementReport
from ort_core.passes.runner import PipelineReport, run_pipeline
from ort_core.passes.take_defaults import ShownValues
from ort_core.providers.options import options_as_strings
from ort_core.runtime.plan import ExecutionPlan
from ort_core.runtime.schedule import BuildSettings, CompileFailed, build_plan
from ort_core.stages.optimizing import evaluation_context, fuse_partition, pass_context, passes_of
from ort_core.stages.selection import PlacementWarning, ProviderSelection
from ort_core.stages.settings import PrepareSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model that can run. ``environment`` is the one that it was prepared with, the session's operators included.

    ``shown`` is there when the plan takes defaults as constants: what callers see of the model, which is more.
    """

    model: Model
    plan: ExecutionPlan
    report: PlacementReport
    selection: ProviderSelection
    provider_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    optimization: PipelineReport | None = None
    is_from_cache: bool = False
    environment: Environment | None = None
    partitioned: PartitionedGraph | None = None
    shown: ShownValues | None = None

    @property
    def providers(self) -> tuple[str, ...]:
        """The names of the session's providers, in order."""
        return self.selection.names


def plan_model(
    model: Model,
    selection: ProviderSelection,
    environment: Environment,
    settings: PrepareSettings,
    optimization: PipelineReport | None = None,
    *,
    is_from_cache: bool = False,
    restored: Restored = MappingProxyType({}),
    fallbacks: Sequence[str] = (),
    inferred: InferenceReport | None = None,
) -> PreparedModel:
    """Partition a frozen model, compile every partition and build the plan.

    A provider that fails to compile loses the nodes of that partition to the next one in the list, with a warning;
    without a next one, or with ``strict``, the failure is raised. ``inferred`` is what inference found of the model.

    Raises:
        KernelNotFoundError: nobody runs a node.
        EPFail: a provider failed to compile and nobody else was asked for.
    """
    context = evaluation_context(model, environment, settings.seed, settings.threads.num_threads)
    exclusions: dict[tuple[str, Node], str] = {}
    fallbacks = list(fallbacks)
    explanation: tuple[str, ...] = ()
    build = BuildSettings(
        context,
        settings.threads,
        {"weights": environment.weights, "devices": environment.devices},
        lambda part, graph: fuse_partition(part, graph, model, environment, settings, inferred),
        short_cuts=settings.short_cuts,
    )
    if settings.placement == "measured":
        measured = measure_placement(
            MeasureRequest(
                model, selection.providers, build, CopyCosts(environment.devices, environment.clock), settings.samples,
                restored=restored, clock=environment.clock,
            )
        )  # fmt: skip
        exclusions.update(measured.exclusions)
        explanation = measured.explanation
    while True:
        partitioned = partition_graph(
            model, model.graph, selection.providers, context, exclusions, restored=restored, faults=build.faults
        )
        if settings.strict:
            check_strict(partitioned, selection)
        try:
            plan = build_plan(partitioned, build)
            break
        except CompileFailed as error:
            _exclude(error, selection, settings, exclusions, fallbacks)
    for text in build.faults.report():
        warnings.warn(text, PlacementWarning, stacklevel=4)
        fallbacks.append(text)
    report = PlacementReport(
        partitioned.placements, selection.names, selection.unavailable, tuple(fallbacks), is_from_cache, explanation,
        notes=model.notes,
    )  # fmt: skip
    options = {provider.name: options_as_strings(provider.options) for provider in selection.providers}
    return PreparedModel(model, plan, report, selection, options, optimization, is_from_cache, environment, partitioned)


def _exclude(
    error: CompileFailed,
    selection: ProviderSelection,
    settings: PrepareSettings,
    exclusions: dict[tuple[str, Node], str],
    fallbacks: list[str],
) -> None:
    part = error.partition
    if part is None or settings.strict or part.provider is selection.providers[-1]:
        raise error
    text = f"{error}; its {len(part.nodes)} nodes go to the next provider"
    warnings.warn(text, PlacementWarning, stacklevel=5)
    log.debug("%s", text, exc_info=error)
    fallbacks.append(text)
    for node in part.nodes:
        exclusions[part.provider.name, node] = f"compile failed: {error}"


def check_strict(partitioned: PartitionedGraph, selection: ProviderSelection) -> None:
    """Raise ProviderUnavailable with the reason for the first node that the first provider does not take."""
    first = selection.providers[0].name
    for placement in partitioned.placements:
        if placement.provider != first:
            reason = "; ".join(r.reason for r in placement.refusals if r.provider == first) or "no reason given"
            raise ProviderUnavailable(
                f"strict placement: node {placement.name!r} ({placement.domain or 'ai.onnx'}::{placement.op_type}) "
                f"would run on {placement.provider}, not on {first}: {reason}"
            )


def fuse_whole(prepared: PreparedModel, environment: Environment, settings: PrepareSettings) -> Model:
    """Return the prepared model as it is saved: a copy with its provider's fusions where one provider takes all of it.

    With several providers each has its own fusions, inside its own partitions: the model is returned as it is.
    """
    names = {node.provider for node in prepared.report.nodes}
    chosen = [provider for provider in prepared.selection.providers if provider.name in names]
    if len(names) != 1 or len(chosen) != 1 or settings.level < GraphOptimizationLevel.ORT_ENABLE_EXTENDED:
        return prepared.model
    passes = passes_of(chosen[0], environment, settings)
    model = prepared.model.clone()
    run_pipeline(passes, pass_context(model, environment, settings))
    return model
