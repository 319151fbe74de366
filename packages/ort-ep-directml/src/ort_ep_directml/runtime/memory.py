"""Buffers: on the device, for uploading and for reading back."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ort_ep_directml.abi import d3d12
from ort_ep_directml.abi.com import ComObject
from ort_ep_directml.runtime.device import DmlDevice

GRANULE = 256  # bytes: sizes of buffers and beginnings of tensors; DirectML wants 16 of tensors, 256 of its own
_STATES = {
    d3d12.HEAP_TYPE_DEFAULT: d3d12.RESOURCE_STATE_COMMON,
    d3d12.HEAP_TYPE_UPLOAD: d3d12.RESOURCE_STATE_GENERIC_READ,  # the only one that such memory may have
    d3d12.HEAP_TYPE_READBACK: d3d12.RESOURCE_STATE_COPY_DEST,  # likewise
}


def rounded(nbytes: int) -> int:
    """Return a number of bytes as a multiple of the granule."""
    return -(-nbytes // GRANULE) * GRANULE


def offsets(sizes: Sequence[int]) -> list[int]:
    """Return where things of some sizes begin in one buffer, and behind them its whole size."""
    found = [0]
    for nbytes in sizes:
        found.append(found[-1] + rounded(nbytes))
    return found


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of a device, or memory that both sides see.

    Attributes:
        resource: an ``ID3D12Resource``.
        nbytes: its size.
    """

    resource: ComObject
    nbytes: int

    @contextmanager
    def written(self) -> Iterator[np.ndarray]:
        """Give the bytes of an upload buffer to write to.

        Raises:
            HResultError: they are not to be had.
        """
        yield self._map(d3d12.Range(0, 0))
        self.resource.call("Unmap", 0, None)

    @contextmanager
    def read(self) -> Iterator[np.ndarray]:
        """Give the bytes of a readback buffer.

        Raises:
            HResultError: they are not to be had.
        """
        yield self._map(d3d12.Range(0, self.nbytes))
        self.resource.call("Unmap", 0, ctypes.byref(d3d12.Range(0, 0)))

    def release(self) -> None:
        """Give the memory back at once."""
        self.resource.release()

    def _map(self, read: d3d12.Range) -> np.ndarray:
        pointer = ctypes.c_void_p()
        self.resource.call("Map", 0, ctypes.byref(read), ctypes.byref(pointer))
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.nbytes).from_address(pointer.value or 0))


def build_buffer(device: DmlDevice, heap: int, nbytes: int) -> Buffer:
    """Return a new buffer.

    Args:
        device: where.
        heap: ``HEAP_TYPE_DEFAULT``, ``_UPLOAD`` or ``_READBACK``.
        nbytes: its size, rounded up.

    Raises:
        HResultError: there is not enough memory.
    """
    is_default = heap == d3d12.HEAP_TYPE_DEFAULT
    nbytes = max(rounded(nbytes), GRANULE)
    properties = d3d12.HeapProperties(Type=heap, CreationNodeMask=1, VisibleNodeMask=1)
    desc = d3d12.ResourceDesc(
        Dimension=d3d12.RESOURCE_DIMENSION_BUFFER,
        Width=nbytes,
        Height=1,
        DepthOrArraySize=1,
        MipLevels=1,
        SampleDesc=d3d12.SampleDesc(1, 0),
        Layout=d3d12.TEXTURE_LAYOUT_ROW_MAJOR,
        Flags=d3d12.RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS if is_default else d3d12.RESOURCE_FLAG_NONE,
    )
    resource = device.build(
        device.d3d12,
        "CreateCommittedResource",
        d3d12.RESOURCE,
        ctypes.byref(properties),
        d3d12.HEAP_FLAG_NONE,
        ctypes.byref(desc),
        _STATES[heap],
        None,
    )
    return Buffer(resource, nbytes)
