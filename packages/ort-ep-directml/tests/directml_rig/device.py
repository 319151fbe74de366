"""The device: it makes everything else, and is what DirectML is made on."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from directml_rig import descriptors
from directml_rig.commands import CommandAllocator, CommandList, PipelineState, RootSignature
from directml_rig.descriptors import DescriptorHeap, Descriptors
from directml_rig.dxil.program import Shader
from directml_rig.errors import RuleBrokenError
from directml_rig.memory import Addresses, Resource, refusal
from directml_rig.queue import CommandQueue, Fence
from directml_rig.root_signature import signature_of
from directml_rig.served import DEVICE_REMOVED, INVALID_ARGUMENT, OK, Ledger, ServedObject, give, implements
from directml_rig.structs import CbvDesc, ComputePipelineStateDesc, SrvDesc, UavDesc
from ort_ep_directml.abi import d3d12

LUID = 0x1234
_OPTIONS, _ARCHITECTURE, _FEATURE_LEVELS, _SHADER_MODEL, _OPTIONS1 = 0, 1, 2, 7, 8
_ROOT_SIGNATURE, _OPTIONS4 = 12, 23
_SHADER_MODEL_6_2 = 0x62
_FEATURE_LEVEL_12_0 = 0xC000
_ROOT_SIGNATURE_1_1 = 2


@dataclass(slots=True)
class Counts:
    """How often the device did what."""

    dispatches: int = 0
    copies: int = 0
    executions: int = 0
    pipelines: int = 0


class Device(ServedObject):
    """A device without a GPU."""

    interface = d3d12.DEVICE
    answers = (d3d12.OBJECT, d3d12.DEVICE)

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.addresses = Addresses()
        self.descriptors = Descriptors()
        self.queues: list[CommandQueue] = []
        self.counts = Counts()
        self._removed = 0

    @property
    def removed(self) -> int:
        return self._removed

    def remove(self, reason: int = DEVICE_REMOVED) -> None:
        """Be lost, as when a driver fails: work that is under way never ends."""
        self._removed = reason
        for queue in self.queues:
            queue.work.clear()

    def make_progress(self) -> bool:
        """Do the next piece of work; return whether there was one. A rule that it breaks removes the device."""
        for queue in self.queues:
            if queue.work:
                try:
                    queue.work.popleft()()
                except Exception as error:  # noqa: BLE001  # kept for the tests; a GPU would hang or be removed
                    self.ledger.faults.append(error)
                    self.remove()
                return True
        return False

    @implements("GetNodeCount")
    def get_node_count(self) -> int:
        return 1

    @implements("GetDeviceRemovedReason")
    def get_device_removed_reason(self) -> int:
        return self._removed

    @implements("GetAdapterLuid")
    def get_adapter_luid(self) -> int:
        return LUID

    @implements("CheckFeatureSupport")
    def check_feature_support(self, feature: int, data: int, size: int) -> int:
        words = (ctypes.c_uint32 * (size // 4)).from_address(data)
        if feature == _OPTIONS:
            ctypes.memset(data, 0, size)
            words[0] = 1  # double precision
            words[4] = 3  # tier of resource binding
            words[6] = 1  # typed loads of more formats than three
            words[9] = 40  # bits of an address within a resource
        elif feature == _ARCHITECTURE:
            words[1] = words[2] = words[3] = 0
        elif feature == _FEATURE_LEVELS:
            words[4] = _FEATURE_LEVEL_12_0
        elif feature == _SHADER_MODEL:
            words[0] = min(words[0], _SHADER_MODEL_6_2)
        elif feature == _OPTIONS1:
            ctypes.memset(data, 0, size)
            words[5] = 1  # 64-bit integers; no wave operations
        elif feature == _ROOT_SIGNATURE:
            words[0] = min(words[0], _ROOT_SIGNATURE_1_1)
        elif feature == _OPTIONS4:
            ctypes.memset(data, 0, size)
            words[2] = 1  # 16-bit numbers in shaders
        else:
            return INVALID_ARGUMENT
        return OK

    @implements("MakeResident")
    def make_resident(self, count: int, objects: int) -> int:
        return OK

    @implements("Evict")
    def evict(self, count: int, objects: int) -> int:
        return OK

    # ------------------------------------------------------------ queues, lists, fences
    @implements("CreateCommandQueue")
    def create_command_queue(self, desc: int, iid: int, result: int) -> int:
        return give(CommandQueue(self, d3d12.CommandQueueDesc.from_address(desc).Type), result)

    @implements("CreateCommandAllocator")
    def create_command_allocator(self, kind: int, iid: int, result: int) -> int:
        return give(CommandAllocator(self), result)

    @implements("CreateCommandList")
    def create_command_list(self, nodes: int, kind: int, allocator: int, pipeline: int, iid: int, result: int) -> int:
        return give(CommandList(self, kind, self.ledger.found(allocator, CommandAllocator)), result)

    @implements("CreateFence")
    def create_fence(self, value: int, flags: int, iid: int, result: int) -> int:
        return give(Fence(self, value), result)

    # ------------------------------------------------------------ shaders
    @implements("CreateRootSignature")
    def create_root_signature(self, nodes: int, blob: int, size: int, iid: int, result: int) -> int:
        return give(RootSignature(self, signature_of(ctypes.string_at(blob, size))), result)

    @implements("CreateComputePipelineState")
    def create_compute_pipeline_state(self, desc: int, iid: int, result: int) -> int:
        given = ComputePipelineStateDesc.from_address(desc)
        container = ctypes.string_at(given.CS.pShaderBytecode, given.CS.BytecodeLength)
        if given.pRootSignature:
            signature = self.ledger.found(given.pRootSignature, RootSignature).signature
        else:
            signature = signature_of(container)
        self.counts.pipelines += 1
        return give(PipelineState(self, Shader(container), signature), result)

    # ------------------------------------------------------------ memory
    @implements("CreateCommittedResource")
    def create_committed_resource(
        self, heap: int, flags: int, desc: int, state: int, clear: int, iid: int, result: int
    ) -> int:
        properties = d3d12.HeapProperties.from_address(heap)
        given = d3d12.ResourceDesc.from_address(desc)
        reason = refusal(properties.Type, given, state)
        if reason is not None:
            self.ledger.faults.append(RuleBrokenError(f"CreateCommittedResource: {reason}"))
            return INVALID_ARGUMENT
        return give(Resource(self, properties, given, state), result)

    # ------------------------------------------------------------ descriptors
    @implements("CreateDescriptorHeap")
    def create_descriptor_heap(self, desc: int, iid: int, result: int) -> int:
        given = d3d12.DescriptorHeapDesc.from_address(desc)
        visible = bool(given.Flags & d3d12.DESCRIPTOR_HEAP_FLAG_SHADER_VISIBLE)
        return give(DescriptorHeap(self, given.NumDescriptors, visible=visible), result)

    @implements("GetDescriptorHandleIncrementSize")
    def get_descriptor_handle_increment_size(self, kind: int) -> int:
        return descriptors.INCREMENT

    @implements("CreateUnorderedAccessView")
    def create_unordered_access_view(self, resource: int, counter: int, desc: int, handle: int) -> None:
        heap, index = self.descriptors.at_cpu(handle)
        heap.entries[index] = descriptors.uav(self._resource(resource), UavDesc.from_address(desc))

    @implements("CreateShaderResourceView")
    def create_shader_resource_view(self, resource: int, desc: int, handle: int) -> None:
        heap, index = self.descriptors.at_cpu(handle)
        heap.entries[index] = descriptors.srv(self._resource(resource), SrvDesc.from_address(desc))

    @implements("CreateConstantBufferView")
    def create_constant_buffer_view(self, desc: int, handle: int) -> None:
        heap, index = self.descriptors.at_cpu(handle)
        heap.entries[index] = descriptors.cbv(self, CbvDesc.from_address(desc))

    @implements("CopyDescriptorsSimple")
    def copy_descriptors_simple(self, count: int, target: int, source: int, kind: int) -> None:
        to, at = self.descriptors.at_cpu(target)
        of, begin = self.descriptors.at_cpu(source)
        if at + count > len(to.entries) or begin + count > len(of.entries):
            raise RuleBrokenError("descriptors are copied behind the end of a descriptor heap")
        to.entries[at : at + count] = of.entries[begin : begin + count]

    def _resource(self, address: int) -> Resource | None:
        return self.ledger.found(address, Resource) if address else None
