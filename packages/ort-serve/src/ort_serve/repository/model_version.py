"""One version of a model that serves: its session, its queue, its threads and its counts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ort_core import InferenceSession, OrtError, SessionOptions
from ort_serve.failures import InvalidRequest
from ort_serve.protocol.requests import RequestedOutput
from ort_serve.repository.declared import check_declared
from ort_serve.repository.model_settings import ModelSettings, WarmUp
from ort_serve.repository.reshapes import Reshapes
from ort_serve.repository.signature import ModelSignature, TensorSignature, read_signature
from ort_serve.repository.version_files import files_of
from ort_serve.scheduling.batch_curve import BatchCurve, measure_batches
from ort_serve.scheduling.brief_runs import BriefRuns, is_work_bounded
from ort_serve.scheduling.core_budget import CoreBudget
from ort_serve.scheduling.job import Job, JobForm
from ort_serve.scheduling.job_queue import BatchPolicy, JobQueue
from ort_serve.scheduling.runner import ModelRunner
from ort_serve.statistics import Metrics, ModelStatistics

# Between two requests the threads of a run sleep. Spinning for the next one, they would take a core from clients, other
# models and the event loop: a request of an MLP took 190 us of processor time then, 75 without, and 52 us against 41.
_SESSION_OPTIONS = {"session.force_spinning_stop": "1"}


_MOST_FORMS = 256


@dataclass(frozen=True)
class LoadRequest:
    """What is to be loaded: a file, and how it is served; the most bytes of a result and of a run, None: any."""

    model: str
    version: int
    path: Path
    settings: ModelSettings
    most_result_nbytes: int | None = None
    most_run_nbytes: int | None = None


class ModelVersion:
    """A loaded version.

    Attributes:
        request: what it was loaded from.
        version: its number as the protocol writes it.
        signature: its inputs and outputs, as clients see them.
        reshapes: from their shapes to the model's, and back.
        all_outputs: what a request gets that names none.
        batching: what is joined, and why no more.
        statistics: its counts.
        known_forms: what was found out of requests, by the form that more of them have.
        load_seconds: how long loading and warming up took.
        nbytes: size of its file and the data beside it, for eviction.
    """

    def __init__(self, request: LoadRequest, cores: CoreBudget, metrics: Metrics) -> None:
        begin = time.perf_counter()
        self.request = request
        self.version = str(request.version)
        settings = request.settings
        threads = settings.threads or max(cores.cores // settings.instances, 1)
        self.session = _session(request, threads)
        own = read_signature(self.session.get_inputs(), self.session.get_outputs())
        check_declared(settings, own)
        self.reshapes = Reshapes(settings, own)
        self.signature = self.reshapes.signature
        self.all_outputs = tuple(RequestedOutput(tensor.name) for tensor in self.signature.outputs)
        _check_inputs(settings.warm_up, self.signature)
        self._warm_up(settings.warm_up)
        self.batching = self._batching(settings)
        self.nbytes = sum(file.stat().st_size for file in files_of(request.path))
        self._metrics = metrics
        self.statistics = ModelStatistics(request.model, str(request.version), metrics)
        policy = BatchPolicy(
            self.batching.max_rows,
            int(settings.batching.max_delay_ms * 1e6),
            frozenset(settings.batching.preferred_sizes),
        )
        self.queue = JobQueue(settings.queue.limit, policy)
        self.known_forms: dict[object, JobForm] = {}
        self._runner = ModelRunner(
            f"{request.model}-{request.version}",
            self.session,
            [signature.name for signature in self.signature.outputs],
            self.queue,
            settings.instances,
            threads,
            cores,
            self.statistics,
            BriefRuns(is_work_bounded((node.domain, node.op_type) for node in self.session.explain().nodes)),
        )
        self.statistics.nbytes.inc(self.nbytes)
        self.load_seconds = time.perf_counter() - begin

    def remember(self, form: object, found: JobForm) -> None:
        """Note what a request's form means for the model: it fits, and runs so."""
        if len(self.known_forms) >= _MOST_FORMS:
            self.known_forms.clear()  # forms that come once each are not worth a better choice
        self.known_forms[form] = found

    def put(self, job: Job) -> None:
        """Let a job wait for this version.

        Raises:
            Overloaded: too many wait already.
            NotReady: it no longer serves.
        """
        self._runner.submit(job)

    def run_at_once(self, job: Job) -> dict[str, np.ndarray] | None:
        """Return a job's outputs where its run is known to be short and nothing is before it; None: it must wait.

        Raises:
            RequestFailure: the run failed.
        """
        return self._runner.run_at_once(job)

    def terminate(self) -> None:
        """Stop what runs and what waits: each request fails."""
        self._runner.terminate()

    def drain(self) -> None:
        """Finish what waits, and end the threads. Blocks."""
        self.queue.close()
        self._runner.join()
        self.statistics.nbytes.dec(self.nbytes)
        self._metrics.leave(self.statistics)

    def zeros(self) -> dict[str, np.ndarray]:
        """Return inputs of zeros, with 1 for each open size; strings are empty."""
        return {signature.name: _filled(signature, None, "zeros") for signature in self.signature.inputs}

    def _run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        names = [signature.name for signature in self.signature.outputs]
        found = self.session.run(names, self.reshapes.taken(feeds))
        return self.reshapes.given({name: np.asarray(array) for name, array in zip(names, found)})

    def _warm_up(self, runs: Sequence[WarmUp]) -> None:
        for run in runs:
            feeds = {
                signature.name: _filled(signature, *_wanted(run, signature.name)) for signature in self.signature.inputs
            }
            for _ in range(run.count):
                self._run(feeds)
        if not runs:
            self._try(self.zeros())

    def _try(self, feeds: dict[str, np.ndarray]) -> bool:
        """Run zeros that nobody asked for: a model may refuse them, such as one whose open sizes are not 1."""
        try:
            self._run(feeds)
        except OrtError:
            return False
        return True

    def _batching(self, settings: ModelSettings) -> BatchCurve:
        wanted = settings.batching.max_batch_size
        if wanted is not None:
            return BatchCurve(
                {}, max(wanted, 1), "set by max_batch_size" if wanted > 1 else "not joined: max_batch_size"
            )
        if not self.signature.has_batch:
            return BatchCurve({}, 1, f"not joined: {self.signature.batch_reason}")
        zeros = self.zeros()
        if not self._try(zeros):
            return BatchCurve({}, 1, "not joined: the model refuses a row of zeros, so that batches cannot be measured")
        try:
            return measure_batches(self._run, zeros)
        except OrtError as error:
            return BatchCurve({}, 1, f"not joined: a batch of zeros fails: {error}")


def _session(request: LoadRequest, threads: int) -> InferenceSession:
    options = SessionOptions()
    options.intra_op_num_threads = threads
    options.max_allocation_bytes = request.most_run_nbytes
    for key, value in {**_SESSION_OPTIONS, **request.settings.session_options}.items():
        options.add_session_config_entry(key, value)
    providers = list(request.settings.providers) or None
    return InferenceSession(str(request.path), options, providers=providers)


def _check_inputs(runs: Sequence[WarmUp], signature: ModelSignature) -> None:
    known = [tensor.name for tensor in signature.inputs]
    for run in runs:
        for name in run.inputs:
            if name not in known:
                raise InvalidRequest(f"warm_up names input {name!r}; the model's inputs are {', '.join(known)}")


def _wanted(run: WarmUp, name: str) -> tuple[tuple[int, ...] | None, str]:
    found = run.inputs.get(name)
    return (found.shape, found.fill) if found else (None, "zeros")


def _filled(signature: TensorSignature, shape: tuple[int, ...] | None, fill: str) -> np.ndarray:
    sizes = tuple(size if isinstance(size, int) else 1 for size in signature.shape) if shape is None else shape
    dtype = signature.datatype.dtype
    if signature.datatype.is_text:
        return np.full(sizes, "", object)
    if fill == "random":
        drawn = np.random.default_rng(0).random(sizes)
        return (drawn if dtype.kind in "fV" else drawn * 2).astype(dtype)
    return np.full(sizes, 1 if fill == "ones" else 0, dtype)
