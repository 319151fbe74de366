"""Two ways to run a model, compared: outputs first, then every value that both have inside, in the order of the graph.

Interior values are seen by making them outputs of the already optimized graph, so that passes are not disturbed; a
provider that fuses across a value must then keep it, which may hide a fault of that fusion (and says so).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ort_core import stages
from ort_core.cli.comparing.differences import Difference, difference
from ort_core.cli.comparing.evaluation import run_prepared
from ort_core.cli.inputs.feeds import Feeds, InputRequest, run_with_feeds
from ort_core.cli.parameters import parse_providers
from ort_core.cli.sessions import SessionRequest
from ort_core.errors import InvalidArgument
from ort_core.ir.model import Model
from ort_core.ir.types import TensorType
from ort_core.onnx_io.load import load_model
from ort_core.tolerances import ToleranceName

CHUNK = 128  # interior values kept at once: both sides hold them all in memory


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two ways."""

    name: str
    path: Path
    request: SessionRequest

    def optimized(self) -> Model:
        """Return the model behind the passes of this side's level."""
        model = load_model(self.path)
        environment = self.request.environment()
        stages.expand_contexts(model, environment, self._settings(), self.path.parent)
        stages.optimize(model, environment, self._settings())
        return model

    def prepared(self, model: Model) -> stages.PreparedModel:
        """Return an optimized model ready to run."""
        environment, settings = self.request.environment(), self._settings()
        with warnings.catch_warnings():
            selection = stages.select_providers(parse_providers(self.request.providers), environment, settings)
        return stages.plan_model(model.freeze(), selection, environment, settings)

    def _settings(self) -> stages.PrepareSettings:
        return stages.PrepareSettings.of(self.request.options(), self.request.environment())


def compare_outputs(
    first: Side, second: Side, inputs: InputRequest, tolerance: ToleranceName
) -> tuple[Feeds, list[Difference]]:
    """Return the feeds that were used and how far the outputs are apart.

    Raises:
        InvalidArgument: the models have different inputs or numbers of outputs.
        OrtError: one of them fails.
    """
    left, right = load_model(first.path), load_model(second.path)
    _check_alike(left, right)
    ours, theirs = first.prepared(first.optimized()), second.prepared(second.optimized())
    names = [value.name for value in left.graph.outputs]
    other_names = [value.name for value in right.graph.outputs]
    feeds, results = run_with_feeds(left, inputs, lambda f: run_prepared(ours, f.values, names))
    expected = run_prepared(theirs, feeds.values, other_names)
    ours.plan.close()
    theirs.plan.close()
    return feeds, [difference(name, a, b, tolerance) for name, a, b in zip(names, results, expected, strict=True)]


def _check_alike(left: Model, right: Model) -> None:
    mine, theirs = ([v.name for v in model.graph.inputs if v.constant is None] for model in (left, right))
    if set(mine) != set(theirs):
        raise InvalidArgument(f"the models have different inputs: {', '.join(mine)} and {', '.join(theirs)}")
    counts = len(left.graph.outputs), len(right.graph.outputs)
    if counts[0] != counts[1]:
        raise InvalidArgument(f"the models have {counts[0]} and {counts[1]} outputs")


def compare_interior(
    first: Side, second: Side, feeds: Mapping[str, object], tolerance: ToleranceName
) -> list[tuple[str, Difference]]:
    """Return (node, difference) for the values that both sides have, in the order of the first graph."""
    ours, theirs = first.optimized(), second.optimized()
    common = _common_values(ours, theirs)
    compared: list[tuple[str, Difference]] = []
    for start in range(0, len(common), CHUNK):
        part = common[start : start + CHUNK]
        names = [name for name, _ in part]
        results = [
            run_prepared(side.prepared(_exposing(model, names)), feeds, names)
            for side, model in ((first, ours), (second, theirs))
        ]
        for (name, node), found, expected in zip(part, *results, strict=True):
            compared.append((node, difference(name, found, expected, tolerance)))
    return compared


def _common_values(left: Model, right: Model) -> list[tuple[str, str]]:
    theirs = {value.name for node in right.graph for value in node.present_outputs()}
    return [
        (value.name, node.describe())
        for node in left.graph
        for value in node.present_outputs()
        if value.name in theirs and isinstance(value.type, TensorType)
    ]


def _exposing(model: Model, names: list[str]) -> Model:
    """Return a copy whose outputs are the named values."""
    copy = model.clone()
    values = {value.name: value for node in copy.graph for value in node.present_outputs()}
    copy.graph.set_outputs([values[name] for name in names])
    return copy
