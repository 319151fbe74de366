"""DmlDevice: a Direct3D device with DirectML on it, its queue and fence, and what it can do."""

from __future__ import annotations

import ctypes
import threading
import weakref
from dataclasses import dataclass

from ort_core.plugin import EPFail
from ort_ep_directml.abi import d3d12, dml
from ort_ep_directml.abi.com import ComObject, Interface
from ort_ep_directml.abi.hresults import HResultError, described
from ort_ep_directml.adapters import Adapter
from ort_ep_directml.libraries import Libraries
from ort_ep_directml.windows_libraries import INSTALL

MINIMUM_LEVEL = 0x3000  # graphs of tensors with up to eight dimensions; Windows 11 and onnxruntime's DLL are above


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What decides claims.

    Attributes:
        level: DirectML's feature level.
        dtypes: the element types that its tensors may have, by numpy's names.
    """

    level: int
    dtypes: frozenset[str]


NEWEST = DeviceFacts(dml.FEATURE_LEVELS[-1], frozenset(dml.TENSOR_DATA_TYPES))
"""What is assumed where no device can be asked: all that the newest DirectML knows."""


class DmlDevice:
    """One device. Safe from many threads.

    Args:
        libraries: what it is made by.
        adapter: where.

    Raises:
        EPFail: DirectML there is too old.
        HResultError: the device could not be made.
    """

    def __init__(self, libraries: Libraries, adapter: Adapter) -> None:
        self._owned: weakref.WeakSet[ComObject] = weakref.WeakSet()
        self._lock = threading.Lock()
        self.adapter = adapter
        self.origin = libraries.origin
        is_gpu = self.adapter.kind == "gpu"
        self.list_type = d3d12.COMMAND_LIST_TYPE_DIRECT if is_gpu else d3d12.COMMAND_LIST_TYPE_COMPUTE
        self.d3d12 = self._adopted(libraries.create_d3d12_device(self.adapter.handle, self.adapter.feature_level))
        self.dml = self._adopted(_dml_device(libraries, self.d3d12))
        queue = d3d12.CommandQueueDesc(Type=self.list_type, Flags=d3d12.COMMAND_QUEUE_FLAG_DISABLE_GPU_TIMEOUT)
        self._queue = self.build(self.d3d12, "CreateCommandQueue", d3d12.COMMAND_QUEUE, ctypes.byref(queue))
        self._fence = self.build(self.d3d12, "CreateFence", d3d12.FENCE, 0, d3d12.FENCE_FLAG_NONE)
        self.recorder = self.build(self.dml, "CreateCommandRecorder", dml.COMMAND_RECORDER)
        self._ticket = 0
        self.compiling = threading.Lock()  # compilations take all cores: one after the other
        self.facts = DeviceFacts(_level(self.dml), _dtypes(self.dml))

    def text(self) -> str:
        """Return adapter and feature level, for messages."""
        level = self.facts.level
        return f"{self.adapter.text()}, DirectML {level >> 12}.{level >> 8 & 15} of {self.origin}"

    def build(self, parent: ComObject, name: str, interface: Interface, *arguments: object) -> ComObject:
        """Make an object of this device: ``close`` gives it back with the rest.

        Raises:
            HResultError: it could not be made; if the device is gone, with the reason of that.
        """
        try:
            return self._adopted(parent.build(name, interface, *arguments))
        except HResultError as error:
            self.check()
            raise error

    def execute(self, commands: ComObject, *, spins: bool) -> None:
        """Run a closed command list, and wait until it is done.

        Args:
            commands: the list.
            spins: wait in a loop.

        Raises:
            HResultError: the device was lost.
        """
        with self._lock:
            self._queue.call("ExecuteCommandLists", 1, ctypes.byref(ctypes.c_void_p(commands.address)))
            self._ticket += 1
            ticket = self._ticket
            self._queue.call("Signal", self._fence.address, ticket)
        if spins:
            while self._fence.call("GetCompletedValue") < ticket:
                pass  # the foreign call lets other threads run
        else:
            self._fence.call("SetEventOnCompletion", ticket, None)  # without an event it returns when it is done
        if self._fence.call("GetCompletedValue") == d3d12.FENCE_REMOVED:
            self.check()
            raise HResultError(HResultError.DEVICE_REMOVED, "waiting for the device")

    def check(self) -> None:
        """Ask whether the device, and DirectML's view of it, are well.

        Raises:
            HResultError: the device was lost; the reason is in the message.
        """
        for device in (self.d3d12, self.dml):
            try:
                device.call("GetDeviceRemovedReason")
            except HResultError as error:
                reason = f"{error.doing} ({described(error.code).name})"
                raise HResultError(HResultError.DEVICE_REMOVED, reason) from error

    def close(self) -> None:
        """Give back everything that was made on this device, and the device."""
        for each in list(self._owned):
            each.release()

    def _adopted(self, made: ComObject) -> ComObject:
        self._owned.add(made)
        return made


def _dml_device(libraries: Libraries, device: ComObject) -> ComObject:
    try:
        return libraries.create_dml_device(device, MINIMUM_LEVEL)
    except HResultError as error:
        if error.loses_device:
            raise
        level = f"{MINIMUM_LEVEL >> 12}.{MINIMUM_LEVEL >> 8 & 15}"
        raise EPFail(f"{error}; DirectML of feature level {level} or newer is needed: {INSTALL}") from error


def _level(device: ComObject) -> int:
    context = (ctypes.c_uint32 * len(dml.FEATURE_LEVELS))(*dml.FEATURE_LEVELS)
    query = dml.FeatureLevelsQuery(len(context), ctypes.addressof(context))
    found = ctypes.c_uint32()
    _ask(device, dml.FEATURE_FEATURE_LEVELS, query, found)
    return found.value


def _dtypes(device: ComObject) -> frozenset[str]:
    found = set()
    for name, number in dml.TENSOR_DATA_TYPES.items():
        answer = ctypes.c_uint32()
        try:
            _ask(device, dml.FEATURE_TENSOR_DATA_TYPE_SUPPORT, ctypes.c_uint32(number), answer)
        except HResultError as error:
            if error.loses_device:
                raise
            continue  # a type that this DirectML does not know
        if answer.value:
            found.add(name)
    return frozenset(found)


def _ask(
    device: ComObject, feature: int, query: ctypes.c_uint32 | dml.FeatureLevelsQuery, answer: ctypes.c_uint32
) -> None:
    device.call(
        "CheckFeatureSupport",
        feature,
        ctypes.sizeof(query),
        ctypes.byref(query),
        ctypes.sizeof(answer),
        ctypes.byref(answer),
    )
