"""One request on its way through a queue."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from ort_core import RunOptions
from ort_serve.failures import RequestFailure

JoinKey = tuple[tuple[str, str, tuple[int, ...]], ...]


@dataclass(slots=True, eq=False)
class Job:
    """A request that waits for a run, or runs.

    Attributes:
        inputs: tensors by name.
        wanted: names of outputs; empty for all.
        rows: size of the batch axis; 1 where there is none.
        join_key: jobs of equal keys may run together; None: this one runs alone.
        result: completed in its event loop with the outputs by name, or with a failure.
        deadline_ns: on the monotonic clock, by which the result must be there.
        priority: a smaller number goes first.
        arrived_ns: on the monotonic clock, as are ``started_ns`` and ``ended_ns`` of its run; 0 before.
        batch_rows: rows of the run that it was part of.
        took_ns: what its run took to join inputs, to compute, and to split outputs.
        run: the run that it is part of, to stop it.
        shapes: what decides how long a run of it takes, but for the number of joined rows; found out where not given.
    """

    inputs: dict[str, np.ndarray]
    wanted: tuple[str, ...]
    rows: int
    join_key: JoinKey | None
    loop: asyncio.AbstractEventLoop
    result: asyncio.Future[dict[str, np.ndarray]]
    priority: int = 1
    deadline_ns: int | None = None
    arrived_ns: int = field(default_factory=time.monotonic_ns)
    started_ns: int = 0
    ended_ns: int = 0
    batch_rows: int = 0
    took_ns: tuple[int, int, int] = (0, 0, 0)
    is_cancelled: bool = False
    run: RunState | None = None
    shapes: Hashable = None

    def __post_init__(self) -> None:
        """Find out the shapes."""
        if self.shapes is None:
            self.shapes = shapes_of(self.inputs, self.join_key, self.wanted)

    def has_time(self, ns: int) -> bool:
        """Return whether the result may take so long from the arrival on."""
        return self.deadline_ns is None or self.deadline_ns - self.arrived_ns >= ns

    def leave(self, failure: RequestFailure) -> None:
        """Take the job back: who waits for it is told ``failure``. Only in its event loop."""
        if not self.result.done():
            self.result.set_exception(failure)
        self.cancel()

    def cancel(self) -> None:
        """Say that nobody waits for the result. A run that only such jobs are part of is stopped."""
        self.is_cancelled = True
        if self.run is not None:
            self.run.stop_if_unwanted()


@dataclass(slots=True, eq=False)
class RunState:
    """One run of a session for the jobs that were joined, while it may be stopped."""

    jobs: list[Job]
    options: RunOptions

    def stop_if_unwanted(self) -> None:
        """End the run where no job's client is left."""
        if all(job.is_cancelled for job in self.jobs):
            self.options.terminate = True


@dataclass(frozen=True, slots=True)
class JobForm:
    """What jobs have in common whose requests differ in elements alone; attributes as those of ``Job``."""

    wanted: tuple[str, ...]
    rows: int
    join_key: JoinKey | None
    shapes: Hashable


def form_of(inputs: dict[str, np.ndarray], wanted: tuple[str, ...], *, is_joined: bool) -> JobForm:
    """Return the form of jobs with inputs like these.

    Args:
        inputs: tensors by name.
        wanted: names of outputs; empty for all.
        is_joined: jobs of the model run together where their inputs have a batch axis.
    """
    rows, key = 1, None
    if is_joined:
        counts = {array.shape[0] if array.ndim else -1 for array in inputs.values()}
        if len(counts) == 1 and (count := counts.pop()) > 0:
            rows, key = count, join_key_of(inputs)
    return JobForm(wanted, rows, key, shapes_of(inputs, key, wanted))


def shapes_of(inputs: dict[str, np.ndarray], join_key: JoinKey | None, wanted: tuple[str, ...]) -> Hashable:
    """Return what decides how long a run takes, but for the number of joined rows."""
    if join_key is not None:
        return join_key, wanted
    return tuple([(name, array.shape) for name, array in inputs.items()]), wanted


JobResult = tuple[Job, dict[str, np.ndarray] | RequestFailure]


def join_key_of(inputs: dict[str, np.ndarray]) -> JoinKey:
    """Return what must be equal for requests to be joined: all but the first sizes."""
    return tuple((name, array.dtype.str, array.shape[1:]) for name, array in sorted(inputs.items()))


def complete(results: list[JobResult], own: asyncio.AbstractEventLoop | None = None) -> None:
    """Hand results to the event loops that wait for them, from any thread.

    Args:
        results: jobs, each with its outputs or its failure.
        own: the event loop that calls.
    """
    by_loop: dict[asyncio.AbstractEventLoop, list[JobResult]] = {}
    for job, result in results:
        by_loop.setdefault(job.loop, []).append((job, result))
    for loop, part in by_loop.items():
        if loop is own:
            _set_results(part)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(_set_results, part)


def _set_results(results: list[JobResult]) -> None:
    for job, result in results:
        if job.result.done():
            continue  # the client left
        if isinstance(result, RequestFailure):
            job.result.set_exception(result)
        else:
            job.result.set_result(result)
