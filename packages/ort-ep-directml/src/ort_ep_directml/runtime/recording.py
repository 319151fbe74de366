"""CommandRecording: one command list: copies, barriers, dispatches of DirectML; closed once, run many times."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from ort_ep_directml.abi import d3d12, dml
from ort_ep_directml.abi.com import ComObject
from ort_ep_directml.runtime.device import DmlDevice
from ort_ep_directml.runtime.memory import Buffer


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a buffer."""

    buffer: Buffer
    offset: int
    nbytes: int

    def binding(self) -> dml.BufferBinding:
        """Return the structure that binds them."""
        return dml.BufferBinding(self.buffer.resource.address, self.offset, self.nbytes)


Bound = Span | Sequence[Span | None] | None
"""What is bound at one place: bytes, an array of bytes (of which some may be absent), or nothing."""


@dataclass(frozen=True, slots=True)
class Bindings:
    """What a dispatch reads and writes.

    Attributes:
        inputs: one for each input.
        outputs: one for each output.
        temporary: scratch memory.
        persistent: what initializing wrote, for its executions.
    """

    inputs: Sequence[Bound]
    outputs: Sequence[Bound]
    temporary: Span | None = None
    persistent: Span | None = None


class CommandRecording:
    """A command list that is being recorded, then closed.

    Args:
        device: whose.

    Raises:
        HResultError: the list could not be made.
    """

    def __init__(self, device: DmlDevice) -> None:
        self._device = device
        kind = device.list_type
        self._allocator = device.build(device.d3d12, "CreateCommandAllocator", d3d12.COMMAND_ALLOCATOR, kind)
        self.commands = device.build(
            device.d3d12, "CreateCommandList", d3d12.GRAPHICS_COMMAND_LIST, 0, kind, self._allocator.address, None
        )
        self._kept: list[object] = []  # what the list uses and does not keep alive

    def keep(self, *used: object) -> None:
        """Keep things alive as long as this."""
        self._kept += used

    def copy(self, source: Span, target: Span) -> None:
        """Record a copy; both are of one size."""
        to, at = target.buffer.resource.address, source.buffer.resource.address
        self.commands.call("CopyBufferRegion", to, target.offset, at, source.offset, source.nbytes)

    def transition(self, buffer: Buffer, before: int, after: int) -> None:
        """Record that a buffer is used in another way from here on."""
        barrier = d3d12.ResourceBarrier(Type=d3d12.RESOURCE_BARRIER_TYPE_TRANSITION)
        barrier.Transition = d3d12.TransitionBarrier(
            buffer.resource.address, d3d12.RESOURCE_BARRIER_ALL_SUBRESOURCES, before, after
        )
        self.commands.call("ResourceBarrier", 1, ctypes.byref(barrier))

    def dispatch(self, dispatchable: ComObject, bindings: Bindings) -> None:
        """Record an initialization or an execution.

        Raises:
            HResultError: there are no descriptors, or DirectML refused a binding (it then gives up on the device).
        """
        device = self._device
        count = binding_properties(dispatchable).RequiredDescriptorCount
        heap_desc = d3d12.DescriptorHeapDesc(
            d3d12.DESCRIPTOR_HEAP_TYPE_CBV_SRV_UAV, max(count, 1), d3d12.DESCRIPTOR_HEAP_FLAG_SHADER_VISIBLE, 0
        )
        heap = device.build(device.d3d12, "CreateDescriptorHeap", d3d12.DESCRIPTOR_HEAP, ctypes.byref(heap_desc))
        table_desc = dml.BindingTableDesc(
            dispatchable.address,
            heap.call_struct("GetCPUDescriptorHandleForHeapStart", d3d12.CpuDescriptorHandle),
            heap.call_struct("GetGPUDescriptorHandleForHeapStart", d3d12.GpuDescriptorHandle),
            count,
        )
        table = device.build(device.dml, "CreateBindingTable", dml.BINDING_TABLE, ctypes.byref(table_desc))
        _bind(table, bindings)
        self.commands.call("SetDescriptorHeaps", 1, ctypes.byref(ctypes.c_void_p(heap.address)))
        device.recorder.call("RecordDispatch", self.commands.address, dispatchable.address, table.address)
        device.check()  # a refused binding is told nowhere else
        self.keep(heap, table)

    def close(self) -> None:
        """End recording.

        Raises:
            HResultError: something that was recorded is not allowed.
        """
        self.commands.call("Close")

    def execute(self, *, spins: bool = False) -> None:
        """Run what was recorded, and wait, in a loop where it spins; one run at a time.

        Raises:
            HResultError: the device was lost.
        """
        self._device.execute(self.commands, spins=spins)


def binding_properties(dispatchable: ComObject) -> dml.BindingProperties:
    """Return what a dispatchable needs."""
    return dispatchable.call_struct("GetBindingProperties", dml.BindingProperties)


def _bind(table: ComObject, bindings: Bindings) -> None:
    for name, bound in (("BindInputs", bindings.inputs), ("BindOutputs", bindings.outputs)):
        if bound:
            kept: list[ctypes.Structure | ctypes.Array[dml.BufferBinding]] = []
            descs = (dml.BindingDesc * len(bound))(*(_desc(each, kept) for each in bound))
            table.call(name, len(bound), ctypes.byref(descs))
    for name, span in (
        ("BindTemporaryResource", bindings.temporary),
        ("BindPersistentResource", bindings.persistent),
    ):
        if span is not None:
            kept = []
            table.call(name, ctypes.byref(_desc(span, kept)))


def _desc(bound: Bound, kept: list[ctypes.Structure | ctypes.Array[dml.BufferBinding]]) -> dml.BindingDesc:
    """Return a binding; what it points to goes to ``kept``."""
    if bound is None:
        return dml.BindingDesc(dml.BINDING_TYPE_NONE, None)
    if isinstance(bound, Span):
        kept.append(bound.binding())
        return dml.BindingDesc(dml.BINDING_TYPE_BUFFER, ctypes.addressof(kept[-1]))
    each = (dml.BufferBinding * len(bound))(
        *(dml.BufferBinding() if span is None else span.binding() for span in bound)
    )
    array = dml.BufferArrayBinding(len(bound), ctypes.addressof(each))
    kept += [each, array]
    return dml.BindingDesc(dml.BINDING_TYPE_BUFFER_ARRAY, ctypes.addressof(array))
