"""TensorRtPartition: a compiled claim: engines by ranges of shapes, and slots that run them. Safe from many threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ort_core.plugin import (
    CompiledPartition,
    CompileRequest,
    EPFail,
    InvalidArgument,
    OutputPlan,
    PartitionPlan,
    Rejection,
    RunState,
)
from ort_core.plugin.devices import AdoptingApi, DeviceApi, DeviceArray, Stream, current
from ort_core.plugin.ir import DataType, TensorType, Value
from ort_core.plugin.kernels import RuntimeValue
from ort_ep_tensorrt.blob import StoredEngine, sealed
from ort_ep_tensorrt.engine import Values
from ort_ep_tensorrt.engines import EnginesState, LoadedEngine
from ort_ep_tensorrt.ranges import Shape
from ort_ep_tensorrt.recording import SdkError
from ort_ep_tensorrt.run_slot import RunSlotState, Tensor
from ort_ep_tensorrt.settings import BuildSettings

MAXIMUM_IDLE_SLOTS = 8  # for each engine; each holds a context's memory
MAXIMUM_PROGRAMS = 8  # with other fixed values each; axes that come from outside rarely take more

EnginesOf = Callable[[Values], EnginesState]
"""Returns the engines of a program whose fixed inputs have these values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRtPlan(PartitionPlan):
    """The decisions for one signature: the engine whose bounds hold it."""

    loaded: LoadedEngine


class TensorRtPartition(CompiledPartition):
    """One partition on one device.

    Args:
        request: the partition.
        settings: how engines run.
        api: the device.
        engines_of: engines by the values of the inputs that are constants of a program.
        fixed: the names of these inputs.
        deciding: the names of inputs whose values decide shapes.
    """

    def __init__(
        self,
        request: CompileRequest,
        settings: BuildSettings,
        api: DeviceApi,
        engines_of: EnginesOf,
        fixed: Sequence[str],
        deciding: Sequence[str],
    ) -> None:
        self._name, self._graph = request.name, request.graph
        self._settings, self._api = settings, api
        self._engines_of = engines_of
        self._fixed, self._deciding = frozenset(fixed), frozenset(deciding)
        names = [value.name for value in request.graph.inputs]
        self.value_inputs = tuple(i for i, name in enumerate(names) if name in self._fixed | self._deciding)
        self.device = api.device
        self.runs_at_once = None if settings.stream is None else 1  # a stream does one thing after the other
        self._dtypes = tuple(_dtype(value) for value in request.graph.outputs)
        self._programs: OrderedDict[bytes, EnginesState] = OrderedDict()
        self._lock = threading.Lock()

    def plan(self, shapes: Sequence[Shape | None], known_values: Mapping[int, np.ndarray]) -> PartitionPlan:
        """Return the plan for some shapes and values; builds an engine when none holds them.

        Raises:
            EPFail: TensorRT failed.
        """
        inputs = self._graph.inputs
        named = {v.name: shape for v, shape in zip(inputs, shapes, strict=True) if shape is not None}
        values = {inputs[index].name: np.ascontiguousarray(array) for index, array in known_values.items()}
        deciding = {name: array for name, array in values.items() if name in self._deciding}
        flat = {name: tuple(int(element) for element in array.reshape(-1)) for name, array in deciding.items()}
        try:
            with current(self._api):  # of a new thread it is the first device
                engines = self.engines({name: array for name, array in values.items() if name in self._fixed})
                loaded = engines.engine_for(named, flat)
                found = loaded.engine.output_shapes(named, values)
        except SdkError as error:
            raise EPFail(f"partition {self._name!r}: {error}") from error
        outputs = zip(self._dtypes, self._graph.outputs, strict=True)
        planned = tuple(OutputPlan(dtype, found[value.name]) for dtype, value in outputs)
        return TensorRtPlan(outputs=planned, loaded=loaded)

    def run(
        self,
        plan: PartitionPlan,
        inputs: Sequence[RuntimeValue],
        outputs: list[RuntimeValue],
        run_state: RunState,
    ) -> None:
        """Compute the outputs; buffers that were handed in are filled.

        Raises:
            EPFail: TensorRT failed.
        """
        assert isinstance(plan, TensorRtPlan)
        run_state.guard.check()
        fed = {v.name: _tensor(x, v) for v, x in zip(self._graph.inputs, inputs, strict=True)}
        names = [value.name for value in self._graph.outputs]
        pairs = zip(names, outputs, strict=True)
        targets = {name: given if isinstance(given, Tensor) else None for name, given in pairs}
        dtypes = {name: dtype.numpy for name, dtype in zip(names, self._dtypes, strict=True)}
        try:
            with current(self._api):
                slot = self._take(plan.loaded)
                found = slot.run(fed, targets, dtypes, run_state)  # a slot whose run failed is not used again
        except SdkError as error:
            raise EPFail(f"partition {self._name!r}: {error}") from error
        self._give_back(plan.loaded, slot)
        outputs[:] = [found[name] for name in names]

    def engines(self, values: Values) -> EnginesState:
        """Return the engines of the program in which inputs have these values.

        Raises:
            SdkError: TensorRT does not take the program with these values.
        """
        key = b"".join(name.encode() + array.tobytes() for name, array in sorted(values.items()))
        with self._lock:
            if key not in self._programs:
                self._programs[key] = self._engines_of(values)
                if len(self._programs) > MAXIMUM_PROGRAMS:
                    self._programs.popitem(last=False)  # plans that have its engine keep it
            self._programs.move_to_end(key)
            return self._programs[key]

    def serialize(self) -> bytes | Rejection:
        """Return the engine, or why there is none."""
        if self._fixed:
            return Rejection(f"its engines depend on the values of {sorted(self._fixed)}, which come with each run")
        try:
            with current(self._api):
                engines = self.engines({})
                found = engines.serialized()
        except SdkError as error:
            return Rejection(str(error))
        if found is None:
            return Rejection(
                "no engine was built: sizes are open; give trt_profile_min_shapes, _opt_shapes and _max_shapes"
            )
        return sealed(StoredEngine(engines.key_text(found[0]), *found))

    def close(self) -> None:
        """Give back contexts, engines and device memory."""
        with self._lock:
            states, self._programs = list(self._programs.values()), OrderedDict()
        with current(self._api):
            for state in states:
                state.close()

    def restore(self, stored: StoredEngine) -> Rejection | None:
        """Load an engine that was stored, or say why it is not used."""
        try:
            with current(self._api):
                engines = self.engines({})
                if engines.key_text(stored.bounds) != stored.key:
                    return Rejection(
                        "the engine was built for another GPU, version of TensorRT, options, or other weights"
                    )
                engines.restore(stored.bounds, stored.content)
        except SdkError as error:
            return Rejection(f"the stored engine is not used: {error}")
        return None

    def _take(self, loaded: LoadedEngine) -> RunSlotState:
        with self._lock:
            if loaded.idle:
                return loaded.idle.pop()
        is_default = self._settings.stream == 0  # CUDA captures nothing there
        captures = self._settings.captures_graphs and not is_default and not loaded.engine.sdk.is_rtx  # which does it
        return RunSlotState(loaded.engine, self._api, self._stream(), captures=captures)

    def _stream(self) -> Stream:
        handle = self._settings.stream
        if handle is None:
            return self._api.create_stream()
        if not isinstance(self._api, AdoptingApi):
            raise EPFail(f"option 'user_compute_stream': the plugin of {self.device} takes no streams of others")
        return self._api.adopt_stream(handle)

    def _give_back(self, loaded: LoadedEngine, slot: RunSlotState) -> None:
        with self._lock:
            if len(loaded.idle) < MAXIMUM_IDLE_SLOTS:
                loaded.idle.append(slot)


def _dtype(value: Value) -> DataType:
    assert isinstance(value.type, TensorType), "claims hold tensors only"
    return value.type.dtype


def _tensor(given: RuntimeValue, value: Value) -> Tensor:
    if not isinstance(given, (np.ndarray, DeviceArray)):
        raise InvalidArgument(f"input {value.name!r} is a {type(given).__name__}, expected an array")
    return given
