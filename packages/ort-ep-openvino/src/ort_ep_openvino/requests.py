"""RequestPool: OpenVINO's inference requests, one for each run that is under way; none is ever used by two at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class RequestPoolState:
    """Requests of one compiled model: taken by a run, given back by it, made when there is none. Safe from threads.

    The requests of a model share its graph, and a run that fails for its sizes leaves that in a state in which later
    runs read other memory (OpenVINO 2026.4). So ``replace`` brings a new model behind a failure, and a run that went on
    meanwhile asks ``generation`` whether it can believe its results.
    """

    def __init__(self, compiled: Any, compile_anew: Callable[[], Any]) -> None:
        self._compiled, self._compile_anew = compiled, compile_anew
        self._idle: deque[Any] = deque()  # its append and pop are atomic
        self._bound: list[deque[Any]] = []
        self._lock = threading.Lock()
        self.generation = 0

    def replace(self, generation: int) -> None:
        """Compile the model anew, unless another run that failed in the same generation did."""
        with self._lock:
            if self.generation == generation:
                self._compiled = self._compile_anew()
                self._idle = deque()
                self.generation += 1
                for place in self._bound:
                    place.clear()

    def place_for_bound(self) -> deque[Any]:
        """Return a place for requests that stay bound to memory of their own; it is emptied with this pool."""
        place: deque[Any] = deque()
        with self._lock:
            self._bound.append(place)
        return place

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
        for place in (self._idle, *self._bound):
            place.clear()
