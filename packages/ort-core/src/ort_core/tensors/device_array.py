"""DeviceArray: a tensor in the memory of another device than the host, and memory that somebody else owns."""

from __future__ import annotations

import math

import numpy as np

from ort_core.errors import InvalidValue
from ort_core.frozen import frozen
from ort_core.tensors.device import Device, DeviceApi, DeviceBuffer, directory_in_use


class DeviceArray:
    """A tensor in the memory of another device than the host."""

    def __init__(self, api: DeviceApi, buffer: DeviceBuffer, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self.api, self.buffer, self.dtype, self.shape = api, buffer, dtype, shape
        self.nbytes = math.prod(shape) * dtype.itemsize

    def to_host(self) -> np.ndarray:
        """Return a copy on the host."""
        host = np.empty(self.shape, self.dtype)
        self.api.copy_to_host(self.buffer, host)
        return host

    def fill(self, source: np.ndarray) -> None:
        """Copy an array of equal size and type to the device."""
        self.api.copy_from_host(np.ascontiguousarray(source), self.buffer)


@frozen
class BorrowedBuffer:
    """Memory of a device that somebody else owns; it is kept as long as ``owner`` is, or by whoever lent it."""

    device: Device
    address: int
    nbytes: int
    owner: object = None


def may_lie_elsewhere(value: object) -> bool:
    """Return whether an object of another library says where its memory lies (``tensors.device_exchange`` reads it)."""
    return hasattr(value, "__dlpack_device__") or hasattr(value, "__cuda_array_interface__")


def new_device_array(device: Device, dtype: np.dtype, shape: tuple[int, ...]) -> DeviceArray:
    """Return an array in new memory of a device, of undefined content.

    Raises:
        InvalidValue: no plugin offers the device, or the elements are strings.
    """
    if dtype.kind == "O":
        raise InvalidValue(f"strings live on the CPU only; {device} cannot hold them")
    api = directory_in_use().get(device)
    return DeviceArray(api, api.allocate(math.prod(shape) * dtype.itemsize), dtype, shape)
