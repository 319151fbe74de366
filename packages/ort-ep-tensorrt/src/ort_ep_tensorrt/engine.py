"""Engine: a serialised engine loaded on the GPU, and contexts that run it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from ort_ep_tensorrt._sdk import Sdk
from ort_ep_tensorrt.ranges import Shape
from ort_ep_tensorrt.recording import RecordState, SdkError
from ort_ep_tensorrt.settings import BuildSettings


class Engine:
    """A loaded engine. Safe from many threads; its contexts are not.

    Args:
        sdk: what built it.
        content: the serialised engine.
        settings: how its contexts run.

    Raises:
        SdkError: TensorRT does not load it: another version, another GPU, no driver, no memory.
    """

    def __init__(self, sdk: Sdk, content: bytes, settings: BuildSettings) -> None:
        self.sdk, self.record = sdk, RecordState()
        self._settings, self._lock = settings, threading.Lock()
        self._logger = sdk.logger(self.record)
        self._runtime = self.record.expect(sdk.module.Runtime(self._logger), "make a runtime")
        self._engine = self.record.expect(self._runtime.deserialize_cuda_engine(content), "load an engine")
        modes = sdk.module.TensorIOMode
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        self.inputs = tuple(name for name in names if self._engine.get_tensor_mode(name) == modes.INPUT)
        self.outputs = tuple(name for name in names if self._engine.get_tensor_mode(name) == modes.OUTPUT)
        self._planner: Any = None

    def create_context(self) -> Any:
        """Return a context, with memory of its own."""
        if not (self.sdk.is_rtx and self._settings.captures_graphs):
            return self.record.expect(self._engine.create_execution_context(), "make an execution context")
        config = self.record.expect(self._engine.create_runtime_config(), "make a runtime configuration")
        config.cuda_graph_strategy = self.sdk.module.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
        return self.record.expect(self._engine.create_execution_context(config), "make an execution context")

    def output_shapes(self, shapes: Mapping[str, Shape]) -> dict[str, Shape | None]:
        """Return the shape of each output for shapes of the inputs, ``None`` where it depends on their values.

        Raises:
            SdkError: the shapes do not fit the engine.
        """
        with self._lock:
            if self._planner is None:
                self._planner = self.create_context()
            self.set_shapes(self._planner, shapes)
            return {name: self.output_shape(self._planner, name) for name in self.outputs}

    def set_shapes(self, context: Any, shapes: Mapping[str, Shape]) -> None:
        """Tell a context the shapes of its inputs.

        Raises:
            SdkError: one lies outside of the engine's ranges, or something is missing.
        """
        for name in self.inputs:
            doing = f"take the shape {list(shapes[name])} of input {name!r}"
            self.record.expect(context.set_input_shape(name, shapes[name]), doing)
        missing = context.infer_shapes()
        if missing:
            raise SdkError("infer shapes", f"the inputs {list(missing)} are not known; {self.record.take()}")

    def output_shape(self, context: Any, name: str) -> Shape | None:
        """Return the shape of an output in a context whose inputs are known, ``None`` where values decide it."""
        shape = tuple(int(size) for size in context.get_tensor_shape(name))
        return None if -1 in shape else shape
