"""DXCore: enumeration of adapters, GPUs and NPUs alike; on Windows 10 from version 2004."""

from __future__ import annotations

from ctypes import c_bool, c_size_t, c_uint32, c_void_p
from typing import Final

from ort_ep_directml.abi.com import HRESULT, UNKNOWN, Guid, Interface, Method

PROPERTY_INSTANCE_LUID: Final = 0
PROPERTY_DRIVER_VERSION: Final = 1
PROPERTY_DRIVER_DESCRIPTION: Final = 2
PROPERTY_HARDWARE_ID: Final = 3
PROPERTY_DEDICATED_ADAPTER_MEMORY: Final = 7
PROPERTY_SHARED_SYSTEM_MEMORY: Final = 9
PROPERTY_IS_HARDWARE: Final = 11
PROPERTY_IS_INTEGRATED: Final = 12
PREFERENCE_HARDWARE: Final = 0
PREFERENCE_MINIMUM_POWER: Final = 1
PREFERENCE_HIGH_PERFORMANCE: Final = 2
ATTRIBUTE_D3D12_GRAPHICS: Final = Guid.parse("0c9ece4d-2f6e-4f01-8c96-e89e331b47b1")
ATTRIBUTE_D3D12_CORE_COMPUTE: Final = Guid.parse("248e2800-a793-4724-abaa-23a6de1be090")
ATTRIBUTE_D3D12_GENERIC_ML: Final = Guid.parse("b71b0d41-1088-422f-a27c-0250b7d3a988")  # known to newer Windows 11

_U = c_uint32
_P = c_void_p

ADAPTER: Final = Interface(
    "IDXCoreAdapter",
    "f0db4c7f-fe5a-42a2-bd62-f2a6cf6fc83e",
    UNKNOWN,
    Method("IsValid", c_bool, ()),
    Method("IsAttributeSupported", c_bool, (_P,)),
    Method("IsPropertySupported", c_bool, (_U,)),
    Method("GetProperty", HRESULT, (_U, c_size_t, _P)),
    Method("GetPropertySize", HRESULT, (_U, _P)),
    Method("IsQueryStateSupported", c_bool, (_U,)),
    Method("QueryState", HRESULT, (_U, c_size_t, _P, c_size_t, _P)),
    Method("IsSetStateSupported", c_bool, (_U,)),
    Method("SetState", HRESULT, (_U, c_size_t, _P, c_size_t, _P)),
    Method("GetFactory", HRESULT, (_P, _P)),
)
ADAPTER_LIST: Final = Interface(
    "IDXCoreAdapterList",
    "526c7776-40e9-459b-b711-f32ad76dfc28",
    UNKNOWN,
    Method("GetAdapter", HRESULT, (_U, _P, _P)),
    Method("GetAdapterCount", _U, ()),
    Method("IsStale", c_bool, ()),
    Method("GetFactory", HRESULT, (_P, _P)),
    Method("Sort", HRESULT, (_U, _P)),
    Method("IsAdapterPreferenceSupported", c_bool, (_U,)),
)
ADAPTER_FACTORY: Final = Interface(
    "IDXCoreAdapterFactory",
    "78ee5945-c36e-4b13-a669-005dd11c0f06",
    UNKNOWN,
    Method("CreateAdapterList", HRESULT, (_U, _P, _P, _P)),
    Method("GetAdapterByLuid", HRESULT, (_P, _P, _P)),
    Method("IsNotificationTypeSupported", c_bool, (_U,)),
    Method("RegisterEventNotification"),
    Method("UnregisterEventNotification", HRESULT, (_U,)),
)
