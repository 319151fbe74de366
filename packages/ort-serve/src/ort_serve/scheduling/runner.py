"""Threads that run one version of a model: they take batches, run the session, and hand results back.

Joined requests are concatenated along the first axis and their results cut apart again. A batch that fails is run
once more request by request, so that one bad request fails alone.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from ort_core import RunOptions, errors
from ort_serve.failures import Cancelled, InvalidRequest, ModelFailed, NotReady, TooLarge, failure_of
from ort_serve.scheduling.brief_runs import BriefRuns
from ort_serve.scheduling.core_budget import CoreBudget
from ort_serve.scheduling.job import Job, RunState, complete
from ort_serve.scheduling.job_queue import JobQueue
from ort_serve.statistics import ModelStatistics

log = logging.getLogger(__name__)
Outputs = dict[str, np.ndarray]
_ENDING = "the server ends"
_LOOP_S = 0.002  # of runs in the event loop before it looks at its connections again


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
    """What runs one version of a model: threads, and the event loop itself for what is known to be short.

    Args:
        name: of the threads, for profilers.
        session: safe to use from many threads.
        outputs: names of all outputs.
        queue: what waits.
        instances: how many threads, and how many runs at once.
        threads: of one run of the session.
        cores: held while running.
        statistics: told what happened.
        brief: which runs are short.
    """

    def __init__(
        self, name: str, session: Session, outputs: Sequence[str], queue: JobQueue, instances: int, threads: int,
        cores: CoreBudget, statistics: ModelStatistics, brief: BriefRuns,
    ) -> None:  # fmt: skip
        self._session = session
        self._outputs = tuple(outputs)
        self._queue = queue
        self._threads = threads
        self._cores = cores
        self._statistics = statistics
        self._brief = brief
        # of one place a lock, which is no Python code
        self._places = threading.Lock() if instances == 1 else threading.Semaphore(instances)
        self._is_loop_called = False
        self._is_ending = False
        self._running: set[RunState] = set()
        self._workers = [
            threading.Thread(target=self._serve, name=f"{name}-{i}", daemon=True) for i in range(instances)
        ]
        for worker in self._workers:
            worker.start()

    def submit(self, job: Job) -> None:
        """Let a job wait for its run. Called in the job's event loop.

        A run that is known to be short is the loop's: it begins when the loop has read what else has come, so that
        requests of one moment are joined.

        Raises:
            Overloaded: too many wait already.
            NotReady: this version no longer serves.
        """
        if self._queue.policy.max_delay_ns or not self._brief.is_brief(job.shapes, job.rows):
            self._queue.put(job)
            return
        self._queue.put(job, is_called=False)
        if not self._is_loop_called:
            self._is_loop_called = True
            job.loop.call_soon(self._run_in, job.loop)

    def run_at_once(self, job: Job) -> Outputs | None:
        """Run a job within this call where it is known to be short and nothing is before it; None where it must wait.

        Called in the job's event loop. Of requests that came at one moment only the first is run so: the others are
        joined, as ``submit`` says.

        Raises:
            RequestFailure: the run failed.
        """
        if self._is_loop_called or len(self._queue) or self._queue.policy.max_delay_ns or self._queue.is_closed:
            return None
        if not self._brief.is_brief(job.shapes, job.rows) or not self._places.acquire(blocking=False):
            return None
        try:
            held = self._cores.try_hold(self._threads)
            if not held:
                return None
            try:
                job.started_ns = time.monotonic_ns()
                return self._batch([job], None)[0]
            except Exception as error:  # whatever it is, the client is told in the protocol's words
                raise failure_of(error) from error
            finally:
                self._cores.release(held)
        finally:
            self._places.release()
            self._is_loop_called = True
            job.loop.call_soon(self._run_in, job.loop)

    def join(self) -> None:
        """Wait for the threads to end, which they do when their queue is closed and empty."""
        for worker in self._workers:
            worker.join()

    def terminate(self) -> None:
        """Stop what runs, and whatever waits as soon as it would run: each request fails."""
        self._is_ending = True
        for job in self._queue.emptied():
            complete([(job, NotReady(_ENDING))])
        for state in tuple(self._running):
            state.options.terminate = True

    def _serve(self) -> None:
        while (jobs := self._queue.take()) is not None:
            with self._places, self._cores.hold(self._threads):
                self._run(jobs, RunOptions())

    def _run_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run what is short in the event loop, but no longer at a time than others may wait."""
        self._is_loop_called = False
        until = time.perf_counter() + _LOOP_S
        while len(self._queue):
            if time.perf_counter() > until:
                self._is_loop_called = True
                loop.call_soon(self._run_in, loop)
                return
            if not self._run_next(loop):
                return

    def _run_next(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Run one batch in the event loop; where it is not short, or there is no place, leave it to a thread."""
        if not self._places.acquire(blocking=False):
            self._queue.call()
            return False
        try:
            held = self._cores.try_hold(self._threads)
            if not held:
                self._queue.call()
                return False
            try:
                jobs = self._queue.take_if(self._are_brief)
                if jobs is not None:
                    self._run(jobs, None, loop)
                return jobs is not None
            finally:
                self._cores.release(held)
        finally:
            self._places.release()

    def _are_brief(self, jobs: list[Job]) -> bool:
        return self._brief.is_brief(jobs[0].shapes, sum(job.rows for job in jobs))

    def _run(self, jobs: list[Job], options: RunOptions | None, loop: asyncio.AbstractEventLoop | None = None) -> None:
        started = time.monotonic_ns()
        for job in jobs:
            job.started_ns = started
        try:
            results = self._batch(jobs, options)
        except Exception as error:  # noqa: BLE001  # whatever it is, those who wait are told and the thread goes on
            if len(jobs) > 1:
                for job in jobs:
                    self._run([job], None if options is None else RunOptions(), loop)
                return
            complete([(jobs[0], failure_of(error))], loop)
            return
        self._queue.told((time.monotonic_ns() - started) / 1e9, len(jobs))
        complete(list(zip(jobs, results)), loop)

    def _batch(self, jobs: list[Job], options: RunOptions | None) -> list[Outputs]:
        begin = time.monotonic_ns()
        feeds = jobs[0].inputs if len(jobs) == 1 else _joined(jobs)
        wanted = _wanted(jobs, self._outputs)
        joined = time.monotonic_ns()
        if options is None:
            found = self._compute(wanted, feeds, None)
        else:
            with self._stoppable(jobs, options):
                found = self._compute(wanted, feeds, options)
        computed = time.monotonic_ns()
        rows = sum([job.rows for job in jobs])
        for job in jobs:
            job.ended_ns, job.batch_rows = computed, rows
        results = [found] if len(jobs) == 1 else _split(found, jobs)
        self._brief.learn(jobs[0].shapes, rows, (computed - joined) / 1e9)
        self._statistics.ran(jobs, begin, joined, computed, time.monotonic_ns())
        return results

    @contextmanager
    def _stoppable(self, jobs: list[Job], options: RunOptions) -> Iterator[None]:
        """Let the run end early when nobody waits for it any more, or the server ends."""
        state = RunState(jobs, options)
        for job in jobs:
            job.run = state
        state.stop_if_unwanted()  # whoever left before the run was known
        self._running.add(state)
        try:
            yield
        finally:
            self._running.discard(state)

    def _compute(self, wanted: Sequence[str], feeds: dict[str, np.ndarray], options: RunOptions | None) -> Outputs:
        try:
            return {name: np.asarray(found) for name, found in zip(wanted, self._session.run(wanted, feeds, options))}
        except errors.InvalidArgument as error:
            raise InvalidRequest(str(error)) from error
        except errors.AllocationLimitExceeded as error:
            raise TooLarge(f"the run takes too much memory (--max-run): {error}") from error
        except errors.OrtError as error:
            if options is not None and options.terminate:
                raise (NotReady(_ENDING) if self._is_ending else Cancelled("the client left")) from error
            log.exception("a run failed")
            raise ModelFailed(f"the model failed: {error}") from error


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
