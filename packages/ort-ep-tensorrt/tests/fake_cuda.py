"""A CUDA device that is host memory: work is done when its stream is waited for, as on a GPU at the latest."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import ClassVar

import numpy as np

from ort_core.plugin import AllocationLimitExceeded, EPFail, hookimpl
from ort_core.plugin.devices import Device

ORT_PLUGIN_API = (2, 0)


class FakeBuffer:
    def __init__(self, device: Device, nbytes: int) -> None:
        self.device, self.nbytes = device, nbytes
        self._bytes = np.full(nbytes + 256, 0xA5, np.uint8)  # a device's memory is not zero
        self.address = -(-self._bytes.ctypes.data // 256) * 256  # and what it hands out is aligned


class FakeEvent:
    def __init__(self, stream: FakeStream) -> None:
        self._stream = stream

    def wait(self) -> None:
        self._stream.synchronize()

    def is_done(self) -> bool:
        return not self._stream.queue


class FakeStream:
    _numbers: ClassVar = itertools.count(1)
    _known: ClassVar[dict[int, FakeStream]] = {}
    refuses_capture: ClassVar[bool] = False
    replayed: ClassVar[int] = 0

    def __init__(self, device: Device) -> None:
        self.device, self.native_handle = device, next(self._numbers)
        self.queue: list[Callable[[], None]] = []
        self.recorded: list[Callable[[], None]] | None = None
        self.done = 0
        self._known[self.native_handle] = self

    @classmethod
    def of(cls, handle: int) -> FakeStream:
        return cls._known[handle]

    def enqueue(self, work: Callable[[], None]) -> None:
        (self.queue if self.recorded is None else self.recorded).append(work)

    def begin_capture(self) -> None:
        assert not self.queue, "a capture begins when the stream is idle"
        if self.refuses_capture:
            raise EPFail("streams of this driver do not record")
        self.recorded = []

    def end_capture(self) -> list[Callable[[], None]]:
        assert self.recorded is not None
        graph, self.recorded = self.recorded, None
        return graph

    def replay(self, graph: list[Callable[[], None]]) -> None:
        FakeStream.replayed += 1
        self.queue.extend(graph)

    def record(self) -> FakeEvent:
        return FakeEvent(self)

    def wait_for(self, event: FakeEvent) -> None:
        event.wait()

    def synchronize(self) -> None:
        queue, self.queue = self.queue, []
        for work in queue:
            work()
            self.done += 1


class FakeCudaApi:
    now: ClassVar[list[int]] = []  # the devices that were made current, the last one counts; none: the first device
    hardware = "fake GPU sm_90, driver 0"
    limit: ClassVar[int] = 1 << 30

    def __init__(self, index: int) -> None:
        self.device = Device("cuda", index)
        self.allocations = 0
        self._lock = threading.Lock()

    @contextmanager
    def current(self):
        self.now.append(self.device.index)
        try:
            yield
        finally:
            self.now.pop()

    def allocate(self, nbytes: int) -> FakeBuffer:
        with self._lock:
            self.allocations += 1
        if nbytes > self.limit:
            raise AllocationLimitExceeded(f"{self.device} has no {nbytes} bytes left")
        return FakeBuffer(self.device, nbytes)

    def create_stream(self) -> FakeStream:
        return FakeStream(self.device)

    def adopt_stream(self, native_handle: int) -> FakeStream:
        return FakeStream.of(native_handle)

    def staging(self, nbytes: int) -> np.ndarray:
        return np.full(nbytes, 0xA5, np.uint8)

    def copy_from_host(self, source, target, stream=None) -> None:
        assert target.nbytes >= source.nbytes
        self._do(stream, lambda: ctypes.memmove(target.address, source.ctypes.data, source.nbytes))

    def copy_to_host(self, source, target, stream=None) -> None:
        assert source.nbytes >= target.nbytes
        self._do(stream, lambda: ctypes.memmove(target.ctypes.data, source.address, target.nbytes))

    def copy_within(self, source, target, stream=None) -> None:
        self._do(stream, lambda: ctypes.memmove(target.address, source.address, source.nbytes))

    @staticmethod
    def _do(stream, work: Callable[[], object]) -> None:
        stream.enqueue(work) if stream is not None else work()


@hookimpl
def ort_devices() -> Mapping[str, Callable[[int], FakeCudaApi]]:
    return {"cuda": FakeCudaApi}
