"""Request bodies: read within limits of size and time, and decompressed within the same size."""

from __future__ import annotations

import asyncio
import zlib

from starlette.requests import ClientDisconnect, Request

from ort_serve.failures import Cancelled, InvalidRequest, TooLarge, TooSlow
from ort_serve.server_settings import Limits

_WINDOWS = {"gzip": 31, "deflate": 15}  # zlib's numbers: a gzip header, a zlib header


async def read_body(request: Request, limits: Limits) -> bytes:
    """Return a request's body, decompressed.

    Raises:
        TooLarge: it is beyond the limit; nothing of that size was allocated.
        TooSlow: it did not arrive in time.
        InvalidRequest: its encoding is unknown or broken.
        Cancelled: the client left.
    """
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal():
        raise InvalidRequest(f"Content-Length is {declared!r}")
    if int(declared) > limits.body_nbytes:
        raise TooLarge(f"the body has {declared} bytes; this server takes {limits.body_nbytes}")
    try:
        async with asyncio.timeout(limits.read_s):
            raw = await _gathered(request, limits.body_nbytes)
    except TimeoutError as error:
        raise TooSlow(f"the body did not arrive within {limits.read_s:g} s") from error
    except ClientDisconnect as error:
        raise Cancelled("the client left") from error
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    return raw if encoding in ("identity", "") else _decompressed(raw, encoding, limits.body_nbytes)


def compressed(body: bytes, accepted: str) -> tuple[bytes, str]:
    """Return a response's body in an encoding that the client accepts, and its name; empty for the body itself."""
    for name in (part.partition(";")[0].strip().lower() for part in accepted.split(",")):
        if name in _WINDOWS:
            packer = zlib.compressobj(1, zlib.DEFLATED, _WINDOWS[name])
            return packer.compress(body) + packer.flush(), name
    return body, ""


async def _gathered(request: Request, limit: int) -> bytes:
    parts: list[bytes] = []
    total = 0
    async for part in request.stream():
        total += len(part)
        if total > limit:
            raise TooLarge(f"the body has more than the {limit} bytes that this server takes")
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompressed(raw: bytes, encoding: str, limit: int) -> bytes:
    window = _WINDOWS.get(encoding)
    if window is None:
        raise InvalidRequest(f"Content-Encoding {encoding!r} is not read here; gzip and deflate are")
    unpacker = zlib.decompressobj(window)
    try:
        found = unpacker.decompress(raw, limit + 1)
    except zlib.error as error:
        raise InvalidRequest(f"the body is no {encoding}: {error}") from error
    if len(found) > limit or unpacker.unconsumed_tail:
        raise TooLarge(f"the body has more than the {limit} bytes that this server takes when it is decompressed")
    if not unpacker.eof:
        raise InvalidRequest(f"the body is {encoding} that ends too early")
    return found
