"""WholeRunsState: the whole model under two placements, run in turns as a session runs it."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence

from ort_core.errors import OrtError
from ort_core.ir.rejection import Rejection
from ort_core.measured_placement.regions_alone import exclusions_for
from ort_core.measured_placement.request import MeasureRequest
from ort_core.measured_placement.timing import Run, median_in_turns
from ort_core.partitioning.policies.measured import Assignment, Region
from ort_core.runtime.feeds import FeedChecker
from ort_core.runtime.plan import ExecutionPlan
from ort_core.tensors.runtime_value import RuntimeValue

log = logging.getLogger(__name__)


class WholeRunsState:
    """Placements of a model that are being compared. At most two plans are open at a time: the winner's is kept.

    Args:
        request: what is measured.
        regions: what a choice chooses for.
        feeds: checked inputs of the model.
    """

    def __init__(self, request: MeasureRequest, regions: Sequence[Region], feeds: Mapping[str, RuntimeValue]) -> None:
        self._request, self._regions, self._feeds = request, regions, feeds
        self._open: dict[Assignment, tuple[ExecutionPlan, Run]] = {}
        self.failures: dict[Assignment, str] = {}

    def compare(self, champion: Assignment, challenger: Assignment) -> tuple[float, float]:
        """Return the median nanoseconds of both; infinity where one cannot run."""
        for choice in [each for each in self._open if each not in (champion, challenger)]:
            self._close(choice)
        times = {choice: math.inf for choice in (champion, challenger) if self._find_run(choice) is None}
        able = [choice for choice in (champion, challenger) if choice not in times]
        try:
            times.update(zip(able, median_in_turns([self._open[each][1] for each in able], self._request.clock)))
        except OrtError as error:  # a provider that ran before, and does not any more
            log.info("placements cannot be compared: %s", error)
            times = dict.fromkeys((champion, challenger), math.inf)
        return times[champion], times[challenger]

    def close(self) -> None:
        """Close the plans that are open."""
        for choice in list(self._open):
            self._close(choice)

    def _close(self, choice: Assignment) -> None:
        plan, _ = self._open.pop(choice)
        self._request.release(plan)

    def _find_run(self, choice: Assignment) -> Run | None:
        """Return a function that runs the model once, or ``None`` where this placement does not run."""
        if choice not in self._open and choice not in self.failures:
            exclusions = {**self._request.exclusions, **exclusions_for(self._regions, choice)}
            try:
                plan = self._request.plan(self._request.model, exclusions, self._request.restored)
            except OrtError as error:
                self._refuse(choice, error)
                return None
            try:
                self._open[choice] = plan, self._run_of(plan)
            except OrtError as error:
                self._request.release(plan)
                self._refuse(choice, error)
        return self._open[choice][1] if choice in self._open else None

    def _refuse(self, choice: Assignment, error: OrtError) -> None:
        log.info("an assignment cannot be measured: %s", error)
        self.failures[choice] = str(error)

    def _run_of(self, plan: ExecutionPlan) -> Run:
        """Return what ``session.run`` does with these feeds: directly where the provider offers that."""
        feeds, checker = self._feeds, FeedChecker(self._request.model.graph.inputs)

        def run() -> object:
            return plan.run(checker.convert(feeds))

        run()
        calls = plan.direct_calls()
        if isinstance(calls, Rejection):
            return run
        calls.learn(feeds)
        call, given = calls.call, dict(feeds)
        return run if call(given, None) is None else lambda: call(given, None)
