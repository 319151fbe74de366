"""DirectRunsState: the shortcut of a session's run: one native call where the provider offers it, else known steps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from ort_core.forks import new_reentrant_lock
from ort_core.interruptions import raise_interruption
from ort_core.ir.rejection import Rejection
from ort_core.runtime.known_runs import KnownRuns

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
    """What a loaded model can run without checks now. ``call`` answers ``None`` where the ordinary run must go on.

    Args:
        plan: what is run.
        output_names: the names of all outputs.
        refused: why there are to be no direct runs (a profiler is on), if so.
        takes_any: whether signatures may become known that were not run: no run needs to be warned of its sizes.
    """

    def __init__(
        self, plan: ExecutionPlan, output_names: list[str], refused: Rejection | None = None, *, takes_any: bool = True
    ) -> None:
        self._plan, self._refused, self._takes_any = plan, refused, takes_any
        self._lock = new_reentrant_lock()
        self._is_closed = False
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
            raise_interruption(error)
            return _fault(error)

    @cached_property
    def _by_steps(self) -> DirectCalls | Rejection:
        """What serves where no native call is offered."""
        return KnownRuns.of(self._plan) if self._refused is None else self._refused

    @property
    def refusal(self) -> Rejection | None:
        """Why no run is one native call, ``None`` where runs may be."""
        with self._lock:
            return self._offered if isinstance(self._offered, Rejection) else None

    def learn(self, feeds: Mapping[str, object], *, by_steps: bool) -> None:
        """Take note of the checked feeds of an ordinary run without options that succeeded; see ``LoadedModel``."""
        with self._lock:
            calls = self._offered
        if isinstance(calls, Rejection) and by_steps:
            calls = self._by_steps
        if isinstance(calls, Rejection):
            return
        calls.learn(feeds, is_limited=not (by_steps and self._takes_any))
        with self._lock:
            if not self._is_closed:
                self.call = calls.call

    def close(self) -> None:
        """Run nothing directly from now on."""
        with self._lock:
            self._offered, self.call, self._is_closed = Rejection("the session is closed"), _unknown, True
