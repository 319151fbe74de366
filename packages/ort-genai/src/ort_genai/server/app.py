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
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ort_core.errors import OrtError
from ort_genai.cross_encoder import CrossEncoder
from ort_genai.embeddings import Embedder, Pooling, has_vectors
from ort_genai.engine.engine import AsyncEngine
from ort_genai.engine.requests import AsyncRequest, Piece
from ort_genai.errors import ContextExceeded, EngineBusy, GenerationFailed, InvalidGeneration
from ort_genai.media.images import Images
from ort_genai.media.seen_chat import SeenPrompt, seen_prompt
from ort_genai.server.answers import AnswerHead, usage_of
from ort_genai.server.bodies import Refused, error_answer, read_body, read_query
from ort_genai.server.forms import ChatForms, CompletionForms, Forms
from ort_genai.server.input_items import ItemQuery, page_of
from ort_genai.server.kept_responses import KeptResponses
from ort_genai.server.response_forms import ResponseForms, response_events
from ort_genai.server.response_schemas import CountedBody, ResponseBody, chat_of
from ort_genai.server.schemas import ChatBody, CompletionBody, Sampling
from ort_genai.server.streams import Events, all_of, events_of, reason_of
from ort_genai.server.tool_calls import known_roles, with_tools
from ort_genai.server.vectors import EmbeddingBody, RerankBody, embedding_answer, rerank_answer

log = logging.getLogger(__name__)
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
        pooling: which token's vector stands for a text.
    """

    name: str
    api_key: str = ""
    max_body: int = 4 << 20
    max_tokens: int | None = 1024
    temperature: float = 1.0
    pooling: Pooling = Pooling.LAST


class _Routes:
    """The handlers of one engine."""

    def __init__(self, engine: AsyncEngine, options: ServerOptions, reranker: CrossEncoder | None) -> None:
        self._engine, self._options, self._name = engine, options, options.name
        self._reranker = reranker
        self._text = engine.model.text
        self._started = int(time.time())
        self._answers = {"ok": 0, "refused": 0}
        self._responses = KeptResponses()

    def routes(self) -> list[Route]:
        """Return all routes."""
        return [
            Route("/", self.page), Route("/health", self.health), Route("/metrics", self.metrics),
            Route("/v1/models", self._guarded(self.models)),
            Route("/v1/models/{name:path}", self._guarded(self.one_model)),
            Route("/v1/chat/completions", self._guarded(self.chat), methods=["POST"]),
            Route("/v1/responses", self._guarded(self.respond), methods=["POST"]),
            Route("/v1/responses/input_tokens", self._guarded(self.count_input), methods=["POST"]),
            Route("/v1/responses/{name}/input_items", self._guarded(self.input_items)),
            Route("/v1/responses/{name}", self._guarded(self.one_response), methods=["GET", "DELETE"]),
            Route("/v1/completions", self._guarded(self.complete), methods=["POST"]),
            Route("/v1/embeddings", self._guarded(self.embed), methods=["POST"]),
            Route("/v1/rerank", self._guarded(self.rerank), methods=["POST"]),
        ]  # fmt: skip

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: HttpRequest) -> Response:
            try:
                self._check_key(request)
                answer = await handler(request)
            except Refused as error:
                self._answers["refused"] += 1
                return error_answer(error.status, str(error), error.kind, error.code, error.param)
            except EngineBusy as error:
                self._answers["refused"] += 1
                return error_answer(503, str(error), "server_error", "overloaded")
            except GenerationFailed as error:
                log.warning("a text failed: %s", error)
                return error_answer(500, str(error), "server_error")
            except InvalidGeneration as error:
                self._answers["refused"] += 1
                code = "context_length_exceeded" if isinstance(error, ContextExceeded) else None
                return error_answer(400, str(error), code=code)
            except ClientDisconnect:  # before its request was whole: nobody reads an answer
                self._answers["refused"] += 1
                return Response(status_code=400)
            except OrtError as error:
                log.warning("a request failed: %s", error)
                return error_answer(500, str(error), "server_error")
            self._answers["ok"] += 1
            return answer

        return guarded

    def _check_key(self, request: HttpRequest) -> None:
        if not self._options.api_key:
            return
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not secrets.compare_digest(given.encode(), self._options.api_key.encode()):
            raise Refused(401, "the API key is missing or wrong", "authentication_error", "invalid_api_key")

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

    async def embed(self, request: HttpRequest) -> Response:
        """Give texts their vectors."""
        body = await read_body(request, EmbeddingBody, self._options.max_body)
        return JSONResponse(await asyncio.to_thread(embedding_answer, self._embedder(body.model), body, self._name))

    async def rerank(self, request: HttpRequest) -> Response:
        """Order documents by how near they are to a query."""
        body = await read_body(request, RerankBody, self._options.max_body)
        ranker = self._reranker or self._embedder(body.model)
        return JSONResponse(await asyncio.to_thread(rerank_answer, ranker, body, self._name))

    def _embedder(self, name: str) -> Embedder:
        if self._adapter_of(name):
            raise Refused(400, "vectors are of the model itself, not of one of its adapters")
        if not has_vectors(self._engine.model):
            raise Refused(501, "this model gives no vectors: its graph has logits alone; build it with --hidden-states")
        return Embedder(self._engine.model, self._options.pooling)

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
            raise Refused(404, f"the model {name!r} is not here; there is {known}", code="model_not_found")
        return name

    # ------------------------------------------------------------ texts

    async def chat(self, request: HttpRequest) -> Response:
        """Answer a conversation."""
        body = await read_body(request, ChatBody, self._options.max_body)
        adapter = self._adapter_of(body.model)
        asked = await self._ask(body, adapter)
        names = [each.function.name for each in body.used_tools()]
        head = AnswerHead("chat.completion", adapter or self._options.name)
        forms = ChatForms(
            self._text, names, body.n, tells_chances=body.logprobs, takes_several=body.parallel_tool_calls
        )
        return await self._answered(request, body, asked, head, forms)

    async def _ask(self, body: ChatBody, adapter: str) -> list[AsyncRequest]:
        """Ask for the answers of a conversation."""
        limit = body.max_completion_tokens or body.max_tokens or self._options.max_tokens
        prompt = await asyncio.to_thread(self._chat_prompt, body)
        return await asyncio.to_thread(
            self._submit_all, [prompt], body, max_tokens=limit, grammar=body.grammar(), adapter=adapter,
            tells_log_probabilities=body.logprobs, log_probabilities=body.top_logprobs,
        )  # fmt: skip

    async def respond(self, request: HttpRequest) -> Response:
        """Answer a conversation in the form of responses, which may go on from an earlier one."""
        body = await read_body(request, ResponseBody, self._options.max_body)
        adapter = self._adapter_of(body.model)
        talk = self._responses.conversation(body)
        chat = chat_of(body, talk.messages)
        (asked,) = await self._ask(chat, adapter)
        forms = ResponseForms(self._text, body, chat, adapter or self._name)
        if body.stream:
            return Events([asked], response_events(asked, forms, self._responses, talk, body))
        (state,) = await all_of(request, [asked])
        forms.pieces += state.pieces
        whole = forms.whole(asked)
        self._responses.keep(body, whole, talk)
        return JSONResponse(whole)

    async def one_response(self, request: HttpRequest) -> Response:
        """Return a response that was kept, or forget it."""
        name = request.path_params["name"]
        if request.method == "DELETE":
            self._responses.forget(name)
            return JSONResponse({"id": name, "object": "response", "deleted": True})
        return JSONResponse(self._responses.find(name))

    async def input_items(self, request: HttpRequest) -> Response:
        """List what a response that was kept was made of."""
        found = self._responses.input_items(request.path_params["name"])
        return JSONResponse(page_of(found, read_query(request, ItemQuery)))

    async def count_input(self, request: HttpRequest) -> Response:
        """Count the tokens that a response would read."""
        body = await read_body(request, CountedBody, self._options.max_body)
        self._adapter_of(body.model)
        chat = chat_of(body, self._responses.conversation(body).messages)
        prompt = await asyncio.to_thread(self._chat_prompt, chat)
        return JSONResponse({"object": "response.input_tokens", "input_tokens": len(prompt.tokens)})

    async def complete(self, request: HttpRequest) -> Response:
        """Go on with texts."""
        body = await read_body(request, CompletionBody, self._options.max_body)
        adapter = self._adapter_of(body.model)
        prompts = await asyncio.to_thread(self._completion_tokens, body)
        if not prompts or len(prompts) * body.n > 128:
            raise InvalidGeneration(f"{len(prompts)} prompts with {body.n} choices each; expected 1 to 128 texts")
        limit = 16 if body.max_tokens is None else body.max_tokens  # OpenAI's own number for this route
        head = AnswerHead("text_completion", adapter or self._options.name)
        echoed = await asyncio.to_thread(self._echoed, body, prompts, adapter) if body.echo else []
        starts = [echoed[place // body.n] if body.echo else [] for place in range(len(prompts) * body.n)]
        forms = CompletionForms(self._text, starts, tells_chances=body.logprobs is not None)
        if not limit:
            return self._echo_alone(body, prompts, head, forms)
        asked = await asyncio.to_thread(
            self._submit_all, [SeenPrompt(each, None) for each in prompts], body, max_tokens=limit, adapter=adapter,
            tells_log_probabilities=body.logprobs is not None, log_probabilities=body.logprobs or 0,
        )  # fmt: skip
        return await self._answered(request, body, asked, head, forms)

    def _echoed(self, body: CompletionBody, prompts: Sequence[list[int]], adapter: str) -> list[list[Piece]]:
        """Return the prompts in pieces; those whose log-probabilities are asked for are read for them."""
        if body.logprobs is None:
            return [[Piece(self._text.decode(tokens))] for tokens in prompts]
        return [self._engine.score(tokens, body.logprobs, adapter=adapter) for tokens in prompts]

    def _echo_alone(
        self, body: CompletionBody, prompts: Sequence[list[int]], head: AnswerHead, forms: CompletionForms
    ) -> Response:
        """Answer who wants no text, but log-probabilities of his own."""
        if body.stream:
            raise InvalidGeneration("a stream needs max_tokens of 1 or more")
        count = sum(map(len, prompts))
        usage = {"prompt_tokens": count, "completion_tokens": 0, "total_tokens": count}
        choices = [forms.whole(place, [], "length") for place in range(len(prompts) * body.n)]
        return JSONResponse(head.object(choices, usage=usage))

    def _chat_prompt(self, body: ChatBody) -> SeenPrompt:
        tools = [each.model_dump(exclude_none=True) for each in body.used_tools()]
        template = self._text.template
        values = body.template_values(template)
        if self._engine.model.vision is None:
            messages = with_tools(known_roles(body.plain_messages(), template), tools, template)
            return SeenPrompt(self._text.chat_tokens(messages, tools=tools or None, values=values), None)
        seen, contents = body.seen_messages()
        messages = with_tools(known_roles(seen, template), tools, template)
        images = Images.open_bytes(*contents) if contents else None
        return seen_prompt(self._engine.model, messages, images, tools=tools or None, values=values)

    def _completion_tokens(self, body: CompletionBody) -> list[list[int]]:
        return [each if isinstance(each, list) else self._text.encode(each) for each in body.prompts()]

    def _submit_all(
        self, prompts: Sequence[SeenPrompt], body: Sampling, **more: Any
    ) -> list[AsyncRequest]:  # Any: options
        asked: list[AsyncRequest] = []
        try:
            for prompt in prompts:
                for place in range(body.n):
                    options = body.options(place, self._options.temperature, **more)
                    asked.append(self._engine.submit(prompt.tokens, options, features=prompt.features))
        except OrtError:
            for each in asked:
                each.cancel()
            raise
        return asked

    async def _answered(
        self, request: HttpRequest, body: Sampling, asked: list[AsyncRequest], head: AnswerHead, forms: Forms
    ) -> Response:
        prompts = [place // body.n for place in range(len(asked))]
        if body.stream:
            usage = body.stream_options is not None and body.stream_options.include_usage
            return Events(asked, events_of(asked, head, forms, prompts if usage else None))
        states = await all_of(request, asked)
        choices = [forms.whole(place, state.pieces, reason_of(asked[place])) for place, state in enumerate(states)]
        return JSONResponse(head.object(choices, usage=usage_of(asked, prompts)))


async def _no_route(request: HttpRequest, error: Exception) -> Response:
    """Answer what no route takes as OpenAI does."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    return error_answer(status, f"{request.method} {request.url.path} is not here", code="unknown_url")


async def _fault(request: HttpRequest, error: Exception) -> Response:
    """Tell of a fault of the server's own; its log has the rest."""
    return error_answer(500, f"the server failed: {type(error).__name__}", "server_error")


def application(engine: AsyncEngine, options: ServerOptions, reranker: CrossEncoder | None = None) -> Starlette:
    """Return the application; when it ends the engine is closed.

    Args:
        engine: that answers.
        options: what the server is called and what it takes.
        reranker: that orders documents; ``None``: the engine's model does, where its graph gives vectors.
    """

    @contextlib.asynccontextmanager
    async def living(_: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(engine.close)

    return Starlette(
        routes=_Routes(engine, options, reranker).routes(), lifespan=living,
        exception_handlers={HTTPException: _no_route, Exception: _fault},
    )  # fmt: skip
