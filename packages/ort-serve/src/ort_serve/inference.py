"""A request's way to its result, whatever carried it: model, check, queue, run, outputs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np

from ort_serve.failures import (
    Cancelled,
    DeadlineExceeded,
    InvalidRequest,
    NotFound,
    NotReady,
    RequestFailure,
    TooLarge,
    failure_of,
)
from ort_serve.protocol.classification import classified
from ort_serve.protocol.requests import InferRequest, InferResponse, RequestedOutput, RunTimes
from ort_serve.repository.model_repository import ModelRepository
from ort_serve.repository.model_settings import QueueSettings
from ort_serve.repository.model_version import ModelVersion
from ort_serve.scheduling.job import Job, form_of

LONG_NBYTES = 1 << 18  # what is longer is read and written by a thread: texts of 256 KiB take the time of 100 requests
_LONGEST_S = 1e6  # of a timer: event loops take no longer ones, and nothing waits for eleven days
_NUMBER_NBYTES = 16  # of a number as text
_SORTED_NBYTES, _CLASS_NBYTES = 24, 96  # of an element while classes are found, and of the text of one
_BRIEF_NS = 5_000_000  # a request that has so much time needs no timer for a run that is known to be short
Watch = Callable[[Job], AbstractContextManager[None]]
Tell = Callable[[InferResponse | RequestFailure], None]


async def infer(repository: ModelRepository, request: InferRequest, watch: Watch | None = None) -> InferResponse:
    """Answer a request. A cancelled call takes its work back.

    Args:
        repository: where its model is.
        request: what is asked.
        watch: looks, while a job waits, whether its client is still there.

    Raises:
        RequestFailure: there is no result; the message says why.
    """
    begin = time.monotonic_ns()
    version = repository.find_version(request.model, request.version)
    if version is None:
        version = await repository.get_version_or_load(request.model, request.version)
    statistics = version.statistics
    statistics.began()
    try:
        job = _job(version, request)
        found = await _run(version, job, request, watch)
        if request.has_classes and sum([array.nbytes for array in found.values()]) > LONG_NBYTES:
            response = await asyncio.to_thread(_response, version, request, found)  # to sort and write takes its time
        else:
            response = _response(version, request, found)
    except Exception as error:
        statistics.failed(failure_of(error), time.monotonic_ns() - begin)
        raise
    except asyncio.CancelledError:
        statistics.failed(Cancelled(), time.monotonic_ns() - begin)
        raise
    statistics.answered(job)
    return response


def count_refused(
    repository: ModelRepository, model: str, version: str, failure: RequestFailure, begin_ns: int
) -> None:
    """Count a request that was refused before it came to its model, such as one that cannot be read.

    Args:
        repository: where its model is, if there is one.
        model: its name.
        version: empty for the server's choice.
        failure: what its client is told.
        begin_ns: when it came, by the monotonic clock.
    """
    if failure.is_counted:
        return
    try:
        statistics = repository.get_version(model, version).statistics
    except (NotFound, NotReady):
        return  # no model's counts are concerned
    statistics.began()
    statistics.failed(failure, time.monotonic_ns() - begin_ns)


def infer_without_task(version: ModelVersion, request: InferRequest, tell: Tell) -> Job | None:
    """Answer a request by a call instead of a task: of a brief one that takes a third of all time.

    Called in the event loop that is to be told.

    Args:
        version: answers.
        request: what is asked; nobody watches it.
        tell: is called with the response or a failure, within this call where the run is short.

    Returns:
        The job that waits; to be taken back by ``leave`` where its client goes. None where all is done.
    """
    begin = time.monotonic_ns()
    statistics = version.statistics
    statistics.began()

    def fail(error: BaseException) -> None:
        failure = failure_of(error)
        statistics.failed(failure, time.monotonic_ns() - begin)
        tell(failure)

    def end(job: Job, found: dict[str, np.ndarray]) -> None:
        try:
            response = _response(version, request, found)
        except Exception as error:  # noqa: BLE001  # whatever it is, the client is told in the protocol's words
            fail(error)
        else:
            statistics.answered(job)
            tell(response)

    try:
        job = _job(version, request)
        found = version.run_at_once(job) if job.has_time(_BRIEF_NS) else None
        if found is None:
            version.put(job)
    except Exception as error:  # noqa: BLE001  # as above
        fail(error)
        return None
    if found is not None:
        end(job, found)
        return None
    timer = _timer(job)

    def ended(result: asyncio.Future[dict[str, np.ndarray]]) -> None:
        if timer is not None:
            timer.cancel()
        error = result.exception()
        if error is None:
            end(job, result.result())
        else:
            fail(error)

    job.result.add_done_callback(ended)
    return job


async def _run(version: ModelVersion, job: Job, request: InferRequest, watch: Watch | None) -> dict[str, np.ndarray]:
    try:
        found = version.run_at_once(job) if job.has_time(_BRIEF_NS) else None
        return await _queued(version, job, watch) if found is None else found
    finally:
        if request.watcher is not None:
            request.watcher.ran(version.version, RunTimes(job.arrived_ns, job.started_ns, job.ended_ns, job.batch_rows))


async def _queued(version: ModelVersion, job: Job, watch: Watch | None) -> dict[str, np.ndarray]:
    version.put(job)
    timer = _timer(job)
    try:
        if watch is None:
            return await job.result
        with watch(job):
            return await job.result
    except asyncio.CancelledError:
        job.cancel()
        raise
    finally:
        if timer is not None:
            timer.cancel()


def is_long(response: InferResponse, nbytes: int = LONG_NBYTES) -> bool:
    """Return whether a response is so long that a thread had better write it."""
    return sum([array.nbytes for _, array in response.outputs]) > nbytes


def _timer(job: Job) -> asyncio.TimerHandle | None:
    """Return what takes a job back when its time is up."""
    if job.deadline_ns is None:
        return None
    left = min(max(job.deadline_ns - time.monotonic_ns(), 0) / 1e9, _LONGEST_S)
    return job.loop.call_later(left, _give_up, job)


def _job(version: ModelVersion, request: InferRequest) -> Job:
    form = None if request.form is None else version.known_forms.get(request.form)
    if form is None:
        wanted = tuple(dict.fromkeys([output.name for output in request.outputs])) if request.outputs else ()
        version.signature.check(request.inputs, wanted)
    inputs = request.inputs if version.reshapes.is_empty else version.reshapes.taken(request.inputs)
    if form is None:
        form = form_of(inputs, wanted, is_joined=version.batching.max_rows > 1)
        if request.form is not None:
            version.remember(request.form, form)
    loop = asyncio.get_running_loop()
    settings = version.request.settings.queue
    job = Job(
        inputs, form.wanted, form.rows, form.join_key, loop, loop.create_future(), _priority(request, settings),
        shapes=form.shapes,
    )  # fmt: skip
    timeout = request.timeout_s or settings.time_limit_s
    if timeout is not None:
        job.deadline_ns = job.arrived_ns + int(timeout * 1e9)
    return job


def _priority(request: InferRequest, settings: QueueSettings) -> int:
    if request.priority > settings.priorities:
        raise InvalidRequest(f"priority {request.priority}: the model has {settings.priorities} levels, 1 goes first")
    return request.priority or settings.default_priority


def _give_up(job: Job) -> None:
    what = "ran" if job.started_ns else "waited"
    job.leave(DeadlineExceeded(f"the request's time was up while it {what}"))


def _check_length(version: ModelVersion, nbytes: int) -> None:
    """Refuse a result before it is written."""
    limit = version.request.most_result_nbytes
    if limit is not None and nbytes > limit:
        raise TooLarge(f"the result takes {nbytes} bytes; this server gives at most {limit} (--max-result)")


def _written_nbytes(output: RequestedOutput, array: np.ndarray, request: InferRequest) -> int:
    """Return how many bytes an output takes while it is written, at most about: a number as text takes 16."""
    if output.classes:
        last = array.shape[-1] if array.size and array.ndim else 1
        return array.size * _SORTED_NBYTES + array.size // last * min(output.classes, last) * _CLASS_NBYTES
    is_binary = request.are_outputs_binary if output.is_binary is None else output.is_binary
    return array.nbytes if is_binary or output.region is not None else max(array.size * _NUMBER_NBYTES, array.nbytes)


def _response(version: ModelVersion, request: InferRequest, found: dict[str, np.ndarray]) -> InferResponse:
    wanted = request.outputs or version.all_outputs
    nbytes = sum([_written_nbytes(output, found[output.name], request) for output in wanted])
    _check_length(version, nbytes)
    if not version.reshapes.is_empty:
        found = version.reshapes.given(found)
    outputs = [
        (output, classified(output.name, found[output.name], output.classes) if output.classes else found[output.name])
        for output in wanted
    ]
    return InferResponse(request.model, version.version, request.identifier, outputs, nbytes)
