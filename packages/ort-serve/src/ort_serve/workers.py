"""Several processes at the same ports or sockets, each with all models.

The system hands each connection to one of them; weights that are mapped from files of the cache are shared by all. A
process that dies is started again, and only its own requests are lost.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from multiprocessing.context import SpawnProcess
from pathlib import Path

from prometheus_client.multiprocess import mark_process_dead

from ort_serve.access_log import log_to_stderr
from ort_serve.failures import InvalidRequest
from ort_serve.platform_sockets import SharedSockets, shared_sockets
from ort_serve.ports import bound_socket
from ort_serve.running import run_server
from ort_serve.server_settings import ServerSettings
from ort_serve.statistics import FOLDER

log = logging.getLogger(__name__)
_FAST_S = 5.0  # a process that lived shorter is not started again at once
_LONGEST_PAUSE_S = 30.0
_GRACE_S = 40.0
_REFUSED = 3  # exit status of a process that told why there is nothing to serve


def run_workers(root: Path, settings: ServerSettings, count: int) -> None:
    """Serve with ``count`` processes until SIGINT or SIGTERM.

    Raises:
        InvalidRequest: none of the processes can load the one model.
        OSError: a port or a socket is taken.
    """
    settings = replace(settings, shares_ports=True)
    with ExitStack() as held:
        counts = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="ort-serve-")))  # nobody else may read it
        os.environ[FOLDER] = str(counts)  # read by prometheus_client in each process
        if settings.sockets is None:
            Supervisor(root, held.enter_context(_reserved(settings)), count).run()
        else:
            shared = held.enter_context(shared_sockets(settings, counts))
            Supervisor(root, settings, count, shared).run()


class Supervisor:
    """Keeps ``count`` processes alive."""

    def __init__(self, root: Path, settings: ServerSettings, count: int, shared: SharedSockets | None = None) -> None:
        self._root = root
        self._settings = settings
        self._shared = shared
        self._workers: list[tuple[SpawnProcess, float] | None] = [None] * count
        self._pauses = [0.0] * count
        self._next_start = [0.0] * count
        self._has_refused = [False] * count
        self._ends = False

    def run(self) -> None:
        """Start the processes, and start those again that die, until a signal ends it.

        Raises:
            InvalidRequest: all have told that there is nothing to serve.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)
        if hasattr(signal, "SIGHUP"):  # not on Windows
            signal.signal(signal.SIGHUP, self._reload)
        while not self._ends:
            for place in range(len(self._workers)):
                self._look_after(place)
            time.sleep(0.1)
        alive = [worker[0] for worker in self._workers if worker is not None and worker[0].is_alive()]
        for process in alive:
            process.terminate()
        for process in alive:
            process.join(_GRACE_S)
            if process.is_alive():
                process.kill()
        if all(self._has_refused):
            raise InvalidRequest(f"{self._root} cannot be served: the lines above say why")

    def _end(self, number: int, frame: object) -> None:
        self._ends = True

    def _reload(self, number: int, frame: object) -> None:
        for worker in self._workers:
            if worker is not None and worker[0].pid is not None and worker[0].is_alive():
                os.kill(worker[0].pid, number)

    def _look_after(self, place: int) -> None:
        worker = self._workers[place]
        now = time.monotonic()
        if worker is not None:
            process, started = worker
            if process.is_alive():
                return
            self._workers[place] = None
            # what it had in flight is no more
            mark_process_dead(process.pid, os.environ[FOLDER])  # type: ignore[no-untyped-call]  # annotated in part
            self._has_refused[place] = process.exitcode == _REFUSED
            if all(self._has_refused):
                self._ends = True
                return
            is_fast = self._has_refused[place] or now - started < _FAST_S
            self._pauses[place] = min(max(2 * self._pauses[place], 0.5), _LONGEST_PAUSE_S) if is_fast else 0.0
            self._next_start[place] = now + self._pauses[place]
            log.warning(
                "worker %d (process %s) ended with %s; it is started again in %.1f s",
                place, process.pid, process.exitcode, self._pauses[place],
            )  # fmt: skip
        if now >= self._next_start[place] and not self._ends:
            context = multiprocessing.get_context("spawn")
            given = (self._root, self._settings, place, self._shared)
            process = context.Process(target=_work, args=given, name=f"ort-serve-{place}")
            process.start()
            self._workers[place] = (process, time.monotonic())


def _work(root: Path, settings: ServerSettings, place: int, shared: SharedSockets | None) -> None:
    if hasattr(signal, "SIGHUP"):  # it is the server's a moment later
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    log_to_stderr(f"worker {place}", is_access=settings.has_access_log)
    try:
        run_server(root, settings, is_told=place == 0, shared=shared)
    except InvalidRequest as error:
        log.error("%s", error)
        raise SystemExit(_REFUSED) from error


@contextmanager
def _reserved(settings: ServerSettings) -> Iterator[ServerSettings]:
    """Hold the ports while the processes come and go; free ones are chosen once for all."""
    held: list[socket.socket] = []
    try:
        http = _held(settings.host, settings.http_port, "HTTP", held)
        rpc = _held(settings.host, settings.grpc_port, "gRPC", held)
        yield replace(settings, http_port=http, grpc_port=rpc)
    finally:
        for listener in held:
            listener.close()


def _held(host: str, port: int | None, protocol: str, held: list[socket.socket]) -> int | None:
    if port is None:
        return None
    held.append(bound_socket(host, port, protocol, is_shared=True))  # bound, not listening: it gets no connections
    return int(held[-1].getsockname()[1])
