"""All stages in order, from a loaded model to one that can run; compiled models are restored on the way."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ort_core.custom_ops.sources import load_libraries
from ort_core.environment import Environment
from ort_core.ep_context.nodes import facts_of, is_context
from ort_core.ep_context.reader import context_reader
from ort_core.ep_context.restore import ReadFile, RestorePolicy, restore_contexts
from ort_core.ir.model import Model
from ort_core.ir.traversal import walk
from ort_core.ops.shape_inference import infer_types
from ort_core.options import SessionOptions
from ort_core.passes.take_defaults import take_defaults
from ort_core.providers.compiled import CompileRequest
from ort_core.providers.provider import ExecutionProvider
from ort_core.providers.restored import RestoredPartition
from ort_core.stages.optimizing import check_types, evaluation_context, optimize_cached
from ort_core.stages.planning import PreparedModel, plan_model
from ort_core.stages.selection import PlacementWarning, ProviderRequest, ProviderSelection, select_providers
from ort_core.stages.settings import PrepareSettings


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
    """Take a loaded model through all stages. The model given is used up: optimized in place, or replaced.

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
        settings = replace(settings, use_cache=False)  # what a node holds is not part of the cache's key
    infer = partial(infer_types, schemas=environment.schemas, rules=environment.inference_rules, trusts_sizes=False)
    shown = take_defaults(model, infer) if takes_defaults else None
    optimized = optimize_cached(model, environment, settings)
    ready = optimized.model.freeze()
    prepared = plan_model(
        ready, selection, environment, settings, optimized.report, is_from_cache=optimized.is_from_cache,
        restored={
            node: restored[facts_of(node).partition] for node in (ready.graph if restored else ()) if is_context(node)
        },
        fallbacks=refusals, inferred=optimized.inferred,
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
        lambda body: check_types(
            infer_types(body, environment.schemas, environment.inference_rules, trusts_sizes=False)
        ),
        lambda name, graph: CompileRequest(
            name, graph, context, settings.threads, settings.seed, services, short_cuts=settings.short_cuts
        ),
    )
