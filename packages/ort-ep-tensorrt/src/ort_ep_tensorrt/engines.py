"""EnginesState: the engines of one program, by the bounds that they were built for. Safe from many threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from ort_ep_tensorrt._sdk import Sdk
from ort_ep_tensorrt.building import build_engine
from ort_ep_tensorrt.engine import Engine
from ort_ep_tensorrt.program import Program
from ort_ep_tensorrt.ranges import Bounds, Shape, bounds_for, holds_all
from ort_ep_tensorrt.recording import SdkError
from ort_ep_tensorrt.run_slot import RunSlotState
from ort_ep_tensorrt.settings import BuildSettings
from ort_ep_tensorrt.store import EngineStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """An engine, the bounds that it holds, and slots that are ready to run it."""

    bounds: Bounds
    engine: Engine
    idle: list[RunSlotState] = field(default_factory=list)


class EnginesState:
    """Builds engines as shapes come, and keeps the last: its bounds hold those of the ones before.

    Args:
        name: of the partition, for messages.
        sdk: what builds.
        settings: how.
        program: what is built.
        hardware: the GPU and its driver; empty where they are not known.
    """

    def __init__(self, name: str, sdk: Sdk, settings: BuildSettings, program: Program, hardware: str) -> None:
        self._name, self._sdk, self._settings, self.program = name, sdk, settings, program
        self._store = EngineStore(program, settings, sdk.version, hardware)
        self._last: LoadedEngine | None = None
        self._lock = threading.Lock()  # builds one after the other

    def engine_for(self, shapes: Mapping[str, Shape], values: Mapping[str, Shape]) -> LoadedEngine:
        """Return an engine whose bounds hold these shapes and values; builds it when there is none.

        Raises:
            SdkError: TensorRT did not build or load it.
        """
        with self._lock:
            if self._last is not None and self._last.bounds.hold(shapes, values):
                return self._last
            before = None if self._last is None else self._last.bounds
            bounds = bounds_for(shapes, values, self._settings.ranges, before)
            self._say_why(shapes, before)
            self._last = LoadedEngine(bounds, self._loaded(bounds))
            return self._last

    def serialized(self) -> tuple[Bounds, bytes] | None:
        """Return the last engine's bounds and bytes, ``None`` where none was built yet.

        Raises:
            SdkError: TensorRT does not write it.
        """
        with self._lock:
            return None if self._last is None else (self._last.bounds, self._last.engine.serialized())

    def restore(self, bounds: Bounds, content: bytes) -> None:
        """Take an engine from elsewhere.

        Raises:
            SdkError: TensorRT does not load it.
        """
        with self._lock:
            self._last = LoadedEngine(bounds, self._engine(bounds, content))

    def key_text(self, bounds: Bounds) -> str:
        """Return what an engine for these bounds depends on, as text."""
        return self._store.engine_key(bounds).digest()

    def close(self) -> None:
        """Give back contexts, engines and device memory; keep what TensorRT-RTX compiled."""
        with self._lock:
            last, self._last = self._last, None
        if last is None:
            return
        try:
            self._store.keep_kernels(last.bounds, last.engine.compiled_kernels())
        except SdkError as error:
            log.warning("kernels of %s are not kept: %s", self._name, error)
        last.idle.clear()

    def _loaded(self, bounds: Bounds) -> Engine:
        stored = self._store.engine(bounds)
        if stored is not None:
            try:
                return self._engine(bounds, stored)
            except SdkError as error:  # built anew and replaced; without a driver the next attempt fails, too
                log.info("a cached engine of %s is not used: %s", self._name, error)
        built = build_engine(self._sdk, self.program, self._settings, bounds, self._store.timings())
        engine = self._engine(bounds, built.content)
        self._store.keep_engine(bounds, built.content)
        self._store.keep_timings(built.timings)
        return engine

    def _engine(self, bounds: Bounds, content: bytes) -> Engine:
        return Engine(self._sdk, content, self._settings, self.program, self._store.kernels(bounds))

    def _say_why(self, shapes: Mapping[str, Shape], before: Bounds | None) -> None:
        given = {name: each for name, each in self._settings.ranges.items() if name in shapes}
        beyond = [name for name, each in given.items() if not each.holds(shapes[name])]
        if beyond:
            log.warning(
                "partition %s builds another engine: %s lies outside of the profile that was given; widen it",
                self._name,
                ", ".join(f"{name!r} {list(shapes[name])}" for name in beyond),
            )
        elif before is not None and not holds_all(before.shapes, shapes):
            log.info("partition %s builds another engine for wider ranges", self._name)
