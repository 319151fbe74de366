"""Arrays in memory of the emulated device, which has no way to the host."""

from __future__ import annotations

import numpy as np
from emulated_gpu import HostMemory

from ort_core.plugin.devices import Device, DeviceArray


class DeviceOnly:
    """A DeviceApi that has no way to the host."""

    device = Device("cuda", 0)


class Buffer(HostMemory):
    """Memory of the device."""

    device = DeviceOnly.device


def on_device(array: np.ndarray, room: int = 0) -> DeviceArray:
    """Return a copy of an array on the device, in memory that has room for more bytes."""
    found = DeviceArray(DeviceOnly(), Buffer(array.nbytes + room), array.dtype, array.shape)
    content(found)[...] = array
    return found


def content(array: DeviceArray) -> np.ndarray:
    """Return what lies on the device, for a test to look at and to change."""
    start = array.buffer.address - array.buffer._words.ctypes.data
    raw = array.buffer._words.view(np.uint8)[start : start + array.nbytes]
    return raw.view(array.dtype).reshape(array.shape)
