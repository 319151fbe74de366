"""EngineStore: engines and measurements on disk, by digests of everything that they depend on.

Two models never share an engine by accident: its key is the claim's structure, a digest of every weight, the SDK's
version, the GPU, the flags and the ranges of shapes. Where the device does not name its hardware, nothing is kept.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from ort_core.plugin.cache import ArtefactCache, CacheKey
from ort_ep_tensorrt.program import Program
from ort_ep_tensorrt.ranges import Ranges
from ort_ep_tensorrt.settings import BuildSettings

ENGINES, TIMINGS = "tensorrt-engine", "tensorrt-timings"


class EngineStore:
    """Where the engines of one partition are kept.

    Args:
        program: the claim.
        settings: what engines are built with.
        version: name and version of the SDK.
        hardware: the GPU and its driver; empty where they are not known.
    """

    def __init__(self, program: Program, settings: BuildSettings, version: str, hardware: str) -> None:
        self._program, self._settings = program, settings
        self._version, self._hardware = version, hardware
        self._structure = hashlib.sha256(program.content).digest()
        self._weights: tuple[bytes, ...] | None = None
        self._engines = _cache(settings.engine_folder) if settings.caches_engines and hardware else None
        self._timings = _cache(settings.timing_folder) if settings.caches_timings and hardware else None

    def engine(self, ranges: Ranges) -> bytes | None:
        """Return the engine for some ranges, or ``None``."""
        return None if self._engines is None else self._engines.get(self.engine_key(ranges))

    def keep_engine(self, ranges: Ranges, content: bytes) -> None:
        """Keep an engine, in place of one that did not load."""
        if self._engines is not None:
            self._engines.put(self.engine_key(ranges), content)

    def timings(self) -> bytes | None:
        """Return measurements of kernels on this hardware, or ``None``."""
        return None if self._timings is None else self._timings.get(self._timing_key())

    def keep_timings(self, content: bytes | None) -> None:
        """Keep measurements."""
        if self._timings is not None and content is not None:
            self._timings.put(self._timing_key(), content)

    def engine_key(self, ranges: Ranges) -> CacheKey:
        """Return what an engine depends on."""
        if self._weights is None:
            self._weights = self._program.digests()
        facts = (
            ("sdk", self._version),
            ("hardware", self._hardware),
            ("settings", self._settings.facts()),
            ("ranges", repr(sorted(ranges.items()))),
        )
        return CacheKey(ENGINES, self._structure, self._weights, facts)

    def _timing_key(self) -> CacheKey:
        facts = (("sdk", self._version), ("hardware", self._hardware))
        return CacheKey(TIMINGS, b"timings", (), () if self._settings.accepts_foreign_timings else facts)


def _cache(folder: str) -> ArtefactCache:
    return ArtefactCache(Path(folder)) if folder else ArtefactCache()
