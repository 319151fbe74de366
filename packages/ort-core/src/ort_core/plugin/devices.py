"""Devices for plugin authors (provisional): what a DeviceApi from the hook ``ort_devices`` offers."""

from __future__ import annotations

from ort_core.tensors.device import Device, DeviceApi, DeviceBuffer, DeviceDirectory, Event, OrtDevice, Stream
from ort_core.tensors.device_array import DeviceArray

__all__ = ["Device", "DeviceApi", "DeviceArray", "DeviceBuffer", "DeviceDirectory", "Event", "OrtDevice", "Stream"]
