"""Direct3D 12 as far as DirectML needs it: structs, enumerators and method tables, in the order of d3d12.h.

Methods that draw are in the tables to hold their slots, and are not described.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p
from typing import ClassVar, Final

from ort_ep_directml.abi.com import HRESULT, UNKNOWN, Interface, Method

# ---------------------------------------------------------------- enumerators, by their names without the prefix D3D12
FEATURE_LEVEL_1_0_GENERIC: Final = 0x100  # a device that only runs DirectML: most NPUs
FEATURE_LEVEL_1_0_CORE: Final = 0x1000  # a device that only computes
FEATURE_LEVEL_11_0: Final = 0xB000
COMMAND_LIST_TYPE_DIRECT: Final = 0
COMMAND_LIST_TYPE_COMPUTE: Final = 2
COMMAND_QUEUE_FLAG_DISABLE_GPU_TIMEOUT: Final = 1
DESCRIPTOR_HEAP_TYPE_CBV_SRV_UAV: Final = 0
DESCRIPTOR_HEAP_FLAG_SHADER_VISIBLE: Final = 1
HEAP_TYPE_DEFAULT: Final = 1
HEAP_TYPE_UPLOAD: Final = 2
HEAP_TYPE_READBACK: Final = 3
HEAP_FLAG_NONE: Final = 0
RESOURCE_DIMENSION_BUFFER: Final = 1
TEXTURE_LAYOUT_ROW_MAJOR: Final = 1
RESOURCE_FLAG_NONE: Final = 0
RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS: Final = 4
RESOURCE_STATE_COMMON: Final = 0
RESOURCE_STATE_UNORDERED_ACCESS: Final = 0x8
RESOURCE_STATE_COPY_DEST: Final = 0x400
RESOURCE_STATE_COPY_SOURCE: Final = 0x800
RESOURCE_STATE_GENERIC_READ: Final = 0xAC3
RESOURCE_BARRIER_TYPE_TRANSITION: Final = 0
RESOURCE_BARRIER_TYPE_UAV: Final = 2
RESOURCE_BARRIER_ALL_SUBRESOURCES: Final = 0xFFFFFFFF
FENCE_FLAG_NONE: Final = 0
FENCE_REMOVED: Final = 0xFFFFFFFFFFFFFFFF  # what a fence tells when its device is gone


# ---------------------------------------------------------------- structs
class Luid(ctypes.Structure):
    """LUID: which adapter."""

    c_name: ClassVar[str] = "LUID"
    _fields_ = [("LowPart", c_uint32), ("HighPart", c_int32)]


class SampleDesc(ctypes.Structure):
    """DXGI_SAMPLE_DESC."""

    c_name: ClassVar[str] = "DXGI_SAMPLE_DESC"
    _fields_ = [("Count", c_uint32), ("Quality", c_uint32)]


class CommandQueueDesc(ctypes.Structure):
    """D3D12_COMMAND_QUEUE_DESC."""

    c_name: ClassVar[str] = "D3D12_COMMAND_QUEUE_DESC"
    _fields_ = [("Type", c_uint32), ("Priority", c_int32), ("Flags", c_uint32), ("NodeMask", c_uint32)]


class DescriptorHeapDesc(ctypes.Structure):
    """D3D12_DESCRIPTOR_HEAP_DESC."""

    c_name: ClassVar[str] = "D3D12_DESCRIPTOR_HEAP_DESC"
    _fields_ = [("Type", c_uint32), ("NumDescriptors", c_uint32), ("Flags", c_uint32), ("NodeMask", c_uint32)]


class CpuDescriptorHandle(ctypes.Structure):
    """D3D12_CPU_DESCRIPTOR_HANDLE."""

    c_name: ClassVar[str] = "D3D12_CPU_DESCRIPTOR_HANDLE"
    _fields_ = [("ptr", c_size_t)]


class GpuDescriptorHandle(ctypes.Structure):
    """D3D12_GPU_DESCRIPTOR_HANDLE."""

    c_name: ClassVar[str] = "D3D12_GPU_DESCRIPTOR_HANDLE"
    _fields_ = [("ptr", c_uint64)]


class HeapProperties(ctypes.Structure):
    """D3D12_HEAP_PROPERTIES."""

    c_name: ClassVar[str] = "D3D12_HEAP_PROPERTIES"
    _fields_ = [
        ("Type", c_uint32),
        ("CPUPageProperty", c_uint32),
        ("MemoryPoolPreference", c_uint32),
        ("CreationNodeMask", c_uint32),
        ("VisibleNodeMask", c_uint32),
    ]


class ResourceDesc(ctypes.Structure):
    """D3D12_RESOURCE_DESC."""

    c_name: ClassVar[str] = "D3D12_RESOURCE_DESC"
    _fields_ = [
        ("Dimension", c_uint32),
        ("Alignment", c_uint64),
        ("Width", c_uint64),
        ("Height", c_uint32),
        ("DepthOrArraySize", c_uint16),
        ("MipLevels", c_uint16),
        ("Format", c_uint32),
        ("SampleDesc", SampleDesc),
        ("Layout", c_uint32),
        ("Flags", c_uint32),
    ]


class Range(ctypes.Structure):
    """D3D12_RANGE: bytes of a resource that are read or were written."""

    c_name: ClassVar[str] = "D3D12_RANGE"
    _fields_ = [("Begin", c_size_t), ("End", c_size_t)]


class TransitionBarrier(ctypes.Structure):
    """D3D12_RESOURCE_TRANSITION_BARRIER."""

    c_name: ClassVar[str] = "D3D12_RESOURCE_TRANSITION_BARRIER"
    _fields_ = [
        ("pResource", c_void_p),
        ("Subresource", c_uint32),
        ("StateBefore", c_uint32),
        ("StateAfter", c_uint32),
    ]


class UavBarrier(ctypes.Structure):
    """D3D12_RESOURCE_UAV_BARRIER."""

    c_name: ClassVar[str] = "D3D12_RESOURCE_UAV_BARRIER"
    _fields_ = [("pResource", c_void_p)]


class _BarrierUnion(ctypes.Union):
    _fields_ = [("Transition", TransitionBarrier), ("UAV", UavBarrier)]


class ResourceBarrier(ctypes.Structure):
    """D3D12_RESOURCE_BARRIER; its fields are those of the barrier that ``Type`` names."""

    c_name: ClassVar[str] = "D3D12_RESOURCE_BARRIER"
    _anonymous_ = ("barrier",)
    _fields_ = [("Type", c_uint32), ("Flags", c_uint32), ("barrier", _BarrierUnion)]


# ---------------------------------------------------------------- method tables
_U = c_uint32
_Q = c_uint64
_P = c_void_p

OBJECT: Final = Interface(
    "ID3D12Object",
    "c4fec28f-7966-4e95-9f94-f431cb56c3b8",
    UNKNOWN,
    Method("GetPrivateData", HRESULT, (_P, _P, _P)),
    Method("SetPrivateData", HRESULT, (_P, _U, _P)),
    Method("SetPrivateDataInterface", HRESULT, (_P, _P)),
    Method("SetName", HRESULT, (_P,)),
)
DEVICE_CHILD: Final = Interface(
    "ID3D12DeviceChild",
    "905db94b-a00c-4140-9df5-2b64ca9ea357",
    OBJECT,
    Method("GetDevice", HRESULT, (_P, _P)),
)
DEVICE: Final = Interface(
    "ID3D12Device",
    "189819f1-1db6-4b57-be54-1821339b85f7",
    OBJECT,
    Method("GetNodeCount", _U, ()),
    Method("CreateCommandQueue", HRESULT, (_P, _P, _P)),
    Method("CreateCommandAllocator", HRESULT, (_U, _P, _P)),
    Method("CreateGraphicsPipelineState"),
    Method("CreateComputePipelineState", HRESULT, (_P, _P, _P)),
    Method("CreateCommandList", HRESULT, (_U, _U, _P, _P, _P, _P)),
    Method("CheckFeatureSupport", HRESULT, (_U, _P, _U)),
    Method("CreateDescriptorHeap", HRESULT, (_P, _P, _P)),
    Method("GetDescriptorHandleIncrementSize", _U, (_U,)),
    Method("CreateRootSignature", HRESULT, (_U, _P, c_size_t, _P, _P)),
    Method("CreateConstantBufferView", None, (_P, CpuDescriptorHandle)),
    Method("CreateShaderResourceView", None, (_P, _P, CpuDescriptorHandle)),
    Method("CreateUnorderedAccessView", None, (_P, _P, _P, CpuDescriptorHandle)),
    Method("CreateRenderTargetView"),
    Method("CreateDepthStencilView"),
    Method("CreateSampler"),
    Method("CopyDescriptors", None, (_U, _P, _P, _U, _P, _P, _U)),
    Method("CopyDescriptorsSimple", None, (_U, CpuDescriptorHandle, CpuDescriptorHandle, _U)),
    Method("GetResourceAllocationInfo"),
    Method("GetCustomHeapProperties", HeapProperties, (_U, _U)),
    Method("CreateCommittedResource", HRESULT, (_P, _U, _P, _U, _P, _P, _P)),
    Method("CreateHeap", HRESULT, (_P, _P, _P)),
    Method("CreatePlacedResource", HRESULT, (_P, _Q, _P, _U, _P, _P, _P)),
    Method("CreateReservedResource"),
    Method("CreateSharedHandle"),
    Method("OpenSharedHandle"),
    Method("OpenSharedHandleByName"),
    Method("MakeResident", HRESULT, (_U, _P)),
    Method("Evict", HRESULT, (_U, _P)),
    Method("CreateFence", HRESULT, (_Q, _U, _P, _P)),
    Method("GetDeviceRemovedReason", HRESULT, ()),
    Method("GetCopyableFootprints"),
    Method("CreateQueryHeap"),
    Method("SetStablePowerState"),
    Method("CreateCommandSignature"),
    Method("GetResourceTiling"),
    Method("GetAdapterLuid", Luid, ()),
)
PAGEABLE: Final = Interface("ID3D12Pageable", "63ee58fb-1268-4835-86da-f008ce62f0d6", DEVICE_CHILD)
COMMAND_QUEUE: Final = Interface(
    "ID3D12CommandQueue",
    "0ec870a6-5d7e-4c22-8cfc-5baae07616ed",
    PAGEABLE,
    Method("UpdateTileMappings"),
    Method("CopyTileMappings"),
    Method("ExecuteCommandLists", None, (_U, _P)),
    Method("SetMarker", None, (_U, _P, _U)),
    Method("BeginEvent", None, (_U, _P, _U)),
    Method("EndEvent", None, ()),
    Method("Signal", HRESULT, (_P, _Q)),
    Method("Wait", HRESULT, (_P, _Q)),
    Method("GetTimestampFrequency", HRESULT, (_P,)),
    Method("GetClockCalibration", HRESULT, (_P, _P)),
    Method("GetDesc", CommandQueueDesc, ()),
)
COMMAND_ALLOCATOR: Final = Interface(
    "ID3D12CommandAllocator", "6102dee4-af59-4b09-b999-b44d73f09b24", PAGEABLE, Method("Reset", HRESULT, ())
)
FENCE: Final = Interface(
    "ID3D12Fence",
    "0a753dcf-c4d8-4b91-adf6-be5a60d95a76",
    PAGEABLE,
    Method("GetCompletedValue", _Q, ()),
    Method("SetEventOnCompletion", HRESULT, (_Q, _P)),
    Method("Signal", HRESULT, (_Q,)),
)
DESCRIPTOR_HEAP: Final = Interface(
    "ID3D12DescriptorHeap",
    "8efb471d-616c-4f49-90f7-127bb763fa51",
    PAGEABLE,
    Method("GetDesc", DescriptorHeapDesc, ()),
    Method("GetCPUDescriptorHandleForHeapStart", CpuDescriptorHandle, ()),
    Method("GetGPUDescriptorHandleForHeapStart", GpuDescriptorHandle, ()),
)
RESOURCE: Final = Interface(
    "ID3D12Resource",
    "696442be-a72e-4059-bc79-5b5c98040fad",
    PAGEABLE,
    Method("Map", HRESULT, (_U, _P, _P)),
    Method("Unmap", None, (_U, _P)),
    Method("GetDesc", ResourceDesc, ()),
    Method("GetGPUVirtualAddress", _Q, ()),
    Method("WriteToSubresource"),
    Method("ReadFromSubresource"),
    Method("GetHeapProperties", HRESULT, (_P, _P)),
)
COMMAND_LIST: Final = Interface(
    "ID3D12CommandList", "7116d91c-e7e4-47ce-b8c6-ec8168f437e5", DEVICE_CHILD, Method("GetType", _U, ())
)
GRAPHICS_COMMAND_LIST: Final = Interface(
    "ID3D12GraphicsCommandList",
    "5b160d0f-ac1b-4185-8ba8-b3ae42a5a455",
    COMMAND_LIST,
    Method("Close", HRESULT, ()),
    Method("Reset", HRESULT, (_P, _P)),
    Method("ClearState", None, (_P,)),
    Method("DrawInstanced"),
    Method("DrawIndexedInstanced"),
    Method("Dispatch", None, (_U, _U, _U)),
    Method("CopyBufferRegion", None, (_P, _Q, _P, _Q, _Q)),
    Method("CopyTextureRegion"),
    Method("CopyResource", None, (_P, _P)),
    Method("CopyTiles"),
    Method("ResolveSubresource"),
    Method("IASetPrimitiveTopology"),
    Method("RSSetViewports"),
    Method("RSSetScissorRects"),
    Method("OMSetBlendFactor"),
    Method("OMSetStencilRef"),
    Method("SetPipelineState", None, (_P,)),
    Method("ResourceBarrier", None, (_U, _P)),
    Method("ExecuteBundle"),
    Method("SetDescriptorHeaps", None, (_U, _P)),
    Method("SetComputeRootSignature", None, (_P,)),
    Method("SetGraphicsRootSignature"),
    Method("SetComputeRootDescriptorTable", None, (_U, GpuDescriptorHandle)),
    Method("SetGraphicsRootDescriptorTable"),
    Method("SetComputeRoot32BitConstant", None, (_U, _U, _U)),
    Method("SetGraphicsRoot32BitConstant"),
    Method("SetComputeRoot32BitConstants", None, (_U, _U, _P, _U)),
    Method("SetGraphicsRoot32BitConstants"),
    Method("SetComputeRootConstantBufferView", None, (_U, _Q)),
    Method("SetGraphicsRootConstantBufferView"),
    Method("SetComputeRootShaderResourceView", None, (_U, _Q)),
    Method("SetGraphicsRootShaderResourceView"),
    Method("SetComputeRootUnorderedAccessView", None, (_U, _Q)),
    Method("SetGraphicsRootUnorderedAccessView"),
    Method("IASetIndexBuffer"),
    Method("IASetVertexBuffers"),
    Method("SOSetTargets"),
    Method("OMSetRenderTargets"),
    Method("ClearDepthStencilView"),
    Method("ClearRenderTargetView"),
    Method("ClearUnorderedAccessViewUint", None, (GpuDescriptorHandle, CpuDescriptorHandle, _P, _P, _U, _P)),
    Method("ClearUnorderedAccessViewFloat", None, (GpuDescriptorHandle, CpuDescriptorHandle, _P, _P, _U, _P)),
    Method("DiscardResource"),
    Method("BeginQuery"),
    Method("EndQuery"),
    Method("ResolveQueryData"),
    Method("SetPredication"),
    Method("SetMarker", None, (_U, _P, _U)),
    Method("BeginEvent", None, (_U, _P, _U)),
    Method("EndEvent", None, ()),
    Method("ExecuteIndirect"),
)
