"""DirectRunsState: the shortcut of a session's run, for models whose provider offers to run them in one native call."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ort_core.ir.rejection import Rejection

if TYPE_CHECKING:
    import numpy as np

    from ort_core.providers.compiled import DirectCalls, DirectFunction
    from ort_core.runtime.plan import ExecutionPlan


def _unknown(feeds: object, outputs: object) -> list[np.ndarray] | None:
    return None


class DirectRunsState:
    """What a loaded model can run directly now. ``call`` answers ``None`` where the ordinary run must go on.

    Args:
        plan: what is run.
        output_names: the names of all outputs.
        refused: why there are to be no direct runs (a profiler is on), if so.
    """

    def __init__(self, plan: ExecutionPlan, output_names: list[str], refused: Rejection | None = None) -> None:
        offered = plan.direct_calls() if refused is None else refused
        self._calls: DirectCalls | None = None if isinstance(offered, Rejection) else offered
        self._lock = threading.Lock()
        self.output_names = output_names
        self.refusal: Rejection | None = offered if isinstance(offered, Rejection) else None
        self.call: DirectFunction = _unknown if self._calls is None else self._calls.call

    def learn(self, feeds: Mapping[str, object]) -> None:
        """Take note of the checked feeds of an ordinary run without options that succeeded."""
        if self._calls is None:
            return
        self._calls.learn(feeds)
        with self._lock:
            if self._calls is not None:
                self.call = self._calls.call

    def close(self) -> None:
        """Run nothing directly from now on."""
        with self._lock:
            self._calls, self.call = None, _unknown
