"""A model evaluated by the reference provider, node by node and unoptimized: the truth to compare others with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ort_core.environment import Environment, default_environment
from ort_core.kernels.observer import Observer
from ort_core.ops.shape_inference import infer_types
from ort_core.options import GraphOptimizationLevel
from ort_core.runtime.feeds import FeedChecker
from ort_core.runtime.limits import RunSettings
from ort_core.stages.planning import plan_model
from ort_core.stages.selection import select_providers
from ort_core.stages.settings import PrepareSettings

if TYPE_CHECKING:
    from ort_core.ir.model import Model

REFERENCE = "ReferenceExecutionProvider"
_UNOPTIMIZED = PrepareSettings(allow_last_resort=False, level=GraphOptimizationLevel.ORT_DISABLE_ALL)


def evaluate_by_reference(
    model: Model,
    feeds: Mapping[str, object],
    observer: Observer | None = None,
    environment: Environment | None = None,
) -> list[object]:
    """Return the outputs of a model. It is not changed; ``observer`` is called behind each node.

    ``environment`` is one that knows the user's operators, where there are any.

    Raises:
        OrtError: a feed does not fit, or a node failed.
    """
    environment = environment or default_environment()
    copy = model.clone()
    environment.operators.adopt(copy)
    infer_types(copy, environment.schemas, environment.inference_rules)
    copy.freeze()
    selection = select_providers([(REFERENCE, {})], environment, _UNOPTIMIZED)
    prepared = plan_model(copy, selection, environment, _UNOPTIMIZED)
    try:
        values = FeedChecker(copy.graph.inputs).convert(feeds)
        return list(prepared.plan.run(values, None, RunSettings(observer=observer)))
    finally:
        prepared.plan.close()
