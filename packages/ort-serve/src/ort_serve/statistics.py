"""What happened to a model's requests: counts and times, for the protocol's statistics and for Prometheus."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ort_serve.failures import RequestFailure
from ort_serve.scheduling.job import Job

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


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
        self.queue_seconds = Histogram(
            "ort_queue_seconds", "Waiting before a run.", labels, buckets=_SECONDS, registry=self.registry
        )
        self.compute_seconds = Histogram(
            "ort_compute_seconds", "Time of runs.", labels, buckets=_SECONDS, registry=self.registry
        )
        self.batch_rows = Histogram("ort_batch_rows", "Rows of runs.", labels, buckets=_ROWS, registry=self.registry)
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


class ModelStatistics:
    """Counts of one version of a model. Safe to use from many threads."""

    def __init__(self, model: str, version: str, metrics: Metrics) -> None:
        self._lock = threading.Lock()
        self._count_of = functools.partial(metrics.requests.labels, model, version)
        self._successes = self._count_of("success")
        self._failures = {outcome: self._count_of(outcome) for outcome in ("failed", "invalid", "overloaded")}
        self._queue_seconds = metrics.queue_seconds.labels(model, version)
        self._compute_seconds = metrics.compute_seconds.labels(model, version)
        self._batch_rows = metrics.batch_rows.labels(model, version)
        self.in_flight = metrics.in_flight.labels(model, version)
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

    def ran(self, jobs: Sequence[Job], begin: int, joined: int, computed: int, split: int) -> None:
        """Count a run for its jobs; the times are the monotonic clock's, in nanoseconds."""
        rows = sum(job.rows for job in jobs)
        with self._lock:
            self.executions += 1
            self.rows += rows
            self.last_inference_ms = time.time_ns() // 1_000_000
            batch = self.batches.setdefault(rows, BatchDurations())
            batch.compute_input.add(joined - begin)
            batch.compute_infer.add(computed - joined)
            batch.compute_output.add(split - computed)
            for job in jobs:
                if job.is_cancelled:
                    continue  # counted as what took it back
                self.success.add(split - job.arrived_ns)
                self.queue.add(job.started_ns - job.arrived_ns)
                self.compute_input.add(joined - begin)
                self.compute_infer.add(computed - joined)
                self.compute_output.add(split - computed)
        self._batch_rows.observe(rows)
        self._compute_seconds.observe((computed - joined) / 1e9)
        for job in jobs:
            self._queue_seconds.observe((job.started_ns - job.arrived_ns) / 1e9)

    def answered(self) -> None:
        """Count a request that got its result."""
        self._successes.inc()

    def failed(self, failure: RequestFailure, ns: int) -> None:
        """Count a request that got none, ``ns`` after it came."""
        with self._lock:
            self.fail.add(ns)
            counter = self._failures.setdefault(failure.outcome, self._count_of(failure.outcome))
        counter.inc()
