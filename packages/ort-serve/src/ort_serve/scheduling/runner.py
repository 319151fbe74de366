"""Threads that run one version of a model: they take batches, run the session, and hand results back.

Joined requests are concatenated along the first axis and their results cut apart again. A batch that fails is run
once more request by request, so that one bad request fails alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from ort_core import RunOptions, errors
from ort_serve.failures import Cancelled, InvalidRequest, ModelFailed, RequestFailure
from ort_serve.scheduling.core_budget import CoreBudget
from ort_serve.scheduling.job import Job, RunState, complete
from ort_serve.scheduling.job_queue import JobQueue
from ort_serve.statistics import ModelStatistics

log = logging.getLogger(__name__)
Outputs = dict[str, np.ndarray]


class Session(Protocol):
    """What is needed of a session."""

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, object],
        run_options: RunOptions | None = None,
    ) -> Sequence[object]:
        """Run the model."""


class ModelRunner:
    """The threads of one version of a model.

    Args:
        name: of the threads, for profilers.
        session: safe to use from many threads.
        outputs: names of all outputs.
        queue: what waits.
        instances: how many threads.
        threads: of one run of the session.
        cores: held while running.
        statistics: told what happened.
    """

    def __init__(
        self, name: str, session: Session, outputs: Sequence[str], queue: JobQueue, instances: int, threads: int,
        cores: CoreBudget, statistics: ModelStatistics,
    ) -> None:  # fmt: skip
        self._session = session
        self._outputs = tuple(outputs)
        self._queue = queue
        self._threads = threads
        self._cores = cores
        self._statistics = statistics
        self._workers = [
            threading.Thread(target=self._serve, name=f"{name}-{i}", daemon=True) for i in range(instances)
        ]
        for worker in self._workers:
            worker.start()

    def join(self) -> None:
        """Wait for the threads to end, which they do when their queue is closed and empty."""
        for worker in self._workers:
            worker.join()

    def _serve(self) -> None:
        while (jobs := self._queue.take()) is not None:
            with self._cores.hold(self._threads):
                self._run(jobs)

    def _run(self, jobs: list[Job]) -> None:
        started = time.monotonic_ns()
        for job in jobs:
            job.started_ns = started
        try:
            results = self._batch(jobs)
        except RequestFailure as failure:
            if len(jobs) > 1:
                for job in jobs:
                    self._run([job])
                return
            self._statistics.failed(jobs, failure)
            complete([(job, failure) for job in jobs])
            return
        self._queue.told((time.monotonic_ns() - started) / 1e9, len(jobs))
        complete(list(zip(jobs, results)))

    def _batch(self, jobs: list[Job]) -> list[Outputs]:
        state = RunState(jobs)
        for job in jobs:
            job.run = state
        state.stop_if_unwanted()  # whoever left before the run was known
        begin = time.monotonic_ns()
        feeds = jobs[0].inputs if len(jobs) == 1 else _joined(jobs)
        wanted = _wanted(jobs, self._outputs)
        joined = time.monotonic_ns()
        found = self._compute(wanted, feeds, state.options)
        computed = time.monotonic_ns()
        results = [found] if len(jobs) == 1 else _split(found, jobs)
        self._statistics.ran(jobs, begin, joined, computed, time.monotonic_ns())
        return results

    def _compute(self, wanted: Sequence[str], feeds: dict[str, np.ndarray], options: RunOptions) -> Outputs:
        try:
            return {name: np.asarray(found) for name, found in zip(wanted, self._session.run(wanted, feeds, options))}
        except errors.InvalidArgument as error:
            raise InvalidRequest(str(error)) from error
        except errors.OrtError as error:
            if options.terminate:
                raise Cancelled("the client left") from error
            log.exception("a run failed")
            raise ModelFailed(f"the model failed: {error}") from error
        except Exception as error:
            log.exception("a run failed")
            raise ModelFailed(f"the model failed: {type(error).__name__}: {error}") from error


def _wanted(jobs: Sequence[Job], outputs: Sequence[str]) -> list[str]:
    if any(not job.wanted for job in jobs):
        return list(outputs)
    asked = {name for job in jobs for name in job.wanted}
    return [name for name in outputs if name in asked]


def _joined(jobs: Sequence[Job]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([job.inputs[name] for job in jobs]) for name in jobs[0].inputs}


def _split(found: Outputs, jobs: Sequence[Job]) -> list[Outputs]:
    rows = sum(job.rows for job in jobs)
    for name, array in found.items():
        if array.ndim == 0 or array.shape[0] != rows:
            raise ModelFailed(f"output {name!r} has shape {list(array.shape)} for a batch of {rows} rows")
    parts: list[Outputs] = []
    at = 0
    for job in jobs:
        parts.append({name: array[at : at + job.rows] for name, array in found.items()})
        at += job.rows
    return parts
