"""A server: HTTP and gRPC in one event loop, over one repository of models.

async with Server(Path("models"), ServerSettings(http_port=0)) as server:
print(server.http_port)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio
import uvicorn

from ort_serve.certificates import Certificates
from ort_serve.platform_sockets import SharedSockets, clear_place, grpc_path, http_path, unix_listener
from ort_serve.ports import bound_socket, check_port
from ort_serve.relay import Relay
from ort_serve.repository.model_repository import ModelRepository
from ort_serve.rest.app import build_app
from ort_serve.rest.connections import connections_within
from ort_serve.rest.without_task import WithoutTask
from ort_serve.rpc.service import build_grpc_server
from ort_serve.scheduling.core_budget import CoreBudget
from ort_serve.server_settings import ServerSettings, Tls
from ort_serve.server_state import ServerState
from ort_serve.statistics import Metrics
from ort_serve.tracing import Tracing

log = logging.getLogger(__name__)
_CERTIFICATES_S = 10.0  # between looks at the files of certificates
_GRACE_S = 25.0  # for requests in flight when the server ends; Kubernetes kills after 30
_ANSWER_S = 3.0  # for those that were stopped then, to be told


class Server:
    """A server of the models of a file or folder.

    Args:
        root: ``model.onnx``, or a folder of NAME/VERSION/model.onnx.
        settings: how it listens, and what it allows.
        tracing: OpenTelemetry's spans of requests; None without.
        shared: sockets of the file system that other processes listen at, too; they stay the caller's.

    Raises:
        OSError: a certificate or its key cannot be used.

    Attributes:
        http_port: where HTTP listens once it has started; None without, and for sockets.
        grpc_port: likewise.
    """

    def __init__(
        self,
        root: Path,
        settings: ServerSettings | None = None,
        tracing: Tracing | None = None,
        shared: SharedSockets | None = None,
    ) -> None:
        self.settings = settings or ServerSettings()
        metrics = Metrics()
        limits = self.settings.limits
        self.repository = ModelRepository(
            root, CoreBudget(), metrics, self.settings.memory_limit, limits.result_nbytes, limits.most_run_nbytes
        )
        self.state = ServerState(self.repository, self.settings, metrics, tracing=tracing)
        self.http_port: int | None = None
        self.grpc_port: int | None = None
        self._http: _Uvicorn | None = None
        self._grpc: grpc.aio.Server | None = None
        self._certificates = None if self.settings.tls is None else Certificates(self.settings.tls)
        self._tasks: list[asyncio.Task[None]] = []
        self._paths: list[Path] = []  # of sockets that are this server's
        self._shared = shared
        self._relay: Relay | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Load the models, then listen.

        Raises:
            InvalidRequest: there is no such file or folder.
            OSError: a port is taken, or a certificate cannot be read.
        """
        listener = self._listener()
        try:
            if self.settings.grpc_port and self.settings.sockets is None and not self.settings.shares_ports:
                check_port(self.settings.host, self.settings.grpc_port, "gRPC")
            await self.repository.load_all()
            if self.settings.grpc_port is not None:
                await self._start_grpc(self.settings.grpc_port)
            if listener is not None:
                await self._start_http(listener)
        except BaseException:
            if listener is not None:
                listener.close()
            await self.stop()
            raise
        if self.settings.watch_s is not None:
            self._tasks.append(asyncio.create_task(_every(self.settings.watch_s, self._look)))
        if self._certificates is not None:
            self._tasks.append(asyncio.create_task(_every(_CERTIFICATES_S, self._refresh)))

    async def reload(self) -> None:
        """Look at once whether models or certificates have changed."""
        await self._refresh()
        await self._look()

    def abandon(self) -> None:
        """Leave nothing behind in the file system: the process ends before the models are loaded."""
        for path in self._paths:
            path.unlink(missing_ok=True)

    async def stop(self) -> None:
        """Take no more requests, finish those that wait, and close. What takes too long is stopped, its client told."""
        for task in self._tasks[1:] if self._http is not None else self._tasks:
            task.cancel()
        ending: list[asyncio.Future[None]] = []
        if self._relay is not None:
            self._relay.close()
        if self._http is not None:
            self._http.should_exit = True
            ending.append(self._tasks[0])
        if self._grpc is not None:
            ending.append(asyncio.ensure_future(self._grpc.stop(_GRACE_S + _ANSWER_S)))
        if ending and (await asyncio.wait(ending, timeout=_GRACE_S))[1]:
            self.repository.terminate()
            await asyncio.wait(ending)
        self.abandon()
        await self.repository.close(_ANSWER_S)

    async def wait(self) -> None:
        """Wait until the server ends by itself, which it does when it can no longer listen."""
        waiting: list[asyncio.Future[None]] = [*self._tasks]
        if self._grpc is not None:
            waiting.append(asyncio.ensure_future(_ended(self._grpc)))
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)

    async def _start_http(self, listener: socket.socket) -> None:
        limits = self.settings.limits
        config = uvicorn.Config(
            build_app(self.state),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=int(limits.idle_s),
            limit_concurrency=limits.connections,
            http=connections_within(limits, WithoutTask(self.state), self.state.body_budget),
            ws="none",
            timeout_graceful_shutdown=int(_GRACE_S + _ANSWER_S),
            server_header=False,
            **_tls_arguments(self.settings.tls),
        )
        self._http = _Uvicorn(config)
        self._tasks.insert(0, asyncio.create_task(self._http.serve([listener])))
        self.http_port = None if http_path(self.settings) else listener.getsockname()[1]
        while not self._http.started and not self._tasks[0].done():
            await asyncio.sleep(0.001)
        if self._certificates is not None and config.ssl is not None:
            self._certificates.follow(config.ssl)

    def _listener(self) -> socket.socket | None:
        path = http_path(self.settings)
        if self._shared is not None:
            return None if self._shared.http is None else self._shared.http.dup()
        if path is None:
            settings = self.settings
            if settings.http_port is None:
                return None
            return bound_socket(settings.host, settings.http_port, "HTTP", is_shared=settings.shares_ports)
        listener = unix_listener(path)
        self._paths.append(path)
        return listener

    async def _start_grpc(self, port: int) -> None:
        server = build_grpc_server(self.state)
        address = f"[{self.settings.host}]:{port}" if ":" in self.settings.host else f"{self.settings.host}:{port}"
        path = grpc_path(self.settings) if self._shared is None else self._shared.own_grpc_path()
        if path is not None:
            clear_place(path)
            address = f"unix:{path}"
        try:
            if self._certificates is None:
                bound = server.add_insecure_port(address)
            else:
                bound = server.add_secure_port(address, self._certificates.grpc_credentials())
        except RuntimeError as error:
            raise OSError(f"cannot listen at {address} for gRPC: {error}") from error
        if path is None:
            self.grpc_port = bound
        else:
            self._paths.append(path)
        await server.start()
        self._grpc = server
        if self._shared is not None and self._shared.grpc is not None and path is not None:
            self._relay = Relay(path)
            await self._relay.start(self._shared.grpc)

    async def _look(self) -> None:
        try:
            await self.repository.load_all()
        except Exception:
            log.exception("the repository cannot be read; its models go on as they are")

    async def _refresh(self) -> None:
        if self._certificates is not None:
            await asyncio.to_thread(self._certificates.refresh)


async def _every(seconds: float, act: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        await act()


class _Uvicorn(uvicorn.Server):
    """Uvicorn without handlers of signals: whoever started the server has those."""

    def install_signal_handlers(self) -> None:
        """Do nothing."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing."""
        yield


def _tls_arguments(tls: Tls | None) -> dict[str, Any]:
    if tls is None:
        return {}
    found: dict[str, Any] = {"ssl_certfile": str(tls.certificate), "ssl_keyfile": str(tls.key)}
    if tls.clients is not None:
        found |= {"ssl_ca_certs": str(tls.clients), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return found


async def _ended(server: grpc.aio.Server) -> None:
    await server.wait_for_termination()
