"""DXGI: enumeration of GPUs on every Windows, in the order of ``device_id``."""

from __future__ import annotations

import ctypes
from ctypes import c_size_t, c_uint16, c_uint32, c_void_p
from typing import ClassVar, Final

from ort_ep_directml.abi.com import HRESULT, UNKNOWN, Interface, Method
from ort_ep_directml.abi.d3d12 import Luid

ADAPTER_FLAG_SOFTWARE: Final = 2
DESCRIPTION_LENGTH: Final = 128  # UTF-16 units, a null among them


class AdapterDesc1(ctypes.Structure):
    """DXGI_ADAPTER_DESC1. ``Description`` is UTF-16 on every system."""

    c_name: ClassVar[str] = "DXGI_ADAPTER_DESC1"
    _fields_ = [
        ("Description", c_uint16 * DESCRIPTION_LENGTH),
        ("VendorId", c_uint32),
        ("DeviceId", c_uint32),
        ("SubSysId", c_uint32),
        ("Revision", c_uint32),
        ("DedicatedVideoMemory", c_size_t),
        ("DedicatedSystemMemory", c_size_t),
        ("SharedSystemMemory", c_size_t),
        ("AdapterLuid", Luid),
        ("Flags", c_uint32),
    ]


_U = c_uint32
_P = c_void_p

OBJECT: Final = Interface(
    "IDXGIObject",
    "aec22fb8-76f3-4639-9be0-28eb43a67a2e",
    UNKNOWN,
    Method("SetPrivateData", HRESULT, (_P, _U, _P)),
    Method("SetPrivateDataInterface", HRESULT, (_P, _P)),
    Method("GetPrivateData", HRESULT, (_P, _P, _P)),
    Method("GetParent", HRESULT, (_P, _P)),
)
ADAPTER: Final = Interface(
    "IDXGIAdapter",
    "2411e7e1-12ac-4ccf-bd14-9798e8534dc0",
    OBJECT,
    Method("EnumOutputs", HRESULT, (_U, _P)),
    Method("GetDesc", HRESULT, (_P,)),
    Method("CheckInterfaceSupport", HRESULT, (_P, _P)),
)
ADAPTER1: Final = Interface(
    "IDXGIAdapter1", "29038f61-3839-4626-91fd-086879011a05", ADAPTER, Method("GetDesc1", HRESULT, (_P,))
)
FACTORY: Final = Interface(
    "IDXGIFactory",
    "7b7166ec-21c7-44ae-b21a-c9ae321ae369",
    OBJECT,
    Method("EnumAdapters", HRESULT, (_U, _P)),
    Method("MakeWindowAssociation"),
    Method("GetWindowAssociation"),
    Method("CreateSwapChain"),
    Method("CreateSoftwareAdapter"),
)
FACTORY1: Final = Interface(
    "IDXGIFactory1",
    "770aae78-f26f-4dba-a829-253c83d1b387",
    FACTORY,
    Method("EnumAdapters1", HRESULT, (_U, _P)),
    Method("IsCurrent", c_uint32, ()),
)
