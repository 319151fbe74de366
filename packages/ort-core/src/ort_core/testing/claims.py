"""What a provider is asked and given, step by step: for tests that look at one claim or one compiled partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_core.environment import Environment
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.subgraph import extract
from ort_core.ops.value_range import ValueRanges
from ort_core.plugin import Claim, CompileRequest, GraphView, RunState, ThreadOptions
from ort_core.runtime.limits import DEFAULT_RUN
from ort_core.runtime.state import PlanRunState
from ort_core.stages import ForeseenPlacement, PrepareSettings, evaluation_context, foresee, optimize
from ort_core.testing.environments import session_environment


def typed_model(source: object, environment: Environment | None = None) -> Model:
    """Return a frozen model with inferred types, on which no pass has run.

    Args:
        source: a path, bytes, an ``onnx.ModelProto``, or a Model, which is used up.
        environment: whose operators count; by default that of sessions.
    """
    from ort_core.onnx_io.load import load_model  # imports onnx
    from ort_core.options import GraphOptimizationLevel

    model = source if isinstance(source, Model) else load_model(source)  # type: ignore[arg-type]  # load_model names the wrong type
    untouched = PrepareSettings(level=GraphOptimizationLevel.ORT_DISABLE_ALL)
    optimize(model, environment or session_environment(), untouched)
    return model.freeze()


def view_of(model: Model, graph: Graph | None = None, environment: Environment | None = None) -> GraphView:
    """Return the view of a frozen model's graph (by default the main one), with every node on offer."""
    context = evaluation_context(model, environment or session_environment())
    shown = graph or model.graph
    return GraphView(model, shown, tuple(shown.nodes), context, ValueRanges().value_range)


def request_for(view: GraphView, claim: Claim, *, threads: ThreadOptions | None = None) -> CompileRequest:
    """Return what the core hands to ``ExecutionProvider.compile`` for a claim, without any fusion."""
    graph, _ = extract(claim.nodes, claim.name or "claim")
    environment = session_environment()
    services = {"weights": environment.weights, "devices": environment.devices}
    return CompileRequest(claim.name or "claim", graph, view.context, threads or ThreadOptions(), None, services)


def foreseen(
    source: object, providers: Sequence[tuple[str, Mapping[str, object]]], *, is_optimized: bool = True
) -> ForeseenPlacement:
    """Return where a model's nodes would run if all of ``providers`` could run here. Raises as ``stages.foresee``.

    Args:
        source: a path, bytes, or an ``onnx.ModelProto``.
        providers: names and options, in order.
        is_optimized: whether passes run.
    """
    from ort_core.onnx_io.load import load_model  # imports onnx
    from ort_core.options import GraphOptimizationLevel, SessionOptions

    options = SessionOptions()
    if not is_optimized:
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    model = load_model(source)  # type: ignore[arg-type]  # load_model names the wrong type
    return foresee(model, options, session_environment(), providers)


def new_run_state() -> RunState:
    """Return the state of a run without limits, to call ``CompiledPartition.run`` with."""
    return PlanRunState(DEFAULT_RUN)
