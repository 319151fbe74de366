"""Engine: a serialized engine loaded on the GPU, and contexts that run it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from ort_ep_tensorrt._sdk import Sdk
from ort_ep_tensorrt.program import Program
from ort_ep_tensorrt.ranges import Shape
from ort_ep_tensorrt.recording import RecordState, SdkError
from ort_ep_tensorrt.settings import BuildSettings

log = logging.getLogger(__name__)
Values = Mapping[str, np.ndarray]
"""Contiguous arrays by name of inputs whose values decide shapes; TensorRT reads them on the host."""


class Engine:
    """A loaded engine. Safe from many threads; its contexts are not.

    Args:
        sdk: what built it.
        content: the serialized engine.
        settings: how its contexts run.
        program: what it was built of; gives an engine without weights its weights.
        kernels: of TensorRT-RTX: what it compiled on this GPU before.

    Raises:
        SdkError: TensorRT does not load it: another version, another GPU, no driver, no memory.
    """

    def __init__(
        self, sdk: Sdk, content: bytes, settings: BuildSettings, program: Program, kernels: bytes | None = None
    ) -> None:
        self.sdk, self.record = sdk, RecordState()
        self._settings, self._lock = settings, threading.Lock()
        self._logger = sdk.logger(self.record)
        self._runtime = self.record.attempt("make a runtime", lambda: sdk.module.Runtime(self._logger))
        if settings.is_version_compatible:
            self._runtime.engine_host_code_allowed = True  # such an engine holds a runtime of its own version
        self._engine = self.record.expect(self._runtime.deserialize_cuda_engine(content), "load an engine")
        if settings.strips_weights:
            self.refit(program)
        modes, places = sdk.module.TensorIOMode, sdk.module.TensorLocation
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        self.inputs = tuple(name for name in names if self._engine.get_tensor_mode(name) == modes.INPUT)
        self.outputs = tuple(name for name in names if self._engine.get_tensor_mode(name) == modes.OUTPUT)
        self.on_host = frozenset(name for name in names if self._engine.get_tensor_location(name) == places.HOST)
        self._cache: Any = None
        self._config = self._runtime_config(kernels) if sdk.is_rtx else None
        self._planner: Any = None

    def create_context(self) -> Any:
        """Return a context, with memory of its own."""
        self.sdk.listen(self.record)
        arguments = () if self._config is None else (self._config,)
        return self.record.expect(self._engine.create_execution_context(*arguments), "make an execution context")

    def refit(self, program: Program) -> None:
        """Give the engine the weights of a program; no context of its may be running.

        Raises:
            SdkError: TensorRT does not find its weights in the program.
        """
        trt = self.sdk.module
        self.sdk.listen(self.record)
        refitter = self.record.attempt("make a refitter", lambda: trt.Refitter(self._engine, self._logger))
        reader = self.record.attempt("make a reader of weights", lambda: trt.OnnxParserRefitter(refitter, self._logger))
        self.record.expect(reader.load_model_proto(program.content), "read a model")
        for name, array in program.weights.items():
            self.record.expect(
                reader.load_initializer(name, array.ctypes.data, array.nbytes), f"take the weight {name!r}"
            )
        self.record.expect(reader.refit_model_proto(), "find the weights of an engine")
        self.record.expect(refitter.refit_cuda_engine(), "give an engine its weights")

    def serialized(self) -> bytes:
        """Return the engine as bytes, without the weights where it was built so."""
        self.sdk.listen(self.record)
        if not self._settings.strips_weights:
            return bytes(self.record.expect(self._engine.serialize(), "write an engine"))
        config = self.record.expect(self._engine.create_serialization_config(), "make a configuration")
        self.record.expect(config.set_flag(self.sdk.module.SerializationFlag.EXCLUDE_WEIGHTS), "leave weights out")
        return bytes(self.record.expect(self._engine.serialize_with_config(config), "write an engine"))

    def compiled_kernels(self) -> bytes | None:
        """Return what TensorRT-RTX compiled on this GPU, for the next process; ``None``: nothing is kept."""
        if self._cache is None:
            return None
        self.sdk.listen(self.record)
        return bytes(self.record.expect(self._cache.serialize(), "write compiled kernels"))

    def output_shapes(self, shapes: Mapping[str, Shape], values: Values) -> dict[str, Shape | None]:
        """Return the shape of each output for shapes and values of inputs, ``None`` where data decide it.

        Raises:
            SdkError: they do not fit the engine.
        """
        with self._lock:
            if self._planner is None:
                self._planner = self.create_context()
            self.set_shapes(self._planner, shapes, values)
            return {name: self.output_shape(self._planner, name) for name in self.outputs}

    def set_shapes(self, context: Any, shapes: Mapping[str, Shape], values: Values) -> None:
        """Tell a context the shapes of its inputs, and the values that decide further shapes.

        Raises:
            SdkError: one lies outside of the engine's ranges, or something is missing.
        """
        self.sdk.listen(self.record)
        for name in self.inputs:
            doing = f"take the shape {list(shapes[name])} of input {name!r}"
            self.record.expect(context.set_input_shape(name, shapes[name]), doing)
            if name in self.on_host:
                address = values[name].ctypes.data
                self.record.expect(context.set_tensor_address(name, address), f"take the values of input {name!r}")
        missing = context.infer_shapes()
        if missing:
            raise SdkError("infer shapes", f"the inputs {list(missing)} are not known; {self.record.take()}")

    def output_shape(self, context: Any, name: str) -> Shape | None:
        """Return the shape of an output in a context whose inputs are known, ``None`` where data decide it."""
        shape = tuple(int(size) for size in context.get_tensor_shape(name))
        return None if -1 in shape else shape

    def _runtime_config(self, kernels: bytes | None) -> Any:
        """Return how TensorRT-RTX makes contexts: whether it captures graphs, and the kernels that it has."""
        config = self.record.expect(self._engine.create_runtime_config(), "make a runtime configuration")
        if self._settings.captures_graphs:
            config.cuda_graph_strategy = self.sdk.module.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
        if self._settings.kernel_folder:
            self._cache = self.record.expect(config.create_runtime_cache(), "make a cache of kernels")
            if kernels is not None and not self._cache.deserialize(kernels):
                log.info("compiled kernels of another GPU or version are not used: %s", self.record.take())
            self.record.expect(config.set_runtime_cache(self._cache), "take a cache of kernels")
        return config
