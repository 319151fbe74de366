"""Sockets of the file system, which POSIX systems have: who may reach a server is a matter of a folder's rights."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ort_serve.server_settings import ServerSettings

_HTTP, _GRPC = "http.sock", "grpc.sock"
_NO_SOCKETS = "Python has no Unix sockets on Windows: listen at ports"
_BACKLOG = 1024  # connections that wait while every process is busy, or starts anew


@dataclass(frozen=True)
class SharedSockets:
    """Sockets that several processes listen at: each connection is taken by one of them.

    Attributes:
        http: None for no HTTP.
        grpc: None for no gRPC.
        folder: where each process has a gRPC socket of its own, which nobody else may open.
    """

    http: socket.socket | None
    grpc: socket.socket | None
    folder: Path

    def own_grpc_path(self) -> Path:
        """Return where this process listens for gRPC itself."""
        return self.folder / f"{os.getpid()}.sock"


def http_path(settings: ServerSettings) -> Path | None:
    """Return where HTTP listens; None for a port, or not at all."""
    return settings.sockets / _HTTP if settings.sockets is not None and settings.http_port is not None else None


def grpc_path(settings: ServerSettings) -> Path | None:
    """Return where gRPC listens; None for a port, or not at all."""
    return settings.sockets / _GRPC if settings.sockets is not None and settings.grpc_port is not None else None


def unix_listener(path: Path) -> socket.socket:
    """Return a socket that is bound to a path.

    Raises:
        OSError: another server listens there, or the path cannot be one's.
    """
    if sys.platform == "win32":
        raise OSError(_NO_SOCKETS)
    clear_place(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen at {path}: {error.strerror or error}") from error
    return listener


def clear_place(path: Path) -> None:
    """Remove the socket that a server left which was killed.

    Raises:
        OSError: another server listens there, it is no socket, or the system has none.
    """
    if sys.platform == "win32":
        raise OSError(_NO_SOCKETS)
    if not path.exists():
        return
    if not path.is_socket():
        raise OSError(errno.EEXIST, f"cannot listen at {path}: there is something else of that name")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking, contextlib.suppress(ConnectionRefusedError):
        asking.connect(str(path))
        raise OSError(errno.EADDRINUSE, f"cannot listen at {path}: another server does")
    path.unlink(missing_ok=True)


@contextlib.contextmanager
def shared_sockets(settings: ServerSettings, folder: Path) -> Iterator[SharedSockets]:
    """Listen for processes that come and go; connections wait while there is none. The paths are removed in the end.

    Args:
        settings: where.
        folder: of this user alone.

    Raises:
        OSError: another server listens there, or a path cannot be a socket's.
    """
    with contextlib.ExitStack() as held:
        listeners: list[socket.socket | None] = []
        for path in (http_path(settings), grpc_path(settings)):
            if path is None:
                listeners.append(None)
                continue
            listener = held.enter_context(unix_listener(path))
            held.callback(path.unlink, missing_ok=True)
            listener.listen(_BACKLOG)
            listener.setblocking(False)  # of processes that see a connection all but one find it gone
            listeners.append(listener)
        yield SharedSockets(listeners[0], listeners[1], folder)
