"""Descriptor heaps: what the shaders' registers point to, by handles that are numbers of the rig."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from directml_rig.dxil.module import ResourceKind
from directml_rig.dxil.views import FORMATS, View
from directml_rig.errors import RuleBrokenError
from directml_rig.memory import DeviceChild, Resource
from directml_rig.served import implements
from directml_rig.structs import CbvDesc, SrvDesc, UavDesc
from ort_ep_directml.abi import d3d12

if TYPE_CHECKING:
    from directml_rig.device import Device

INCREMENT = 32
_CPU_BASE = 0x5_0000_0000_0000
_GPU_BASE = 0x6_0000_0000_0000
_R32_TYPELESS = 39
_RAW = 1


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A view of a buffer.

    Attributes:
        resource: the buffer; ``None``: nothing, whose reads are zero.
        view: how it is seen.
        offset: of its first byte.
        count: of elements, or of bytes when raw or constant.
        nbytes: all its bytes.
    """

    resource: Resource | None
    view: View
    offset: int = 0
    count: int = 0
    nbytes: int = 0


class DescriptorHeap(DeviceChild):
    """A heap of descriptors, empty at first."""

    interface = d3d12.DESCRIPTOR_HEAP
    answers = (d3d12.OBJECT, d3d12.DEVICE_CHILD, d3d12.PAGEABLE, d3d12.DESCRIPTOR_HEAP)

    def __init__(self, device: Device, count: int, *, visible: bool) -> None:
        super().__init__(device)
        self.entries: list[Descriptor | None] = [None] * count
        self.begin = device.descriptors.reserve(self, count)
        self.visible = visible

    @implements("GetCPUDescriptorHandleForHeapStart")
    def get_cpu_start(self) -> int:
        return _CPU_BASE + self.begin * INCREMENT

    @implements("GetGPUDescriptorHandleForHeapStart")
    def get_gpu_start(self) -> int:
        if not self.visible:
            raise RuleBrokenError("the GPU handle of a descriptor heap that shaders do not see")
        return _GPU_BASE + self.begin * INCREMENT

    def destroyed(self) -> None:
        self.device.descriptors.give_back(self)
        super().destroyed()


class Descriptors:
    """All descriptor heaps of a device, by the numbers that handles are made of."""

    def __init__(self) -> None:
        self._next = 16
        self._heaps: dict[int, DescriptorHeap] = {}

    def reserve(self, heap: DescriptorHeap, count: int) -> int:
        """Return the number of the first descriptor of a new heap."""
        begin = self._next
        self._next += count + 16
        self._heaps[begin] = heap
        return begin

    def give_back(self, heap: DescriptorHeap) -> None:
        """Forget a heap."""
        del self._heaps[heap.begin]

    def at_cpu(self, handle: int) -> tuple[DescriptorHeap, int]:
        """Return the heap and index of a CPU handle."""
        return self._at(handle, _CPU_BASE, "CPU")

    def at_gpu(self, handle: int) -> tuple[DescriptorHeap, int]:
        """Return the heap and index of a GPU handle."""
        return self._at(handle, _GPU_BASE, "GPU")

    def _at(self, handle: int, base: int, side: str) -> tuple[DescriptorHeap, int]:
        number, rest = divmod(handle - base, INCREMENT)
        for begin, heap in self._heaps.items():
            if not rest and 0 <= number - begin < len(heap.entries):
                return heap, number - begin
        raise RuleBrokenError(f"{handle:#x} is no {side} handle of a descriptor heap that is alive")


def uav(resource: Resource | None, desc: UavDesc) -> Descriptor:
    """Return an unordered access view.

    Raises:
        RuleBrokenError: it reaches outside its buffer, or the buffer does not allow it.
    """
    if resource is not None and not resource.desc.Flags & d3d12.RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS:
        raise RuleBrokenError("an unordered access view of a buffer made without ALLOW_UNORDERED_ACCESS")
    buffer = desc.Buffer
    return _buffer_view(
        resource, desc.Format, buffer.FirstElement, buffer.NumElements, buffer.StructureByteStride, buffer.Flags
    )


def srv(resource: Resource | None, desc: SrvDesc) -> Descriptor:
    """Return a shader resource view.

    Raises:
        RuleBrokenError: it reaches outside its buffer.
    """
    buffer = desc.Buffer
    return _buffer_view(
        resource, desc.Format, buffer.FirstElement, buffer.NumElements, buffer.StructureByteStride, buffer.Flags
    )


def cbv(device: Device, desc: CbvDesc) -> Descriptor:
    """Return a view of constants."""
    view = View(ResourceKind.CONSTANTS)
    if not desc.BufferLocation:
        return Descriptor(None, view)
    resource, offset = device.addresses.at(desc.BufferLocation)
    resource.at(offset, desc.SizeInBytes)
    return Descriptor(resource, view, offset, desc.SizeInBytes, desc.SizeInBytes)


def _buffer_view(resource: Resource | None, number: int, first: int, count: int, stride: int, flags: int) -> Descriptor:
    if flags & _RAW or number == _R32_TYPELESS:
        if not (flags & _RAW and number == _R32_TYPELESS):
            raise RuleBrokenError(f"a raw view has format R32_TYPELESS and the flag RAW, not {number} and {flags}")
        view, element, counted = View(ResourceKind.RAW), 4, 4 * count
    elif stride:
        view, element, counted = View(ResourceKind.STRUCTURED, stride=stride), stride, count
    else:
        if number not in FORMATS:
            raise RuleBrokenError(f"a view of a buffer has DXGI format {number}, which the rig does not know")
        view, element, counted = View(ResourceKind.TYPED, format=number), FORMATS[number].nbytes, count
    if resource is None:
        return Descriptor(None, view)
    nbytes = element * count
    resource.at(first * element, nbytes)
    return Descriptor(resource, view, first * element, counted, nbytes)
