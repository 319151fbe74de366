"""The HTTP server as one ASGI application, for servers and frameworks of others: models load at its start-up.

app = asgi_app("models")        # uvicorn program:app, Ray Serve's ingress, a mount in a larger application
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from ort_serve.repository.model_repository import ModelRepository
from ort_serve.rest.app import build_app
from ort_serve.scheduling.core_budget import CoreBudget
from ort_serve.server_settings import ServerSettings
from ort_serve.server_state import ServerState
from ort_serve.statistics import Metrics

_GRACE_S = 30.0


class ModelsApplication:
    """Models behind the protocol's REST addresses.

    It holds nothing before its start-up, so that it may be sent to another process. Start-up is the ``lifespan`` of
    ASGI; a server without that loads the models with the first request.

    Args:
        root: ``model.onnx``, or a folder of NAME/VERSION/model.onnx.
        settings: what requests may do; where to listen is the server's matter.
    """

    def __init__(self, root: Path, settings: ServerSettings) -> None:
        self._root = root
        self._settings = settings
        self._app: ASGIApp | None = None
        self._state: ServerState | None = None
        self._starting: asyncio.Lock | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or begin and end with the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        app = self._app or await self.start()
        await app(scope, receive, send)

    async def start(self) -> ASGIApp:
        """Load the models, once.

        Raises:
            InvalidRequest: there is no such model or folder.
        """
        self._starting = self._starting or asyncio.Lock()
        async with self._starting:
            if self._app is None:
                metrics = Metrics()
                limits = self._settings.limits
                repository = ModelRepository(
                    self._root, CoreBudget(), metrics, self._settings.memory_limit, limits.result_nbytes,
                    limits.most_run_nbytes,
                )  # fmt: skip
                await repository.load_all()
                self._state = ServerState(repository, self._settings, metrics)
                self._app = build_app(self._state)
            return self._app

    async def close(self) -> None:
        """Finish what waits."""
        if self._state is not None:
            await self._state.repository.close(_GRACE_S)
        self._app = self._state = None

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            if (await receive())["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return
            try:
                await self.start()
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                raise
            await send({"type": "lifespan.startup.complete"})


def asgi_app(root: str | Path, settings: ServerSettings | None = None) -> ModelsApplication:
    """Return the application of a model or a folder of models."""
    return ModelsApplication(Path(root), settings or ServerSettings(shared_memory=False))
