"""The addresses of the protocol, and what each does, but for inference, which is in ``infer``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ort_serve.descriptions import (
    describe_config,
    describe_model,
    describe_placement,
    describe_server,
    describe_statistics,
)
from ort_serve.failures import InvalidRequest, NotReady, RequestFailure, Unsupported
from ort_serve.process_metrics import metrics_text
from ort_serve.repository.model_version import ModelVersion
from ort_serve.rest.answers import failure_answer
from ort_serve.rest.body import read_body
from ort_serve.rest.decoding import read_json_object
from ort_serve.rest.openapi import openapi_document
from ort_serve.rest.page import PAGE
from ort_serve.rest.paths import path_within
from ort_serve.server_state import ServerState

Handler = Callable[[Request], Awaitable[Response]]


def build_routes(state: ServerState) -> list[Route]:
    """Return all routes of a server."""
    api = Api(state)
    table: list[tuple[str, str, Handler]] = [
        ("GET", "/v2", api.server),
        ("GET", "/v2/health/live", api.live),
        ("GET", "/v2/health/ready", api.ready),
        ("GET", "/v2/models/stats", api.statistics),
        ("GET", "/v2/logging", api.log_settings),
        ("POST", "/v2/logging", api.change_log_settings),
        ("GET", "/v2/trace/setting", api.trace),
        ("POST", "/v2/trace/setting", api.change_trace),
        ("POST", "/v2/repository/index", api.index),
        ("POST", "/v2/repository/models/{model}/load", api.load),
        ("POST", "/v2/repository/models/{model}/unload", api.unload),
        ("GET", "/metrics", api.metrics),
        ("GET", "/openapi.json", api.openapi),
    ]
    for kind in ("systemsharedmemory", "cudasharedmemory"):
        table += [
            ("GET", f"/v2/{kind}/status", api.region_status),
            ("GET", f"/v2/{kind}/region/{{region}}/status", api.region_status),
            ("POST", f"/v2/{kind}/region/{{region}}/register", api.register_region),
            ("POST", f"/v2/{kind}/region/{{region}}/unregister", api.unregister_regions),
            ("POST", f"/v2/{kind}/unregister", api.unregister_regions),
        ]
    for model in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        table += [
            ("GET", model, api.model),
            ("GET", f"{model}/ready", api.model_ready),
            ("GET", f"{model}/config", api.config),
            ("GET", f"{model}/stats", api.statistics),
            ("GET", f"{model}/explain", api.explain),
            ("GET", f"{model}/trace/setting", api.trace),
            ("POST", f"{model}/trace/setting", api.change_trace),
        ]
    if state.settings.has_page:
        table.append(("GET", "/", api.page))
    return [Route(path, _answering(handler), methods=[method]) for method, path, handler in table]


class Api:
    """What each address does. All methods run in the server's event loop."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._repository = state.repository

    async def server(self, request: Request) -> Response:
        """Return the server's metadata."""
        return _json(describe_server())

    async def live(self, request: Request) -> Response:
        """Say that the server runs."""
        return _json({"live": True})

    async def ready(self, request: Request) -> Response:
        """Say whether all models can answer."""
        if not self._repository.is_ready():
            raise NotReady("not every model is ready; POST /v2/repository/index lists them")
        return _json({"ready": True})

    async def model(self, request: Request) -> Response:
        """Return a model's metadata."""
        return _json(describe_model(self._repository, await self._loaded(request)))

    async def model_ready(self, request: Request) -> Response:
        """Say whether a model can answer."""
        name, version = _asked(request)
        self._repository.check_answers(name, version)
        return _json({"name": name, "ready": True})

    async def config(self, request: Request) -> Response:
        """Return a model's configuration."""
        return _json(describe_config(await self._loaded(request)))

    async def explain(self, request: Request) -> Response:
        """Return where a model's nodes run."""
        return _json(describe_placement(await self._loaded(request)))

    async def statistics(self, request: Request) -> Response:
        """Return counts of one model or of all."""
        if "model" in request.path_params:
            versions: list[ModelVersion] = [self._version(request)]
        else:
            versions = self._repository.loaded()
        return _json({"model_stats": [describe_statistics(version) for version in versions]})

    async def index(self, request: Request) -> Response:
        """List the repository."""
        wanted = await self._object(request)
        rows = [row for row in self._repository.index() if not wanted.get("ready") or row[2] == "READY"]
        names = ("name", "version", "state", "reason")
        return _answer(orjson.dumps([{name: value for name, value in zip(names, row) if value} for row in rows]))

    async def load(self, request: Request) -> Response:
        """Load a model, or what changed of it."""
        self._state.need_loading()
        if (await self._object(request)).get("parameters"):
            raise Unsupported("a model is loaded as its folder says: parameters of a request do not change it")
        await self._repository.load(request.path_params["model"])
        return _json({})

    async def unload(self, request: Request) -> Response:
        """Unload a model."""
        self._state.need_loading()
        await self._repository.unload(request.path_params["model"])
        return _json({})

    async def log_settings(self, request: Request) -> Response:
        """Return what is logged."""
        return _json(self._state.log_settings())

    async def change_log_settings(self, request: Request) -> Response:
        """Change what is logged."""
        self._state.change_log_settings(await self._object(request))
        return _json(self._state.log_settings())

    async def trace(self, request: Request) -> Response:
        """Return which requests are traced."""
        return _json(self._state.get_trace(request.path_params.get("model", "")).values())

    async def change_trace(self, request: Request) -> Response:
        """Change which requests are traced."""
        model = request.path_params.get("model", "")
        self._state.change_trace(model, await self._object(request))
        return _json(self._state.get_trace(model).values())

    async def region_status(self, request: Request) -> Response:
        """List regions of shared memory."""
        if _is_cuda(request):
            return _answer(b"[]")
        found = self._state.regions.status(request.path_params.get("region", ""))
        return _answer(orjson.dumps([
            {"name": each.name, "key": each.key, "offset": each.offset, "byte_size": each.nbytes} for each in found
        ]))  # fmt: skip

    async def register_region(self, request: Request) -> Response:
        """Register a region of shared memory."""
        if _is_cuda(request):
            raise Unsupported("tensors lie in this machine's memory: register a region of system shared memory")
        values = await self._object(request)
        key, offset, nbytes = values.get("key"), values.get("offset", 0), values.get("byte_size")
        if not isinstance(key, str) or type(offset) is not int or type(nbytes) is not int:  # true is an int, too
            raise InvalidRequest("a region needs a key (a string) and a byte_size; byte_size and offset are integers")
        self._state.regions.register(request.path_params["region"], key, offset, nbytes)
        return _json({})

    async def unregister_regions(self, request: Request) -> Response:
        """Unregister one region of shared memory, or all."""
        if not _is_cuda(request):
            self._state.regions.unregister(request.path_params.get("region", ""))
        return _json({})

    async def metrics(self, request: Request) -> Response:
        """Return Prometheus' text."""
        for version in self._repository.loaded():
            version.statistics.waiting.set(len(version.queue))
        return Response(metrics_text(self._state.metrics), media_type=CONTENT_TYPE_LATEST)

    async def openapi(self, request: Request) -> Response:
        """Return the OpenAPI document."""
        return _json(openapi_document())

    async def page(self, request: Request) -> Response:
        """Return the page."""
        return Response(PAGE, media_type="text/html")

    def _version(self, request: Request) -> ModelVersion:
        return self._repository.get_version(*_asked(request))

    async def _loaded(self, request: Request) -> ModelVersion:
        """Return the version that a request names; a model that made room for others is loaded again."""
        return await self._repository.get_version_or_load(*_asked(request))

    async def _object(self, request: Request) -> dict[str, Any]:
        state = self._state
        headers = dict(request.scope["headers"])
        with await read_body(headers, request.receive, state.settings.limits, state.body_budget) as body:
            return read_json_object(body.raw)


def _asked(request: Request) -> tuple[str, str]:
    """Return the model and the version that an address names."""
    return request.path_params["model"], request.path_params.get("version", "")


def _answering(handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except RequestFailure as failure:
            return failure_response(failure)

    return answer


def failure_response(failure: RequestFailure) -> Response:
    """Return what a client is told of a failure."""
    status, headers, body = failure_answer(failure)
    return Response(body, status, {name.decode(): value.decode() for name, value in headers})


def _is_cuda(request: Request) -> bool:
    return path_within(request.scope).startswith("/v2/cuda")


def _json(found: dict[str, Any]) -> Response:
    return _answer(orjson.dumps(found))


def _answer(body: bytes) -> Response:
    return Response(body, media_type="application/json")
