"""CopyCosts: what bringing bytes to a device and back costs, measured once for each device through its DeviceApi."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np

from ort_core.errors import OrtError
from ort_core.tensors.device import CPU, Device, DeviceDirectory, find_device

log = logging.getLogger(__name__)
_SIZES = (1 << 10, 1 << 24)  # latency shows at the first, bandwidth at the second
_RUNS = 5


class CopyCosts:
    """Costs by device kind; nothing for host memory. Not for several threads at once.

    Args:
        devices: where DeviceApis are found.
        clock: nanoseconds.
    """

    def __init__(self, devices: DeviceDirectory, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._devices, self._clock = devices, clock
        self._lines: dict[str, tuple[float, float]] = {}

    def cost_ns(self, nbytes: int, device_text: str) -> float:
        """Return the time of one copy of that many bytes between the host and a device."""
        if device_text not in self._lines:
            self._lines[device_text] = self._measure(find_device(device_text))
        latency, per_byte = self._lines[device_text]
        return latency + per_byte * nbytes

    def _measure(self, device: Device) -> tuple[float, float]:
        """Return the latency in nanoseconds and the nanoseconds per byte of a device."""
        if device == CPU:
            return 0.0, 0.0
        try:
            small, large = (self._time_copy(device, nbytes) for nbytes in _SIZES)
        except OrtError as error:  # without a DeviceApi a provider's own copies stay in the times of its regions
            log.info("copies to %s cannot be measured: %s", device, error)
            return 0.0, 0.0
        per_byte = max(0.0, (large - small) / (_SIZES[1] - _SIZES[0]))
        return max(0.0, small - per_byte * _SIZES[0]), per_byte

    def _time_copy(self, device: Device, nbytes: int) -> float:
        api = self._devices.get(device)
        source, back = np.ones(nbytes, np.uint8), np.empty(nbytes, np.uint8)
        target = api.allocate(nbytes)
        best = float("inf")
        for _ in range(_RUNS):
            start = self._clock()
            api.copy_from_host(source, target)
            api.copy_to_host(target, back)
            best = min(best, (self._clock() - start) / 2)
        return best
