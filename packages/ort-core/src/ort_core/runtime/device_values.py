"""Values of a run that lie on a device: which of them its partitions take and fill where they lie.

A feed on a device stays there when every reader of it runs on that device; otherwise it is copied to the host once,
before the run. An output that the caller wants on a device is handed to the partition that computes it, as a buffer to
fill, when that one runs there and knows its shape; so is what only other partitions of its device read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from ort_core.errors import InvalidValue
from ort_core.tensors.device import Device, directory_in_use
from ort_core.tensors.device_array import DeviceArray, new_device_array

if TYPE_CHECKING:
    from ort_core.ir.types import DataType
    from ort_core.providers.compiled import CompiledPartition, OutputPlan
    from ort_core.tensors.runtime_value import RuntimeValue

log = logging.getLogger(__name__)

DeviceTarget = DeviceArray | Device
"""Where a caller wants an output: in this memory, or in new memory of this device."""


def slots_kept_on_devices(
    steps: Iterable[tuple[tuple[int, ...], CompiledPartition | None]], outputs: Iterable[int]
) -> dict[int, Device]:
    """Return for each slot the device on which all of its readers take it.

    Args:
        steps: of each step the slots that it reads, and its partition (``None``: it runs on the host).
        outputs: slots that the run returns.
    """
    found: dict[int, Device | None] = dict.fromkeys(outputs)
    for reads, compiled in steps:
        for index, slot in enumerate(reads):
            device = compiled.device if compiled is not None and index not in compiled.value_inputs else None
            found[slot] = device if found.setdefault(slot, device) == device else None
    return {slot: device for slot, device in found.items() if device is not None}


def slots_between(
    steps: Iterable[tuple[tuple[int, ...], CompiledPartition | None]], kept: Mapping[int, Device]
) -> dict[int, Device]:
    """Return the slots that a partition writes and only partitions of its own device read, each with the device.

    Args:
        steps: of each step the slots that it writes, and its partition (``None``: it runs on the host).
        kept: for slots the device on which all of their readers take them.
    """
    found = {
        slot: compiled.device
        for writes, compiled in steps
        if compiled is not None and compiled.device is not None
        for slot in writes
        if kept.get(slot) == compiled.device
    }
    offered = {device for device in set(found.values()) if _is_offered(device)}
    return {slot: device for slot, device in found.items() if device in offered}


def _is_offered(device: Device) -> bool:
    """Return whether memory of a device can be had; a provider may know its device without a plugin that offers it."""
    try:
        directory_in_use().get(device)
    except InvalidValue as error:
        log.info("values between partitions on %s go through the host: %s", device, error)
        return False
    return True


def kept_or_copied(value: DeviceArray, device: Device | None) -> RuntimeValue:
    """Return an array where it lies if its readers take it there, else a copy on the host."""
    if device is not None and device == value.buffer.device:
        return cast("RuntimeValue", value)  # only partitions that say so are given it
    return value.to_host()


def buffers_to_fill(
    targets: Sequence[DeviceTarget | None], plans: Sequence[OutputPlan], device: Device | None
) -> list[RuntimeValue]:
    """Return what a partition is handed for its outputs: memory of its own device that fits, ``None`` elsewhere."""
    return [
        _buffer(target, plan.shape, plan.dtype, device) if target is not None else None
        for target, plan in zip(targets, plans, strict=True)
    ]


def _buffer(
    target: DeviceTarget, shape: tuple[int, ...] | None, dtype: DataType | None, device: Device | None
) -> RuntimeValue:
    place = target if isinstance(target, Device) else target.buffer.device
    if device != place or shape is None or dtype is None:
        return None
    if isinstance(target, Device):
        return cast("RuntimeValue", new_device_array(target, dtype.numpy, shape))
    fits = target.shape == shape and target.dtype == dtype.numpy
    return cast("RuntimeValue", target) if fits else None


def shape_of(value: RuntimeValue | DeviceArray) -> tuple[int, ...] | None:
    """Return the shape of a dense tensor, ``None`` of anything else."""
    return value.shape if isinstance(value, (np.ndarray, DeviceArray)) else None


NO_TARGETS: Mapping[str, DeviceTarget] = {}
