"""Connections of HTTP with the limits that uvicorn leaves open: of a request's head, its time, and slow readers."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from typing import Any, cast

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from ort_serve.failures import Cancelled, plain_text
from ort_serve.rest.answers import Answer
from ort_serve.rest.body import BodyBudget
from ort_serve.rest.without_task import WithoutTask
from ort_serve.scheduling.job import Job
from ort_serve.server_settings import Limits

log = logging.getLogger(__name__)
_HEAD_NBYTES = 1 << 16  # of a request line, headers and trailers
_MOST_WAITING = 16  # requests that are read behind one that is answered
_SPARE_S = 5.0  # for the application to answer in words before the connection is cut
_LINGER_S = 2.0  # between a last answer and the end of its connection, for a client that still sends
_LARGE_HEAD = "the request's head is more than 64 KiB"
_SINGLE = frozenset(
    {b"authorization", b"content-encoding", b"content-type", b"host", b"inference-header-content-length"}
)


def connections_within(
    limits: Limits, without_task: WithoutTask | None = None, budget: BodyBudget | None = None
) -> type[LimitedConnection]:
    """Return the class of connections for a server's limits.

    Args:
        limits: of each connection.
        without_task: answers what needs no task; None: nothing does.
        budget: bytes that wait for clients to read them count among those of bodies; None: they are not counted.
    """
    known = {"limits": limits, "without_task": without_task, "budget": budget}
    return type("Connection", (LimitedConnection,), known)


class LimitedConnection(HttpToolsProtocol):
    """One connection.

    A request's head and trailers are bounded, a request must arrive whole in ``limits.read_s``, a connection must begin
    one in ``limits.idle_s``, and a client that reads nothing of its answer for ``limits.read_s`` is cut off.
    """

    limits = Limits()
    without_task: WithoutTask | None = None
    budget: BodyBudget | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_nbytes = 0  # of the parts of a head that has no end yet
        self._fields_nbytes = 0
        self._is_head = True
        self._is_whole = True
        self._is_reading = False
        self._method = b""
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._owed = 0  # bytes that wait for the client, as they are counted
        self._held: tuple[RequestResponseCycle, Any] | None = None  # a request that is not whole yet, and its ASGI
        self._job: Job | None = None  # that a request without a task waits for
        self._answering: RequestResponseCycle | None = None  # whose turn to be answered it is, or was
        self._reading: RequestResponseCycle | None = None  # a request whose body has no end yet
        self._farewell: bytes | None = None  # what is told before the connection ends: something was no request
        self._lingers: asyncio.TimerHandle | None = None  # all is told; what the client still sends is dropped

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for a request, but not for ever."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self.limits.idle_s, self._cut)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        if self._answering is not None:  # uvicorn tells the newest request alone, not the one that later ones wait for
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)
        self._cancel_deadline()
        self._owe(0)
        self._held = None
        if self._job is not None:
            self._job.leave(Cancelled("the client left"))
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        if self._lingers is not None:
            self._lingers.cancel()

    def data_received(self, data: bytes) -> None:
        """Read on, within the limits."""
        if self._farewell is not None or self._lingers is not None:
            return  # nothing can be told apart behind what is no request, or is not read to its end
        was_whole = self._is_whole
        self._unset_keepalive_if_required()
        self._is_reading = True
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            self._refuse(error)
            return
        finally:
            self._is_reading = False
        self._begin_held()
        if self._is_whole:
            return
        if self._is_head:
            self._head_nbytes += len(data)
            if self._head_nbytes > _HEAD_NBYTES:
                self._refuse(_LargeHeadError(_LARGE_HEAD))
                return
        if was_whole or self._deadline is None:
            self._cancel_deadline()
            spare = min(_SPARE_S, self.limits.read_s)
            self._deadline = self.loop.call_later(self.limits.read_s + spare, self._cut)

    def _refuse(self, error: Exception) -> None:
        """Tell the client what is wrong with its bytes, behind the answers to the requests before, and hang up.

        A request that has its answer already, while its body still came, gets no second one.
        """
        cause = error.__context__ or error  # what a method of this class raised, the parser hides
        is_large = isinstance(cause, _LargeHeadError)
        log.info("a request of %s is refused: %s", self.client, cause)
        broken, self._reading, self._held = self._reading, None, None
        self._cancel_deadline()
        if broken is not None and broken.response_started:
            self._farewell = b""
        else:
            told = str(cause) if isinstance(cause, _OddHeadError) else f"the request is not HTTP: {cause}"
            status = 431 if is_large else 400
            self._farewell = _farewell(status, told)
            if broken is not None:
                broken.disconnected = broken.response_complete = True  # its application, if it runs, is told
                broken.message_event.set()
                self.pipeline = deque([pair for pair in self.pipeline if pair[0] is not broken])
        self._hang_up()

    def _hang_up(self) -> None:
        """End a connection that has said something that is no request, once all before it is answered."""
        is_busy = self._answering is not None and not self._answering.response_complete
        is_ending = self.transport.is_closing() or self._lingers is not None
        if self._farewell is None or is_busy or self.pipeline or is_ending:
            return
        self.transport.write(self._farewell)
        self.linger()

    @property
    def is_whole(self) -> bool:
        """Whether the newest request has come to its end."""
        return self._is_whole

    def linger(self) -> None:
        """End a connection whose client may still send: bytes that nobody reads would take the answer away from it.

        A system that meets them behind the end resets the connection, and Windows drops then what came before.
        """
        if not self.transport.can_write_eof():  # TLS has no half of an end
            self.transport.close()
        elif self._lingers is None and not self.transport.is_closing():
            self._lingers = self.loop.call_later(_LINGER_S, self.transport.close)
            self.transport.write_eof()
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """Go on with the next request, or end."""
        if self._lingers is not None:
            self.server_state.total_requests += 1
            return
        following = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        if following is not None and not self._waits(following):
            self._answering = following
        self._hang_up()

    def _waits(self, cycle: RequestResponseCycle) -> bool:
        return any(each is cycle for each, _ in self.pipeline)

    def _feed(self, data: bytes) -> None:
        """Parse what came.

        A client may ask for another protocol with its request, as Java's does for HTTP/2. There is none here, and HTTP
        says that the request is answered then as if it had not asked; the parser stops behind its head, so a new one
        is given the head without the wish, and the rest.
        """
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as stop:
                rest = data[stop.args[0] :]
            if self._method == b"CONNECT":
                raise httptools.HttpParserInvalidMethodError("this is not a proxy")
            self.parser = httptools.HttpRequestParser(self)
            data = self._head_without_upgrade() + rest

    def _head_without_upgrade(self) -> bytes:
        lines = [self._method + b" " + self.url + b" HTTP/1.1"]
        wishes = (b"upgrade", b"connection", b"http2-settings")
        lines += [name + b": " + value for name, value in self.headers if name not in wishes]
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._is_head, self._is_whole = True, False
        self._reading = None
        self._head_nbytes = self._fields_nbytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header or a trailer."""
        self._fields_nbytes += len(name) + len(value)
        if self._fields_nbytes > _HEAD_NBYTES:
            raise _LargeHeadError(_LARGE_HEAD)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        self._is_head = False
        self._check_head()
        if self.parser.should_upgrade():
            self._method = self.parser.get_method()
            return
        super().on_headers_complete()
        self._reading = self.cycle
        if not self._waits(self.cycle):
            self._answering = self.cycle
        if self._held is None:  # uvicorn before 0.45 has begun it
            self._linger_behind(self.cycle)
        if self._job is not None and len(self.pipeline) < _MOST_WAITING:
            self.flow.resume_reading()  # uvicorn reads no more before that is answered: its client could not leave

    def _check_head(self) -> None:
        """Refuse a head that two programs may read in two ways."""
        names = [name for name, _ in self.headers]
        if len(set(names)) != len(names):
            twice = [name for name in names if name in _SINGLE and names.count(name) > 1]
            if twice:
                raise _OddHeadError(f"the request has several {twice[0].decode().title()} headers; send one")
        if b"host" not in names and self.parser.get_http_version() == "1.1":
            raise _OddHeadError("the request has no Host header, which HTTP/1.1 requires")
        if b"transfer-encoding" in names and dict(self.headers)[b"transfer-encoding"].strip().lower() != b"chunked":
            raise _OddHeadError(
                "the request has a Transfer-Encoding other than chunked; compress the body by Content-Encoding"
            )

    def on_message_complete(self) -> None:
        """Note that the request is whole."""
        if self.parser.should_upgrade():
            return
        self._is_whole = True
        self._reading = None
        self._cancel_deadline()
        super().on_message_complete()
        if self._held is not None and not self._is_answered(self._held[0]):
            self._begin_held()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Begin to answer a request: hold it, where it may come whole with what was read.

        Uvicorn before 0.45 does not call this: everything goes through the application there.
        """
        if self.without_task is None or self._is_whole or not self._is_reading or app is not self.app:
            self._begin(cycle, app)
        else:
            self._held = cycle, app

    def _begin_held(self) -> None:
        """Give the request that is held to the application."""
        if self._held is not None:
            (cycle, app), self._held = self._held, None
            self._begin(cycle, app)

    def _begin(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._linger_behind(cycle)
        super()._start_asgi_task(cycle, app)

    def _linger_behind(self, cycle: RequestResponseCycle) -> None:
        """Let the connection linger if it ends with the answer to a request that is not whole."""
        if not self._is_whole:
            cycle.transport = cast("asyncio.Transport", _UnreadTransport(self))

    def _is_answered(self, cycle: RequestResponseCycle) -> bool:
        """Answer the request that is held without a task, if it may be."""
        if self.without_task is None or self.flow.write_paused:
            return False
        if not self.parser.should_keep_alive():  # older versions of uvicorn find that out with the answer
            cycle.keep_alive = False
        body = bytes(cycle.body)
        reply = functools.partial(self._reply, cycle)
        is_answered, job = self.without_task.answer(cycle.scope, body, reply)
        if is_answered:
            self._held = None
            self._job = None if cycle.response_complete else job
        return is_answered

    def _reply(self, cycle: RequestResponseCycle, answer: Answer) -> None:
        """Write an answer, as uvicorn's own cycle does with ASGI's messages."""
        self._job = None
        if cycle.disconnected or self.transport.is_closing():
            return
        status, headers, body = answer
        parts = [STATUS_LINE[status]]
        for name, value in (*self.server_state.default_headers, *headers):
            parts += (name, b": ", value, b"\r\n")
        if not cycle.keep_alive:
            parts.append(b"connection: close\r\n")
        parts += (b"content-length: %d\r\n\r\n" % len(body), body)
        cycle.response_started = cycle.response_complete = True
        self.transport.write(b"".join(parts))
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def pause_writing(self) -> None:
        """Look from now on whether the client reads."""
        super().pause_writing()
        waiting = self.transport.get_write_buffer_size()
        self._owe(waiting)
        if self._stall is None:
            self._watch(waiting)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._owe(0)
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _owe(self, nbytes: int) -> None:
        """Count what waits for the client, so that no more is taken where those who do not read hold the memory."""
        if self.budget is not None:
            self.budget.held += nbytes - self._owed
            self._owed = nbytes

    def _watch(self, waiting: int) -> None:
        self._stall = self.loop.call_later(self.limits.read_s, self._look, waiting)

    def _look(self, waiting: int) -> None:
        left = self.transport.get_write_buffer_size()
        self._owe(left)
        if left >= waiting:
            self._cut()
        else:
            self._watch(left)

    def _cut(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _UnreadTransport:
    """The transport of an answer to a request that is not whole: its end lingers while the rest may come."""

    def __init__(self, connection: LimitedConnection) -> None:
        self._connection = connection
        self.write = connection.transport.write
        self.is_closing = connection.transport.is_closing

    def close(self) -> None:
        if self._connection.is_whole:
            self._connection.transport.close()
        else:
            self._connection.linger()


class _OddHeadError(ValueError):
    """A request's head is HTTP, but not one that is answered."""


class _LargeHeadError(_OddHeadError):
    """A request's head or trailers are too large."""


def _farewell(status: int, told: str) -> bytes:
    """Return an answer behind which the connection ends."""
    body = orjson.dumps({"error": plain_text(told)})
    head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
    return STATUS_LINE[status] + head + body
