"""One line of JSON for each request, on the logger ``ort_serve.access``."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime

import orjson

access = logging.getLogger("ort_serve.access")


def log_to_stderr(who: str, *, is_access: bool) -> None:
    """Let this package's log go to the standard error: messages with their time, requests as JSON alone.

    Args:
        who: of several processes; empty for one.
        is_access: requests, too.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s {who + ' ' if who else ''}%(message)s"))
    logger = logging.getLogger("ort_serve")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    access.setLevel(logging.INFO if is_access else logging.WARNING)
    if is_access:
        plain = logging.StreamHandler()
        plain.setFormatter(logging.Formatter("%(message)s"))
        access.addHandler(plain)
        access.propagate = False


def is_wanted() -> bool:
    """Return whether anybody reads the lines."""
    return access.isEnabledFor(logging.INFO)


def write_line(protocol: str, method: str, path: str, status: object, begin: float, client: str) -> None:
    """Write a request's line. JSON quotes whatever a path may hold.

    Args:
        protocol: ``http`` or ``grpc``.
        method: of HTTP; empty for gRPC.
        path: as it was sent, or gRPC's method.
        status: HTTP's number, or gRPC's name.
        begin: of the request, by ``time.perf_counter``.
        client: its address.
    """
    found = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "protocol": protocol,
        "method": method,
        "path": path,
        "status": status,
        "ms": round((time.perf_counter() - begin) * 1e3, 3),
        "client": client,
    }
    access.info("%s", orjson.dumps({name: value for name, value in found.items() if value != ""}).decode())
