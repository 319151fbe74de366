"""Which fusions nearly fired: the passes of a session are run again, without the cache, and nothing is compiled."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ort_core.custom_ops.sources import load_libraries
from ort_core.ir.model import Model
from ort_core.ops.shape_inference import infer_types
from ort_core.options import GraphOptimizationLevel
from ort_core.partitioning.partition import Partition, partition_graph
from ort_core.passes.base import Level
from ort_core.passes.near_misses import NearMiss, find_near_misses
from ort_core.passes.pipelines import pipeline_for
from ort_core.passes.take_defaults import take_defaults
from ort_core.stages.optimizing import evaluation_context, fuse_partition, optimize, pass_context, passes_of
from ort_core.stages.placement_preview import partitions_of
from ort_core.stages.preparing import expand_contexts
from ort_core.stages.selection import ProviderRequest, select_providers
from ort_core.stages.settings import PrepareSettings

if TYPE_CHECKING:
    from ort_core.environment import Environment
    from ort_core.kernels.evaluation_context import EvaluationContext
    from ort_core.options import SessionOptions


def find_fusion_misses(
    model: Model,
    options: SessionOptions,
    environment: Environment,
    providers: ProviderRequest | None = None,
    disabled_passes: Iterable[str] = (),
    folder: Path | None = None,
) -> list[NearMiss]:
    """Return what nearly fired among the passes of a session, those inside its providers' partitions included.

    The model given is used up. Arguments and errors are those of ``prepare``.
    """
    environment = environment.with_libraries(load_libraries(options.custom_op_libraries))
    environment.operators.adopt(model)
    settings = PrepareSettings.of(options, environment, disabled_passes)
    selection = select_providers(providers, environment, settings)
    expand_contexts(model, environment, settings, folder)
    take_defaults(model, lambda m: infer_types(m, environment.schemas, environment.inference_rules, trusts_sizes=False))
    optimize(model, environment, settings)
    found: list[NearMiss] = []
    if settings.level >= GraphOptimizationLevel.ORT_ENABLE_BASIC:
        extra = (*environment.passes, *settings.extra_passes)
        basic = pipeline_for(
            Level.BASIC, disabled=settings.disabled_passes, enabled=settings.enabled_passes, extra=extra
        )
        found += find_near_misses(basic, pass_context(model, environment, settings))
    ready = model.freeze()
    context = evaluation_context(ready, environment, settings.seed, settings.threads.num_threads)
    partitioned = partition_graph(ready, ready.graph, selection.providers, context)
    if settings.level >= GraphOptimizationLevel.ORT_ENABLE_EXTENDED:
        for part in partitions_of(partitioned):
            found += _inside(part, ready, context, environment, settings)
    return found


def _inside(
    part: Partition, model: Model, context: EvaluationContext, environment: Environment, settings: PrepareSettings
) -> list[NearMiss]:
    graph = part.own_graph(context)
    fuse_partition(part, graph, model, environment, settings)
    inner = Model(graph, dict(model.opset_imports), dict(model.functions), model.ir_version)
    passes = passes_of(part.provider, environment, settings)
    return find_near_misses(passes, pass_context(inner, environment, settings), part.name)
