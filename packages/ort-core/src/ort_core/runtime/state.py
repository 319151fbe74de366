"""PlanRunState: everything that changes during one run; the compiled plan itself never does."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ort_core.runtime.limits import DEFAULT_GUARD, DEFAULT_RUN, LimitGuard, RunSettings

if TYPE_CHECKING:
    from ort_core.kernels.kernel import RunGuard
    from ort_core.kernels.observer import Observer


class PlanRunState:
    """The state of one run: a guard, an observer, and allocation under the guard's limit."""

    __slots__ = ("_guard", "_observer")

    def __init__(self, settings: RunSettings) -> None:
        self._guard = DEFAULT_GUARD if settings is DEFAULT_RUN else LimitGuard(settings)
        self._observer = settings.observer

    @property
    def guard(self) -> RunGuard:
        """Asked at region borders."""
        return self._guard

    @property
    def observer(self) -> Observer | None:
        """Called behind each node when profiling."""
        return self._observer

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return a new buffer, after asking the guard."""
        self._guard.check_allocation(math.prod(shape) * dtype.itemsize, f"an output of shape {list(shape)}")
        return np.empty(shape, dtype)
