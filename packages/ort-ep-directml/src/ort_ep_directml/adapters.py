"""Adapters: the GPUs and NPUs of a machine, in the order of a preference, and which one a session gets.

``device_id`` counts as DXGI does, like onnxruntime; preferences and NPUs are DXCore's. Where one of the two is missing
the other counts. Adapters that are software are left out everywhere but in the count of DXGI.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ort_core.plugin import EPFail, InvalidArgument
from ort_ep_directml.abi import d3d12, dxcore, dxgi
from ort_ep_directml.abi.com import POINTER, ComObject, Guid
from ort_ep_directml.abi.hresults import HResultError
from ort_ep_directml.libraries import Libraries
from ort_ep_directml.options import FIRST, DmlOptions, PerformancePreference

Kind = Literal["gpu", "npu"]
_NOT_FOUND = 0x887A0002  # DXGI_ERROR_NOT_FOUND: behind the last adapter
_MOST_ADAPTERS = 64
_PREFERENCES: dict[PerformancePreference, tuple[int, ...]] = {
    "default": (dxcore.PREFERENCE_HARDWARE,),
    "high_performance": (dxcore.PREFERENCE_HARDWARE, dxcore.PREFERENCE_HIGH_PERFORMANCE),
    "minimum_power": (dxcore.PREFERENCE_HARDWARE, dxcore.PREFERENCE_MINIMUM_POWER),
}


@dataclass(frozen=True, slots=True)
class Adapter:
    """One adapter.

    Attributes:
        handle: an ``IDXGIAdapter1`` or ``IDXCoreAdapter``.
        description: what its driver calls it.
        kind: whether it draws, too (``gpu``), or only computes (``npu``).
        is_hardware: whether it is more than software.
        luid: what Windows knows it by until it is restarted or the driver is.
        feature_level: the least of Direct3D's levels that a device on it is asked for.
    """

    handle: ComObject
    description: str
    kind: Kind
    is_hardware: bool
    luid: int
    feature_level: int

    def text(self) -> str:
        """Return it for messages."""
        return f"{self.description} ({self.kind})" if self.is_hardware else f"{self.description} (software)"


def choose_adapter(libraries: Libraries, options: DmlOptions) -> Adapter:
    """Return the adapter that the options name or prefer.

    Raises:
        InvalidArgument: there is none of that number, or none passes the filter; all are listed.
        HResultError: the system could not list them.
    """
    if options.device_id != FIRST:
        return _numbered(list_by_number(libraries), options.device_id)
    if options.performance_preference == "default" and options.device_filter == "gpu":
        found = list_by_number(libraries)
    else:
        found = list_by_preference(libraries, options.performance_preference)
    wanted = [each for each in found if each.is_hardware and options.device_filter in (each.kind, "any")]
    if not wanted:
        raise InvalidArgument(
            f"no adapter passes device_filter {options.device_filter!r}; this machine has: {_listed(found)}"
        )
    return wanted[0]


def list_by_number(libraries: Libraries) -> list[Adapter]:
    """Return the adapters as ``device_id`` counts them.

    Raises:
        HResultError: the system could not list them.
    """
    factory = libraries.dxgi_factory()
    return list_by_preference(libraries, "default") if factory is None else _dxgi_adapters(factory)


def list_by_preference(libraries: Libraries, preference: PerformancePreference) -> list[Adapter]:
    """Return the adapters that compute, preferred ones first.

    Raises:
        HResultError: the system could not list them.
        EPFail: this Windows has no DXCore.
    """
    factory = libraries.dxcore_factory()
    if factory is None:
        raise EPFail("preferences and NPUs need DXCore: Windows 10, version 2004 or newer; use device_id instead")
    adapters = _adapter_list(factory, dxcore.ATTRIBUTE_D3D12_GENERIC_ML)
    if not adapters.call("GetAdapterCount"):  # this Windows does not know the attribute
        adapters = _adapter_list(factory, dxcore.ATTRIBUTE_D3D12_CORE_COMPUTE)
    wanted = [each for each in _PREFERENCES[preference] if adapters.call("IsAdapterPreferenceSupported", each)]
    if wanted:
        adapters.call("Sort", len(wanted), ctypes.byref((ctypes.c_uint32 * len(wanted))(*wanted)))
    count = adapters.call("GetAdapterCount")
    return [_of_dxcore(adapters.build("GetAdapter", dxcore.ADAPTER, index)) for index in range(count)]


def _numbered(found: Sequence[Adapter], number: int) -> Adapter:
    if number >= len(found):
        raise InvalidArgument(f"there is no adapter with device_id {number}; this machine has: {_listed(found)}")
    if not found[number].is_hardware:
        raise InvalidArgument(f"the adapter with device_id {number} is software; this machine has: {_listed(found)}")
    return found[number]


def _listed(found: Sequence[Adapter]) -> str:
    return ", ".join(f"{number}: {each.text()}" for number, each in enumerate(found)) or "none"


def _dxgi_adapters(factory: ComObject) -> list[Adapter]:
    found: list[Adapter] = []
    for index in range(_MOST_ADAPTERS):
        pointer = POINTER()
        try:
            factory.call("EnumAdapters1", index, ctypes.byref(pointer))
        except HResultError as error:
            if error.code == _NOT_FOUND:
                break
            raise
        if not pointer.value:
            break
        handle = ComObject(pointer.value, dxgi.ADAPTER1)
        desc = dxgi.AdapterDesc1()
        handle.call("GetDesc1", ctypes.byref(desc))
        name = bytes(desc.Description).decode("utf-16-le").partition("\0")[0]
        is_hardware = not desc.Flags & dxgi.ADAPTER_FLAG_SOFTWARE
        found.append(Adapter(handle, name, "gpu", is_hardware, _number(desc.AdapterLuid), d3d12.FEATURE_LEVEL_11_0))
    return found


def _adapter_list(factory: ComObject, attribute: Guid) -> ComObject:
    return factory.build("CreateAdapterList", dxcore.ADAPTER_LIST, 1, ctypes.byref(attribute))


def _of_dxcore(handle: ComObject) -> Adapter:
    draws = handle.call("IsAttributeSupported", ctypes.byref(dxcore.ATTRIBUTE_D3D12_GRAPHICS))
    computes = handle.call("IsAttributeSupported", ctypes.byref(dxcore.ATTRIBUTE_D3D12_CORE_COMPUTE))
    is_hardware, luid = ctypes.c_bool(), d3d12.Luid()
    handle.call("GetProperty", dxcore.PROPERTY_IS_HARDWARE, ctypes.sizeof(is_hardware), ctypes.byref(is_hardware))
    handle.call("GetProperty", dxcore.PROPERTY_INSTANCE_LUID, ctypes.sizeof(luid), ctypes.byref(luid))
    level = d3d12.FEATURE_LEVEL_1_0_CORE if computes else d3d12.FEATURE_LEVEL_1_0_GENERIC
    return Adapter(
        handle,
        _described(handle),
        "gpu" if draws else "npu",
        bool(is_hardware),
        _number(luid),
        d3d12.FEATURE_LEVEL_11_0 if draws else level,
    )


def _number(luid: d3d12.Luid) -> int:
    return int.from_bytes(bytes(luid), "little")


def _described(handle: ComObject) -> str:
    size = ctypes.c_size_t()
    handle.call("GetPropertySize", dxcore.PROPERTY_DRIVER_DESCRIPTION, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value + 1)
    handle.call("GetProperty", dxcore.PROPERTY_DRIVER_DESCRIPTION, size.value, ctypes.byref(text))
    return text.value.decode("utf-8", "replace")
