"""Connections that are taken from one socket and handed to another of the same machine, byte by byte.

grpcio listens at addresses alone, not at a socket that several processes share. So each process takes connections from
the shared one, as it does for HTTP, and relays them to a socket of its own. A side that reads slowly stops the other.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import cast

log = logging.getLogger(__name__)


class Relay:
    """Takes connections until it is closed; what is connected then stays so.

    Args:
        target: the socket that answers.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, listener: socket.socket) -> None:
        """Take connections from a listening socket, which stays open when this is closed."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Side(self), sock=listener.dup())

    def close(self) -> None:
        """Take no more connections."""
        if self._server is not None:
            self._server.close()

    def begin(self, incoming: _Side) -> None:
        """Connect a new client to the target."""
        task = asyncio.get_running_loop().create_task(self._connect(incoming))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, incoming: _Side) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, outgoing = await loop.create_unix_connection(lambda: _Side(None), str(self._target))
        except OSError as error:
            log.warning("a connection cannot be relayed to %s: %s", self._target, error)
            incoming.end()
            return
        outgoing.join(incoming)
        incoming.join(outgoing)


class _Side(asyncio.Protocol):
    """One of two connections whose bytes go to each other."""

    def __init__(self, relay: Relay | None) -> None:
        self._relay = relay
        self._transport: asyncio.Transport | None = None
        self._other: _Side | None = None
        self._early: list[bytes] = []  # uvloop reads once although it was told to pause when it connected
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.pause_reading()  # before the other side is there
        if self._relay is not None:
            self._relay.begin(self)

    def join(self, other: _Side) -> None:
        """Let bytes pass to the other side; it may have gone already."""
        self._other = other
        if other._transport is not None:
            other._transport.write(b"".join(self._early))
        self._early.clear()
        if self._is_lost:
            other.end()
        elif self._transport is not None:
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._other is not None and self._other._transport is not None:
            self._other._transport.write(data)
        else:
            self._early.append(data)

    def pause_writing(self) -> None:
        if (source := self._source()) is not None:
            source.pause_reading()

    def resume_writing(self) -> None:
        if (source := self._source()) is not None:
            source.resume_reading()

    def _source(self) -> asyncio.Transport | None:
        """Return where the bytes that are written here come from; None before it is there, and when it has gone."""
        transport = None if self._other is None else self._other._transport
        return None if transport is None or transport.is_closing() else transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        if self._other is not None:
            self._other.end()

    def end(self) -> None:
        """Close when what was written has gone out."""
        if self._transport is not None:
            self._transport.close()
