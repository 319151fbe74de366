"""EngineStore: engines and measurements on disk, by digests of everything that they depend on.

Two models never share an engine by accident: its key is the claim's structure, a digest of every weight, the SDK's
version, the GPU, the flags and the ranges of shapes. Where the device does not name its hardware, nothing is kept.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from ort_core.plugin.cache import ArtefactCache, CacheKey
from ort_ep_tensorrt.program import Program
from ort_ep_tensorrt.ranges import Bounds
from ort_ep_tensorrt.settings import BuildSettings

ENGINES, TIMINGS, KERNELS = "tensorrt-engine", "tensorrt-timings", "tensorrt-kernels"


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
        self._kernels = _cache(settings.kernel_folder) if settings.kernel_folder and hardware else None

    def engine(self, bounds: Bounds) -> bytes | None:
        """Return the engine for some bounds, or ``None``."""
        return None if self._engines is None else self._engines.get(self.engine_key(bounds))

    def keep_engine(self, bounds: Bounds, content: bytes) -> None:
        """Keep an engine, in place of one that did not load."""
        if self._engines is not None:
            self._engines.put(self.engine_key(bounds), content)

    def timings(self) -> bytes | None:
        """Return measurements of kernels on this hardware, or ``None``."""
        return None if self._timings is None else self._timings.get(self._timing_key())

    def keep_timings(self, content: bytes | None) -> None:
        """Keep measurements."""
        if self._timings is not None and content is not None:
            self._timings.put(self._timing_key(), content)

    def kernels(self, bounds: Bounds) -> bytes | None:
        """Return what TensorRT-RTX compiled of an engine on this hardware, or ``None``."""
        return None if self._kernels is None else self._kernels.get(self._kernel_key(bounds))

    def keep_kernels(self, bounds: Bounds, content: bytes | None) -> None:
        """Keep what TensorRT-RTX compiled."""
        if self._kernels is not None and content is not None:
            self._kernels.put(self._kernel_key(bounds), content)

    def engine_key(self, bounds: Bounds) -> CacheKey:
        """Return what an engine depends on."""
        if self._weights is None:
            is_without = self._settings.strips_weights and not self._settings.uses_sparsity
            self._weights = () if is_without else self._program.digests()
        facts = (
            ("sdk", self._version_text()),
            ("hardware", self._hardware_text()),
            ("settings", self._settings.facts()),
            ("bounds", bounds.text()),
            ("plugins", " ".join(_file_digest(path) for path in self._settings.plugin_paths)),
        )
        return CacheKey(ENGINES, self._structure, self._weights, facts)

    def _version_text(self) -> str:
        """Return the version that an engine needs: of a version-compatible one only what is before the first point."""
        return self._version.partition(".")[0] if self._settings.is_version_compatible else self._version

    def _hardware_text(self) -> str:
        return "Ampere or later" if self._settings.is_hardware_compatible else self._hardware

    def _kernel_key(self, bounds: Bounds) -> CacheKey:
        return replace(
            self.engine_key(bounds), kind=KERNELS, facts=(("sdk", self._version), ("hardware", self._hardware))
        )

    def _timing_key(self) -> CacheKey:
        facts = (("sdk", self._version), ("hardware", self._hardware))
        return CacheKey(TIMINGS, b"timings", (), () if self._settings.accepts_foreign_timings else facts)


def _file_digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _cache(folder: str) -> ArtefactCache:
    return ArtefactCache(Path(folder)) if folder else ArtefactCache()
