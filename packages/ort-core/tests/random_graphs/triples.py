"""Values of a graph's truth: in float64 with two disturbed twins, and how far an engine may lie from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from random_graphs.element_types import F32, ElementType, of_array


class NoTruth(Exception):
    """A node gives no result worth comparing; the text says why."""


@dataclass(frozen=True)
class Triple:
    """A value in float64 (or its exact type) with its two disturbed twins; the same object where it is exact."""

    truth: Any
    above: Any
    below: Any
    dtype: ElementType | None  # of the elements, in a sequence as well; None: absent, or no type that graphs here use
    is_tensor: bool = True  # a sequence or an optional is none

    @property
    def is_exact(self) -> bool:
        """Whether every bit is determined."""
        return self.above is self.truth

    @property
    def is_rounded(self) -> bool:
        """Whether it holds floats that are not exact."""
        return not self.is_exact and self.dtype is not None and self.dtype.is_float

    def native(self) -> Any:
        """Return the value in its own element type."""
        if self.dtype is None:
            return self.truth
        if isinstance(self.truth, list):
            return [item.astype(self.dtype.numpy) for item in self.truth]
        return np.asarray(self.truth).astype(self.dtype.numpy)


def exact(array: Any) -> Triple:
    """Return the triple of a given tensor: floats widened, twins the same object."""
    dtype = of_array(array)
    wide = array.astype(np.float64) if dtype is not None and dtype.is_float else array
    return Triple(wide, wide, wide, dtype)


def exact_feed(value: Any) -> Triple:
    """Return the triple of what an input is fed: a tensor, a list of tensors for a sequence, or a map."""
    if isinstance(value, list):
        items = [exact(each) for each in value]
        wide = [each.truth for each in items]
        return Triple(wide, wide, wide, items[0].dtype if items else F32, is_tensor=False)
    return Triple(value, value, value, None, is_tensor=False) if isinstance(value, dict) else exact(value)


def allowed(value: Triple) -> np.ndarray:
    """Return how far a result may lie from the truth, element by element."""
    assert value.dtype is not None
    with np.errstate(invalid="ignore"):  # infinities, which are compared as they are
        spread = np.abs(value.above - value.truth) + np.abs(value.below - value.truth)
    finite = np.where(np.isfinite(spread), spread, 0.0)
    typical = np.sqrt(np.mean(finite**2)) if finite.size else 0.0
    size = np.where(np.isfinite(value.truth), np.abs(value.truth), 0.0)
    largest = size.max() if size.size else 0.0
    return finite + typical + value.dtype.window * (size + largest / 16) + value.dtype.least
