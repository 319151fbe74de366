"""``POST …/infer``, straight on ASGI: the one address where a router's tenth of a millisecond counts."""

from __future__ import annotations

import asyncio
import logging
import time
from types import TracebackType

from starlette.types import ASGIApp, Receive, Scope, Send

from ort_serve.failures import Cancelled, ModelFailed, NotAllowed, RequestFailure
from ort_serve.inference import LONG_NBYTES, count_refused, infer, is_long
from ort_serve.protocol.requests import Watcher
from ort_serve.rest.answers import failure_answer
from ort_serve.rest.body import Body, compressed, read_body
from ort_serve.rest.decoding import HEADER_LENGTH, decode_infer
from ort_serve.rest.encoding import encode_infer
from ort_serve.rest.paths import model_of
from ort_serve.scheduling.job import Job
from ort_serve.server_state import ServerState

log = logging.getLogger(__name__)
_PATIENCE_S = 0.005  # of a request before anybody looks whether its client is still there
_JSON = (b"content-type", b"application/json")
_BINARY = (b"content-type", b"application/octet-stream")


class InferAddresses:
    """Answers the addresses of inference; others are the application's."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        asked = model_of(scope)
        if asked is None:
            await self._app(scope, receive, send)
            return
        begin = time.monotonic_ns()
        try:
            if scope["method"] != "POST":
                raise NotAllowed(f"{scope['path']} does not take {scope['method']}")
            given = dict(scope["headers"])
            if self._state.tracing is None:
                status, headers, body = await self._answer(asked, given, receive, None)
            else:
                texts = {name.decode("latin-1"): value.decode("latin-1") for name, value in given.items()}
                with self._state.tracing.begin("http", asked[0], texts) as span:
                    status, headers, body = await self._answer(asked, given, receive, span)
        except RequestFailure as failure:
            status, headers, body = failure_answer(failure)
            if isinstance(failure, NotAllowed):
                headers.append((b"allow", b"POST"))
            else:
                count_refused(self._state.repository, *asked, failure, begin)
        except Exception as error:
            log.exception("a request failed")
            status, headers, body = failure_answer(ModelFailed(f"the server failed: {type(error).__name__}"))
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(
        self, asked: tuple[str, str], headers: dict[bytes, bytes], receive: Receive, watcher: Watcher | None
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        state, begin = self._state, time.perf_counter()
        with await read_body(headers, receive, state.settings.limits, state.body_budget) as body:
            given = (*asked, body.raw, headers.get(HEADER_LENGTH), state.regions, state.settings.limits.json_nbytes)
            by_thread = len(body.raw) > LONG_NBYTES
            request = await asyncio.to_thread(decode_infer, *given) if by_thread else decode_infer(*given)
            request.watcher = watcher
            found = await infer(state.repository, request, lambda job: _ClientWatch(job, receive))
        told = (found, request.are_outputs_binary, state.regions)
        try:
            with Body(state.body_budget) as written:
                written.hold(found.written_nbytes)
                raw, length = await asyncio.to_thread(encode_infer, *told) if is_long(found) else encode_infer(*told)
        except RequestFailure as failure:
            failure.is_counted = True  # as answered: the result is there, and cannot be written as or when it is wanted
            raise
        trace = state.trace_of(found.model)
        if trace.is_wanted():
            trace.tell(found, time.perf_counter() - begin)
        answered = [_JSON if length is None else _BINARY]
        if length is not None:
            answered.append((b"inference-header-content-length", str(length).encode()))
        accepted = headers.get(b"accept-encoding")
        if accepted and accepted != b"identity":
            raw, encoding = await compressed(raw, accepted.decode("latin-1"))
            if encoding:
                answered.append((b"content-encoding", encoding.encode()))
        return 200, answered, raw


class _ClientWatch:
    """Takes a job back when its client leaves while it waits."""

    __slots__ = ("_job", "_receive", "_task", "_timer")

    def __init__(self, job: Job, receive: Receive) -> None:
        self._job = job
        self._receive = receive
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._timer = self._job.loop.call_later(_PATIENCE_S, self._begin)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = self._job.loop.create_task(self._look())

    async def _look(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._job.leave(Cancelled("the client left"))
