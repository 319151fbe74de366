"""Devices as the API lists them: each available provider with the hardware it runs on, and what was assigned to it."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ort_core.tensors.device import (
    CpuStream,
    Device,
    OrtDevice,
    Stream,
    directory_in_use,
    find_device,
)
from ort_core.tensors.memory_facts import OrtDeviceMemoryType, OrtHardwareDeviceType, OrtMemoryInfo

if TYPE_CHECKING:
    from ort_core.environment import Environment
    from ort_core.partitioning.report import PlacementReport

_HARDWARE = {0: OrtHardwareDeviceType.CPU, 1: OrtHardwareDeviceType.GPU, 3: OrtHardwareDeviceType.NPU}


@dataclass(frozen=True)
class OrtHardwareDevice:
    """A piece of hardware."""

    type: OrtHardwareDeviceType
    vendor: str = ""
    vendor_id: int = 0
    device_id: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)


class OrtSyncStream:
    """A queue of work on a device."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def get_handle(self) -> int:
        """Return the vendor's handle as an integer, 0 where there is none."""
        return self.stream.native_handle


@dataclass(frozen=True)
class OrtEpDevice:
    """A provider on a piece of hardware."""

    ep_name: str
    ep_vendor: str
    device: OrtHardwareDevice
    ep_metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    ep_options: Mapping[str, str] = field(default_factory=dict, hash=False)
    place: Device = field(default_factory=Device)

    def memory_info(self, memory_type: OrtDeviceMemoryType, /) -> OrtMemoryInfo:
        """Return the facts of this device's memory."""
        return OrtMemoryInfo(
            self.place.kind.capitalize(), device_id=self.place.index, device_mem_type=memory_type,
            device_vendor_id=self.device.vendor_id,
        )  # fmt: skip

    def create_sync_stream(self) -> OrtSyncStream:
        """Return a new queue on this device."""
        return OrtSyncStream(CpuStream() if self.place.is_cpu else directory_in_use().get(self.place).create_stream())


def hardware_type(device: Device) -> OrtHardwareDeviceType:
    """Return the kind of hardware of a device."""
    return _HARDWARE[OrtDevice(device).device_type()]


def ep_devices(environment: Environment) -> list[OrtEpDevice]:
    """Return every available provider with its hardware, in the order of preference."""
    classes = environment.provider_classes()
    found = []
    for name in environment.available_providers():
        place = find_device(classes[name].device_text())
        vendor = OrtDevice(place).device_vendor_id()
        maker = platform.processor() or platform.machine() if place.is_cpu else place.kind
        hardware = OrtHardwareDevice(hardware_type(place), maker, vendor)
        found.append(OrtEpDevice(name, environment.plugins.origins.get(name, ""), hardware, place=place))
    return found


def hardware_devices(environment: Environment) -> list[OrtHardwareDevice]:
    """Return the hardware that available providers run on, each piece once."""
    return list(dict.fromkeys(device.device for device in ep_devices(environment)))


@dataclass(frozen=True, slots=True)
class OrtEpAssignedNode:
    """A node that was given to a provider."""

    name: str
    op_type: str
    domain: str


@dataclass(frozen=True, slots=True)
class OrtEpAssignedSubgraph:
    """Nodes that were given to a provider together."""

    ep_name: str
    nodes: tuple[OrtEpAssignedNode, ...]

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """Return the nodes."""
        return list(self.nodes)


def assigned_subgraphs(report: PlacementReport, is_last_resort: Callable[[str], bool]) -> list[OrtEpAssignedSubgraph]:
    """Return a placement report in onnxruntime's form.

    A provider that takes what others leave has each node for itself there, however many it compiles together.
    """
    found = []
    for nodes in report.partitions().values():
        assigned = [OrtEpAssignedNode(node.name, node.op_type, node.domain) for node in nodes]
        provider = nodes[0].provider
        groups = [(node,) for node in assigned] if is_last_resort(provider) else [tuple(assigned)]
        found += [OrtEpAssignedSubgraph(provider, group) for group in groups]
    return found
