"""Sockets that are bound to a host's port, with errors that say which one and what to do."""

from __future__ import annotations

import errno
import socket
import sys


def bound_socket(host: str, port: int, protocol: str, *, is_shared: bool = False) -> socket.socket:
    """Return a socket that is bound to a port, and does not listen yet.

    Args:
        host: an address, or a name.
        port: 0 for a free one.
        protocol: ``HTTP`` or ``gRPC``, for messages.
        is_shared: other processes are bound to it, too.

    Raises:
        OSError: the port is taken, or the host is none of this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # named TCP: asyncio turns the delay of small packets off for no others, and an answer would wait 40 ms
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform == "win32":  # where SO_REUSEADDR lets several servers have one port
            found.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_shared:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind((host, port))
    except OSError as error:
        found.close()
        option = f"--{protocol.lower()}-port"
        advice = f"; {option} names another one, or 0 for any that is free" if error.errno == errno.EADDRINUSE else ""
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise OSError(error.errno, f"cannot listen at {place} for {protocol}: {error.strerror}{advice}") from error
    return found


def check_port(host: str, port: int, protocol: str) -> None:
    """Find out whether a port can be listened at: loading models first could take minutes.

    Raises:
        OSError: it cannot.
    """
    with bound_socket(host, port, protocol) as found:
        found.listen(1)  # bound alone it may be although another program listens there
