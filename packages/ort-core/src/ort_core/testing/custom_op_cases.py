"""What an operator is tried on: cases that a user gives, or random ones for an operator that takes any arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ort_core.custom_ops.definition import OpDefinition
from ort_core.errors import InvalidArgument
from ort_core.ir.types import DataType
from ort_core.loops.rows import RowMeaning

_SHAPES = ((2, 3), (1,), (0, 4), (), (7, 1, 5))


@dataclass(frozen=True)
class OpCase:
    """Inputs (``None``: absent) and attributes to try; ``expected`` are the right outputs where they are known."""

    inputs: Sequence[np.ndarray | None]
    attributes: Mapping[str, object] = field(default_factory=dict)
    num_outputs: int | None = None
    expected: Sequence[np.ndarray] | None = None


def random_cases(definition: OpDefinition, seed: int) -> list[OpCase]:
    """Return cases for an operator with a loop kernel: every element type that it takes, small and empty shapes."""
    schema = definition.schema
    if definition.meaning is None or schema is None or any(a.is_required for a in schema.attributes.values()):
        raise InvalidArgument(
            f"check_custom_op needs cases for {definition.qualified_name}: only an operator with a loop kernel and "
            "without required attributes takes arrays of any shape. Give a list with the inputs of each case."
        )
    rng = np.random.default_rng(seed)
    texts = set().union(*(schema.type_constraints.get(p.type_text, {p.type_text}) for p in schema.inputs))
    dtypes = [t.numpy for t in DataType if f"tensor({t.text})" in texts and (t.is_float or t.is_integer) and t.bits > 8]
    cases = []
    for dtype in dtypes:
        for shape in [each for each in _SHAPES if each or not isinstance(definition.meaning, RowMeaning)]:
            count = max(1, schema.min_inputs)
            inputs = [np.asarray(rng.standard_normal(shape) * 4).astype(dtype) for _ in range(count)]
            cases.append(OpCase(inputs))
    return cases
