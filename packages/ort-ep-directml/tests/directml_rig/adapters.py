"""DXCore with one adapter: what asks which GPU the device is."""

from __future__ import annotations

import ctypes

from directml_rig.device import LUID
from directml_rig.served import INVALID_ARGUMENT, OK, Served, give, implements
from ort_ep_directml.abi import dxcore

DESCRIPTION = b"The rig's adapter\0"
_DRIVER_VERSION = 0x001F_0000_0000_0001
_MEMORY = 8 << 30
_PROPERTIES = {
    dxcore.PROPERTY_INSTANCE_LUID: LUID.to_bytes(8, "little"),
    dxcore.PROPERTY_DRIVER_VERSION: _DRIVER_VERSION.to_bytes(8, "little"),
    dxcore.PROPERTY_DRIVER_DESCRIPTION: DESCRIPTION,
    dxcore.PROPERTY_HARDWARE_ID: bytes(16),
    dxcore.PROPERTY_DEDICATED_ADAPTER_MEMORY: _MEMORY.to_bytes(8, "little"),
    dxcore.PROPERTY_SHARED_SYSTEM_MEMORY: _MEMORY.to_bytes(8, "little"),
    dxcore.PROPERTY_IS_HARDWARE: b"\1",
    dxcore.PROPERTY_IS_INTEGRATED: b"\0",
}


class Adapter(Served):
    """The adapter of the rig's device."""

    interface = dxcore.ADAPTER
    answers = (dxcore.ADAPTER,)

    @implements("IsValid")
    def is_valid(self) -> bool:
        return True

    @implements("IsAttributeSupported")
    def is_attribute_supported(self, attribute: int) -> bool:
        return True

    @implements("IsPropertySupported")
    def is_property_supported(self, of: int) -> bool:
        return of in _PROPERTIES

    @implements("GetPropertySize")
    def get_property_size(self, of: int, result: int) -> int:
        if of not in _PROPERTIES:
            return INVALID_ARGUMENT
        ctypes.c_size_t.from_address(result).value = len(_PROPERTIES[of])
        return OK

    @implements("GetProperty")
    def get_property(self, of: int, size: int, result: int) -> int:
        found = _PROPERTIES.get(of)
        if found is None or size < len(found):
            return INVALID_ARGUMENT
        ctypes.memmove(result, found, len(found))
        return OK


class AdapterList(Served):
    """The one adapter."""

    interface = dxcore.ADAPTER_LIST
    answers = (dxcore.ADAPTER_LIST,)

    @implements("GetAdapterCount")
    def get_adapter_count(self) -> int:
        return 1

    @implements("GetAdapter")
    def get_adapter(self, index: int, iid: int, result: int) -> int:
        return INVALID_ARGUMENT if index else give(Adapter(self.ledger), result)

    @implements("IsStale")
    def is_stale(self) -> bool:
        return False

    @implements("Sort")
    def sort(self, count: int, preferences: int) -> int:
        return OK

    @implements("IsAdapterPreferenceSupported")
    def is_adapter_preference_supported(self, preference: int) -> bool:
        return True


class AdapterFactory(Served):
    """What DXCore begins with."""

    interface = dxcore.ADAPTER_FACTORY
    answers = (dxcore.ADAPTER_FACTORY,)

    @implements("CreateAdapterList")
    def create_adapter_list(self, count: int, attributes: int, iid: int, result: int) -> int:
        return give(AdapterList(self.ledger), result)

    @implements("GetAdapterByLuid")
    def get_adapter_by_luid(self, luid: int, iid: int, result: int) -> int:
        if ctypes.c_uint64.from_address(luid).value != LUID:
            return INVALID_ARGUMENT
        return give(Adapter(self.ledger), result)

    @implements("IsNotificationTypeSupported")
    def is_notification_type_supported(self, kind: int) -> bool:
        return False
