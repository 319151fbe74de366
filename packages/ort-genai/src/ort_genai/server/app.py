"""The application: routes, errors, limits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ort_core.errors import OrtError
from ort_genai.engine.engine import Engine
from ort_genai.engine.requests import Piece, Request
from ort_genai.errors import EngineBusy, GenerationFailed, InvalidGeneration
from ort_genai.server.answers import AnswerHead, ChoiceState, chat_chances, completion_chances, usage_of
from ort_genai.server.schemas import ChatBody, CompletionBody, Sampling
from ort_genai.server.tool_calls import calls_in, with_tools

log = logging.getLogger(__name__)
_T = TypeVar("_T", bound=BaseModel)
Handler = Callable[[HttpRequest], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What the server is called and what it takes.

    Attributes:
        name: of the model, as clients ask for it.
        api_key: that clients must send; empty: none.
        max_body: bytes of a request.
        max_tokens: of a text for which the client names no number; ``None``: up to the context's end.
        temperature: for which the client names none.
    """

    name: str
    api_key: str = ""
    max_body: int = 4 << 20
    max_tokens: int | None = 1024
    temperature: float = 1.0


class _Refused(Exception):
    """An answer with an error."""

    def __init__(self, status: int, message: str, kind: str = "invalid_request_error", code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.code = status, kind, code


class _Routes:
    """The handlers of one engine."""

    def __init__(self, engine: Engine, options: ServerOptions) -> None:
        self._engine, self._options = engine, options
        self._text = engine.model.text
        self._started = int(time.time())
        self._answers = {"ok": 0, "refused": 0}

    def routes(self) -> list[Route]:
        """Return all routes."""
        return [
            Route("/", self.page), Route("/health", self.health), Route("/metrics", self.metrics),
            Route("/v1/models", self._guarded(self.models)),
            Route("/v1/models/{name:path}", self._guarded(self.one_model)),
            Route("/v1/chat/completions", self._guarded(self.chat), methods=["POST"]),
            Route("/v1/completions", self._guarded(self.complete), methods=["POST"]),
            Route("/v1/embeddings", self._guarded(self.embed), methods=["POST"]),
        ]  # fmt: skip

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: HttpRequest) -> Response:
            try:
                self._check_key(request)
                answer = await handler(request)
            except _Refused as error:
                self._answers["refused"] += 1
                return _error(error.status, str(error), error.kind, error.code)
            except EngineBusy as error:
                self._answers["refused"] += 1
                return _error(503, str(error), "server_error", "overloaded")
            except GenerationFailed as error:
                log.warning("a text failed: %s", error)
                return _error(500, str(error), "server_error")
            except InvalidGeneration as error:
                self._answers["refused"] += 1
                return _error(400, str(error))
            except OrtError as error:
                log.warning("a request failed: %s", error)
                return _error(500, str(error), "server_error")
            self._answers["ok"] += 1
            return answer

        return guarded

    def _check_key(self, request: HttpRequest) -> None:
        if not self._options.api_key:
            return
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not secrets.compare_digest(given.encode(), self._options.api_key.encode()):
            raise _Refused(401, "the API key is missing or wrong", "authentication_error", "invalid_api_key")

    # ------------------------------------------------------------ small ones

    async def page(self, _: HttpRequest) -> Response:
        """Return the page to talk to the model."""
        source = files("ort_genai.server").joinpath("page.html").read_text(encoding="utf-8")
        return HTMLResponse(source.replace("{{model}}", json.dumps(self._options.name)[1:-1].replace("<", "&lt;")))

    async def health(self, _: HttpRequest) -> Response:
        """Return that the server answers."""
        return JSONResponse({"status": "ok"})

    async def metrics(self, _: HttpRequest) -> Response:
        """Return counts as Prometheus reads them."""
        counts = self._engine.current_counts()
        lines = []
        for name, kind, value in (
            ("requests_total", "counter", counts.requests), ("prompt_tokens_total", "counter", counts.prompt_tokens),
            ("cached_prompt_tokens_total", "counter", counts.cached_tokens), ("tokens_total", "counter", counts.tokens),
            ("steps_total", "counter", counts.steps), ("drafted_tokens_total", "counter", counts.drafted),
            ("accepted_tokens_total", "counter", counts.accepted), ("running", "gauge", counts.running),
            ("waiting", "gauge", counts.waiting), ("answers_total", "counter", self._answers["ok"]),
            ("refusals_total", "counter", self._answers["refused"]),
        ):  # fmt: skip
            lines += [f"# TYPE ort_genai_{name} {kind}", f"ort_genai_{name} {value}"]
        return PlainTextResponse("\n".join(lines) + "\n")

    async def models(self, _: HttpRequest) -> Response:
        """List the model, alone and with each of its adapters."""
        names = [self._options.name, *self._engine.adapter_names]
        return JSONResponse({"object": "list", "data": [self._described(name) for name in names]})

    async def one_model(self, request: HttpRequest) -> Response:
        """Describe the model, or the model with an adapter."""
        adapter = self._adapter_of(request.path_params["name"])
        return JSONResponse(self._described(adapter or self._options.name))

    async def embed(self, _: HttpRequest) -> Response:
        """Refuse: a decoder's graph gives logits alone."""
        raise _Refused(501, "this model gives no embeddings: its graph has logits alone", "invalid_request_error")

    def _described(self, name: str) -> dict[str, Any]:  # Any: JSON
        return {
            "id": name, "object": "model", "created": self._started, "owned_by": "ort-genai",
            "context_length": self._engine.model.decoder.context_length,
        }  # fmt: skip

    def _adapter_of(self, name: str) -> str:
        """Return the adapter that a model's name stands for; empty for the model itself."""
        if name in ("", self._options.name):
            return ""
        if name not in self._engine.adapter_names:
            known = ", ".join([self._options.name, *self._engine.adapter_names])
            raise _Refused(404, f"the model {name!r} is not here; there is {known}", code="model_not_found")
        return name

    # ------------------------------------------------------------ texts

    async def chat(self, request: HttpRequest) -> Response:
        """Answer a conversation."""
        body = await read_body(request, ChatBody, self._options.max_body)
        adapter = self._adapter_of(body.model)
        tools = [each.model_dump(exclude_none=True) for each in body.used_tools()]
        names = [each.function.name for each in body.used_tools()]
        messages = with_tools(body.plain_messages(), tools, self._text.template)
        limit = body.max_completion_tokens or body.max_tokens or self._options.max_tokens
        prompt = await asyncio.to_thread(self._chat_tokens, messages, tools)
        asked = await asyncio.to_thread(
            self._submit_all, [prompt], body, max_tokens=limit, grammar=body.grammar(), adapter=adapter,
            tells_log_probabilities=body.logprobs, log_probabilities=body.top_logprobs,
        )  # fmt: skip
        head = AnswerHead("chat.completion", adapter or self._options.name)

        def whole(place: int, pieces: Sequence[Piece], reason: str) -> dict[str, Any]:  # Any: JSON
            text = "".join(piece.text for piece in pieces)
            text, calls = calls_in(text, names) if names else (text, [])
            message: dict[str, Any] = {"role": "assistant", "content": None if calls and not text else text}
            if calls:
                message["tool_calls"] = calls
            chances = chat_chances(self._text, pieces) if body.logprobs else None
            return {
                "index": place, "message": message, "logprobs": chances,
                "finish_reason": "tool_calls" if calls else reason,
            }  # fmt: skip

        def part(place: int, piece: Piece) -> dict[str, Any] | None:
            if names:  # a call is told when it is whole
                return None
            chances = chat_chances(self._text, [piece]) if body.logprobs else None
            return {"index": place, "delta": {"content": piece.text}, "logprobs": chances, "finish_reason": None}

        def last(place: int, pieces: Sequence[Piece], reason: str) -> dict[str, Any]:
            delta: dict[str, Any] = {}
            if names:
                found = whole(place, pieces, reason)
                delta = {key: value for key, value in found["message"].items() if key != "role" and value is not None}
                for number, call in enumerate(delta.get("tool_calls", [])):
                    call["index"] = number
                reason = found["finish_reason"]
            return {"index": place, "delta": delta, "logprobs": None, "finish_reason": reason}

        first = [
            {"index": place, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
            for place in range(body.n)
        ]
        return await self._answered(request, body, asked, head, (first, whole, part, last))

    async def complete(self, request: HttpRequest) -> Response:
        """Go on with texts."""
        body = await read_body(request, CompletionBody, self._options.max_body)
        adapter = self._adapter_of(body.model)
        prompts = await asyncio.to_thread(self._completion_tokens, body)
        if not prompts or len(prompts) * body.n > 128:
            raise InvalidGeneration(f"{len(prompts)} prompts with {body.n} choices each; expected 1 to 128 texts")
        limit = body.max_tokens or 16  # OpenAI's own number for this route
        asked = await asyncio.to_thread(
            self._submit_all, prompts, body, max_tokens=limit, adapter=adapter,
            tells_log_probabilities=body.logprobs is not None, log_probabilities=body.logprobs or 0,
        )  # fmt: skip
        head = AnswerHead("text_completion", adapter or self._options.name)
        starts = [self._text.decode(prompts[place // body.n]) if body.echo else "" for place in range(len(asked))]

        def whole(place: int, pieces: Sequence[Piece], reason: str) -> dict[str, Any]:  # Any: JSON
            text = starts[place] + "".join(piece.text for piece in pieces)
            chances = completion_chances(self._text, pieces, len(starts[place])) if body.logprobs is not None else None
            return {"index": place, "text": text, "logprobs": chances, "finish_reason": reason}

        def part(place: int, piece: Piece) -> dict[str, Any]:
            chances = completion_chances(self._text, [piece]) if body.logprobs is not None else None
            return {"index": place, "text": piece.text, "logprobs": chances, "finish_reason": None}

        def last(place: int, pieces: Sequence[Piece], reason: str) -> dict[str, Any]:
            return {"index": place, "text": "", "logprobs": None, "finish_reason": reason}

        first = [
            {"index": place, "text": text, "logprobs": None, "finish_reason": None}
            for place, text in enumerate(starts) if text
        ]  # fmt: skip
        return await self._answered(request, body, asked, head, (first, whole, part, last))

    def _chat_tokens(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> list[int]:
        return self._text.chat_tokens(messages, tools=tools or None)

    def _completion_tokens(self, body: CompletionBody) -> list[list[int]]:
        return [each if isinstance(each, list) else self._text.encode(each) for each in body.prompts()]

    def _submit_all(self, prompts: Sequence[list[int]], body: Sampling, **more: Any) -> list[Request]:  # Any: options
        asked: list[Request] = []
        try:
            for prompt in prompts:
                for place in range(body.n):
                    options = body.options(place, self._options.temperature, **more)
                    asked.append(self._engine.submit(prompt, options))
        except OrtError:
            for each in asked:
                each.cancel()
            raise
        return asked

    async def _answered(
        self, request: HttpRequest, body: Sampling, asked: list[Request], head: AnswerHead, forms: tuple[Any, ...]
    ) -> Response:  # Any: the four functions above
        first, whole, part, last = forms
        prompts = [place // body.n for place in range(len(asked))]
        if body.stream:
            usage = body.stream_options is not None and body.stream_options.include_usage
            events = _events(asked, head, (first, part, last), prompts if usage else None)
            return _Events(asked, events)
        states = await _all_of(request, asked)
        choices = [
            whole(place, state.pieces, _reason(asked[place])) for place, state in enumerate(states)
        ]  # fmt: skip
        return JSONResponse(head.object(choices, usage=usage_of(asked, prompts)))


class _Events(StreamingResponse):
    """A stream of events; when it ends, even before its first event was asked for, so do the texts."""

    def __init__(self, asked: Sequence[Request], events: AsyncIterator[str]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"cache-control": "no-cache"})
        self._asked = asked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            for each in self._asked:
                if each.finished is None:
                    each.cancel()


async def _all_of(request: HttpRequest, asked: Sequence[Request]) -> list[ChoiceState]:
    """Wait for all texts; a client that goes away ends them."""

    async def one(each: Request) -> ChoiceState:
        return ChoiceState([piece async for piece in each])

    async def gone() -> None:
        while not await request.is_disconnected():
            await asyncio.sleep(0.1)
        for each in asked:
            each.cancel()

    watching = asyncio.create_task(gone())
    try:
        return list(await asyncio.gather(*(one(each) for each in asked)))
    finally:
        watching.cancel()
        for each in asked:
            if each.finished is None:
                each.cancel()


async def _events(
    asked: Sequence[Request], head: AnswerHead, forms: tuple[Any, ...], prompts: list[int] | None
) -> AsyncIterator[str]:  # Any: functions of a route
    """Yield the events of a stream: pieces of all choices as they come."""
    first, part, last = forms
    merged: asyncio.Queue[tuple[int, Piece | None, str]] = asyncio.Queue()

    async def one(place: int, each: Request) -> None:
        error = ""
        try:
            async for piece in each:
                merged.put_nowait((place, piece, ""))
        except InvalidGeneration as failed:
            error = str(failed)
        merged.put_nowait((place, None, error))

    tasks = [asyncio.create_task(one(place, each)) for place, each in enumerate(asked)]
    pieces: list[list[Piece]] = [[] for _ in asked]
    try:
        if first:
            yield _event(head.object(first, is_chunk=True))
        left = len(asked)
        while left:
            place, piece, error = await merged.get()
            if piece is not None:
                pieces[place].append(piece)
                choice = part(place, piece) if piece.text or piece.chance is not None else None
                if choice is not None:
                    yield _event(head.object([choice], is_chunk=True))
                continue
            left -= 1
            if error:
                yield _event({"error": {"message": error, "type": "server_error", "param": None, "code": None}})
            else:
                yield _event(head.object([last(place, pieces[place], _reason(asked[place]))], is_chunk=True))
        if prompts is not None:
            yield _event(head.object([], is_chunk=True, usage=usage_of(asked, prompts)))
        yield "data: [DONE]\n\n"
    finally:
        for task in tasks:
            task.cancel()
        for each in asked:
            if each.finished is None:
                each.cancel()


def _event(content: dict[str, Any]) -> str:  # Any: JSON
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"


def _reason(request: Request) -> str:
    return "stop" if request.finished is None else str(request.finished.reason)


async def _read(request: HttpRequest, limit: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _Refused(413, f"the request has more than {limit} bytes")
        parts.append(part)
    return b"".join(parts)


async def read_body(request: HttpRequest, kind: type[_T], limit: int) -> _T:
    """Return the body of a request.

    Raises:
        _Refused: it is too long, no JSON, or does not fit.
    """
    try:
        return kind.model_validate_json(await _read(request, limit))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(str(each) for each in first["loc"]) or "the body"
        raise _Refused(400, f"{place}: {first['msg']}") from error


def _error(status: int, message: str, kind: str = "invalid_request_error", code: str | None = None) -> Response:
    return JSONResponse({"error": {"message": message, "type": kind, "param": None, "code": code}}, status)


def application(engine: Engine, options: ServerOptions) -> Starlette:
    """Return the application; when it ends the engine is closed."""

    @contextlib.asynccontextmanager
    async def living(_: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(engine.close)

    return Starlette(routes=_Routes(engine, options).routes(), lifespan=living)
