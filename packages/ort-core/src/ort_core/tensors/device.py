"""Where data lives: Device, which onnxruntime's API calls OrtDevice, and DeviceApi, which moves bytes.

A DeviceApi comes from a plugin (hook ``ort_devices``); the CPU's is here. A DeviceDirectory finds the DeviceApi of a
device; each Environment has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from ort_core.arguments import whole
from ort_core.errors import InvalidArgument, InvalidType, InvalidValue
from ort_core.forks import new_lock
from ort_core.frozen import frozen
from ort_core.interruptions import raise_interruption


@frozen
class Device:
    """A place for data: its kind in lower case (``cpu``, ``cuda``, ``dml``, ...) and its number."""

    kind: str = "cpu"
    index: int = 0

    @property
    def is_cpu(self) -> bool:
        """Whether the host reads this memory directly."""
        return self.kind == "cpu"

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


CPU = Device()
# Kinds that onnxruntime's API names: number of the device type, OrtDeviceVendorId of its usual hardware.
_KINDS: dict[str, tuple[int, int]] = {
    "cpu": (0, 0),
    "cuda": (1, 0x10DE),
    "rocm": (1, 0x1002),
    "hip": (1, 0x1002),
    "dml": (1, 0x1414),
    "gpu": (1, 0),
    "webgpu": (1, 0),
    "npu": (3, 0),
    "cann": (3, 0x19E5),
}


class OrtDevice:
    """A device as onnxruntime's API names it."""

    __slots__ = ("_device", "_memory_type", "_type", "_vendor")

    cpu: ClassVar[Callable[[], int]] = staticmethod(lambda: 0)
    cuda: ClassVar[Callable[[], int]] = staticmethod(lambda: 1)
    gpu = webgpu = cuda
    fpga: ClassVar[Callable[[], int]] = staticmethod(lambda: 2)
    npu: ClassVar[Callable[[], int]] = staticmethod(lambda: 3)
    cann = npu
    dml: ClassVar[Callable[[], int]] = staticmethod(lambda: 4)  # a number of its own: what ``make`` gives is a GPU, 1
    default_memory: ClassVar[Callable[[], int]] = staticmethod(lambda: 0)

    def __init__(
        self, device_type: int | Device | OrtDevice, memory_type: int = 0, device_id: int = 0, vendor_id: int = -1
    ) -> None:
        if isinstance(device_type, OrtDevice):
            device_type = device_type.device
        if not isinstance(device_type, Device):
            numbers = {number: kind for kind, (number, _) in reversed(_KINDS.items())} | {OrtDevice.dml(): "dml"}
            kind = numbers.get(device_type)
            if kind is None:
                raise InvalidArgument(f"Unsupported device type: {device_type}; known: {_known_kinds()}")
            device_type = Device(kind, device_id)
        number, vendor = _KINDS.get(device_type.kind, (1, 0))
        self._device, self._type, self._memory_type = device_type, number, memory_type
        self._vendor = vendor if vendor_id == -1 else whole(vendor_id, "the number of the vendor")

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """Return a device by its kind's name and its number."""
        return OrtDevice(find_device(ort_device_name, device_id), vendor_id=vendor_id)

    @property
    def device(self) -> Device:
        """The place that this names."""
        return self._device

    def device_id(self) -> int:
        """Return the number of the device among those of its kind."""
        return self._device.index

    def device_type(self) -> int:
        """Return 0 for a CPU, 1 for a GPU, 3 for an NPU."""
        return self._type

    def device_vendor_id(self) -> int:
        """Return the PCI vendor number, 0 where none is stated."""
        return self._vendor

    def device_mem_type(self) -> int:
        """Return 0 for the device's own memory, 5 for memory that the host reads, too."""
        return self._memory_type

    def mem_type(self) -> int:
        """Return what ``device_mem_type`` does."""
        return self._memory_type

    def vendor_id(self) -> int:
        """Return the PCI vendor number."""
        return self._vendor

    def _get_c_device(self) -> OrtDevice:  # programs written for onnxruntime pass this on
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OrtDevice) and (self._device, self._memory_type) == (other._device, other._memory_type)

    def __hash__(self) -> int:
        return hash((self._device, self._memory_type))

    def __repr__(self) -> str:
        return f"OrtDevice({self._device})"


def find_device(kind: str | OrtDevice, index: int = 0) -> Device:
    """Return the device of a kind's name and a number, or the one that an ``OrtDevice`` names.

    Raises:
        InvalidArgument: the kind is not known.
    """
    if isinstance(kind, OrtDevice):
        return kind.device
    if not isinstance(kind, str):
        raise InvalidType(f"a device type is a name such as 'cpu', found {kind!r}")
    if kind.lower() not in _KINDS:
        raise InvalidArgument(f"Unsupported device type: {kind}; known: {_known_kinds()}")
    return Device(kind.lower(), whole(index, "the number of the device"))


def _known_kinds() -> str:
    return ", ".join(sorted(_KINDS))


@runtime_checkable
class Event(Protocol):
    """A point in a stream's work."""

    def wait(self) -> None:
        """Block the host until the work before the point is done."""

    def is_done(self) -> bool:
        """Return whether the work before the point is done."""


@runtime_checkable
class Stream(Protocol):
    """A queue of work on one device."""

    @property
    def device(self) -> Device:
        """The device that does the work."""

    @property
    def native_handle(self) -> int:
        """The vendor's handle as an integer, 0 where there is none."""

    def record(self) -> Event:
        """Return an event after all work enqueued so far."""

    def wait_for(self, event: Event) -> None:
        """Let work enqueued from now on begin after ``event``."""

    def synchronize(self) -> None:
        """Block the host until all work is done."""


@runtime_checkable
class CapturingStream(Stream, Protocol):
    """A queue that can record work and repeat it at the cost of one launch (a CUDA graph)."""

    def begin_capture(self) -> None:
        """Record what is enqueued from now on, and do none of it.

        Raises:
            EPFail: the device does not record.
        """

    def end_capture(self) -> object:
        """Return what was recorded; ``EPFail`` where something cannot be recorded."""

    def replay(self, graph: object) -> None:
        """Enqueue recorded work."""


@runtime_checkable
class DeviceBuffer(Protocol):
    """Memory of one device; it is given back when nobody refers to it any more."""

    @property
    def device(self) -> Device:
        """Where the memory is."""

    @property
    def address(self) -> int:
        """The address as the device knows it."""

    @property
    def nbytes(self) -> int:
        """How many bytes there are."""


@runtime_checkable
class DeviceApi(Protocol):
    """What a device can do with memory; one instance for each device and environment, used by every provider on it."""

    @property
    def device(self) -> Device:
        """The device."""

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """Return memory; ``AllocationLimitExceeded`` when there is not enough."""

    def create_stream(self) -> Stream:
        """Return a new queue."""

    def copy_from_host(self, source: np.ndarray, target: DeviceBuffer, stream: Stream | None = None) -> None:
        """Copy a contiguous array's bytes to the device; without a stream it is done on return."""

    def copy_to_host(self, source: DeviceBuffer, target: np.ndarray, stream: Stream | None = None) -> None:
        """Copy bytes into a contiguous array; without a stream it is done on return."""

    def copy_within(self, source: DeviceBuffer, target: DeviceBuffer, stream: Stream | None = None) -> None:
        """Copy bytes between two buffers of the device."""


@runtime_checkable
class AdoptingApi(DeviceApi, Protocol):
    """A device whose work can be put on a queue of the caller's own."""

    def adopt_stream(self, native_handle: int) -> Stream:
        """Return a queue that somebody else made and keeps alive, by its vendor's handle."""


@runtime_checkable
class CurrentApi(DeviceApi, Protocol):
    """A device of a kind of which each thread has a current one, which calls into the vendor's library mean."""

    def current(self) -> AbstractContextManager[object]:
        """Return what makes the device the calling thread's current one, as long as it is entered."""


@runtime_checkable
class StagingApi(DeviceApi, Protocol):
    """A device that copies from and to some memory of the host by itself; other memory takes a copy of its driver's."""

    def staging(self, nbytes: int) -> np.ndarray:
        """Return that many bytes of such memory; it is given back when nobody refers to it any more."""


def current(api: DeviceApi) -> AbstractContextManager[object]:
    """Return what makes a device the calling thread's current one; nothing is done where its kind has none."""
    return api.current() if isinstance(api, CurrentApi) else nullcontext()


def staging(api: DeviceApi, nbytes: int) -> np.ndarray | None:
    """Return bytes of the host that a device copies from and to by itself; ``None`` where all memory is alike."""
    return api.staging(nbytes) if isinstance(api, StagingApi) else None


class DeviceDirectory:
    """The DeviceApis of an environment: one instance for each device, made when it is first asked for.

    Args:
        factories: by kind of device, what makes the DeviceApi of the device with a given number.
    """

    def __init__(self, factories: Mapping[str, Callable[[int], DeviceApi]] | None = None) -> None:
        self._factories = dict(factories or {})
        self._apis: dict[Device, DeviceApi] = {CPU: CpuApi()}
        self._lock = new_lock()

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of devices on offer, the CPU first."""
        return (CPU.kind, *sorted(self._factories))

    def get(self, device: Device) -> DeviceApi:
        """Return the DeviceApi of a device.

        Raises:
            InvalidValue: no plugin offers the device, or the one that does cannot reach it here.
        """
        with self._lock:
            if device not in self._apis:
                if device.kind not in self._factories:
                    raise InvalidValue(
                        f"Can't allocate memory on {device}: no installed plugin offers this device (offered: "
                        f"{', '.join(self.kinds())}). Install the plugin package of your hardware; `ort providers` "
                        "shows what is there."
                    )
                self._apis[device] = self._made(device)
            return self._apis[device]

    def _made(self, device: Device) -> DeviceApi:
        try:
            return self._factories[device.kind](device.index)
        except Exception as error:  # the border to plugins
            raise_interruption(error)
            raise InvalidValue(
                f"Can't allocate memory on {device}: the plugin that offers it cannot reach it here "
                f"({type(error).__name__}: {error}); `ort doctor` shows what is missing."
            ) from error


class CpuBuffer:
    """Host memory as a DeviceBuffer."""

    device = CPU

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.nbytes = array.nbytes
        self.address = array.ctypes.data


class CpuStream:
    """The host's own queue: work is done when the call returns."""

    device = CPU
    native_handle = 0

    def record(self) -> CpuStream:
        """Return a point that has been passed already."""
        return self

    def wait_for(self, event: Event) -> None:
        """Wait on the host."""
        event.wait()

    def synchronize(self) -> None:
        """Return at once."""

    def wait(self) -> None:
        """Return at once."""

    def is_done(self) -> bool:
        """Return True."""
        return True


class CpuApi:
    """The host as a device."""

    device = CPU

    def allocate(self, nbytes: int) -> CpuBuffer:
        """Return zeroed host memory."""
        return CpuBuffer(np.zeros(nbytes, np.uint8))

    def create_stream(self) -> CpuStream:
        """Return the host's queue."""
        return CpuStream()

    def copy_from_host(self, source: np.ndarray, target: DeviceBuffer, stream: Stream | None = None) -> None:
        """Copy bytes."""
        _host(target)[: source.nbytes] = np.ascontiguousarray(source).reshape(-1).view(np.uint8)

    def copy_to_host(self, source: DeviceBuffer, target: np.ndarray, stream: Stream | None = None) -> None:
        """Copy bytes."""
        target.reshape(-1).view(np.uint8)[:] = _host(source)[: target.nbytes]

    def copy_within(self, source: DeviceBuffer, target: DeviceBuffer, stream: Stream | None = None) -> None:
        """Copy bytes."""
        _host(target)[: source.nbytes] = _host(source)


def _host(buffer: DeviceBuffer) -> np.ndarray:
    if not isinstance(buffer, CpuBuffer):
        raise InvalidType(f"a buffer on {buffer.device} was given to the CPU")
    return buffer.array


DirectorySource = Callable[[], DeviceDirectory]
_source: DirectorySource = DeviceDirectory


def use_directory_of(source: DirectorySource) -> None:
    """Let OrtValues that are made outside any session use the devices that ``source`` gives when one is needed."""
    global _source  # noqa: PLW0603 - stands for the default environment, the one allowed global, which is higher up
    _source = source


def directory_in_use() -> DeviceDirectory:
    """Return the devices for OrtValues outside sessions: the default environment's, or only the CPU."""
    return _source()
