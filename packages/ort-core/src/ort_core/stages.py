"""The stages between a loaded model and an execution plan, each a function from values to values.

``prepare`` calls them in order; sessions, the model compiler and the command line use it or single stages.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from ort_core.copy_costs import CopyCosts
from ort_core.custom_ops.sources import load_libraries
from ort_core.environment import Environment
from ort_core.ep_context.nodes import facts_of, is_context
from ort_core.ep_context.reader import context_reader
from ort_core.ep_context.restore import ReadFile, RestorePolicy, restore_contexts
from ort_core.errors import InvalidArgument, InvalidType, NotFound, OrtError, ProviderUnavailable
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.traversal import walk
from ort_core.ir.values import Value
from ort_core.kernels.evaluator import EvaluationContext, evaluate_node
from ort_core.measured_placement import MeasureRequest, measure_placement
from ort_core.ops.inference_report import InferenceReport, NoteKind
from ort_core.ops.shape_inference import infer_types
from ort_core.ops.symbolic_values import SymbolicValue
from ort_core.optimized_cache import MIN_NODES, OptimizedModelCache
from ort_core.options import GraphOptimizationLevel, SessionOptions
from ort_core.partitioning.assign import Restored
from ort_core.partitioning.partition import Partition, PartitionedGraph, partition_graph
from ort_core.partitioning.report import PlacementReport
from ort_core.passes.base import Level, Pass, PassContext
from ort_core.passes.pipelines import order_passes, pipeline_for
from ort_core.passes.runner import PipelineReport, run_pipeline
from ort_core.passes.take_defaults import ShownValues, take_defaults
from ort_core.providers.compiled import CompileRequest
from ort_core.providers.options import options_as_strings
from ort_core.providers.provider import ExecutionProvider
from ort_core.providers.restored import RestoredPartition
from ort_core.providers.thread_options import ThreadOptions, parse_affinities
from ort_core.runtime.plan import ExecutionPlan
from ort_core.runtime.schedule import BuildSettings, CompileFailed, build_plan
from ort_core.settings import environment_value

log = logging.getLogger(__name__)

_NOT_OPTIMIZING = frozenset(  # of PrepareSettings
    {"strict", "allow_last_resort", "threads", "seed", "use_cache", "placement", "samples"}
)
ProviderRequest = Sequence[tuple[str, Mapping[str, object]]]


class PlacementWarning(UserWarning):
    """Something runs elsewhere than the caller asked first; the text says what and why."""


def thread_options(options: SessionOptions, num_threads: int) -> ThreadOptions:
    """Return what a session's options say of the threads within operators.

    Raises:
        InvalidArgument: the affinities are no list of processors, or not one for each thread but the caller's.
    """
    return ThreadOptions(
        num_threads,
        bool(options.setting("session.intra_op.allow_spinning")),
        int(options.setting("session.intra_op.spin_duration_us")),
        not options.setting("session.force_spinning_stop"),
        parse_affinities(str(options.setting("session.intra_op_thread_affinities"))),
    )


@dataclass(frozen=True, slots=True)
class PrepareSettings:
    """What decides how a model is prepared.

    ``strict``: anything that does not run on the first provider asked for is an error. ``allow_last_resort``: what
    nobody else took may go to the last resort (the CPU) although it was not asked for. ``use_cache``: the optimised
    model may come from the artefact cache. ``placement``: the policy, which ``measured`` tries on ``samples``.
    """

    strict: bool = False
    allow_last_resort: bool = True
    level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    disabled_passes: frozenset[str] = frozenset()
    extra_passes: tuple[Pass, ...] = ()
    threads: ThreadOptions = field(default_factory=ThreadOptions)
    seed: int | None = None
    use_cache: bool = False
    placement: str = "priority"
    samples: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(
        cls, options: SessionOptions, environment: Environment, disabled_passes: Iterable[str] = ()
    ) -> PrepareSettings:
        """Read the settings out of a session's options, and out of the environment where the options state none."""
        named = str(options.setting("optimization.disable_specified_optimizers")).replace(",", ";")
        disabled = {name.strip() for name in named.split(";") if name.strip()} | set(disabled_passes)
        threads = environment.intra_op_num_threads or int(environment_value("ORT_INTRA_OP_NUM_THREADS"))
        return cls(
            options.strict_placement,
            not options.setting("session.disable_cpu_ep_fallback"),
            options.graph_optimization_level,
            frozenset(disabled),
            tuple(_checked_pass(each) for each in options.custom_passes),
            thread_options(options, options.intra_op_num_threads or threads),
            environment.seed,
            bool(options.setting("session.optimized_model_cache") and environment_value("ORT_OPTIMIZED_MODEL_CACHE")),
            str(options.setting("session.placement_policy")),
            options.sample_inputs,
        )

    @property
    def optimization_facts(self) -> tuple[tuple[str, str], ...]:
        """What decides how a model is optimised, as facts of a cache key: every setting that is not known not to."""
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _NOT_OPTIMIZING}
        return tuple((n, repr(sorted(v) if isinstance(v, frozenset) else v)) for n, v in given.items())


def _checked_pass(each: object) -> Pass:
    if not isinstance(each, Pass):
        hint = " (an instance is needed: write it with parentheses)" if isinstance(each, type) else ""
        raise InvalidType(f"SessionOptions.custom_passes holds {each!r}, which is no Pass{hint}")
    return each


@dataclass(frozen=True, slots=True)
class ProviderSelection:
    """The providers of a session, in order, and those that were asked for and cannot run."""

    providers: tuple[ExecutionProvider, ...]
    unavailable: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The providers' names, in order."""
        return tuple(provider.name for provider in self.providers)


@dataclass(frozen=True, slots=True)
class OptimizedModel:
    """A model with its types inferred and the basic passes done; ``report`` only where passes ran here and now."""

    model: Model
    report: PipelineReport | None
    is_from_cache: bool = False


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


def prepare(
    model: Model,
    options: SessionOptions,
    environment: Environment,
    providers: ProviderRequest | None = None,
    disabled_passes: Iterable[str] = (),
    folder: Path | None = None,
    *,
    takes_defaults: bool = False,
) -> PreparedModel:
    """Take a loaded model through all stages. The model given is used up: optimised in place, or replaced.

    Args:
        model: an editable model.
        options: the session's options.
        environment: plugins, registries and what sessions share.
        providers: (name, options) in order of preference; ``None`` for all that are available.
        disabled_passes: names of optimizer passes to leave out.
        folder: where the files of a compiled model lie; ``None`` when it came as bytes.
        takes_defaults: prepare for runs that override no initializer (``passes.take_defaults``).

    Raises:
        OrtError: the model is invalid, an operator has no kernel, or the providers cannot be had.
    """
    environment = environment.with_libraries(load_libraries(options.custom_op_libraries))
    environment.operators.adopt(model)
    settings = PrepareSettings.of(options, environment, disabled_passes)
    selection = select_providers(providers, environment, settings)
    restored, refusals = _restore(model, options, selection, environment, settings, folder)
    if restored:
        settings = replace(settings, use_cache=False)  # what a node holds is no part of the cache's key
    infer = partial(infer_types, schemas=environment.schemas, rules=environment.inference_rules)
    shown = take_defaults(model, infer) if takes_defaults else None
    optimized = optimize_cached(model, environment, settings)
    ready = optimized.model.freeze()
    prepared = plan_model(
        ready, selection, environment, settings, optimized.report, is_from_cache=optimized.is_from_cache,
        restored={node: restored[facts_of(node).partition] for node in ready.graph if restored and is_context(node)},
        fallbacks=refusals,
    )  # fmt: skip
    return replace(prepared, shown=shown)


def _restore(
    model: Model,
    options: SessionOptions,
    selection: ProviderSelection,
    environment: Environment,
    settings: PrepareSettings,
    folder: Path | None,
) -> tuple[dict[str, RestoredPartition], tuple[str, ...]]:
    """Restore what a compiled model holds; warns of what does not fit here. Raises as ``restore_contexts``."""
    if not any(is_context(node) for node in walk(model.graph)):
        return {}, ()
    trusts = bool(options.setting("session.trust_compiled_code"))
    may_compile = not options.setting("session.disable_model_compile")
    read = context_reader(folder, options.ep_context_reader)
    policy = _restore_policy(model, selection.providers, environment, settings, read)
    restored, refusals = restore_contexts(model, replace(policy, trusts_code=trusts, may_compile=may_compile))
    for text in refusals:
        warnings.warn(text, PlacementWarning, stacklevel=5)
    return restored, refusals


def expand_contexts(model: Model, environment: Environment, settings: PrepareSettings, folder: Path | None) -> None:
    """Put the graphs of a compiled model in the places of its EPContext nodes. Raises as ``restore_contexts``."""
    if any(is_context(node) for node in walk(model.graph)):
        restore_contexts(model, _restore_policy(model, (), environment, settings, context_reader(folder, None)))


def _restore_policy(
    model: Model,
    providers: Sequence[ExecutionProvider],
    environment: Environment,
    settings: PrepareSettings,
    read_file: ReadFile,
) -> RestorePolicy:
    context = evaluation_context(model, environment, settings.seed, settings.threads.num_threads)
    services = {"weights": environment.weights, "devices": environment.devices}
    return RestorePolicy(
        providers,
        read_file,
        lambda body: _check_types(infer_types(body, environment.schemas, environment.inference_rules)),
        lambda name, graph: CompileRequest(name, graph, context, settings.threads, settings.seed, services),
    )


def _check_types(inferred: InferenceReport) -> None:
    for note in inferred.of_kind(NoteKind.TYPE, NoteKind.REFUSAL):
        raise note.error()


def optimize_cached(model: Model, environment: Environment, settings: PrepareSettings) -> OptimizedModel:
    """Return the optimised model out of the artefact cache, else optimise ``model`` in place and keep the result.

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
        log.info("the optimised model comes from the cache")
        return OptimizedModel(found, None, is_from_cache=True)
    start = time.perf_counter()
    report = optimize(model, environment, settings)
    if cache is not None and cache.keep(model, time.perf_counter() - start):
        log.info("the optimised model was put into the cache")
    return OptimizedModel(model, report)


def _open_cache(model: Model, settings: PrepareSettings) -> OptimizedModelCache | None:
    try:
        return OptimizedModelCache(model, settings.optimization_facts)
    except OrtError as error:  # a constant is unreadable: optimising says so with the node that needs it
        log.info("the cache of optimised models is not used: %s", error)
        return None


def optimize(model: Model, environment: Environment, settings: PrepareSettings) -> PipelineReport | None:
    """Infer types and run the basic passes on an editable model; ``None`` when optimisation is off.

    Raises:
        InvalidGraph: types contradict each other.
    """
    inferred = infer_types(model, environment.schemas, environment.inference_rules)
    _check_types(inferred)
    if settings.level < GraphOptimizationLevel.ORT_ENABLE_BASIC:
        return None
    extra = (*environment.passes, *settings.extra_passes)
    passes = pipeline_for(Level.BASIC, disabled=settings.disabled_passes, extra=extra)
    return run_pipeline(passes, pass_context(model, environment, settings, inferred.values))


def pass_context(
    model: Model,
    environment: Environment,
    settings: PrepareSettings,
    values: Mapping[Value, SymbolicValue] | None = None,
) -> PassContext:
    """Return what passes need: schemas, folding by the reference kernels, and inference."""
    context = evaluation_context(model, environment, settings.seed)
    return PassContext(
        model,
        environment.schemas,
        lambda node, inputs: evaluate_node(node, inputs, context),
        lambda changed: infer_types(changed, environment.schemas, environment.inference_rules).values,
        values=values,
    )


def fuse_partition(
    part: Partition, graph: Graph, model: Model, environment: Environment, settings: PrepareSettings
) -> None:
    """Run the passes that a partition's provider asks for on the partition's own graph."""
    if settings.level < GraphOptimizationLevel.ORT_ENABLE_EXTENDED:
        return
    passes = _passes_of(part.provider, environment, settings)
    if passes:
        inner = Model(graph, dict(model.opset_imports), dict(model.functions), model.ir_version)
        run_pipeline(passes, pass_context(inner, environment, settings))


def _passes_of(provider: ExecutionProvider, environment: Environment, settings: PrepareSettings) -> tuple[Pass, ...]:
    """Return the passes of a partition: its provider's fusions, then plugins' and users' of the extended levels."""
    extra = [each for each in (*environment.passes, *settings.extra_passes) if each.level > Level.BASIC]
    chosen = [each for each in (*provider.fusions, *extra) if each.name not in settings.disabled_passes]
    return order_passes(chosen)


def fuse_whole(prepared: PreparedModel, environment: Environment, settings: PrepareSettings) -> Model:
    """Return the prepared model as it is saved: a copy with its provider's fusions where one provider takes all of it.

    With several providers each has its own fusions, inside its own partitions: the model is returned as it is.
    """
    names = {node.provider for node in prepared.report.nodes}
    chosen = [provider for provider in prepared.selection.providers if provider.name in names]
    if len(names) != 1 or len(chosen) != 1 or settings.level < GraphOptimizationLevel.ORT_ENABLE_EXTENDED:
        return prepared.model
    passes = _passes_of(chosen[0], environment, settings)
    model = prepared.model.clone()
    run_pipeline(passes, pass_context(model, environment, settings))
    return model


def select_providers(
    request: ProviderRequest | None, environment: Environment, settings: PrepareSettings
) -> ProviderSelection:
    """Instantiate the providers asked for (all listed and available ones when ``None``), the last resort appended.

    Raises:
        ProviderUnavailable: none of those asked for can run here, or one cannot and ``strict`` is set.
        NotFound: a name is neither installed nor known.
        InvalidArgument: an option is not known to its provider or does not parse.
    """
    if request is None:
        request = [(name, {}) for name in environment.available_providers()]
    chosen: list[ExecutionProvider] = []
    unavailable: list[tuple[str, str]] = []
    for name, options in request:
        if any(provider.name == name for provider in chosen):
            log.warning("Duplicate provider %r encountered, ignoring.", name)
            continue
        state = environment.check(name)
        if not state:
            _check_known(name, environment)
            unavailable.append((name, str(state)))
            continue
        chosen.append(environment.get_provider(name)(options))
    if request and (not chosen or (settings.strict and unavailable)):
        reasons = "; ".join(f"{name}: {reason}" for name, reason in unavailable)
        raise ProviderUnavailable(
            f"None of the asked-for execution providers can run here ({reasons}). "
            f"Available: {', '.join(environment.available_providers()) or 'none'}."
            if not chosen
            else f"strict placement: an execution provider that was asked for cannot run here ({reasons})."
        )
    for name, reason in unavailable:
        rest = ", ".join(provider.name for provider in chosen)
        warnings.warn(f"{name} is not available and {rest} is used instead: {reason}", PlacementWarning, stacklevel=4)
    if settings.allow_last_resort and not any(provider.is_last_resort for provider in chosen):
        chosen.extend(
            cls({})
            for cls in environment.provider_classes().values()
            if cls.is_last_resort and environment.check(cls.name)
        )
    return ProviderSelection(tuple(chosen), tuple(unavailable))


def evaluation_context(
    model: Model, environment: Environment, seed: int | None = None, num_threads: int = 0
) -> EvaluationContext:
    """Return what kernels need to know of a model. With ``num_threads`` 0 they may use every processor."""
    operators = environment.operators
    return EvaluationContext(
        operators.kernels, operators.schemas, model.opset_imports, model.functions, seed, operators.meanings,
        operators.device_kernels, num_threads or os.cpu_count() or 1,
    )  # fmt: skip


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
) -> PreparedModel:
    """Partition a frozen model, compile every partition and build the plan.

    A provider that fails to compile loses the nodes of that partition to the next one in the list, with a warning;
    without a next one, or with ``strict``, the failure is raised.

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
        lambda part, graph: fuse_partition(part, graph, model, environment, settings),
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
        partitioned = partition_graph(model, model.graph, selection.providers, context, exclusions, restored=restored)
        if settings.strict:
            _check_strict(partitioned, selection)
        try:
            plan = build_plan(partitioned, build)
            break
        except CompileFailed as error:
            _exclude(error, selection, settings, exclusions, fallbacks)
    report = PlacementReport(
        partitioned.placements, selection.names, selection.unavailable, tuple(fallbacks), is_from_cache, explanation
    )
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
    fallbacks.append(text)
    for node in part.nodes:
        exclusions[part.provider.name, node] = f"compile failed: {error}"


def _check_strict(partitioned: PartitionedGraph, selection: ProviderSelection) -> None:
    first = selection.providers[0].name
    for placement in partitioned.placements:
        if placement.provider != first:
            reason = "; ".join(r.reason for r in placement.refusals if r.provider == first) or "no reason given"
            raise ProviderUnavailable(
                f"strict placement: node {placement.name!r} ({placement.domain or 'ai.onnx'}::{placement.op_type}) "
                f"would run on {placement.provider}, not on {first}: {reason}"
            )


def _check_known(name: str, environment: Environment) -> None:
    from ort_core.environment import PACKAGES

    if name not in PACKAGES and name not in environment.plugins.unusable:
        try:
            environment.get_provider(name)
        except NotFound as error:
            raise InvalidArgument(str(error)) from None
