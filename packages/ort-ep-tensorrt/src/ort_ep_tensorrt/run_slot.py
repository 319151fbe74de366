"""RunSlot: one execution context with its stream and device memory; one run at a time uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ort_core.plugin import AllocationLimitExceeded, RunState
from ort_core.plugin.devices import DeviceApi, DeviceBuffer
from ort_ep_tensorrt.engine import Engine
from ort_ep_tensorrt.ranges import Shape
from ort_ep_tensorrt.recording import SdkError


class RunSlotState:
    """What one run in flight needs.

    Args:
        engine: what runs.
        api: the device that all providers share.
    """

    def __init__(self, engine: Engine, api: DeviceApi) -> None:
        self._engine, self._api = engine, api
        self._context = engine.create_context()
        self._stream = api.create_stream()
        self._buffers: dict[str, DeviceBuffer] = {}
        self._growing: dict[str, Any] = {}  # allocators, which the context does not keep alive
        self._shapes: dict[str, Shape] = {}
        self._failed: Exception | None = None

    def run(
        self,
        inputs: Mapping[str, np.ndarray],
        outputs: Mapping[str, np.ndarray | None],
        dtypes: Mapping[str, np.dtype],
        run_state: RunState,
    ) -> dict[str, np.ndarray]:
        """Run the engine and return its outputs, in the arrays that were handed in where there are any.

        Raises:
            SdkError: TensorRT refused an address or a shape, or failed.
            AllocationLimitExceeded: the device has not enough memory.
        """
        engine, context = self._engine, self._context
        engine.set_shapes(context, {name: inputs[name].shape for name in engine.inputs})
        sources = [np.ascontiguousarray(inputs[name]) for name in engine.inputs]  # alive until the stream is through
        for name, source in zip(engine.inputs, sources, strict=True):
            buffer = self._buffer(name, source.nbytes)
            if source.nbytes:
                self._api.copy_from_host(source, buffer, self._stream)
            self._bind(name, buffer)
        shapes = {name: engine.output_shape(context, name) for name in engine.outputs}
        for name, shape in shapes.items():
            self._bind_output(name, shape, dtypes[name])
        self._shapes, self._failed = {}, None
        started = context.execute_async_v3(self._stream.native_handle)
        if self._failed is not None:
            raise self._failed
        engine.record.expect(started, "run an engine")
        if None in shapes.values():
            self._stream.synchronize()  # shapes are told when the work is done
        found = {n: self._array(outputs.get(n), self._final(n, s), dtypes[n], run_state) for n, s in shapes.items()}
        self._download(found)
        return found

    def _bind(self, name: str, buffer: DeviceBuffer) -> None:
        self._engine.record.expect(
            self._context.set_tensor_address(name, buffer.address), f"take the address of {name!r}"
        )

    def _bind_output(self, name: str, shape: Shape | None, dtype: np.dtype) -> None:
        if shape is not None:
            self._bind(name, self._buffer(name, _nbytes(shape, dtype)))
        elif name not in self._growing:
            allocator = self._engine.sdk.output_allocator(self._grow, self._shapes_noted)
            self._engine.record.expect(self._context.set_output_allocator(name, allocator), f"let {name!r} grow")
            self._growing[name] = allocator

    def _download(self, found: Mapping[str, np.ndarray]) -> None:
        copies: list[tuple[np.ndarray, np.ndarray]] = []
        for name, array in found.items():
            if not array.nbytes:
                continue
            target = array if array.flags.c_contiguous else np.empty(array.shape, array.dtype)
            self._api.copy_to_host(self._buffers[name], target, self._stream)
            if target is not array:
                copies.append((array, target))
        self._stream.synchronize()
        for array, target in copies:
            array[...] = target

    def _buffer(self, name: str, nbytes: int) -> DeviceBuffer:
        known = self._buffers.get(name)
        if known is None or known.nbytes < nbytes:
            self._buffers.pop(name, None)
            self._buffers[name] = self._api.allocate(max(nbytes, 1))  # no address may be null
        return self._buffers[name]

    def _grow(self, name: str, nbytes: int) -> int:
        try:
            return self._buffer(name, nbytes).address
        except AllocationLimitExceeded as error:  # called from C++, where nothing may be raised
            self._failed = error
            return 0

    def _shapes_noted(self, name: str, shape: Shape) -> None:
        self._shapes[name] = shape

    def _final(self, name: str, shape: Shape | None) -> Shape:
        if shape is None and name not in self._shapes:
            raise SdkError("tell an output's shape", f"{name!r} has none after the run; {self._engine.record.take()}")
        return self._shapes[name] if shape is None else shape

    @staticmethod
    def _array(given: np.ndarray | None, shape: Shape, dtype: np.dtype, run_state: RunState) -> np.ndarray:
        return given if given is not None and given.shape == shape else run_state.allocate(shape, dtype)


def _nbytes(shape: Sequence[int], dtype: np.dtype) -> int:
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
