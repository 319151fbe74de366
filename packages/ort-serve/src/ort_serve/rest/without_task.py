"""Requests for inference that are answered by calls alone, without a task and without ASGI's messages.

That is most requests of small models: short, whole when they are first seen, asking for nothing beyond their result.
ASGI's cycle of such a request takes longer than its run. Whatever else there may be to a request (other addresses,
encodings, spans, lines of a log, a wrong token, a model that must be loaded first) goes through the application, which
knows all of it; so does a request that cannot be read, and is told so there.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from ort_serve import access_log
from ort_serve.failures import ModelFailed, NotReady, RequestFailure
from ort_serve.inference import LONG_NBYTES, infer_without_task, is_long
from ort_serve.protocol.requests import InferResponse
from ort_serve.rest.answers import Answer, failure_answer
from ort_serve.rest.body import SMALL, Body, packed
from ort_serve.rest.decoding import HEADER_LENGTH, decode_infer
from ort_serve.rest.encoding import encode_infer
from ort_serve.rest.paths import model_of
from ort_serve.scheduling.job import Job
from ort_serve.server_state import ServerState

log = logging.getLogger(__name__)
_JSON = (b"content-type", b"application/json")
_BINARY = (b"content-type", b"application/octet-stream")
_ODD = frozenset({b"content-encoding", b"expect"})
_PLAIN = (b"identity", b"")
Reply = Callable[[Answer], None]


class WithoutTask:
    """Answers requests of one server that need no task."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        token = state.settings.token
        self._token = None if token is None else f"Bearer {token}".encode()
        self._longest = min(SMALL, state.settings.limits.body_nbytes)  # bytes that are not counted for all requests

    def answer(self, scope: Mapping[str, Any], body: bytes, reply: Reply) -> tuple[bool, Job | None]:
        """Begin to answer a request, where that takes no task.

        Args:
            scope: of ASGI.
            body: all of it.
            reply: is called with the answer, once, within this call or later.

        Returns:
            Whether it is answered, or will be; and the job that is to be taken back when the client leaves.
        """
        state = self._state
        asked = model_of(scope) if scope["method"] == "POST" and len(body) <= self._longest else None
        if asked is None or state.tracing is not None or access_log.is_wanted():
            return False, None
        given = dict(scope["headers"])
        if any(given[name] not in _PLAIN for name in _ODD & given.keys()) or not self._is_allowed(given):
            return False, None
        version = state.repository.find_version(*asked)
        if version is None:
            return False, None
        begin = time.perf_counter()
        header_length, json_limit = given.get(HEADER_LENGTH), state.settings.limits.json_nbytes
        try:
            request = decode_infer(*asked, body, header_length, state.regions, json_limit)
        except Exception:  # noqa: BLE001  # whatever it is, the application finds it again, and tells the client
            return False, None
        if request.has_classes:  # of a long result they are a thread's work
            return False, None
        accepted = given.get(b"accept-encoding", b"")

        def tell(found: InferResponse | RequestFailure) -> None:
            self._tell(found, request.are_outputs_binary, accepted, begin, reply)

        return True, infer_without_task(version, request, tell)

    def _is_allowed(self, headers: dict[bytes, bytes]) -> bool:
        return self._token is None or hmac.compare_digest(headers.get(b"authorization", b""), self._token)

    def _tell(
        self, found: InferResponse | RequestFailure, is_binary: bool, accepted: bytes, begin: float, reply: Reply
    ) -> None:
        """Reply, at once or when a thread has written what is long."""
        if isinstance(found, RequestFailure):
            reply(failure_answer(found))
            return
        trace = self._state.trace_of(found.model)
        if trace.is_wanted():
            trace.tell(found, time.perf_counter() - begin)
        if not is_long(found, SMALL if accepted not in _PLAIN else LONG_NBYTES):
            reply(self._written(found, is_binary, accepted))
            return
        held = Body(self._state.body_budget)
        try:
            held.hold(found.written_nbytes)
        except NotReady as failure:
            reply(failure_answer(failure))
            return

        def end(done: asyncio.Future[Answer]) -> None:
            held.release()
            reply(done.result())

        written = asyncio.get_running_loop().run_in_executor(None, self._written, found, is_binary, accepted)
        written.add_done_callback(end)

    def _written(self, found: InferResponse, is_binary: bool, accepted: bytes) -> Answer:
        try:
            raw, length = encode_infer(found, is_binary, self._state.regions)
        except RequestFailure as failure:
            return failure_answer(failure)
        except Exception as error:
            log.exception("a request failed")
            return failure_answer(ModelFailed(f"the server failed: {type(error).__name__}"))
        headers = [_JSON] if length is None else [_BINARY, (b"inference-header-content-length", b"%d" % length)]
        if accepted not in _PLAIN:
            raw, encoding = packed(raw, accepted.decode("latin-1"))
            if encoding:
                headers.append((b"content-encoding", encoding.encode()))
        return 200, headers, raw
