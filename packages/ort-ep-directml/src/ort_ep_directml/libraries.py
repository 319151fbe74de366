"""Libraries: the four functions that everything begins with, wherever they come from. Opens nothing itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ort_ep_directml.abi import d3d12, dml, dxcore, dxgi
from ort_ep_directml.abi.com import ComObject, Interface, build_by_function

if TYPE_CHECKING:
    from ort_ep_directml.device_holder import DeviceHolder

Function = Callable[..., int]
"""Takes what the C function takes, and returns its HRESULT, signed."""


@dataclass(frozen=True, slots=True)
class Libraries:
    """Exported functions, and what their process holds by them.

    Attributes:
        dml_create_device: ``DMLCreateDevice1``.
        d3d12_create_device: ``D3D12CreateDevice``.
        dxcore_create_factory: ``DXCoreCreateAdapterFactory``; ``None`` before Windows 10, version 2004.
        dxgi_create_factory: ``CreateDXGIFactory1``; ``None`` where there is no DXGI.
        origin: the file that DirectML was loaded from, for messages.
        holders: of devices, by adapter: Direct3D gives a process one device for each. They live as long as sessions do.
        lock: for the holders.
    """

    dml_create_device: Function
    d3d12_create_device: Function
    dxcore_create_factory: Function | None
    dxgi_create_factory: Function | None
    origin: str
    holders: WeakValueDictionary[int, DeviceHolder] = field(default_factory=WeakValueDictionary, repr=False)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def create_dml_device(self, device: ComObject, minimum_level: int) -> ComObject:
        """Return an ``IDMLDevice1`` on a Direct3D device.

        Raises:
            HResultError: there is none, or none of that feature level.
        """
        name = f"DMLCreateDevice1 of {self.origin}"
        flags = dml.CREATE_DEVICE_FLAG_NONE
        return build_by_function(self.dml_create_device, name, dml.DEVICE1, device.address, flags, minimum_level)

    def create_d3d12_device(self, adapter: ComObject, feature_level: int) -> ComObject:
        """Return an ``ID3D12Device`` on an adapter.

        Raises:
            HResultError: there is none.
        """
        function = self.d3d12_create_device
        return build_by_function(function, "D3D12CreateDevice", d3d12.DEVICE, adapter.address, feature_level)

    def dxcore_factory(self) -> ComObject | None:
        """Return an ``IDXCoreAdapterFactory``, or ``None`` where there is no DXCore.

        Raises:
            HResultError: it could not be made.
        """
        return _factory(self.dxcore_create_factory, "DXCoreCreateAdapterFactory", dxcore.ADAPTER_FACTORY)

    def dxgi_factory(self) -> ComObject | None:
        """Return an ``IDXGIFactory1``, or ``None`` where there is no DXGI.

        Raises:
            HResultError: it could not be made.
        """
        return _factory(self.dxgi_create_factory, "CreateDXGIFactory1", dxgi.FACTORY1)


def _factory(function: Function | None, name: str, interface: Interface) -> ComObject | None:
    return None if function is None else build_by_function(function, name, interface)
