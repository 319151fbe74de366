"""TensorRtPartition: a compiled claim: engines by ranges of shapes, and slots that run them. Safe from many threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ort_core.plugin import (
    CompiledPartition,
    CompileRequest,
    EPFail,
    InvalidArgument,
    OrtError,
    OutputPlan,
    PartitionPlan,
    RunState,
)
from ort_core.plugin.devices import Device, DeviceApi, DeviceDirectory
from ort_core.plugin.ir import DataType, TensorType, Value
from ort_core.plugin.kernels import RuntimeValue
from ort_ep_tensorrt._sdk import Sdk
from ort_ep_tensorrt.building import build_engine
from ort_ep_tensorrt.engine import Engine
from ort_ep_tensorrt.program import Program, program_of_request
from ort_ep_tensorrt.ranges import Ranges, Shape, holds_all, ranges_for
from ort_ep_tensorrt.recording import SdkError
from ort_ep_tensorrt.run_slot import RunSlotState
from ort_ep_tensorrt.settings import BuildSettings
from ort_ep_tensorrt.store import EngineStore

log = logging.getLogger(__name__)
MAXIMUM_IDLE_SLOTS = 8  # for each engine; each holds a context's memory


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRtPlan(PartitionPlan):
    """The decisions for one signature: the engine whose ranges hold it, and slots to run it."""

    engine: Engine
    idle: list[RunSlotState]


def compile_partition(request: CompileRequest, sdk: Sdk, settings: BuildSettings) -> TensorRtPartition:
    """Return a partition; with fixed shapes its engine is built at once, else when the first shapes come.

    Raises:
        EPFail: no plugin offers CUDA devices, or TensorRT did not build it.
    """
    devices = request.services.get("devices")
    if not isinstance(devices, DeviceDirectory):
        raise EPFail("TensorRT runs on the CUDA devices of the environment, and this request has no devices")
    try:
        api = devices.get(Device("cuda", settings.device_id))
    except OrtError as error:
        raise EPFail(f"TensorRT needs a CUDA device from a plugin (pip install ort-ep-cuda): {error}") from error
    partition = TensorRtPartition(request, sdk, settings, api)
    shapes = [_fixed_shape(value) for value in request.graph.inputs]
    if None not in shapes:
        partition.plan(shapes, {})
    return partition


class TensorRtPartition(CompiledPartition):
    """One partition on one device.

    Args:
        request: the partition.
        sdk: what builds and runs it.
        settings: how.
        api: the device.
    """

    def __init__(self, request: CompileRequest, sdk: Sdk, settings: BuildSettings, api: DeviceApi) -> None:
        self._name, self._graph = request.name, request.graph
        self._sdk, self._settings, self._api = sdk, settings, api
        self._program: Program = program_of_request(request)
        hardware = getattr(api, "hardware", "")  # a DeviceApi may name the device and its driver
        self._store = EngineStore(self._program, settings, sdk.version, hardware)
        self._dtypes = tuple(_dtype(value) for value in request.graph.outputs)
        self._last: tuple[Ranges, Engine, list[RunSlotState]] | None = None
        self._lock = threading.Lock()  # builds one after the other; runs of known signatures take it only for a slot

    def plan(self, shapes: Sequence[tuple[int, ...] | None], known_values: Mapping[int, np.ndarray]) -> PartitionPlan:
        """Return the plan for some shapes; builds an engine when none holds them.

        Raises:
            EPFail: TensorRT failed.
        """
        named = {v.name: shape for v, shape in zip(self._graph.inputs, shapes, strict=True) if shape is not None}
        try:
            engine, idle = self._engine_for(named)
            found = engine.output_shapes(named)
        except SdkError as error:
            raise EPFail(f"partition {self._name!r}: {error}") from error
        outputs = zip(self._dtypes, self._graph.outputs, strict=True)
        planned = tuple(OutputPlan(dtype, found[value.name]) for dtype, value in outputs)
        return TensorRtPlan(outputs=planned, engine=engine, idle=idle)

    def run(
        self,
        plan: PartitionPlan,
        inputs: Sequence[RuntimeValue],
        outputs: list[RuntimeValue],
        workspace: Mapping[str, object],
        run_state: RunState,
    ) -> None:
        """Compute the outputs; buffers that were handed in are filled.

        Raises:
            EPFail: TensorRT failed.
        """
        assert isinstance(plan, TensorRtPlan)
        run_state.guard.check()
        fed = {v.name: _array(x, v) for v, x in zip(self._graph.inputs, inputs, strict=True)}
        names = [value.name for value in self._graph.outputs]
        targets = {n: given if isinstance(given, np.ndarray) else None for n, given in zip(names, outputs, strict=True)}
        dtypes = {name: dtype.numpy for name, dtype in zip(names, self._dtypes, strict=True)}
        try:
            slot = self._take(plan)
            found = slot.run(fed, targets, dtypes, run_state)  # a slot whose run failed is not used again
        except SdkError as error:
            raise EPFail(f"partition {self._name!r}: {error}") from error
        self._give_back(plan, slot)
        outputs[:] = [found[name] for name in names]

    def close(self) -> None:
        """Give back contexts, engines and device memory."""
        with self._lock:
            if self._last is not None:
                self._last[2].clear()
            self._last = None

    def _engine_for(self, shapes: Mapping[str, Shape]) -> tuple[Engine, list[RunSlotState]]:
        with self._lock:
            if self._last is not None and holds_all(self._last[0], shapes):
                return self._last[1:]
            before = self._last[0] if self._last is not None else {}
            ranges = ranges_for(shapes, self._settings.ranges, before)
            idle: list[RunSlotState] = []
            # The new ranges hold those of the last engine, which stays only for plans that already have it
            self._last = (ranges, self._loaded(ranges), idle)
            return self._last[1], idle

    def _loaded(self, ranges: Ranges) -> Engine:
        stored = self._store.engine(ranges)
        if stored is not None:
            try:
                return Engine(self._sdk, stored, self._settings)
            except SdkError as error:  # built anew and replaced; without a driver the next attempt fails, too
                log.info("a cached engine of %s is not used: %s", self._name, error)
        built = build_engine(self._sdk, self._program, self._settings, ranges, self._store.timings())
        engine = Engine(self._sdk, built.content, self._settings)
        self._store.keep_engine(ranges, built.content)
        self._store.keep_timings(built.timings)
        return engine

    def _take(self, plan: TensorRtPlan) -> RunSlotState:
        with self._lock:
            if plan.idle:
                return plan.idle.pop()
        return RunSlotState(plan.engine, self._api)

    def _give_back(self, plan: TensorRtPlan, slot: RunSlotState) -> None:
        with self._lock:
            if len(plan.idle) < MAXIMUM_IDLE_SLOTS:
                plan.idle.append(slot)


def _fixed_shape(value: Value) -> Shape | None:
    sizes = [size for size in value.shape or () if isinstance(size, int)]
    return None if value.shape is None or len(sizes) != len(value.shape) else tuple(sizes)


def _dtype(value: Value) -> DataType:
    assert isinstance(value.type, TensorType), "claims hold tensors only"
    return value.type.dtype


def _array(given: RuntimeValue, value: Value) -> np.ndarray:
    if not isinstance(given, np.ndarray):
        raise InvalidArgument(f"input {value.name!r} is a {type(given).__name__}, expected an array")
    return given
