"""RunSlot: one execution context with its stream and device memory; one run at a time uses it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ort_core.plugin import AllocationLimitExceeded, RunState
from ort_core.plugin.devices import DeviceApi, DeviceArray, DeviceBuffer, Stream, staging
from ort_ep_tensorrt.cuda_graphs import CudaGraphsState
from ort_ep_tensorrt.engine import Engine
from ort_ep_tensorrt.ranges import Shape
from ort_ep_tensorrt.recording import SdkError

log = logging.getLogger(__name__)
Tensor = np.ndarray | DeviceArray
ALIGNMENT = 256  # bytes, of every address that TensorRT is given


class RunSlotState:
    """What one run in flight needs.

    Args:
        engine: what runs.
        api: the device that all providers share.
        stream: where it runs.
        captures: the work of a signature is captured as a CUDA graph and replayed.
    """

    def __init__(self, engine: Engine, api: DeviceApi, stream: Stream, *, captures: bool = False) -> None:
        self._engine, self._api, self._stream = engine, api, stream
        self._context = engine.create_context()
        self._buffers: dict[str, DeviceBuffer] = {}
        self._growing: dict[str, Any] = {}  # allocators, which the context does not keep alive
        self._on_host: dict[str, np.ndarray] = {}
        self._staging: dict[str, np.ndarray] = {}
        self._shapes: dict[str, Shape] = {}
        self._failed: Exception | None = None
        self._captures = CudaGraphsState(self._stream) if captures and not engine.on_host else None

    def run(
        self,
        inputs: Mapping[str, Tensor],
        outputs: Mapping[str, Tensor | None],
        dtypes: Mapping[str, np.dtype],
        run_state: RunState,
    ) -> dict[str, Tensor]:
        """Run the engine and return its outputs, in the memory that was handed in where there is any.

        Args:
            inputs: arrays on the host, or on this device.
            outputs: memory to fill, there or here; ``None`` for new arrays on the host.
            dtypes: element types of the outputs.
            run_state: of the run.

        Raises:
            SdkError: TensorRT refused an address or a shape, or failed.
            AllocationLimitExceeded: the device has not enough memory.
        """
        try:
            return self._run(inputs, outputs, dtypes, run_state)
        except BaseException:
            with contextlib.suppress(Exception):  # whatever fails here has failed before, and is raised
                self._stream.synchronize()  # memory of a slot that is dropped is given to others
            raise

    def _run(
        self,
        inputs: Mapping[str, Tensor],
        outputs: Mapping[str, Tensor | None],
        dtypes: Mapping[str, np.dtype],
        run_state: RunState,
    ) -> dict[str, Tensor]:
        engine = self._engine
        values = {name: _host(inputs[name]) for name in engine.inputs if name in engine.on_host}
        engine.set_shapes(self._context, {name: inputs[name].shape for name in engine.inputs}, values)
        kept = [self._bring(name, inputs[name]) for name in engine.inputs if name not in engine.on_host]
        shapes = {name: engine.output_shape(self._context, name) for name in engine.outputs}
        direct = {n: self._bind_output(n, shape, dtypes[n], outputs.get(n)) for n, shape in shapes.items()}
        self._execute({**{n: inputs[n].shape for n in engine.inputs}, **shapes})
        if None in shapes.values():
            self._stream.synchronize()  # shapes are told when the work is done
        found: dict[str, Tensor] = {}
        for name, shape in shapes.items():
            final = self._final(name, shape)
            found[name] = _target(outputs.get(name), final, dtypes[name], run_state)
        self._fetch({name: each for name, each in found.items() if not direct[name]})
        del kept  # what is copied from must live until the stream is through
        return found

    def _execute(self, shapes: Mapping[str, Shape | None]) -> None:
        engine = self._engine
        self._shapes, self._failed = {}, None
        if self._captures is None or None in shapes.values():
            started = self._enqueue()
        else:
            addresses = tuple(buffer.address for buffer in self._buffers.values())
            started = self._captures.run((tuple(shapes.items()), addresses), self._enqueue)
        if self._failed is not None:
            raise self._failed
        engine.record.expect(started, "run an engine")

    def _enqueue(self) -> bool:
        return bool(self._context.execute_async_v3(self._stream.native_handle))

    def _bring(self, name: str, value: Tensor) -> object:
        """Let the context read a value; return what must live until the work is done."""
        if isinstance(value, DeviceArray):
            if self._captures is None and value.nbytes and value.buffer.address % ALIGNMENT == 0:
                self._bind(name, value.buffer)
                return value
            buffer = self._buffer(name, value.nbytes)
            self._api.copy_within(_part(value), buffer, self._stream)
        else:
            value = np.ascontiguousarray(value)
            buffer = self._buffer(name, value.nbytes)
            if value.nbytes:
                value = self._staged(name, value)
                self._api.copy_from_host(value, buffer, self._stream)
        self._bind(name, buffer)
        return value

    def _bind(self, name: str, buffer: DeviceBuffer) -> None:
        self._bind_address(name, buffer.address)

    def _bind_address(self, name: str, address: int) -> None:
        answer = self._context.set_tensor_address(name, address)
        self._engine.record.expect(answer, f"take the address of {name!r}")

    def _bind_output(self, name: str, shape: Shape | None, dtype: np.dtype, target: Tensor | None) -> bool:
        """Let the context write an output; return whether it writes into memory of the caller."""
        if shape is None:
            if name not in self._growing:
                allocator = self._engine.sdk.output_allocator(self._grow, self._shapes_noted)
                self._engine.record.expect(self._context.set_output_allocator(name, allocator), f"let {name!r} grow")
                self._growing[name] = allocator
            return False
        if name in self._engine.on_host:
            self._on_host[name] = np.zeros(shape, dtype)
            self._bind_address(name, self._on_host[name].ctypes.data)
            return False
        is_direct = (
            self._captures is None
            and isinstance(target, DeviceArray)
            and target.shape == shape
            and bool(target.nbytes)
            and target.buffer.address % ALIGNMENT == 0
        )
        if is_direct and isinstance(target, DeviceArray):
            self._bind(name, target.buffer)
        else:
            self._bind(name, self._buffer(name, _nbytes(shape, dtype)))
        return is_direct

    def _fetch(self, found: Mapping[str, Tensor]) -> None:
        """Copy outputs from the slot's own memory, and wait for all work."""
        copies: list[tuple[np.ndarray, np.ndarray]] = []
        for name, wanted in found.items():
            if not wanted.nbytes:
                continue
            if isinstance(wanted, DeviceArray):
                self._api.copy_within(_sized(self._buffers[name], wanted.nbytes), wanted.buffer, self._stream)
                continue
            if name in self._on_host:
                copies.append((wanted, self._on_host[name]))
                continue
            target = self._target_of_copy(name, wanted)
            self._api.copy_to_host(self._buffers[name], target, self._stream)
            if target is not wanted:
                copies.append((wanted, target))
        self._stream.synchronize()
        for wanted, source in copies:
            wanted[...] = source

    def _staged(self, name: str, value: np.ndarray) -> np.ndarray:
        """Return a copy that the device reads by itself; the value where all memory is alike."""
        memory = self._memory_of_host(name, value.nbytes)
        if memory is None:
            return value
        memory[:] = value.reshape(-1).view(np.uint8)
        return memory

    def _target_of_copy(self, name: str, wanted: np.ndarray) -> np.ndarray:
        """Return where the device writes an output by itself."""
        memory = self._memory_of_host(name, wanted.nbytes)
        if memory is not None:
            return memory.view(wanted.dtype).reshape(wanted.shape)
        return wanted if wanted.flags.c_contiguous else np.empty(wanted.shape, wanted.dtype)

    def _memory_of_host(self, name: str, nbytes: int) -> np.ndarray | None:
        known = self._staging.get(name)
        if known is None or known.nbytes < nbytes:
            self._staging.pop(name, None)
            known = staging(self._api, nbytes)
            if known is None:
                return None
            self._staging[name] = known
        return known[:nbytes]

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


class _Sized:
    """The beginning of a buffer."""

    def __init__(self, buffer: DeviceBuffer, nbytes: int) -> None:
        self.device, self.address, self.nbytes = buffer.device, buffer.address, nbytes
        self._buffer = buffer


def _sized(buffer: DeviceBuffer, nbytes: int) -> DeviceBuffer:
    return buffer if buffer.nbytes == nbytes else _Sized(buffer, nbytes)


def _part(array: DeviceArray) -> DeviceBuffer:
    return _sized(array.buffer, array.nbytes)


def _host(value: Tensor) -> np.ndarray:
    return np.ascontiguousarray(value.to_host() if isinstance(value, DeviceArray) else value)


def _target(given: Tensor | None, shape: Shape, dtype: np.dtype, run_state: RunState) -> Tensor:
    return given if given is not None and given.shape == shape else run_state.allocate(shape, dtype)


def _nbytes(shape: Sequence[int], dtype: np.dtype) -> int:
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
