"""The ASGI application: routes behind a check of the token, with an access log."""

from __future__ import annotations

import hmac
import logging
import time

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ort_serve import access_log
from ort_serve.failures import ModelFailed, NotAllowed, NotFound, Unauthenticated
from ort_serve.rest.infer import InferAddresses
from ort_serve.rest.paths import path_within
from ort_serve.rest.routes import build_routes, failure_response
from ort_serve.server_state import ServerState

log = logging.getLogger(__name__)
_OPEN = ("/", "/v2/health/live", "/v2/health/ready")  # the page asks for the token; load balancers have none


def build_app(state: ServerState) -> ASGIApp:
    """Return the application of a server."""
    app = Starlette(
        routes=build_routes(state), exception_handlers={404: _not_found, 405: _not_allowed, Exception: _broken}
    )
    whole = InferAddresses(app, state)
    guarded: ASGIApp = whole if state.settings.token is None else _TokenCheck(whole, state.settings.token)
    return _AccessLog(guarded)


class _TokenCheck:
    """Lets requests through that bear the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and path_within(scope) not in _OPEN and not self._is_allowed(scope):
            response = failure_response(Unauthenticated("this server needs `Authorization: Bearer TOKEN`"))
            response.headers["WWW-Authenticate"] = "Bearer"
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_allowed(self, scope: Scope) -> bool:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return hmac.compare_digest(given, self._expected)


class _AccessLog:
    """Writes one line a request, where anybody listens."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not access_log.is_wanted():
            await self._app(scope, receive, send)
            return
        begin = time.perf_counter()
        status = 0

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, told)
        finally:
            client = (scope.get("client") or ("-",))[0]
            path = scope.get("raw_path", b"").decode("latin-1") or scope["path"]
            access_log.write_line("http", scope["method"], path, status, begin, client)


async def _not_found(request: Request, error: Exception) -> Response:
    return failure_response(NotFound(f"there is no {request.method} {request.url.path}"))


async def _not_allowed(request: Request, error: Exception) -> Response:
    response = failure_response(NotAllowed(f"{request.url.path} does not take {request.method}"))
    if isinstance(error, HTTPException) and error.headers:
        response.headers.update(error.headers)  # Allow: what it takes
    return response


async def _broken(request: Request, error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return failure_response(ModelFailed(f"the server failed: {type(error).__name__}"))
