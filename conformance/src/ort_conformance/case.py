"""Case: a model with feeds and the right outputs; what is judged is who computed it, and whether it is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx

from ort_core.tolerances import ToleranceName


@dataclass(frozen=True, slots=True)
class Margins:
    """Tolerances as a case ships them: a value passes within ``absolute + relative * |expected|``."""

    relative: float
    absolute: float


@dataclass(frozen=True, slots=True)
class DataSet:
    """Feeds by input name, and the outputs in the model's order (a prefix of them may be given)."""

    feeds: Mapping[str, object]
    expected: Sequence[object]


@dataclass(frozen=True, slots=True)
class Case:
    """A model to compute.

    ``model`` and ``data_sets`` are functions, so that thousands of cases cost nothing before they run. ``is_optimized``
    lets the passes run as for a user; without them every node of the model is placed, and counted. ``carried`` tells
    how far each output moves when the inputs change in their last digits: outputs may lie a few times that far off, in
    units of ``comparison.distance``. ``unjudged`` says why the results of the case cannot be compared.
    """

    name: str
    model: Callable[[], onnx.ModelProto | str]
    data_sets: Callable[[], Iterator[DataSet]]
    limits: ToleranceName | Margins
    is_optimized: bool = False
    carried: Callable[[DataSet], Sequence[float]] | None = None
    unjudged: str = ""
