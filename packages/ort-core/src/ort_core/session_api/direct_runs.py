"""DirectRunsState: the shortcut of a session's run, for models whose provider offers to run them in one native call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from ort_core.forks import new_reentrant_lock
from ort_core.ir.rejection import Rejection

if TYPE_CHECKING:
    import numpy as np

    from ort_core.providers.compiled import DirectCalls, DirectFunction
    from ort_core.runtime.plan import ExecutionPlan


def _unknown(feeds: object, outputs: object) -> list[np.ndarray] | None:
    return None


def _fault(error: Exception) -> Rejection:
    from ort_core.providers.compile_faults import CompileFaultsState  # there should be none

    faults = CompileFaultsState()
    faults.report()  # the session is loaded: what follows is logged
    faults.note("direct calls could not be made; every run goes the ordinary way", error)
    return Rejection(f"making them failed: {type(error).__name__}: {error}")


class DirectRunsState:
    """What a loaded model can run directly now. ``call`` answers ``None`` where the ordinary run must go on.

    Args:
        plan: what is run.
        output_names: the names of all outputs.
        refused: why there are to be no direct runs (a profiler is on), if so.
    """

    def __init__(self, plan: ExecutionPlan, output_names: list[str], refused: Rejection | None = None) -> None:
        self._plan, self._refused = plan, refused
        self._lock = new_reentrant_lock()
        self.output_names = output_names
        self.call: DirectFunction = _unknown

    @cached_property
    def _offered(self) -> DirectCalls | Rejection:
        """What the plan offers; asked by the first run, for a load makes nothing ready that may never be used."""
        if self._refused is not None:
            return self._refused
        try:
            return self._plan.direct_calls()
        except Exception as error:  # noqa: BLE001 - the border to providers; a run must not fail for want of a shortcut
            return _fault(error)

    @property
    def refusal(self) -> Rejection | None:
        """Why nothing runs directly, ``None`` where runs may."""
        with self._lock:
            return self._offered if isinstance(self._offered, Rejection) else None

    def learn(self, feeds: Mapping[str, object]) -> None:
        """Take note of the checked feeds of an ordinary run without options that succeeded."""
        with self._lock:
            calls = self._offered
        if isinstance(calls, Rejection):
            return
        calls.learn(feeds)
        with self._lock:
            if self._offered is calls:  # not closed meanwhile
                self.call = calls.call

    def close(self) -> None:
        """Run nothing directly from now on."""
        with self._lock:
            self._offered, self.call = Rejection("the session is closed"), _unknown
