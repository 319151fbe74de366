"""What a failed request is told over HTTP."""

from __future__ import annotations

import orjson

from ort_serve.failures import RequestFailure, TooLarge, TooSlow

Answer = tuple[int, list[tuple[bytes, bytes]], bytes]


def failure_answer(failure: RequestFailure) -> Answer:
    """Return status, headers and body of a failure."""
    headers = [(b"content-type", b"application/json")]
    if failure.retry_after_s is not None:
        headers.append((b"retry-after", str(max(round(failure.retry_after_s), 1)).encode()))
    if isinstance(failure, (TooLarge, TooSlow)):
        headers.append((b"connection", b"close"))  # nobody reads the rest of the body
    return failure.status, headers, orjson.dumps({"error": str(failure)})
