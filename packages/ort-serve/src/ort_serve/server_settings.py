"""How a server listens, and what it allows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ort_core.machine_memory import usable_memory

MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What a request may cost before it is looked at.

    Attributes:
        body_nbytes: most bytes of a request, also of what it becomes when it is decompressed.
        json_nbytes: most bytes of JSON, whose elements take many times their text in memory.
        result_nbytes: most bytes of a result's tensors: sizes without elements, and values that are sizes, can make a
            short request's result of any length.
        run_nbytes: most bytes that one run of a model may hold, its result among them; None: a quarter of the memory.
        read_s: most seconds between the start of a request and its last byte.
        idle_s: seconds after which a connection without requests is closed.
        connections: most connections at once.
    """

    body_nbytes: int = 256 * MEGABYTE
    json_nbytes: int = 64 * MEGABYTE
    result_nbytes: int = 1024 * MEGABYTE
    run_nbytes: int | None = None
    read_s: float = 60.0
    idle_s: float = 30.0
    connections: int = 4096

    @property
    def most_run_nbytes(self) -> int | None:
        """``run_nbytes``, by default a quarter of the memory; None: the system does not tell how much there is."""
        if self.run_nbytes is not None:
            return self.run_nbytes
        try:
            return usable_memory() // 4
        except OSError:
            return None


@dataclass(frozen=True)
class Tls:
    """Certificates, in PEM files.

    Attributes:
        certificate: the server's, with those that signed it behind it.
        key: its private key.
        clients: what signs clients' certificates: they must show one then.
    """

    certificate: Path
    key: Path
    clients: Path | None = None


@dataclass(frozen=True)
class ServerSettings:
    """How a server listens, and what it allows.

    Attributes:
        host: address to listen at.
        http_port: 0 for a free one, None for no HTTP.
        grpc_port: likewise.
        sockets: a folder in which ``http.sock`` and ``grpc.sock`` are made, instead of ports.
        token: what requests must bear in ``Authorization: Bearer …``; None: nothing.
        tls: None for plain text.
        allows_loading: requests may load and unload models.
        watch_s: seconds between looks at the folder of models; None: never.
        memory_limit: most bytes of loaded models' files.
        limits: of requests.
        shared_memory: clients may register regions of it; None: where only this machine reaches the server.
        has_page: there is a page at ``/``.
        has_traces: OpenTelemetry's spans are sent as the OTEL_* variables say.
        has_access_log: one line of JSON a request on the standard error.
        shares_ports: other processes listen at the same ports.
    """

    host: str = "127.0.0.1"
    http_port: int | None = 8000
    grpc_port: int | None = 8001
    sockets: Path | None = None
    token: str | None = None
    tls: Tls | None = None
    allows_loading: bool = False
    watch_s: float | None = None
    memory_limit: int | None = None
    limits: Limits = field(default_factory=Limits)
    shared_memory: bool | None = None
    has_page: bool = True
    has_traces: bool = False
    has_access_log: bool = False
    shares_ports: bool = False

    @property
    def no_shared_memory(self) -> str:
        """Why clients may not register regions of shared memory; empty where they may."""
        if self.shares_ports:
            return ": several processes answer, and a region would be known to one of them"
        if self.shared_memory is False:
            return ": it was started so"
        is_local = self.host in ("localhost", "::1") or self.host.startswith("127.")
        return (
            "" if is_local or self.shared_memory else ", since other machines reach it; start it with --shared-memory"
        )
