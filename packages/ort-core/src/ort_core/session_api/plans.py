"""PlansState: the plan that most runs need, and the general one.

The first takes a model's defaults for constants, and dimensions of one name for one size. The general one serves the
runs that override a default, or whose inputs have different sizes where the model gives them one name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ort_core.errors import InvalidValue
from ort_core.forks import new_lock, no_fork

if TYPE_CHECKING:
    from ort_core.runtime.plan import ExecutionPlan
    from ort_core.stages import PreparedModel

log = logging.getLogger(__name__)


class PlansState:
    """The plans of a loaded model. Safe from many threads.

    Args:
        plan: the plan that most runs need.
        overridable: names of the inputs whose defaults it takes as constants.
        sizes_agree: whether dimensions of one name have one size in checked feeds.
        prepare_general: prepares the model so that every run may override initializers and no two dimensions of inputs
            share a name; called at most once, at the first run that needs it. It must not refer to the session: this
            state is what closes the plans after it.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        overridable: frozenset[str],
        sizes_agree: Callable[[Mapping[str, object]], bool],
        prepare_general: Callable[[], PreparedModel],
    ) -> None:
        self._plan = plan
        self._overridable = overridable
        self._sizes_agree = sizes_agree
        self._prepare_general = prepare_general
        self._general: ExecutionPlan | None = None
        self._closed = False
        self._lock = new_lock()

    def needs_general(self, feeds: Mapping[str, object]) -> bool:
        """Return whether a run with these checked feeds needs the general plan."""
        return not (self._overridable.isdisjoint(feeds) and self._sizes_agree(feeds))

    def plan_for(self, feeds: Mapping[str, object]) -> ExecutionPlan:
        """Return the plan of a run.

        Raises:
            OrtError: the model cannot be prepared again.
        """
        if not self.needs_general(feeds):
            return self._plan
        with no_fork(), self._lock:
            if self._closed:
                raise InvalidValue("this session is closed; make a new one")
            if self._general is None:
                names = sorted(self._overridable & feeds.keys())
                log.info("the model is prepared for %s now", f"overriding {names[0]!r}" if names else "these sizes")
                self._general = self._prepare_general().plan
            return self._general

    def close(self) -> None:
        """Give back what the plans hold."""
        with self._lock:
            self._closed = True
            self._plan.close()
            if self._general is not None:
                self._general.close()
