"""Inference of types, and the passes: the basic ones on a model, the others on what a provider takes."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ort_core.collecting import paused_collection
from ort_core.environment import Environment
from ort_core.errors import OrtError
from ort_core.frozen import frozen
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.values import Value
from ort_core.kernels.evaluation_context import EvaluationContext
from ort_core.kernels.evaluator import evaluate_node
from ort_core.ops.inference_report import InferenceReport, NoteKind
from ort_core.ops.last_inference import LastInference
from ort_core.ops.shape_inference import infer_types
from ort_core.ops.symbolic_values import SymbolicValue
from ort_core.optimized_cache import MIN_NODES, OptimizedModelCache
from ort_core.options import GraphOptimizationLevel
from ort_core.partitioning.partition import Partition
from ort_core.passes.base import Level, Pass, PassContext, PassLimits
from ort_core.passes.normalize import drop_unnamed
from ort_core.passes.pipelines import order_passes, pipeline_for
from ort_core.passes.runner import PipelineReport, run_pipeline
from ort_core.providers.provider import ExecutionProvider
from ort_core.runtime.limits import LimitGuard, RunSettings
from ort_core.stages.settings import PrepareSettings
from ort_core.tensors.runtime_value import RuntimeValue

log = logging.getLogger(__name__)


@frozen
class OptimizedModel:
    """A model with its types inferred and the basic passes done.

    ``report`` and ``inferred``, what the last inference found, only where passes ran here and now.
    """

    model: Model
    report: PipelineReport | None
    is_from_cache: bool = False
    inferred: InferenceReport | None = None


@paused_collection()
def optimize_cached(model: Model, environment: Environment, settings: PrepareSettings) -> OptimizedModel:
    """Return the optimized model out of the artefact cache, else optimize ``model`` in place and keep the result.

    Passes and operators of plugins and users have no version that could be part of a key: with any of them the
    cache is left alone. Raises as ``optimize``.
    """
    is_cacheable = (
        settings.use_cache
        and len(model.graph) >= MIN_NODES
        and settings.level >= GraphOptimizationLevel.ORT_ENABLE_BASIC
        and not (settings.extra_passes or environment.has_own_passes_or_operators)
    )
    cache = _open_cache(model, settings) if is_cacheable else None
    found = cache.find() if cache is not None else None
    if found is not None:
        log.info("the optimized model comes from the cache")
        found.notes = model.notes
        return OptimizedModel(found, None, is_from_cache=True)
    start = time.perf_counter()
    report, inferred = _optimized(model, environment, settings)
    if cache is not None and cache.keep(model, time.perf_counter() - start):
        log.info("the optimized model was put into the cache")
    return OptimizedModel(model, report, inferred=inferred)


def _open_cache(model: Model, settings: PrepareSettings) -> OptimizedModelCache | None:
    try:
        return OptimizedModelCache(model, settings.optimization_facts)
    except OrtError as error:  # a constant is unreadable: optimizing says so with the node that needs it
        log.info("the cache of optimized models is not used: %s", error)
        return None


def optimize(model: Model, environment: Environment, settings: PrepareSettings) -> PipelineReport | None:
    """Infer types and run the basic passes on an editable model; ``None`` when optimization is off.

    All types are those of the model as it is then.

    Raises:
        InvalidGraph: types contradict each other.
    """
    return _optimized(model, environment, settings)[0]


def _optimized(
    model: Model, environment: Environment, settings: PrepareSettings
) -> tuple[PipelineReport | None, InferenceReport]:
    inferred = infer_types(model, environment.schemas, environment.inference_rules, trusts_sizes=False)
    check_types(inferred)
    if settings.level < GraphOptimizationLevel.ORT_ENABLE_BASIC:
        drop_unnamed(model)  # passes begin with a model in which this is done
        return None, inferred
    extra = (*environment.passes, *settings.extra_passes)
    disabled, enabled = settings.disabled_passes, settings.enabled_passes
    passes = pipeline_for(Level.BASIC, disabled=disabled, enabled=enabled, extra=extra)
    last = LastInference(lambda: inferred)
    context = _pass_context(model, environment, settings, last, inferred.values)
    report = run_pipeline(passes, context)
    if report.num_rewrites and not context.types_are_current:
        context.infer_types()  # once, not for each partition
    return report, last.report or inferred


def check_types(inferred: InferenceReport) -> None:
    """Raise the first contradiction or refusal that inference noted."""
    for note in inferred.of_kind(NoteKind.TYPE, NoteKind.REFUSAL):
        raise note.error()


def evaluation_context(
    model: Model, environment: Environment, seed: int | None = None, num_threads: int = 0
) -> EvaluationContext:
    """Return what kernels need to know of a model. With ``num_threads`` 0 they may use every processor."""
    operators = environment.operators
    return EvaluationContext(
        operators.kernels, operators.schemas, model.opset_imports, model.functions, seed, operators.meanings,
        operators.device_kernels, num_threads or os.cpu_count() or 1,
    )  # fmt: skip


def pass_context(
    model: Model,
    environment: Environment,
    settings: PrepareSettings,
    inferred: InferenceReport | None = None,
) -> PassContext:
    """Return what passes need: schemas, folding by the reference kernels, and inference, ``inferred`` the first one."""
    last = LastInference(lambda: inferred)
    return _pass_context(model, environment, settings, last, None if inferred is None else inferred.values)


def _pass_context(
    model: Model,
    environment: Environment,
    settings: PrepareSettings,
    last: LastInference,
    values: Mapping[Value, SymbolicValue] | None = None,
) -> PassContext:
    context = evaluation_context(model, environment, settings.seed)

    def evaluate(node: Node, inputs: Sequence[RuntimeValue]) -> tuple[RuntimeValue, ...] | Rejection:
        given = sum(array.nbytes for array in inputs if isinstance(array, np.ndarray))
        limit = given + PassLimits().max_fold_growth_nbytes
        return evaluate_node(node, inputs, context, LimitGuard(RunSettings(max_allocation_nbytes=limit)))

    def infer(changed: Model) -> Mapping[Value, SymbolicValue]:
        found = infer_types(changed, environment.schemas, environment.inference_rules, after=last.report)
        last.note(found)
        return found.values

    return PassContext(model, environment.schemas, evaluate, infer, values=values)


@paused_collection()
def fuse_partition(
    part: Partition, graph: Graph, model: Model, environment: Environment, settings: PrepareSettings,
    inferred: InferenceReport | None = None,
) -> LastInference:  # fmt: skip
    """Run the passes that a partition's provider asks for on the partition's own graph, whose types are inferred.

    ``inferred`` is what was found of the whole model: what holds of nodes holds of their copies in the partition.
    Returns what was found of the partition's graph.
    """
    last = LastInference(_found_of_copies(part, graph, inferred))
    if settings.level < GraphOptimizationLevel.ORT_ENABLE_EXTENDED:
        return last
    passes = passes_of(part.provider, environment, settings)
    if passes:
        inner = Model(graph, dict(model.opset_imports), dict(model.functions), model.ir_version)
        context = _pass_context(inner, environment, settings, last)
        context.values = ContentsWhenAsked(context.infer_types, lambda: context.values)
        run_pipeline(passes, context)
    return last


def _found_of_copies(
    part: Partition, graph: Graph, inferred: InferenceReport | None
) -> Callable[[], InferenceReport | None]:
    """Return what tells, when a pass first asks, what was found of a partition's own graph as it is now."""
    earlier = None if inferred is None else inferred.earlier
    if earlier is None or part.in_parts:
        return lambda: None
    border = part.border
    nodes, read = graph.nodes, (*graph.inputs, *graph.initializers)

    def found() -> InferenceReport:
        values = dict(zip((*border.inputs, *border.constants), read, strict=True))
        for node, copy in zip(part.nodes, nodes, strict=True):
            values.update((v, c) for v, c in zip(node.outputs, copy.outputs) if v is not None and c is not None)
        return InferenceReport((), earlier=earlier.of_copies(zip(part.nodes, nodes, strict=True), values))

    return found


class ContentsWhenAsked(Mapping[Value, SymbolicValue]):
    """What is known of the contents of values, found when a pass first asks: most never do.

    Args:
        infer: finds it and puts it in this one's place.
        found: returns what stands there.
    """

    def __init__(self, infer: Callable[[], None], found: Callable[[], Mapping[Value, SymbolicValue] | None]) -> None:
        self._infer, self._found = infer, found

    def _contents(self) -> Mapping[Value, SymbolicValue]:
        if self._found() is self:
            self._infer()
        found = self._found()
        return {} if found is None or found is self else found

    def __getitem__(self, value: Value) -> SymbolicValue:
        return self._contents()[value]

    def __iter__(self) -> Iterator[Value]:
        return iter(self._contents())

    def __len__(self) -> int:
        return len(self._contents())


def passes_of(provider: ExecutionProvider, environment: Environment, settings: PrepareSettings) -> tuple[Pass, ...]:
    """Return the passes of a partition: its provider's fusions, then plugins' and users' of the extended levels."""
    extra = [each for each in (*environment.passes, *settings.extra_passes) if each.level > Level.BASIC]
    chosen = [each for each in (*provider.fusions, *extra) if each.name not in settings.disabled_passes]
    return order_passes(chosen)
