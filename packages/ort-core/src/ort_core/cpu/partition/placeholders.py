"""placeholders(): what an observer of native steps is given in the place of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ort_core.cpu.lowering.value_types import stored_type
from ort_core.cpu.program.sizes import evaluate
from ort_core.plugin.ir import TensorType, Value
from ort_core.plugin.kernels import RuntimeValue


def placeholders(values: Sequence[Value | None], sizes: Mapping[str, int]) -> tuple[RuntimeValue, ...]:
    """Return arrays of one element, broadcast to the values' shapes: what a report needs of tensors it cannot see."""
    found: list[RuntimeValue] = []
    for value in values:
        if value is None or not isinstance(value.type, TensorType) or value.type.shape is None:
            found.append(None)
            continue
        dtype, shape = stored_type(value)
        concrete = [evaluate(size, sizes) for size in shape]
        found.append(np.broadcast_to(np.empty((), dtype.numpy), concrete))
    return tuple(found)
