"""Which results of a model can be compared by their signal and noise: tensors of floats, not maps or sequences."""

from __future__ import annotations

import ort_core


def float_results(session: ort_core.InferenceSession) -> list[str]:
    """Return the names of a session's results that are tensors of floats."""
    return [each.name for each in session.get_outputs() if each.type.startswith("tensor(") and "float" in each.type]
