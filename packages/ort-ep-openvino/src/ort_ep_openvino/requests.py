"""RequestPool: OpenVINO's inference requests, one for each run that is under way; none is ever used by two at once."""

from __future__ import annotations

from collections import deque
from typing import Any


class RequestPoolState:
    """Requests of one compiled model: taken by a run, given back by it, made when there is none. Safe from threads."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._idle: deque[Any] = deque()  # its append and pop are atomic

    def take(self) -> Any:
        """Return a request that nobody uses."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._compiled.create_infer_request()

    def give_back(self, request: Any) -> None:
        """Let the next run have it."""
        self._idle.append(request)

    def close(self) -> None:
        """Drop all requests that are idle."""
        self._idle.clear()
