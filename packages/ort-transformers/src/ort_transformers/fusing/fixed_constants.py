"""Constants that no caller can replace, as rules of fusions look for them."""

from __future__ import annotations

import numpy as np

from ort_core.plugin.ir import Constant, Value


def fixed_constant(value: Value | None) -> Constant | None:
    """Return the constant of a value, ``None`` where it has none, or a caller may give another."""
    return None if value is None or value.graph is None else value.graph.fixed_constant(value)


def constant_array(value: Value) -> np.ndarray:
    """Return the numbers of a value that a pattern found to be a constant."""
    found = fixed_constant(value)
    assert found is not None, "the pattern asks for a constant"
    return found.array()
