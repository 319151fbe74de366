"""Memory of a device through a CuPy that is made up: what happens without enough of it, and which bytes move."""

from __future__ import annotations

import contextlib
import ctypes
import types
from typing import ClassVar

import numpy as np
import pytest

from ort_core.plugin import AllocationLimitExceeded, Available, EPFail, InvalidArgument
from ort_core.plugin.devices import CapturingStream, Device
from ort_ep_cuda import _sdk
from ort_ep_cuda.cupy_gpu import CupyGpu
from ort_ep_cuda.device_api import CudaDeviceApi, CudaStream
from ort_ep_cuda.options import CudaOptions


class OutOfMemoryError(Exception):
    """As CuPy's."""


class FakePool:
    """A pool that holds blocks which nobody uses, and has room for ``limit`` bytes."""

    def __init__(self, limit: int, kept: int) -> None:
        self.limit, self.kept, self.asked = limit, kept, 0
        self.freed = 0

    def set_limit(self, size: int) -> None:
        self.asked = size

    def malloc(self, nbytes: int) -> object:
        if nbytes + self.kept > self.limit:
            raise OutOfMemoryError
        words = (ctypes.c_uint8 * max(nbytes, 1))()
        return types.SimpleNamespace(ptr=ctypes.addressof(words), words=words)

    def free_all_blocks(self) -> None:
        self.freed += 1
        self.kept = 0

    def used_bytes(self) -> int:
        return 7


class FakeDevice(contextlib.nullcontext):
    """The device that is current inside of a ``with``."""

    compute_capability = "90"
    mem_info = (11, 1000)
    entered: ClassVar[list[int]] = []  # the numbers of those that are current, the innermost last

    def __init__(self, index: int = 0) -> None:
        super().__init__()
        self.id = index

    def __enter__(self) -> None:
        self.entered.append(self.id)

    def __exit__(self, *ended: object) -> None:
        self.entered.pop()


seen: list[int] = []  # which device was current, call by call
waited: list[int] = []  # for which streams the host waited


def _memcpy(target: int, source: int, nbytes: int, kind: int, stream: int = 0) -> None:
    seen.append(FakeDevice.entered[-1] if FakeDevice.entered else 0)
    ctypes.memmove(target, source, nbytes)


def _pinned(nbytes: int) -> np.ndarray:
    seen.append(FakeDevice.entered[-1] if FakeDevice.entered else 0)
    return np.zeros(nbytes, np.uint8)


def _memset(address: int, value: int, nbytes: int, stream: int) -> None:
    seen.append(FakeDevice.entered[-1] if FakeDevice.entered else 0)


@pytest.fixture
def library(monkeypatch):
    """A function that lets the package see a CuPy with a pool of a given size."""

    def make(limit: int, kept: int = 0) -> FakePool:
        pool = FakePool(limit, kept)
        runtime = types.SimpleNamespace(
            memcpy=_memcpy,
            memcpyAsync=_memcpy,
            memsetAsync=_memset,
            streamSynchronize=waited.append,
            getDeviceProperties=lambda index: {"name": b"made up"},
            driverGetVersion=lambda: 13000,
        )
        cuda = types.SimpleNamespace(
            Device=FakeDevice, MemoryPool=lambda: pool, runtime=runtime,
            memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            nvrtc=types.SimpleNamespace(getVersion=lambda: (13, 0)),
            Stream=lambda non_blocking: RecordingStream(),
        )  # fmt: skip
        monkeypatch.setattr(_sdk, "cupy", lambda: types.SimpleNamespace(cuda=cuda))
        monkeypatch.setattr(_sdk, "pinned", _pinned)
        monkeypatch.setattr(_sdk, "find_device", lambda: Available("made up"))
        return pool

    return make


def test_unused_memory_of_the_pool_is_given_back_before_an_allocation_fails(library) -> None:
    pool = library(100, kept=80)
    memory = CupyGpu(CudaOptions(gpu_mem_limit=100)).allocate(60)
    assert (memory.nbytes, pool.freed, pool.asked) == (60, 1, 100)


def test_an_allocation_that_fails_says_what_was_asked_held_and_limited(library) -> None:
    pool = library(100, kept=80)
    message = r"no 200 bytes left: this session holds 7, its limit \(gpu_mem_limit\) is 100, the device has 11 of 1000"
    with pytest.raises(AllocationLimitExceeded, match=message):
        CupyGpu(CudaOptions(gpu_mem_limit=100)).allocate(200)
    assert pool.freed == 1


def test_the_device_api_gives_memory_back_too_and_names_its_device(library) -> None:
    pool = library(100, kept=80)
    api = CudaDeviceApi(1)
    assert (api.allocate(60).nbytes, pool.freed) == (60, 1)
    with pytest.raises(AllocationLimitExceeded, match="cuda:1 has no 200 bytes left"):
        api.allocate(200)


@pytest.mark.parametrize("is_enqueued", [False, True])
def test_bytes_go_to_the_device_within_it_and_back(library, is_enqueued) -> None:
    library(1000)
    api = CudaDeviceApi(0)
    stream = api.create_stream() if is_enqueued else None
    source, first, second = np.arange(4, dtype=np.float32), api.allocate(16), api.allocate(16)
    api.copy_from_host(source, first, stream)
    api.copy_within(first, second, stream)
    back = np.zeros(4, np.float32)
    api.copy_to_host(second, back, stream)
    np.testing.assert_array_equal(back, source)


def test_all_work_of_a_stream_is_enqueued_on_its_own_device(library) -> None:
    """Of a new thread the first device is current, whose calls would meet a stream and memory of another."""
    library(1000)
    seen.clear()
    gpu = CupyGpu(CudaOptions(device_id=1))
    stream, memory, array = gpu.stream(), gpu.allocate(16), np.zeros(4, np.float32)
    stream.upload(array, memory.address)
    stream.copy(memory.address, memory.address, 16)
    stream.clear(memory.address, 16)
    stream.download(memory.address, array)
    stream.begin_capture()
    stream.replay(stream.end_capture())
    stream.abort_capture()
    stream.synchronize()
    stream.settle()
    gpu.pinned(8)
    assert seen == [1] * len(seen)
    assert len(seen) == 11


def test_all_work_of_the_device_api_is_on_its_own_device(library) -> None:
    """An event of another device than its stream's is an error of CUDA; a default stream is the current device's."""
    library(1000)
    seen.clear()
    api = CudaDeviceApi(1)
    stream = api.create_stream()
    stream.wait_for(stream.record())
    stream.begin_capture()
    stream.replay(stream.end_capture())
    stream.synchronize()
    api.staging(8)
    assert seen == [1] * 7


@pytest.mark.parametrize("copy", ["copy_from_host", "copy_within", "copy_to_host"])
def test_a_copy_is_there_when_it_returns(library, copy) -> None:
    """CUDA returns from some copies before their last bytes are there; runs do not wait for the default stream."""
    library(1000)
    api, array = CudaDeviceApi(0), np.zeros(4, np.float32)
    first, second = api.allocate(16), api.allocate(16)
    waited.clear()
    getattr(api, copy)(*{"copy_from_host": (array, first), "copy_within": (first, second)}.get(copy, (first, array)))
    assert waited == [0]


def test_memory_that_is_not_page_locked_serves_where_the_system_locks_no_more(library, monkeypatch) -> None:
    library(1000)

    def refuse(nbytes: int) -> np.ndarray:
        raise RuntimeError("cudaErrorMemoryAllocation")

    gpu = CupyGpu(CudaOptions())
    monkeypatch.setattr(_sdk, "pinned", refuse)
    assert (gpu.pinned(24).nbytes, gpu.pinned(24).dtype) == (24, np.uint8)


def test_a_capture_is_aborted_even_where_its_end_is_an_error(library) -> None:
    library(1000)
    stream = CupyGpu(CudaOptions()).stream()
    stream._stream = RecordingStream(refuses="end_capture")
    stream.abort_capture()


def test_a_capture_that_became_invalid_is_ended(library) -> None:
    """Of such a capture CuPy's ``is_capturing`` raises; a stream that it is not ended on takes no work any more."""
    library(1000)
    stream = CupyGpu(CudaOptions()).stream()
    stream._stream = RecordingStream(refuses="is_capturing")
    stream.begin_capture()
    stream.abort_capture()
    assert stream._stream.calls == ["begin_capture", "end_capture"]


@pytest.mark.parametrize("is_new", [False, True])
def test_streams_of_the_callers_are_adopted_in_the_form_of_the_installed_cupy(monkeypatch, is_new) -> None:
    null, made = object(), []
    streams = types.SimpleNamespace(null=null)
    if is_new:
        streams.from_external = lambda shown: made.append(shown.__cuda_stream__()) or "new"
    cuda = types.SimpleNamespace(Stream=streams, ExternalStream=lambda *given: made.append(given) or "old")
    monkeypatch.setattr(_sdk, "cupy", lambda: types.SimpleNamespace(cuda=cuda))
    assert _sdk.adopted_stream(0, 2) is null, "PyTorch's default stream"
    assert (_sdk.adopted_stream(77, 2), made) == (("new", [(0, 77)]) if is_new else ("old", [(77, 2)]))


def test_a_stream_of_another_device_is_refused(library) -> None:
    library(1000)
    api = CudaDeviceApi(0)
    foreign = types.SimpleNamespace(device=Device("npu", 0))
    with pytest.raises(InvalidArgument, match="a stream of npu:0 was given to cuda:0"):
        api.copy_from_host(np.zeros(4, np.float32), api.allocate(16), foreign)


class RecordingStream:
    """A stream of CuPy that records and launches graphs, or refuses to."""

    ptr = 5

    def __init__(self, refuses: str = "") -> None:
        self.calls: list[object] = []
        self._refuses = refuses

    def begin_capture(self) -> None:
        self._called("begin_capture")

    def end_capture(self) -> object:
        self._called("end_capture")

        def launch(stream: object) -> None:
            seen.append(FakeDevice.entered[-1] if FakeDevice.entered else 0)
            self.calls.append(("launch", stream))

        return types.SimpleNamespace(launch=launch)

    def is_capturing(self) -> bool:
        self._called("is_capturing")
        return True

    def synchronize(self) -> None:
        self._called("synchronize")

    def record(self) -> object:
        self._called("record")
        return object()

    def wait_event(self, event: object) -> None:
        self._called("wait_event")

    def _called(self, name: str) -> None:
        seen.append(FakeDevice.entered[-1] if FakeDevice.entered else 0)
        if name == self._refuses:
            raise RuntimeError("cudaErrorStreamCaptureUnsupported")
        self.calls.append(name)


def test_streams_of_the_device_api_record_work_and_replay_it() -> None:
    native = RecordingStream()
    stream = CudaStream(Device("cuda", 0), native, contextlib.nullcontext())
    assert isinstance(stream, CapturingStream)
    stream.begin_capture()
    stream.replay(stream.end_capture())
    assert native.calls == ["begin_capture", "end_capture", ("launch", native)]


def test_a_stream_of_the_callers_is_a_queue_of_the_device(monkeypatch) -> None:
    made: list[tuple[int, int]] = []

    def external(handle: int, device: int) -> object:
        made.append((handle, device))
        return types.SimpleNamespace(ptr=handle)

    api = CudaDeviceApi.__new__(CudaDeviceApi)  # its own constructor asks for a GPU
    api.device, api._native = Device("cuda", 2), contextlib.nullcontext()
    cuda = types.SimpleNamespace(ExternalStream=external, Stream=object())
    monkeypatch.setattr(_sdk, "cupy", lambda: types.SimpleNamespace(cuda=cuda))
    stream = api.adopt_stream(77)
    assert (made, stream.native_handle, stream.device) == ([(77, 2)], 77, Device("cuda", 2))


@pytest.mark.parametrize(("refuses", "words"), [("begin_capture", "cannot begin"), ("end_capture", "be captured")])
def test_a_capture_that_cuda_refuses_is_an_error_in_words(refuses: str, words: str) -> None:
    stream = CudaStream(Device("cuda", 0), RecordingStream(refuses), contextlib.nullcontext())

    def capture() -> None:
        stream.begin_capture()
        stream.end_capture()

    with pytest.raises(EPFail, match=f"{words}: cudaErrorStreamCaptureUnsupported"):
        capture()
