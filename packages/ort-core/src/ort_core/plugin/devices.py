"""Devices for plugin authors (provisional): what a DeviceApi from the hook ``ort_devices`` offers."""

from __future__ import annotations

from ort_core.tensors.device import Device, DeviceApi, DeviceBuffer, DeviceDirectory, Event, OrtDevice, Stream

__all__ = ["Device", "DeviceApi", "DeviceBuffer", "DeviceDirectory", "Event", "OrtDevice", "Stream"]
