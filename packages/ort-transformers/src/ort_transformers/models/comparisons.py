"""How far two engines' results lie apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

import ort_core


def as_array(tensor: Any) -> np.ndarray:  # Any: torch's tensor, or an array
    """Return a tensor of torch, or an array, as a contiguous array."""
    return np.ascontiguousarray(tensor if isinstance(tensor, np.ndarray) else tensor.detach().cpu().numpy())


def largest_difference(wanted: Sequence[Any], found: Sequence[np.ndarray]) -> float:
    """Return the largest absolute difference between results in the same order; empty ones do not differ.

    Raises:
        ValueError: the numbers of results differ, or two shapes do.
    """
    most = 0.0
    for place, (one, other) in enumerate(zip(wanted, found, strict=True)):
        expected = as_array(one).astype(np.float64)
        if expected.shape != other.shape:
            raise ValueError(f"result {place} has shape {other.shape}, torch's has {expected.shape}")
        if expected.size:
            most = max(most, float(np.abs(expected - other).max()))
    return most


def run_session(session: ort_core.InferenceSession, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return all outputs of a model whose outputs are tensors; feeds that it has no input for are left out."""
    names = {each.name for each in session.get_inputs()}
    results = session.run(None, {name: each for name, each in feeds.items() if name in names})
    return cast("list[np.ndarray]", results)
