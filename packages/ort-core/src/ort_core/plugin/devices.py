"""Devices for plugin authors (provisional): what a DeviceApi from the hook ``ort_devices`` offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from ort_core.tensors.device import (
        AdoptingApi,
        CapturingStream,
        CurrentApi,
        Device,
        DeviceApi,
        DeviceBuffer,
        DeviceDirectory,
        Event,
        OrtDevice,
        StagingApi,
        Stream,
        current,
        staging,
    )
    from ort_core.tensors.device_array import DeviceArray

__all__ = [
    "AdoptingApi", "CapturingStream", "CurrentApi", "Device", "DeviceApi", "DeviceArray", "DeviceBuffer",
    "DeviceDirectory", "Event", "OrtDevice", "StagingApi", "Stream", "current", "staging",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(  # no plugin pays for names that it does not use
    __name__,
    {
        "ort_core.tensors.device": (
            "AdoptingApi", "CapturingStream", "CurrentApi", "Device", "DeviceApi", "DeviceBuffer", "DeviceDirectory",
            "Event", "OrtDevice", "StagingApi", "Stream", "current", "staging",
        ),
        "ort_core.tensors.device_array": ("DeviceArray",),
    },
)  # fmt: skip
