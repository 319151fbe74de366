"""CudaDeviceApi: memory, streams and events of a CUDA device for every provider on it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ort_core.plugin import AllocationLimitExceeded, EPFail, InvalidArgument
from ort_core.plugin.devices import Device, DeviceBuffer, Event, Stream
from ort_ep_cuda import _sdk

_TO_DEVICE, _TO_HOST, _WITHIN = 1, 2, 3  # cudaMemcpyKind
_DEFAULT_STREAM = 0


class CudaBuffer:
    """Device memory."""

    def __init__(self, device: Device, pointer: Any, nbytes: int) -> None:  # Any: CuPy has no types
        self.device, self.nbytes = device, nbytes
        self._pointer = pointer
        self.address = int(pointer.ptr)


class CudaEvent:
    """A point in a stream's work."""

    def __init__(self, event: Any) -> None:  # Any: as above
        self.native = event

    def wait(self) -> None:
        """Block the host until the point is reached."""
        self.native.synchronize()

    def is_done(self) -> bool:
        """Return whether the point is reached."""
        return bool(self.native.done)


class CudaStream:
    """A queue of work; ``current`` makes its device the one that calls mean: events and default streams are of one."""

    def __init__(self, device: Device, stream: Any, current: AbstractContextManager[object]) -> None:  # Any: as above
        self.device = device
        self.native = stream
        self._current = current

    @property
    def native_handle(self) -> int:
        """The ``cudaStream_t`` as an integer."""
        return int(self.native.ptr)

    def record(self) -> Event:
        """Return an event after all work enqueued so far."""
        with self._current:
            return CudaEvent(self.native.record())

    def wait_for(self, event: Event) -> None:
        """Let later work begin after ``event``; one of another kind of device is waited for by the host."""
        if isinstance(event, CudaEvent):
            with self._current:
                self.native.wait_event(event.native)
        else:
            event.wait()

    def synchronize(self) -> None:
        """Wait until all work is done."""
        with self._current:
            self.native.synchronize()

    def begin_capture(self) -> None:
        """Record what is enqueued from now on.

        Raises:
            EPFail: CUDA does not begin.
        """
        try:
            with self._current:
                self.native.begin_capture()
        except RuntimeError as error:
            raise EPFail(f"the capture of a CUDA graph cannot begin: {error}") from error

    def end_capture(self) -> object:
        """Return the recorded graph.

        Raises:
            EPFail: something that was enqueued cannot be recorded.
        """
        try:
            with self._current:
                return self.native.end_capture()
        except RuntimeError as error:
            raise EPFail(f"a CUDA graph cannot be captured: {error}") from error

    def replay(self, graph: Any) -> None:  # Any: CuPy's Graph
        """Enqueue recorded work."""
        with self._current:
            graph.launch(self.native)


class CudaDeviceApi:
    """One CUDA device.

    Args:
        index: its number.
    """

    def __init__(self, index: int) -> None:
        found = _sdk.find_device()
        if not found:
            raise InvalidArgument(str(found))
        self._library = _sdk.cupy()
        self.device = Device("cuda", index)
        self._native = self._library.cuda.Device(index)
        self._pool = self._library.cuda.MemoryPool()

    @property
    def hardware(self) -> str:
        """The GPU, its architecture and its driver: what machine code made for it depends on."""
        runtime = self._library.cuda.runtime
        name = runtime.getDeviceProperties(self.device.index)["name"].decode()
        return f"{name} sm_{self._native.compute_capability}, driver {runtime.driverGetVersion()}"

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """Return memory; unused memory of the pool is given back first where there is not enough."""
        out_of_memory = self._library.cuda.memory.OutOfMemoryError
        with self._native:
            try:
                return CudaBuffer(self.device, self._pool.malloc(max(nbytes, 1)), nbytes)
            except out_of_memory:
                self._pool.free_all_blocks()
            try:
                return CudaBuffer(self.device, self._pool.malloc(max(nbytes, 1)), nbytes)
            except out_of_memory as error:
                raise AllocationLimitExceeded(f"{self.device} has no {nbytes} bytes left: {error}") from error

    def create_stream(self) -> Stream:
        """Return a new queue, which does not wait for the default one."""
        with self._native:
            return CudaStream(self.device, self._library.cuda.Stream(non_blocking=True), self._native)

    def adopt_stream(self, native_handle: int) -> Stream:
        """Return the caller's ``cudaStream_t`` as a queue; the caller keeps it alive."""
        with self._native:
            return CudaStream(self.device, _sdk.adopted_stream(native_handle, self.device.index), self._native)

    def device_of(self, address: int) -> int:
        """Return the number of the device on which memory lies."""
        return int(self._library.cuda.runtime.pointerGetAttributes(address).device)

    def current(self) -> AbstractContextManager[object]:
        """Return what makes the device the one that calls of this thread into CUDA mean."""
        return self._library.cuda.Device(self.device.index)

    def staging(self, nbytes: int) -> np.ndarray:
        """Return page-locked bytes of the host."""
        with self._native:
            return _sdk.pinned(nbytes)

    def copy_from_host(self, source: np.ndarray, target: DeviceBuffer, stream: Stream | None = None) -> None:
        """Copy an array's bytes to the device."""
        self._copy(target.address, source.ctypes.data, source.nbytes, _TO_DEVICE, stream)

    def copy_to_host(self, source: DeviceBuffer, target: np.ndarray, stream: Stream | None = None) -> None:
        """Copy bytes into an array."""
        self._copy(target.ctypes.data, source.address, target.nbytes, _TO_HOST, stream)

    def copy_within(self, source: DeviceBuffer, target: DeviceBuffer, stream: Stream | None = None) -> None:
        """Copy bytes between buffers of the device."""
        self._copy(target.address, source.address, source.nbytes, _WITHIN, stream)

    def _copy(self, target: int, source: int, nbytes: int, kind: int, stream: Stream | None) -> None:
        if not nbytes:
            return
        if stream is not None and not isinstance(stream, CudaStream):
            raise InvalidArgument(f"a stream of {stream.device} was given to {self.device}")
        with self._native:
            runtime = self._library.cuda.runtime
            if stream is None:
                runtime.memcpy(target, source, nbytes, kind)
                # it may return before its last bytes are there, and runs do not wait for the default stream
                runtime.streamSynchronize(_DEFAULT_STREAM)
            else:
                runtime.memcpyAsync(target, source, nbytes, kind, stream.native_handle)
