"""ContribRow: an operator of com.microsoft with its inputs, and its outputs as a formula."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ort_conformance.suites.case_values import Shape
from ort_core.tolerances import ToleranceName

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class ContribRow:
    """An operator with its inputs, attributes, and its outputs as a formula of the inputs, floats in float64.

    ``shapes`` are inputs of seeded float32 numbers, ``given`` are others, in the operator's order; ``order`` says it
    where they are mixed, or left out (an empty name). ``constants`` are the names of those that the model holds.
    """

    op_type: str
    shapes: Mapping[str, Shape]
    formula: Callable[[Arrays], np.ndarray | tuple[np.ndarray, ...]]
    attributes: Mapping[str, object] = field(default_factory=dict)
    label: str = ""
    given: Arrays = field(default_factory=dict)
    constants: Sequence[str] = ()
    order: Sequence[str] = ()
    output_count: int = 1
    tolerance: ToleranceName = "approximate"
