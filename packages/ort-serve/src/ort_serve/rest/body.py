"""Request bodies: read within limits of size, time and memory, and decompressed within the same size."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from types import TracebackType

from starlette.types import Receive

from ort_serve.failures import Cancelled, InvalidRequest, NotReady, TooLarge, TooSlow
from ort_serve.server_settings import Limits

_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # zlib's numbers: a gzip header, a zlib header
SMALL = 1 << 16  # bytes that are not counted, and packed where they are: less than a connection's own buffers
_BRIEF = 1 << 12  # bytes that become a few megabytes at most
_MOST_EXPANSION = 1032  # of deflate: 258 bytes for two bits


class BodyBudget:
    """The bytes that bodies of requests, and of answers, may take at once. Used by the event loop only."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.held = 0

    def take(self, nbytes: int) -> None:
        """Count so many more.

        Raises:
            NotReady: they are too many now.
        """
        if self.held + nbytes > self.nbytes:
            failure = NotReady(
                f"requests in flight hold {self.held} bytes; with these {nbytes} they were beyond the {self.nbytes} "
                "that this server takes at once"
            )
            failure.retry_after_s = 1.0
            raise failure
        self.held += nbytes


class Body:
    """A body that was read. Its bytes are counted until the end of ``with``."""

    __slots__ = ("_budget", "_held", "raw")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._held = 0
        self.raw = b""

    @property
    def nbytes(self) -> int:
        """How many bytes are counted."""
        return self._held

    def hold(self, nbytes: int) -> None:
        """Count bytes that are about to be allocated, up to ``nbytes`` in all.

        Raises:
            NotReady: requests in flight hold too many.
        """
        if nbytes > max(self._held, SMALL):
            self._budget.take(nbytes - self._held)
            self._held = nbytes

    def settle(self) -> None:
        """Count what the body has become."""
        held = len(self.raw) if len(self.raw) > SMALL else 0
        self._budget.held += held - self._held
        self._held = held

    def release(self) -> None:
        """Count nothing any more."""
        self._budget.held -= self._held
        self._held = 0

    def __enter__(self) -> Body:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, limits: Limits, budget: BodyBudget) -> Body:
    """Return a request's body, decompressed.

    Raises:
        TooLarge: it is beyond the limit; nothing of that size was allocated.
        TooSlow: it did not arrive in time.
        NotReady: other requests hold the memory now.
        InvalidRequest: its encoding is unknown or broken.
        Cancelled: the client left.
    """
    declared = headers.get(b"content-length", b"0")
    if not declared.isdigit():
        raise InvalidRequest(f"Content-Length is {declared[:40]!r}")
    if len(declared) > 18 or int(declared) > limits.body_nbytes:
        raise TooLarge(f"the body has {declared[:40].decode()} bytes; this server takes {limits.body_nbytes}")
    body = Body(budget)
    try:
        body.hold(int(declared))
        try:
            async with asyncio.timeout(limits.read_s):
                body.raw = await _gathered(receive, body, limits.body_nbytes)
        except TimeoutError as error:
            raise TooSlow(f"the body did not arrive within {limits.read_s:g} s") from error
        encoding = headers.get(b"content-encoding")
        if encoding is not None and encoding.strip().lower() not in (b"identity", b""):
            name = encoding.decode("latin-1").strip().lower()
            body.hold(min(len(body.raw) * _MOST_EXPANSION, limits.body_nbytes))
            if len(body.raw) <= _BRIEF:
                body.raw = _decompressed(body.raw, name, limits.body_nbytes)
            else:
                body.raw = await asyncio.to_thread(_decompressed, body.raw, name, limits.body_nbytes)
            body.settle()
    except BaseException:
        body.release()
        raise
    return body


async def compressed(body: bytes, accepted: str) -> tuple[bytes, str]:
    """Return a response's body in an encoding that the client accepts, and its name; empty for the body itself."""
    return packed(body, accepted) if len(body) <= SMALL else await asyncio.to_thread(packed, body, accepted)


def packed(body: bytes, accepted: str) -> tuple[bytes, str]:
    """Do as ``compressed`` does, in this thread."""
    name = _accepted(accepted)
    if not name:
        return body, ""
    packer = zlib.compressobj(1, zlib.DEFLATED, _WINDOWS[name])
    return packer.compress(body) + packer.flush(), name


def _accepted(text: str) -> str:
    """Return the encoding that a client likes best of those known here."""
    best, found = 0.0, ""
    for part in text.split(","):
        name, _, parameter = part.strip().lower().partition(";")
        try:
            weight = float(parameter.strip().removeprefix("q=") or 1.0) if parameter else 1.0
        except ValueError:
            weight = 0.0
        if name.strip() in _WINDOWS and weight > best:
            best, found = weight, name.strip()
    return found


async def _gathered(receive: Receive, body: Body, limit: int) -> bytes:
    parts: list[bytes] = []
    total = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Cancelled("the client left")
        part = message.get("body", b"")
        if part:
            total += len(part)
            if total > limit:
                raise TooLarge(f"the body has more than the {limit} bytes that this server takes")
            body.hold(total)
            parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompressed(raw: bytes, encoding: str, limit: int) -> bytes:
    window = _WINDOWS.get(encoding)
    if window is None:
        raise InvalidRequest(f"Content-Encoding {encoding[:40]!r} is not read here; gzip and deflate are")
    unpacker = zlib.decompressobj(window)
    try:
        found = unpacker.decompress(raw, limit + 1)
    except zlib.error as error:
        raise InvalidRequest(f"the body is no {encoding}: {error}") from error
    if len(found) > limit or unpacker.unconsumed_tail:
        raise TooLarge(f"the body has more than the {limit} bytes that this server takes when it is decompressed")
    if not unpacker.eof:
        raise InvalidRequest(f"the body is {encoding} that ends too early")
    if unpacker.unused_data:
        raise InvalidRequest(f"{len(unpacker.unused_data)} bytes stand behind the end of the {encoding}")
    return found
