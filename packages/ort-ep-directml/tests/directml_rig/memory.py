"""Buffers: host memory behind made-up addresses, in the states that Direct3D gives resources."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from directml_rig.errors import RuleBrokenError
from directml_rig.served import INVALID_ARGUMENT, OK, ServedObject, implements
from ort_ep_directml.abi import d3d12

if TYPE_CHECKING:
    from directml_rig.device import Device

_READS = d3d12.RESOURCE_STATE_GENERIC_READ
_STATES = {
    0: "COMMON", 0x8: "UNORDERED_ACCESS", 0x400: "COPY_DEST", 0x800: "COPY_SOURCE", 0xAC3: "GENERIC_READ",
}  # fmt: skip
_FIXED_STATES = {
    d3d12.HEAP_TYPE_UPLOAD: d3d12.RESOURCE_STATE_GENERIC_READ,
    d3d12.HEAP_TYPE_READBACK: d3d12.RESOURCE_STATE_COPY_DEST,
}
_CUSTOM = 4  # DirectML keeps constants of graphs in such a heap
_WRITE_COMBINE, _WRITE_BACK = 2, 3
_PATTERN = 0xA5  # fresh memory of a GPU is not zero
_ALIGNMENT = 65536


class DeviceChild(ServedObject):
    """Something made by a device; it keeps the device alive."""

    def __init__(self, device: Device) -> None:
        super().__init__(device.ledger)
        self.device = device
        device.add_ref()

    @property
    def removed(self) -> int:
        return self.device.removed

    @implements("GetDevice")
    def get_device(self, iid: int, result: int) -> int:
        return self.device.query_interface(iid, result)

    def destroyed(self) -> None:
        super().destroyed()
        self.device.release()


class Resource(DeviceChild):
    """A committed buffer.

    Args:
        device: its device.
        heap: the heap that it lies in.
        desc: what it is.
        state: its first state.
    """

    interface = d3d12.RESOURCE
    answers = (d3d12.OBJECT, d3d12.DEVICE_CHILD, d3d12.PAGEABLE, d3d12.RESOURCE)

    def __init__(self, device: Device, heap: d3d12.HeapProperties, desc: d3d12.ResourceDesc, state: int) -> None:
        super().__init__(device)
        self.heap = heap.Type
        self.mappable = heap.Type in _FIXED_STATES or heap.CPUPageProperty in (_WRITE_COMBINE, _WRITE_BACK)
        self.desc = d3d12.ResourceDesc.from_buffer_copy(desc)
        self.state = state
        self.nbytes = int(desc.Width)
        memory = np.full(self.nbytes + 64, _PATTERN, np.uint8)
        self._keep = memory
        self.memory = -(-memory.ctypes.data // 64) * 64
        self.virtual_address = device.addresses.reserve(self, self.nbytes)
        self.mapped = 0

    def at(self, offset: int, nbytes: int) -> int:
        """Return the host address of bytes.

        Raises:
            RuleBrokenError: they are not all inside.
        """
        if offset < 0 or offset + nbytes > self.nbytes:
            raise RuleBrokenError(f"bytes {offset} to {offset + nbytes} of a buffer of {self.nbytes}")
        return self.memory + offset

    def use(self, state: int, doing: str) -> None:
        """Take the buffer into a state as an access does.

        Raises:
            RuleBrokenError: it is in another one, and no barrier stood between.
        """
        if self.state == state or (self.state == _READS and state & _READS):
            return
        if self.state != d3d12.RESOURCE_STATE_COMMON or self.heap in _FIXED_STATES:
            raise RuleBrokenError(
                f"{doing} needs a buffer in state {_name(state)}, not {_name(self.state)}: a barrier is missing"
            )
        self.state = state

    def transition(self, before: int, after: int) -> None:
        """Go from one state to another by a barrier.

        Raises:
            RuleBrokenError: the buffer is not in the first.
        """
        if self.heap in _FIXED_STATES:
            raise RuleBrokenError("a barrier on a buffer for uploading or reading back, whose state never changes")
        if self.state not in (before, d3d12.RESOURCE_STATE_COMMON):
            raise RuleBrokenError(f"a barrier says from {_name(before)}, and the buffer is in {_name(self.state)}")
        self.state = after

    def decay(self) -> None:
        """Fall back to the common state, as buffers do when the queue has executed their commands."""
        if self.heap not in _FIXED_STATES:
            self.state = d3d12.RESOURCE_STATE_COMMON

    @implements("Map")
    def map(self, subresource: int, read: int, result: int) -> int:
        if not self.mappable:
            self.ledger.faults.append(RuleBrokenError("Map of a buffer that the host does not see"))
            return INVALID_ARGUMENT
        self.mapped += 1
        if result:
            ctypes.c_void_p.from_address(result).value = self.memory
        return OK

    @implements("Unmap")
    def unmap(self, subresource: int, written: int) -> None:
        if not self.mapped:
            raise RuleBrokenError("Unmap of a buffer that is not mapped")
        self.mapped -= 1

    @implements("GetDesc")
    def get_desc(self) -> d3d12.ResourceDesc:
        return self.desc

    @implements("GetGPUVirtualAddress")
    def get_gpu_virtual_address(self) -> int:
        return self.virtual_address

    @implements("GetHeapProperties")
    def get_heap_properties(self, properties: int, flags: int) -> int:
        if properties:
            found = d3d12.HeapProperties.from_address(properties)
            found.Type, found.CPUPageProperty, found.MemoryPoolPreference = self.heap, 0, 0
            found.CreationNodeMask = found.VisibleNodeMask = 1
        if flags:
            ctypes.c_uint32.from_address(flags).value = 0
        return OK

    def destroyed(self) -> None:
        self.device.addresses.give_back(self)
        super().destroyed()


def _name(state: int) -> str:
    return _STATES.get(state, hex(state))


def refusal(heap: int, desc: d3d12.ResourceDesc, state: int) -> str | None:
    """Return why a buffer like this cannot be made; ``None`` where it can."""
    if desc.Dimension != d3d12.RESOURCE_DIMENSION_BUFFER or desc.Layout != d3d12.TEXTURE_LAYOUT_ROW_MAJOR:
        return "the rig has buffers alone: dimension BUFFER, layout ROW_MAJOR"
    if (desc.Height, desc.DepthOrArraySize, desc.MipLevels, desc.Format) != (1, 1, 1, 0) or desc.SampleDesc.Count != 1:
        return "a buffer has height, depth, levels and samples 1 and format UNKNOWN"
    if not desc.Width:
        return "a buffer has at least one byte"
    if heap not in (d3d12.HEAP_TYPE_DEFAULT, _CUSTOM, *_FIXED_STATES):
        return f"heap type {heap} is not one that the rig has"
    if heap in _FIXED_STATES and state != _FIXED_STATES[heap]:
        return f"a buffer in heap type {heap} stays in state {_name(_FIXED_STATES[heap])}, not {_name(state)}"
    if heap in _FIXED_STATES and desc.Flags & d3d12.RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS:
        return "unordered access is for default heaps"
    return None


class Addresses:
    """The device's addresses: ranges that no host pointer lies in, with gaps between them."""

    def __init__(self) -> None:
        self._next = 0x7_0000_0000_0000
        self._ranges: dict[int, Resource] = {}

    def reserve(self, resource: Resource, nbytes: int) -> int:
        """Return where a resource begins."""
        begin = self._next
        self._next += -(-nbytes // _ALIGNMENT) * _ALIGNMENT + _ALIGNMENT
        self._ranges[begin] = resource
        return begin

    def give_back(self, resource: Resource) -> None:
        """Forget a resource; its addresses are not used again."""
        del self._ranges[resource.virtual_address]

    def at(self, address: int) -> tuple[Resource, int]:
        """Return the resource at an address, and the offset in it.

        Raises:
            RuleBrokenError: none is there.
        """
        for begin, resource in self._ranges.items():
            if 0 <= address - begin < resource.nbytes:
                return resource, address - begin
        raise RuleBrokenError(f"no buffer is at the GPU address {address:#x}")
