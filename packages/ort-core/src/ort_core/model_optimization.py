"""The door of packages that optimize models for their own sake: an ONNX model in, the changed one out, and why.

Sessions optimize what they run; this writes what passes made of a model as ONNX again. Passes come from
``ort_core.plugin.passes``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ort_core import stages
from ort_core.environment import default_environment
from ort_core.errors import InvalidArgument
from ort_core.ir.rejection import Rejection
from ort_core.ir.traversal import graphs_of
from ort_core.onnx_io.load import load_model
from ort_core.onnx_io.save import model_to_proto
from ort_core.ops.shape_inference import infer_types
from ort_core.passes.base import Pass, count_nodes
from ort_core.passes.equivalence import EquivalenceCheck
from ort_core.passes.near_misses import NearMiss, find_near_misses
from ort_core.passes.runner import run_pipeline
from ort_core.sample_inputs import sample_inputs
from ort_core.tolerances import tolerance

if TYPE_CHECKING:
    import onnx

    from ort_core.environment import Environment
    from ort_core.ir.model import Model

_SHARE_OF_LARGEST = 1e-4  # layers multiply what a fusion rounds otherwise; a wrong one is off by its whole size


@dataclass(frozen=True, slots=True)
class OptimizedProto:
    """A model as passes made it. ``counts`` has the changes by pass, ``misses`` what nearly fired where asked for."""

    model: onnx.ModelProto
    counts: Mapping[str, int]
    misses: tuple[NearMiss, ...]
    nodes_before: int
    nodes_after: int


def optimize_proto(
    source: str | os.PathLike | bytes | onnx.ModelProto,
    pipelines: Sequence[Sequence[Pass]],
    *,
    folder: str | os.PathLike | None = None,
    explains: bool = False,
    checks: bool = False,
    feeds: Mapping[str, object] | None = None,
) -> OptimizedProto:
    """Run passes over a model and return it as ONNX.

    Args:
        source: a path, the bytes of a model, or a ``ModelProto`` (not changed).
        pipelines: lists of passes, each run until none of it changes anything.
        folder: where external data lies; by default the folder of the path. All weights are inside the result.
        explains: look for what nearly fired behind each pipeline.
        checks: evaluate the model by the reference kernels around each pass that changed it.
        feeds: inputs for that; others are made up.

    Raises:
        OrtError: the model cannot be loaded.
        Fail: a pass changed a result (with ``checks``).
        InvalidArgument: an input cannot be made up and was not given.
    """
    environment = default_environment()
    model = load_model(source, folder=folder)
    environment.operators.adopt(model)
    infer_types(model, environment.schemas, environment.inference_rules)
    if explains:
        _name_nodes(model)
    nodes_before = count_nodes(model)
    equivalence = _equivalence(model, environment, feeds or {}) if checks else None
    counts: dict[str, int] = {}
    misses: list[NearMiss] = []
    for passes in pipelines:
        context = stages.pass_context(model, environment, stages.PrepareSettings())
        report = run_pipeline(passes, context, equivalence=equivalence)
        for name, count in report.counts().items():
            counts[name] = counts.get(name, 0) + count
        if explains:
            misses += find_near_misses(passes, context)
    return OptimizedProto(model_to_proto(model), counts, tuple(misses), nodes_before, count_nodes(model))


def _name_nodes(model: Model) -> None:
    """Give nodes without a name one, so that reasons say which node they speak of."""
    for graph in graphs_of(model.graph):
        for node in graph.nodes:
            if not node.name:
                node.name = graph.fresh_name(node.op_type)


def _equivalence(model: Model, environment: Environment, given: Mapping[str, object]) -> EquivalenceCheck:
    feeds = sample_inputs(model.graph.inputs, given)
    if isinstance(feeds, Rejection):
        raise InvalidArgument(f"the model cannot be evaluated: {feeds.reason}")
    limits = tolerance("approximate", "float32")
    return EquivalenceCheck(
        lambda changed, _: stages.evaluate_by_reference(changed, feeds, None, environment),
        limits.relative,
        limits.absolute,
        share_of_largest=_SHARE_OF_LARGEST,
    )
