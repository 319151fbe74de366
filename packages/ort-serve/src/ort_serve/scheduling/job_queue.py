"""A bounded queue of jobs that gives out batches.

Jobs are taken by priority, then by arrival. Those with the key of the first are taken with it up to the largest batch;
the first waits for others no longer than the delay. Jobs whose time is up or whose client left are never given out.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ort_serve.failures import DeadlineExceeded, NotReady, Overloaded
from ort_serve.scheduling.job import Job, complete

_Entry = tuple[int, int, Job]


@dataclass(frozen=True)
class BatchPolicy:
    """How jobs are joined.

    Attributes:
        max_rows: most rows of a batch; 1: nothing is joined.
        max_delay_ns: how long the first job of a batch may wait for others.
        preferred_rows: counts at which a batch is given out without waiting.
    """

    max_rows: int = 1
    max_delay_ns: int = 0
    preferred_rows: frozenset[int] = frozenset()


class JobQueue:
    """Jobs that wait for one model. Safe to use from many threads.

    Attributes:
        policy: how jobs are joined.
        is_closed: no more are taken.
    """

    def __init__(self, limit: int, policy: BatchPolicy) -> None:
        self.policy = policy
        self._limit = limit
        self._heap: list[_Entry] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self.is_closed = False
        self._seconds_per_job = 0.01  # a moving mean, for Retry-After

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, job: Job, *, is_called: bool = True) -> None:
        """Let a job wait.

        Args:
            job: the job.
            is_called: a thread is told of it; else the caller takes it itself.

        Raises:
            Overloaded: as many wait as may.
            NotReady: the queue is closed: its version no longer serves.
        """
        with self._changed:
            if self.is_closed:
                raise NotReady("this version of the model is being unloaded; ask again without naming a version")
            if len(self._heap) >= self._limit:
                self._drop_dead()
            if len(self._heap) >= self._limit:
                wait = max(len(self._heap) * self._seconds_per_job, 0.05)
                raise Overloaded(f"{self._limit} requests wait for this model already; try again in {wait:.2f} s", wait)
            heapq.heappush(self._heap, (job.priority, next(self._order), job))
            if is_called:
                self._call()

    def take(self) -> list[Job] | None:
        """Wait for jobs and return a batch of them; None when the queue is closed and empty."""
        while True:
            with self._changed:
                while not self._heap:
                    if self.is_closed:
                        return None
                    self._changed.wait()
                self._drop_dead()
                if not self._heap:
                    continue
                first = self._heap[0][2]
                if not self._wait_for_more(first):
                    continue
                taken, self._heap = self._parted(first)
                return taken

    def take_if(self, is_wanted: Callable[[list[Job]], bool]) -> list[Job] | None:
        """Return a batch that is wanted, without waiting for more; None where there is none, and a thread is told."""
        with self._changed:
            self._drop_dead()
            if not self._heap:
                return None
            taken, left = self._parted(self._heap[0][2])
            if not is_wanted(taken):
                self._changed.notify()
                return None
            self._heap = left
            return taken

    def call(self) -> None:
        """Tell a thread that there is something to take."""
        with self._changed:
            self._call()

    def _call(self) -> None:
        if self.policy.max_delay_ns:  # one of them may wait for other jobs than this one
            self._changed.notify_all()
        else:
            self._changed.notify()

    def told(self, seconds: float, jobs: int) -> None:
        """Learn how long a run of so many jobs took."""
        self._seconds_per_job += 0.1 * (seconds / jobs - self._seconds_per_job)

    def close(self) -> None:
        """Take no more jobs. Those that wait are still given out."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def emptied(self) -> list[Job]:
        """Take everything that waits."""
        with self._changed:
            jobs = [job for _, _, job in self._heap]
            self._heap = []
            return jobs

    def _wait_for_more(self, first: Job) -> bool:
        """Wait while a batch may grow; return whether ``first`` is still there to be taken."""
        policy = self.policy
        if policy.max_rows <= 1 or policy.max_delay_ns == 0 or first.join_key is None:
            return True
        until = first.arrived_ns + policy.max_delay_ns
        while not self.is_closed:
            rows = sum(job.rows for _, _, job in self._heap if job.join_key == first.join_key)
            left = until - time.monotonic_ns()
            if rows >= policy.max_rows or rows in policy.preferred_rows or left <= 0:
                break
            self._changed.wait(left / 1e9)
        self._drop_dead()
        return any(job is first for _, _, job in self._heap)

    def _parted(self, first: Job) -> tuple[list[Job], list[_Entry]]:
        """Return the batch that ``first`` begins, and what is left, which is a heap."""
        if len(self._heap) == 1:
            return [first], []
        entries = sorted(self._heap)
        if self.policy.max_rows <= 1 or first.join_key is None:
            return [first], entries[1:]
        taken: list[Job] = []
        left: list[_Entry] = []
        rows, is_full = 0, False
        for entry in entries:
            job = entry[2]
            is_alike = job.join_key == first.join_key
            if is_alike and not is_full and (not taken or rows + job.rows <= self.policy.max_rows):
                taken.append(job)
                rows += job.rows
            else:
                left.append(entry)
                is_full = is_full or is_alike  # whoever came later does not overtake
        return taken, left

    def _drop_dead(self) -> None:
        now = time.monotonic_ns()
        dead = [job for _, _, job in self._heap if job.is_cancelled or (job.deadline_ns or now + 1) <= now]
        if dead:
            gone = {id(job) for job in dead}
            self._heap = [entry for entry in self._heap if id(entry[2]) not in gone]
            heapq.heapify(self._heap)
            complete([(job, DeadlineExceeded("the request's time was up while it waited")) for job in dead])
