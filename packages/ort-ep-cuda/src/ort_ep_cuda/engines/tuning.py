"""Tuning: a library's best candidates for a step are timed once on the device, and the fastest is remembered on disk.

A step's batch and rows count rounded up to a power of two, so that a sequence that grows asks for nothing anew. What is
remembered belongs to one device, driver and library: with another of them a step is timed again.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ort_core.plugin import EPFail
from ort_core.plugin.cache import ArtefactCache, CacheKey

log = logging.getLogger(__name__)

KIND = "cuda-tuning"
TIMED_RUNS = 3  # of each candidate behind one that warms it up; the least time counts
BUDGET_S = 20.0  # of device time for a session: a model of a hundred products takes about one; then heuristics decide


class LibraryStream(Protocol):
    """A stream as libraries need it."""

    @property
    def handle(self) -> int:
        """The ``cudaStream_t``."""

    def scratch(self, nbytes: int) -> int:
        """Return the address of memory that calls on this stream may overwrite; it stays while the stream lives."""

    def seconds(self, call: Callable[[], None]) -> float:
        """Return how long the device takes for what a call enqueues; waits for it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run a step: ``name`` tells it from the others for good, ``call`` enqueues it."""

    name: bytes
    call: Callable[[], None]


class Tuner:
    """Chooses among candidates. Safe from many threads: one tunes at a time.

    Args:
        versions: device, driver and libraries, which choices depend on.
        failures: what libraries raise for a candidate that they cannot run.
        store: where choices lie.
        budget_s: device time that may be spent.
    """

    def __init__(
        self,
        versions: tuple[tuple[str, str], ...],
        failures: tuple[type[Exception], ...],
        store: ArtefactCache | None = None,
        budget_s: float = BUDGET_S,
    ) -> None:
        self._versions, self._failures = versions, failures
        self._store = store if store is not None else ArtefactCache()
        self._left_s = budget_s
        self._chosen: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def find(self, key: str) -> bytes | None:
        """Return the name of the candidate that is known to be the fastest for a key."""
        if key not in self._chosen:
            found = self._store.get(self.cache_key(key))
            if found is None:
                return None
            self._chosen[key] = found
        return self._chosen[key]

    def choose(self, key: str, candidates: Sequence[Candidate], stream: LibraryStream) -> Candidate:
        """Return the fastest candidate: the known one, or after timing each, which runs the step several times.

        Raises:
            EPFail: none of them runs; the message has the library's words.
        """
        with self._lock:
            known = self.find(key)
            for candidate in candidates:
                if candidate.name == known:
                    return candidate
            return self._timed(key, candidates, stream)

    def cache_key(self, key: str) -> CacheKey:
        """Return what a choice depends on."""
        return CacheKey(KIND, hashlib.sha256(key.encode()).digest(), (), self._versions)

    def _timed(self, key: str, candidates: Sequence[Candidate], stream: LibraryStream) -> Candidate:
        times: list[tuple[float, Candidate]] = []
        reasons: list[str] = []
        for candidate in candidates:
            try:
                seconds = self._seconds(candidate, stream, is_last=len(candidates) == 1)
            except self._failures as error:
                reasons.append(str(error).splitlines()[0])
                log.debug("a candidate for %s does not run: %s", key, error)
                continue
            times.append((seconds, candidate))
            if self._left_s <= 0:
                break
        if not times:
            raise EPFail(f"no engine runs {key}: {'; '.join(dict.fromkeys(reasons)) or 'the library offers none'}")
        best = min(times, key=lambda pair: pair[0])[1]
        self._chosen[key] = best.name
        if len(times) == len(candidates) - len(reasons):  # else the budget ended it: another session may go on
            self._store.put(self.cache_key(key), best.name)
        log.debug("%s: the fastest of %d candidates takes %.1f us", key, len(times), min(t for t, _ in times) * 1e6)
        return best

    def _seconds(self, candidate: Candidate, stream: LibraryStream, *, is_last: bool) -> float:
        """Return the least time of a candidate; one without rivals, or without budget, only runs."""
        spent = stream.seconds(candidate.call)
        if is_last or self._left_s <= 0:
            return spent
        times = [stream.seconds(candidate.call) for _ in range(TIMED_RUNS)]
        self._left_s -= spent + sum(times)
        return min(times)


def bucket(size: int) -> int:
    """Return a size rounded up to a power of two."""
    return 1 << max(size - 1, 0).bit_length()
