"""Structs of Direct3D 12 that only the one who implements it reads: views, root signatures, pipelines."""

from __future__ import annotations

import ctypes
from ctypes import c_size_t, c_uint32, c_uint64, c_void_p


class BufferUav(ctypes.Structure):
    """D3D12_BUFFER_UAV."""

    _fields_ = [
        ("FirstElement", c_uint64),
        ("NumElements", c_uint32),
        ("StructureByteStride", c_uint32),
        ("CounterOffsetInBytes", c_uint64),
        ("Flags", c_uint32),
    ]


class UavDesc(ctypes.Structure):
    """D3D12_UNORDERED_ACCESS_VIEW_DESC of a buffer."""

    _fields_ = [("Format", c_uint32), ("ViewDimension", c_uint32), ("Buffer", BufferUav)]


class BufferSrv(ctypes.Structure):
    """D3D12_BUFFER_SRV."""

    _fields_ = [
        ("FirstElement", c_uint64),
        ("NumElements", c_uint32),
        ("StructureByteStride", c_uint32),
        ("Flags", c_uint32),
    ]


class SrvDesc(ctypes.Structure):
    """D3D12_SHADER_RESOURCE_VIEW_DESC of a buffer."""

    _fields_ = [
        ("Format", c_uint32),
        ("ViewDimension", c_uint32),
        ("Shader4ComponentMapping", c_uint32),
        ("Buffer", BufferSrv),
    ]


class CbvDesc(ctypes.Structure):
    """D3D12_CONSTANT_BUFFER_VIEW_DESC."""

    _fields_ = [("BufferLocation", c_uint64), ("SizeInBytes", c_uint32)]


class ShaderBytecode(ctypes.Structure):
    """D3D12_SHADER_BYTECODE."""

    _fields_ = [("pShaderBytecode", c_void_p), ("BytecodeLength", c_size_t)]


class ComputePipelineStateDesc(ctypes.Structure):
    """D3D12_COMPUTE_PIPELINE_STATE_DESC, as far as it is read."""

    _fields_ = [("pRootSignature", c_void_p), ("CS", ShaderBytecode)]


class DescriptorRange(ctypes.Structure):
    """D3D12_DESCRIPTOR_RANGE."""

    _fields_ = [
        ("RangeType", c_uint32),
        ("NumDescriptors", c_uint32),
        ("BaseShaderRegister", c_uint32),
        ("RegisterSpace", c_uint32),
        ("OffsetInDescriptorsFromTableStart", c_uint32),
    ]


class DescriptorRange1(ctypes.Structure):
    """D3D12_DESCRIPTOR_RANGE1: with flags."""

    _fields_ = [
        ("RangeType", c_uint32),
        ("NumDescriptors", c_uint32),
        ("BaseShaderRegister", c_uint32),
        ("RegisterSpace", c_uint32),
        ("Flags", c_uint32),
        ("OffsetInDescriptorsFromTableStart", c_uint32),
    ]


class DescriptorTable(ctypes.Structure):
    """D3D12_ROOT_DESCRIPTOR_TABLE of either version."""

    _fields_ = [("NumDescriptorRanges", c_uint32), ("pDescriptorRanges", c_void_p)]


class RootConstants(ctypes.Structure):
    """D3D12_ROOT_CONSTANTS."""

    _fields_ = [("ShaderRegister", c_uint32), ("RegisterSpace", c_uint32), ("Num32BitValues", c_uint32)]


class _RootUnion(ctypes.Union):
    _fields_ = [("DescriptorTable", DescriptorTable), ("Constants", RootConstants)]


class RootParameter(ctypes.Structure):
    """D3D12_ROOT_PARAMETER of either version; a root descriptor begins as constants do: register, then space."""

    _anonymous_ = ("of",)
    _fields_ = [("ParameterType", c_uint32), ("of", _RootUnion), ("ShaderVisibility", c_uint32)]


class RootSignatureDesc(ctypes.Structure):
    """D3D12_ROOT_SIGNATURE_DESC of either version."""

    _fields_ = [
        ("NumParameters", c_uint32),
        ("pParameters", c_void_p),
        ("NumStaticSamplers", c_uint32),
        ("pStaticSamplers", c_void_p),
        ("Flags", c_uint32),
    ]


class VersionedRootSignatureDesc(ctypes.Structure):
    """D3D12_VERSIONED_ROOT_SIGNATURE_DESC."""

    _anonymous_ = ("Desc",)
    _fields_ = [("Version", c_uint32), ("Desc", RootSignatureDesc)]
