"""A request's way to its result, whatever carried it: model, check, queue, run, outputs."""

from __future__ import annotations

import asyncio
import time

import numpy as np

from ort_serve.failures import DeadlineExceeded, InvalidRequest, RequestFailure
from ort_serve.protocol.classification import classified
from ort_serve.protocol.requests import InferRequest, InferResponse, RequestedOutput
from ort_serve.repository.model_repository import ModelRepository
from ort_serve.repository.model_version import ModelVersion
from ort_serve.scheduling.job import Job, join_key_of


async def infer(repository: ModelRepository, request: InferRequest) -> InferResponse:
    """Answer a request. A cancelled call takes its work back.

    Raises:
        RequestFailure: there is no result; the message says why.
    """
    version = await repository.get_version_or_load(request.model, request.version)
    statistics = version.statistics
    try:
        job = _job(version, request)
        version.put(job)
    except RequestFailure as failure:
        statistics.refused(failure)
        raise
    statistics.in_flight.inc()
    try:
        found = await _result(job)
    except asyncio.CancelledError:
        job.cancel()
        raise
    finally:
        statistics.in_flight.dec()
    return InferResponse(request.model, version.version, request.identifier, _outputs(version, request, found))


def _job(version: ModelVersion, request: InferRequest) -> Job:
    signature = version.signature
    wanted = tuple(dict.fromkeys(output.name for output in request.outputs))
    signature.check(request.inputs, wanted)
    loop = asyncio.get_running_loop()
    settings = version.request.settings.queue
    job = Job(request.inputs, wanted, 1, None, loop, loop.create_future(), _priority(request, settings.priorities))
    if not request.priority:
        job.priority = settings.default_priority
    timeout = request.timeout_s or settings.time_limit_s
    if timeout is not None:
        job.deadline_ns = job.arrived_ns + int(timeout * 1e9)
    if version.batching.max_rows > 1:
        rows = {array.shape[0] if array.ndim else -1 for array in request.inputs.values()}
        if len(rows) == 1 and (count := rows.pop()) > 0:
            job.rows, job.join_key = count, join_key_of(request.inputs)
    return job


def _priority(request: InferRequest, levels: int) -> int:
    if request.priority > levels:
        raise InvalidRequest(f"priority {request.priority}: the model has {levels} levels, 1 goes first")
    return request.priority


async def _result(job: Job) -> dict[str, np.ndarray]:
    if job.deadline_ns is None:
        return await job.result
    left = max(job.deadline_ns - time.monotonic_ns(), 0) / 1e9
    timer = job.loop.call_later(left, _give_up, job)
    try:
        return await job.result
    finally:
        timer.cancel()


def _give_up(job: Job) -> None:
    if not job.result.done():
        what = "ran" if job.started_ns else "waited"
        job.result.set_exception(DeadlineExceeded(f"the request's time was up while it {what}"))
    job.cancel()


def _outputs(
    version: ModelVersion, request: InferRequest, found: dict[str, np.ndarray]
) -> list[tuple[RequestedOutput, np.ndarray]]:
    wanted = request.outputs or tuple(RequestedOutput(output.name) for output in version.signature.outputs)
    return [
        (output, classified(output.name, found[output.name], output.classes) if output.classes else found[output.name])
        for output in wanted
    ]
