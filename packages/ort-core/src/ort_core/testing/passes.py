"""check_pass(): runs one pass on one model with every check: told truths, invariants of the graph, equal results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ort_core import stages
from ort_core.custom_ops.library import OpLibrary
from ort_core.environment import default_environment
from ort_core.ir.model import Model
from ort_core.ops.shape_inference import infer_types
from ort_core.options import GraphOptimizationLevel
from ort_core.passes.base import Pass, PassReport
from ort_core.passes.equivalence import EquivalenceCheck
from ort_core.passes.runner import run_pipeline
from ort_core.tolerances import ToleranceName, tolerance

_REFERENCE = "ReferenceExecutionProvider"
_AS_IT_IS = stages.PrepareSettings(allow_last_resort=False, level=GraphOptimizationLevel.ORT_DISABLE_ALL)


def check_pass(
    each: Pass,
    model: Model,
    *,
    libraries: Sequence[OpLibrary] = (),
    feeds: Mapping[str, np.ndarray] | None = None,
    sizes: Mapping[str, int] | None = None,
    limits: ToleranceName = "approximate",
    share_of_largest: float = 0.0,
) -> PassReport:
    """Run a pass over a model in place, and check it.

    Args:
        each: the pass.
        model: an editable model; the pass changes it.
        libraries: operators that the model or the pass uses.
        feeds: inputs for the comparison; random ones where they are not given.
        sizes: sizes of named dimensions of random inputs, 2 where they are not given.
        limits: how far results may change, by the name of a tolerance.
        share_of_largest: how much further, as a share of an output's largest magnitude: of use for deep models.

    Returns:
        What the pass did in its first round.

    Raises:
        Fail: it did not tell the truth about what it changed, changed a result, or raised an exception.
        InvalidGraph: it broke an invariant of the graph.
    """
    environment = default_environment().with_libraries(libraries)

    def evaluate(changed: Model, given: Mapping[str, np.ndarray]) -> list[object]:
        copy = changed.clone()
        environment.operators.adopt(copy)
        infer_types(copy, environment.schemas, environment.inference_rules)
        selection = stages.select_providers([(_REFERENCE, {})], environment, _AS_IT_IS)
        prepared = stages.plan_model(copy.freeze(), selection, environment, _AS_IT_IS)
        return list(prepared.plan.run(given))

    infer_types(model, environment.schemas, environment.inference_rules)
    allowed = tolerance(limits, "float32")
    limit = (allowed.relative, allowed.absolute)
    check = EquivalenceCheck(evaluate, *limit, feeds or {}, sizes or {}, share_of_largest=share_of_largest)
    context = stages.pass_context(model, environment, stages.PrepareSettings())
    return run_pipeline([each], context, verify=True, equivalence=check).reports[0]
