"""Command lists: what is recorded, and what happens when a queue executes it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from directml_rig.descriptors import Descriptor, DescriptorHeap
from directml_rig.dxil.module import ResourceClass, ResourceKind, ResourceRange
from directml_rig.dxil.program import BoundView, Shader
from directml_rig.dxil.views import View
from directml_rig.errors import RuleBrokenError
from directml_rig.memory import DeviceChild, Resource
from directml_rig.root_signature import Signature
from directml_rig.served import OK, implements
from ort_ep_directml.abi import d3d12

if TYPE_CHECKING:
    from directml_rig.device import Device

_MOST_GROUPS = 65535
_MOST_ROOT_WORDS = 64
_R32_FLOAT, _R32_UINT = 41, 42
Command = Callable[[], None]


class RootSignature(DeviceChild):
    """A root signature."""

    interface = d3d12.PAGEABLE
    answers = (d3d12.OBJECT, d3d12.DEVICE_CHILD, d3d12.PAGEABLE)

    def __init__(self, device: Device, signature: Signature) -> None:
        super().__init__(device)
        self.signature = signature


class PipelineState(DeviceChild):
    """A shader, ready to be dispatched."""

    interface = d3d12.PAGEABLE
    answers = (d3d12.OBJECT, d3d12.DEVICE_CHILD, d3d12.PAGEABLE)

    def __init__(self, device: Device, shader: Shader, signature: Signature) -> None:
        super().__init__(device)
        self.shader = shader
        self.sources = [
            (each, index, signature.source(each.of, each.space, each.register + index))
            for each in shader.module.ranges
            for index in range(each.count)
        ]


class CommandAllocator(DeviceChild):
    """Memory of commands: one list at a time records into it, and it is not reset while its commands run."""

    interface = d3d12.COMMAND_ALLOCATOR
    answers = (d3d12.OBJECT, d3d12.DEVICE_CHILD, d3d12.PAGEABLE, d3d12.COMMAND_ALLOCATOR)

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.recording: CommandList | None = None
        self.in_flight = 0
        self.generation = 0

    @implements("Reset")
    def reset(self) -> int:
        if self.in_flight:
            raise RuleBrokenError("a command allocator is reset while the queue has not executed its commands")
        if self.recording is not None:
            raise RuleBrokenError("a command allocator is reset while a command list records into it")
        self.generation += 1
        return OK


@dataclass(frozen=True, slots=True)
class RootArguments:
    """What a dispatch was recorded with."""

    tables: dict[int, int]
    constants: dict[int, dict[int, int]]
    buffers: dict[int, int]
    heaps: tuple[DescriptorHeap, ...]


class CommandList(DeviceChild):
    """A command list for computing and copying."""

    interface = d3d12.GRAPHICS_COMMAND_LIST
    answers = (d3d12.OBJECT, d3d12.DEVICE_CHILD, d3d12.COMMAND_LIST, d3d12.GRAPHICS_COMMAND_LIST)

    def __init__(self, device: Device, kind: int, allocator: CommandAllocator) -> None:
        super().__init__(device)
        self.kind = kind
        self._begin(allocator)

    def _begin(self, allocator: CommandAllocator) -> None:
        if allocator.recording is not None:
            raise RuleBrokenError("two command lists record into one command allocator")
        self.allocator = allocator
        allocator.recording = self
        self.generation = allocator.generation
        self.open = True
        self.commands: list[Command] = []
        self.touched: set[Resource] = set()
        self._pipeline: PipelineState | None = None
        self._signature: RootSignature | None = None
        self._heaps: tuple[DescriptorHeap, ...] = ()
        self._forget_arguments()

    def _forget_arguments(self) -> None:
        self._tables: dict[int, int] = {}
        self._constants: dict[int, dict[int, int]] = {}
        self._buffers: dict[int, int] = {}

    def _record(self, command: Command) -> None:
        if not self.open:
            raise RuleBrokenError("a command is recorded into a command list that is closed")
        self.commands.append(command)

    @implements("GetType")
    def get_type(self) -> int:
        return self.kind

    @implements("Close")
    def close(self) -> int:
        if not self.open:
            raise RuleBrokenError("a command list is closed twice")
        self.open = False
        self.allocator.recording = None
        return OK

    @implements("Reset")
    def reset(self, allocator: int, pipeline: int) -> int:
        if self.open:
            raise RuleBrokenError("a command list is reset while it is open")
        self._begin(self.ledger.found(allocator, CommandAllocator))
        if pipeline:
            self.set_pipeline_state(pipeline)
        return OK

    # ------------------------------------------------------------ what dispatches are recorded with
    @implements("SetPipelineState")
    def set_pipeline_state(self, pipeline: int) -> None:
        self._pipeline = self.ledger.found(pipeline, PipelineState)

    @implements("SetComputeRootSignature")
    def set_root_signature(self, signature: int) -> None:
        found = self.ledger.found(signature, RootSignature)
        if self._signature is None or found.signature != self._signature.signature:
            self._forget_arguments()
        self._signature = found

    @implements("SetDescriptorHeaps")
    def set_descriptor_heaps(self, count: int, heaps: int) -> None:
        addresses = (ctypes.c_void_p * count).from_address(heaps) if count else ()
        self._heaps = tuple(self.ledger.found(address, DescriptorHeap) for address in addresses)
        if any(not heap.visible for heap in self._heaps):
            raise RuleBrokenError("a descriptor heap that shaders do not see is set")

    @implements("SetComputeRootDescriptorTable")
    def set_table(self, parameter: int, handle: int) -> None:
        self._tables[parameter] = handle

    @implements("SetComputeRoot32BitConstant")
    def set_constant(self, parameter: int, value: int, place: int) -> None:
        self._constants.setdefault(parameter, {})[place] = value

    @implements("SetComputeRoot32BitConstants")
    def set_constants(self, parameter: int, count: int, values: int, place: int) -> None:
        words = (ctypes.c_uint32 * count).from_address(values) if count else ()
        self._constants.setdefault(parameter, {}).update({place + index: word for index, word in enumerate(words)})

    @implements("SetComputeRootConstantBufferView")
    def set_root_constants_view(self, parameter: int, address: int) -> None:
        self._buffers[parameter] = address

    @implements("SetComputeRootShaderResourceView")
    def set_root_resource_view(self, parameter: int, address: int) -> None:
        self._buffers[parameter] = address

    @implements("SetComputeRootUnorderedAccessView")
    def set_root_unordered_view(self, parameter: int, address: int) -> None:
        self._buffers[parameter] = address

    @implements("SetMarker")
    def set_marker(self, metadata: int, data: int, size: int) -> None:
        """A note for profilers: nothing to do."""

    @implements("BeginEvent")
    def begin_event(self, metadata: int, data: int, size: int) -> None:
        """A note for profilers: nothing to do."""

    @implements("EndEvent")
    def end_event(self) -> None:
        """A note for profilers: nothing to do."""

    # ------------------------------------------------------------ commands
    @implements("Dispatch")
    def dispatch(self, x: int, y: int, z: int) -> None:
        pipeline, signature = self._pipeline, self._signature
        if pipeline is None or signature is None:
            raise RuleBrokenError("Dispatch without a pipeline state and a root signature")
        if max(x, y, z) > _MOST_GROUPS:
            raise RuleBrokenError(f"Dispatch of {x} x {y} x {z} groups; along an axis there are {_MOST_GROUPS} at most")
        constants = {parameter: dict(words) for parameter, words in self._constants.items()}
        arguments = RootArguments(dict(self._tables), constants, dict(self._buffers), self._heaps)
        self._record(lambda: self._dispatched(pipeline, signature, arguments, (x, y, z)))

    @implements("CopyBufferRegion")
    def copy_buffer_region(self, target: int, target_at: int, source: int, source_at: int, nbytes: int) -> None:
        to, of = self.ledger.found(target, Resource), self.ledger.found(source, Resource)
        to.at(target_at, nbytes)
        of.at(source_at, nbytes)
        self._record(lambda: self._copied(to, target_at, of, source_at, nbytes))

    @implements("CopyResource")
    def copy_resource(self, target: int, source: int) -> None:
        to, of = self.ledger.found(target, Resource), self.ledger.found(source, Resource)
        if to.nbytes != of.nbytes:
            raise RuleBrokenError(f"CopyResource from {of.nbytes} bytes to {to.nbytes}")
        self._record(lambda: self._copied(to, 0, of, 0, to.nbytes))

    @implements("ResourceBarrier")
    def resource_barrier(self, count: int, barriers: int) -> None:
        for each in (d3d12.ResourceBarrier * count).from_address(barriers) if count else ():
            if each.Type == d3d12.RESOURCE_BARRIER_TYPE_TRANSITION:
                moved = each.Transition
                found = self.ledger.found(moved.pResource, Resource)
                self._record(self._transition(found, moved.StateBefore, moved.StateAfter))
            elif each.Type == d3d12.RESOURCE_BARRIER_TYPE_UAV:
                if each.UAV.pResource:
                    self.ledger.found(each.UAV.pResource, Resource)
            else:
                raise RuleBrokenError(f"a barrier of type {each.Type}: the rig has transitions and unordered access")

    def _transition(self, resource: Resource, before: int, after: int) -> Command:
        def command() -> None:
            self._used(resource)
            resource.transition(before, after)

        return command

    # ------------------------------------------------------------ at execution
    def execute(self) -> None:
        """Do what was recorded.

        Raises:
            RuleBrokenError: the list is open, its allocator was reset since, or a command broke a rule.
        """
        if self.open:
            raise RuleBrokenError("a command list is executed while it is open")
        if self.generation != self.allocator.generation:
            raise RuleBrokenError("a command list is executed whose command allocator was reset after recording")
        try:
            for command in self.commands:
                command()
        finally:
            for resource in self.touched:
                resource.decay()
            self.touched.clear()

    def _used(self, resource: Resource) -> None:
        if self.ledger.objects.get(resource.address) is not resource:
            raise RuleBrokenError("a buffer was released before the queue executed the commands that use it")
        self.touched.add(resource)

    def _copied(self, target: Resource, target_at: int, source: Resource, source_at: int, nbytes: int) -> None:
        self._used(target)
        self._used(source)
        source.use(d3d12.RESOURCE_STATE_COPY_SOURCE, "a copy")
        target.use(d3d12.RESOURCE_STATE_COPY_DEST, "a copy")
        self.device.counts.copies += 1
        ctypes.memmove(target.at(target_at, nbytes), source.at(source_at, nbytes), nbytes)

    def _dispatched(
        self, pipeline: PipelineState, signature: RootSignature, arguments: RootArguments, groups: tuple[int, int, int]
    ) -> None:
        views: list[View] = []
        bound: list[BoundView] = []
        keep: list[ctypes.Array] = []
        for declared, index, source in pipeline.sources:
            descriptor: Descriptor | None = None
            if source.in_table:
                descriptor = self._in_table(arguments, source.parameter, source.offset)
            elif source.parameter in arguments.buffers:
                descriptor = self._at_address(arguments.buffers[source.parameter], declared.kind, declared.stride)
            elif declared.of is ResourceClass.CBV:
                words = signature.signature.parameters[source.parameter].words
                keep.append(_constants(arguments.constants.get(source.parameter, {}), words))
                views.append(View(ResourceKind.CONSTANTS))
                bound.append(BoundView(ctypes.addressof(keep[-1]), 4 * words))
                continue
            if descriptor is None:
                raise RuleBrokenError(f"register {declared.register + index} of {declared.of.name} is bound to nothing")
            view, memory = self._seen(descriptor, declared)
            views.append(view)
            bound.append(memory)
        self.device.counts.dispatches += 1
        pipeline.shader.run(views, bound, groups)

    def _in_table(self, arguments: RootArguments, parameter: int, offset: int) -> Descriptor | None:
        handle = arguments.tables.get(parameter)
        if handle is None:
            raise RuleBrokenError(f"root parameter {parameter} is a descriptor table that was not set")
        heap, first = self.device.descriptors.at_gpu(handle)
        if heap not in arguments.heaps:
            raise RuleBrokenError("a descriptor table lies in a descriptor heap that is not set")
        if first + offset >= len(heap.entries):
            raise RuleBrokenError("a descriptor table goes on behind the end of its descriptor heap")
        return heap.entries[first + offset]

    def _at_address(self, address: int, kind: ResourceKind, stride: int) -> Descriptor:
        resource, offset = self.device.addresses.at(address)
        nbytes = resource.nbytes - offset
        count = nbytes // stride if kind is ResourceKind.STRUCTURED else nbytes
        return Descriptor(resource, View(kind, stride=stride), offset, count, nbytes)

    def _seen(self, descriptor: Descriptor, declared: ResourceRange) -> tuple[View, BoundView]:
        """Return how a shader sees a descriptor, and the memory behind it.

        DirectML puts any view where a shader has a register for a tensor that is absent. Reading one of another kind is
        undefined; here it gives zeros.
        """
        resource = descriptor.resource
        if resource is not None:
            self._used(resource)
            if declared.of is ResourceClass.UAV:
                resource.use(d3d12.RESOURCE_STATE_UNORDERED_ACCESS, "Dispatch")
        if descriptor.view.kind is not declared.kind:
            anything = _R32_FLOAT if declared.is_float else _R32_UINT
            return View(declared.kind, anything, declared.stride), BoundView(0, 0)
        if resource is None:
            return descriptor.view, BoundView(0, 0)
        return descriptor.view, BoundView(resource.at(descriptor.offset, descriptor.nbytes), descriptor.count)


def _constants(words: dict[int, int], count: int) -> ctypes.Array:
    missing = [index for index in range(count) if index not in words]
    if len(missing) == count:
        raise RuleBrokenError("a shader reads root constants of which none was set")
    values: Sequence[int] = [words.get(index, 0) for index in range(max(count, _MOST_ROOT_WORDS))]
    return (ctypes.c_uint32 * len(values))(*values)
