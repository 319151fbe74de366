"""A server that runs until a signal ends it, and what it tells at the start."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ort_serve.failures import InvalidRequest
from ort_serve.platform_sockets import SharedSockets, grpc_path, http_path
from ort_serve.repository.model_version import ModelVersion
from ort_serve.server import Server
from ort_serve.server_settings import ServerSettings
from ort_serve.tracing import tracing_to_exporter

log = logging.getLogger(__name__)
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name))
_UNATTENDED_COLUMNS = 200  # of a log, which has no width of its own
_REST_S = 10.0  # between looks whether models have come or gone


def run_server(root: Path, settings: ServerSettings, is_told: bool, shared: SharedSockets | None = None) -> None:
    """Serve until SIGINT or SIGTERM; requests in flight are finished. SIGHUP looks for new models and certificates.

    On Windows, Ctrl-Break ends it, too: another process can send no other signal there.

    Args:
        root: a model, or a folder of models.
        settings: how to listen.
        is_told: print the models, the addresses and a command to try.
        shared: sockets that other processes listen at, too.

    Raises:
        InvalidRequest: there is no such model or folder, or the one model cannot be loaded.
        OSError: a port is taken.
    """
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(root, settings, is_told, shared))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the faster event loop where there is one (not on Windows)."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(root: Path, settings: ServerSettings, is_told: bool, shared: SharedSockets | None) -> None:
    server = Server(root, settings, tracing_to_exporter() if settings.has_traces else None, shared)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        try:
            loop.add_signal_handler(number, ended.set)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(ended.set))
    _reload_by_signal(server, loop, ended)
    await _started(server, ended)
    await _check_serves(root, server)
    if is_told:
        with contextlib.suppress(OSError):  # the log's disk is full: nobody can be told, and models serve all the same
            _tell(server)
    waiting = [asyncio.create_task(act) for act in (ended.wait(), server.wait(), _keep_at_rest(server))]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await server.stop()


async def _started(server: Server, ended: asyncio.Event) -> None:
    """Start a server; a signal meanwhile ends the process.

    Threads that load models cannot be stopped, and nobody waits for an answer yet.
    """
    starting, ending = asyncio.create_task(server.start()), asyncio.create_task(ended.wait())
    await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if not starting.done():
        log.warning("a signal ended the server before its models were loaded")
        server.abandon()
        logging.shutdown()
        os._exit(0)
    await starting


async def _check_serves(root: Path, server: Server) -> None:
    """Refuse to wait for requests that nothing can answer: one model, which cannot be loaded, and nobody may change.

    Raises:
        InvalidRequest: the message says why it cannot be loaded.
    """
    settings = server.settings
    is_fixed = settings.watch_s is None and not settings.allows_loading
    if root.is_file() and is_fixed and not server.repository.loaded():
        told = "; ".join(reason for _, _, _, reason in server.repository.index())
        await server.stop()
        raise InvalidRequest(f"{root} cannot be served: {told}")


async def _keep_at_rest(server: Server) -> None:
    """Keep the models out of Python's search for garbage.

    It would walk through all they hold every few thousand requests, which stops all others for 50 ms and more. What
    has come and gone since is looked through once.
    """
    seen = -1
    while True:
        if server.repository.changes != seen:
            seen = server.repository.changes
            gc.unfreeze()
            gc.collect()
            gc.freeze()
        await asyncio.sleep(_REST_S)


def _reload_by_signal(server: Server, loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    """Let SIGHUP look for new models and certificates; of a terminal it ends the server: its window was closed."""
    if not hasattr(signal, "SIGHUP"):  # Windows
        return
    reloads: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = loop.create_task(server.reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    is_attended = sys.stdin is not None and sys.stdin.isatty()
    loop.add_signal_handler(signal.SIGHUP, ended.set if is_attended else reload)


def _tell(server: Server) -> None:
    console = Console(stderr=True)
    if not console.is_terminal:
        console.width = _UNATTENDED_COLUMNS
    table = Table(box=None, pad_edge=False)
    for title in ("model", "version", "state", "batches, or what is wrong"):
        table.add_column(title)
    ready = {(version.request.model, version.version): version for version in server.repository.loaded()}
    for name, number, state, reason in server.repository.index():
        version = ready.get((name, number))
        table.add_row(name, number, state, escape(version.batching.reason if version else reason))
    if table.row_count:
        console.print(table)
    else:
        console.print(no_models(server.repository.root), highlight=False, markup=False, soft_wrap=True)
    scheme = "http" if server.settings.tls is None else "https"
    host = f"[{server.settings.host}]" if ":" in server.settings.host else server.settings.host
    for name, path in (("HTTP", http_path(server.settings)), ("gRPC", grpc_path(server.settings))):
        if path is not None:
            console.print(f"{name} at unix:{path}", highlight=False, markup=False, soft_wrap=True)
    if server.http_port is not None:
        console.print(
            f"HTTP at {scheme}://{host}:{server.http_port}  (a page at /, metrics at /metrics)",
            highlight=False,
            markup=False,
        )
    if server.grpc_port is not None:
        console.print(f"gRPC at {host}:{server.grpc_port}", highlight=False, markup=False)
    if server.http_port is not None and ready:
        address = f"{scheme}://{host}:{server.http_port}"
        console.print(
            f"Try:\n{curl_line(next(iter(ready.values())), address)}", highlight=False, markup=False, soft_wrap=True
        )


def no_models(folder: Path) -> str:
    """Return what is told of a folder without models."""
    told = f"{folder} has no models yet: they are looked for as {folder}/NAME/VERSION/model.onnx, such as "
    told += f"{folder}/{{}}/1/model.onnx"
    files = sorted(file for file in folder.glob("*.onnx"))
    if not files:
        return told.format("resnet")
    return f"{told.format(files[0].stem)}. To serve one file, name it: ort serve {files[0]}"


def curl_line(version: ModelVersion, address: str) -> str:
    """Return a command that asks a model for zeros."""
    path = f"{address}/v2/models/{quote(version.request.model, safe='')}"
    inputs = []
    for name, array in version.zeros().items():
        datatype = next(tensor.datatype.name for tensor in version.signature.inputs if tensor.name == name)
        if array.size > 64:
            return f"  curl {path}"
        inputs.append(
            f'{{"name": {json.dumps(name, ensure_ascii=False)}, "datatype": "{datatype}", '
            f'"shape": {list(array.shape)}, "data": {_zeros(array.size, datatype)}}}'
        )
    body = f'{{"inputs": [{", ".join(inputs)}]}}'
    return f"  curl {path}/infer -d {shlex.quote(body)}"


def _zeros(count: int, datatype: str) -> str:
    zero = {"BOOL": "false", "BYTES": '""'}.get(datatype, "0")
    return f"[{', '.join([zero] * count)}]"
