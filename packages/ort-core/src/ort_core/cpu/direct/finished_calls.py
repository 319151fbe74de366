"""FinishedCalls: direct calls whose outputs Python makes of their results: sizes are data, or outputs no arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ort_core.plugin import DirectCalls

if TYPE_CHECKING:
    from ort_core.plugin import DirectFunction
    from ort_core.plugin.kernels import RuntimeValue

FinishAll = Callable[[list[np.ndarray]], "list[RuntimeValue] | None"]  # ``None``: the ordinary run must answer


class FinishedCalls:
    """Direct calls and what is made of all of their results: ``plugin.DirectCalls``. Arrays of the caller are not."""

    def __init__(self, calls: DirectCalls, finish: FinishAll) -> None:
        self._calls, self._finish = calls, finish

    @property
    def call(self) -> DirectFunction:
        """The one function; what is known changes beneath it."""
        return self._call

    def learn(self, feeds: Mapping[str, object], *, is_limited: bool = False) -> None:
        """Let the calls know the feeds."""
        self._calls.learn(feeds, is_limited=is_limited)

    def _call(self, feeds: object, outputs: object) -> list[RuntimeValue] | None:
        results = None if outputs is not None else self._calls.call(feeds, None)
        return None if results is None else self._finish(results)
