"""What happened to a model's requests: counts and times, for the protocol's statistics and for Prometheus.

A request is counted by plain additions: Prometheus' own metrics take about 40 us of one. They are brought up to date
when somebody reads them, and after each run where several processes share them, of which only one is read.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ort_serve.failures import RequestFailure
from ort_serve.scheduling.job import Job

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # of processes that share counts; prometheus_client reads it when it is imported


class TalliedHistogram(Histogram):
    """A histogram that takes many values at once."""

    def add(self, counts: Sequence[int], total: float) -> None:
        """Add values.

        Args:
            counts: how many fell into each bucket, the last for what is beyond all bounds.
            total: their sum.
        """
        self._sum.inc(total)
        for bucket, count in zip(self._buckets, counts, strict=True):
            if count:
                bucket.inc(count)


class Tally:
    """Values by bucket, since they were last given to Prometheus."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def give(self, histogram: TalliedHistogram) -> None:
        """Move what was counted."""
        if any(self.counts):
            histogram.add(self.counts, self.total)
            self.counts = [0] * len(self.counts)
            self.total = 0.0


@dataclass(slots=True)
class Duration:
    """How often, and how long in all (nanoseconds)."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int, count: int = 1) -> None:
        """Count one more."""
        self.count += count
        self.ns += ns


@dataclass(slots=True)
class BatchDurations:
    """Times of runs with one number of rows."""

    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)


class Metrics:
    """The server's Prometheus metrics, labelled by model and version."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("model", "version")
        self.requests = Counter("ort_requests", "Requests by outcome.", (*labels, "outcome"), registry=self.registry)
        self.queue_seconds = TalliedHistogram(
            "ort_queue_seconds", "Waiting before a run.", labels, buckets=_SECONDS, registry=self.registry
        )
        self.compute_seconds = TalliedHistogram(
            "ort_compute_seconds", "Time of runs.", labels, buckets=_SECONDS, registry=self.registry
        )
        self.batch_rows = TalliedHistogram(
            "ort_batch_rows", "Rows of runs.", labels, buckets=_ROWS, registry=self.registry
        )
        self.in_flight = Gauge(
            "ort_requests_in_flight", "Requests that wait or run.", labels, registry=self.registry,
            multiprocess_mode="livesum",
        )  # fmt: skip
        self.waiting = Gauge(
            "ort_requests_waiting",
            "Requests in the queue.",
            labels,
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self.model_bytes = Gauge(
            "ort_model_bytes",
            "Size of a version's files while it is loaded.",
            labels,
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self.resident = Gauge(
            "ort_process_resident_bytes", "Memory of this process.", registry=self.registry, multiprocess_mode="livesum"
        )
        self.is_shared = FOLDER in os.environ
        self._statistics: list[ModelStatistics] = []
        self._lock = threading.Lock()

    def join(self, statistics: ModelStatistics) -> None:
        """Take note of a version that counts."""
        with self._lock:
            self._statistics.append(statistics)

    def leave(self, statistics: ModelStatistics) -> None:
        """Take what a version has counted that ends; what its last requests still count comes by itself."""
        with self._lock:
            self._statistics.remove(statistics)
        statistics.is_told_at_once = True
        statistics.export()

    def bring_up_to_date(self) -> None:
        """Take what all versions have counted."""
        with self._lock:
            all_statistics = list(self._statistics)
        for statistics in all_statistics:
            statistics.export()


class ModelStatistics:
    """Counts of one version of a model. Safe to use from many threads.

    Attributes:
        is_told_at_once: nobody will ask for the counts: Prometheus' metrics are kept up to date.
    """

    def __init__(self, model: str, version: str, metrics: Metrics) -> None:
        self._lock = threading.Lock()
        self.is_told_at_once = metrics.is_shared
        self._count_of = functools.partial(metrics.requests.labels, model, version)
        self._successes = self._count_of("success")
        self._failures = {outcome: self._count_of(outcome) for outcome in ("failed", "invalid", "overloaded")}
        self._histograms = (
            (Tally(_SECONDS), metrics.queue_seconds.labels(model, version)),
            (Tally(_SECONDS), metrics.compute_seconds.labels(model, version)),
            (Tally(_ROWS), metrics.batch_rows.labels(model, version)),
        )
        (self._queue_seconds, _), (self._compute_seconds, _), (self._batch_rows, _) = self._histograms
        self._in_flight_gauge = metrics.in_flight.labels(model, version)
        self._in_flight = 0
        self._answers = 0  # that Prometheus has not been told of
        self.waiting = metrics.waiting.labels(model, version)
        self.nbytes = metrics.model_bytes.labels(model, version)
        self.last_inference_ms = 0
        self.executions = 0
        self.rows = 0
        self.success = Duration()
        self.fail = Duration()
        self.queue = Duration()
        self.compute_input = Duration()
        self.compute_infer = Duration()
        self.compute_output = Duration()
        self.batches: dict[int, BatchDurations] = {}
        metrics.join(self)

    def ran(self, jobs: Sequence[Job], begin: int, joined: int, computed: int, split: int) -> None:
        """Count a run for its jobs; the times are the monotonic clock's, in nanoseconds."""
        rows = sum([job.rows for job in jobs])
        to_join, to_run, to_split = joined - begin, computed - joined, split - computed
        with self._lock:
            self.executions += 1
            self.rows += rows
            self.last_inference_ms = time.time_ns() // 1_000_000
            batch = self.batches.get(rows)
            if batch is None:
                batch = self.batches[rows] = BatchDurations()
            batch.compute_input.add(to_join)
            batch.compute_infer.add(to_run)
            batch.compute_output.add(to_split)
            for job in jobs:
                job.took_ns = (to_join, to_run, to_split)
                self._queue_seconds.add((job.started_ns - job.arrived_ns) / 1e9)
            self._batch_rows.add(rows)
            self._compute_seconds.add(to_run / 1e9)

    def began(self) -> None:
        """Count a request that came."""
        with self._lock:
            self._in_flight += 1
        if self.is_told_at_once:
            self.export()

    def answered(self, job: Job) -> None:
        """Count a request that got its result. Whoever left while its run went on has been counted as that."""
        to_join, to_run, to_split = job.took_ns
        with self._lock:
            self._in_flight -= 1
            self._answers += 1
            self.success.add(time.monotonic_ns() - job.arrived_ns)
            self.queue.add(job.started_ns - job.arrived_ns)
            self.compute_input.add(to_join)
            self.compute_infer.add(to_run)
            self.compute_output.add(to_split)
        if self.is_told_at_once:
            self.export()

    def failed(self, failure: RequestFailure, ns: int) -> None:
        """Count a request that got none, ``ns`` after it came."""
        failure.is_counted = True
        with self._lock:
            self._in_flight -= 1
            self.fail.add(ns)
            counter = self._failures.get(failure.outcome)
            if counter is None:
                counter = self._failures[failure.outcome] = self._count_of(failure.outcome)
        counter.inc()
        if self.is_told_at_once:
            self.export()

    def export(self) -> None:
        """Tell Prometheus what was counted since it was last told."""
        with self._lock:
            self._in_flight_gauge.set(self._in_flight)
            self._successes.inc(self._answers)
            self._answers = 0
            for tally, histogram in self._histograms:
                tally.give(histogram)
